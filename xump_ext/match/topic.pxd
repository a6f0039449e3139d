"""Declarations of `topic.pyx`, and the layout of the trie."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.match.posting_list cimport posting_arrays_t, postings_t
from xump_ext.match.string_table cimport string_t, string_table_t
from xump_ext.match.tokens cimport token_t
from xump_ext.memory.u32_vector cimport u32_vector_t

# A node of the trie: one sequence of words and wildcards from the root. Two nodes fill a cache line.
cdef struct node_t:
    uint32_t one        # the child by `*`, or 0; of a free node: the next free one
    uint32_t many       # the child by a `#` that has something behind it, or 0
    uint32_t edges      # number of children by words
    uint32_t stamp      # when it was last entered (nodes below a `#` only)
    postings_t here     # of the patterns that end here
    postings_t tail     # of the patterns that end with a `#` behind this node: they match whatever follows

# A child by a word; the table is keyed by (word, node).
cdef struct edge_t:
    uint64_t token      # the id of the word
    uint32_t node
    uint32_t child      # 0: the slot is empty (the root is no child)

# One step of the path from the root to the end of a pattern.
cdef struct step_t:
    uint32_t parent
    uint32_t node
    string_t* token     # NULL: by a wildcard
    uint64_t hash       # of the word

cdef class TopicTrie:
    cdef node_t* nodes              # the first is the root
    cdef uint32_t node_count        # used and free
    cdef uint32_t node_capacity
    cdef uint32_t node_free         # the first free one, or 0
    cdef uint32_t node_used
    cdef edge_t* edges
    cdef size_t edge_capacity       # a power of two, or 0
    cdef size_t edge_count
    cdef string_table_t tokens
    cdef uint64_t word_id           # the last one given to a word
    cdef posting_arrays_t arrays
    cdef size_t item_count

    # Scratch, kept between calls: the path of a pattern, and the nodes that a match is at.
    cdef step_t* path
    cdef uint32_t path_count
    cdef uint32_t path_capacity
    cdef u32_vector_t plain[2]
    cdef u32_vector_t floating[2]
    cdef u32_vector_t open
    cdef public uint32_t clock      # counts matches and words, for stamps (a test may set it near its end)

    # `insert` returns whether the item is new for the pattern, `erase` whether it was there.
    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1
    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1
    # Appends the items of all patterns that match.
    cdef int match(self, const char* value, size_t value_bytes, u32_vector_t* hits) except -1 nogil
    cdef size_t size(self) noexcept

    cdef postings_t* end_of(self, const char* pattern, size_t pattern_bytes, bint make) except? NULL
    cdef int path_reserve(self) except -1
    cdef void prune(self) noexcept
    cdef void release(self) noexcept
    cdef uint32_t node_new(self) except? 0
    cdef void node_drop(self, uint32_t node) noexcept
    cdef uint32_t edge_find(self, uint64_t token, uint32_t node) noexcept nogil
    cdef uint32_t edge_new(self, const token_t* token, uint32_t node) except 0
    cdef void edge_drop(self, uint64_t token, uint32_t node) noexcept
    cdef bint edges_resize(self, size_t capacity) noexcept
    cdef int step_plain(self, token_t* token, uint32_t side, uint32_t opened, u32_vector_t* hits) except -1 nogil
    cdef int step_floating(self, token_t* token, uint32_t side, uint32_t opened) except -1 nogil
    cdef int step_open(self, token_t* token, uint32_t side, uint32_t opened) except -1 nogil
    cdef int step_below(self, token_t* token, uint32_t number, uint32_t side, uint32_t opened) except -1 nogil
    cdef int finish(self, uint32_t side, uint32_t opened, u32_vector_t* hits) except -1 nogil
    cdef int enter(self, u32_vector_t* list, uint32_t node, uint32_t stamp) except -1 nogil
    cdef uint64_t word_id_of(self, token_t* token) noexcept nogil
    cdef size_t check_node(self, uint32_t number, bint below_many) except? 0
