"""A trie of topic patterns: finds those that match an address, word by word.

Words are split by `.`; in a pattern `*` is one word, and `#` is any number of words, none included. Words are interned, so the
children of a node are found by two numbers in one flat table. A match goes through the address once, word by word, and keeps
lists of the nodes that it has reached. It never goes back and never recurses:

    plain       nodes reached without a `#`. A trie has one path to each, so no such node is reached twice.
    open        nodes behind a `#`. Once entered, such a node stays until the end, because a `#` takes any word.
    floating    nodes below an open node. They can be reached at any word, and by several ways at the same word; a stamp lets
                each in once a word.

So a match costs at most (words x nodes below a `#`), however many `#` the patterns have; a backtracking matcher needs
exponentially many steps. The commonest `#`, the only one of its pattern and its last word, needs none of this: its items lie in a
list on the node before it (`tail`), and match as soon as the match reaches that node.

An empty text has no words. `a..b` has three, the second of them empty; `*` matches it.
"""

cimport cython
from libc.stdlib cimport free, realloc

from xump_ext.match.posting_list cimport (
    posting_arrays_free, posting_arrays_size, postings_add, postings_check, postings_collect, postings_remove,
)
from xump_ext.match.string_table cimport (
    HASH_A, string_table_add, string_table_check, string_table_drop, string_table_find, string_table_free, string_table_size,
    string_text,
)
from xump_ext.match.tokens cimport ID_UNREAD, token_find, token_read
from xump_ext.memory.require cimport require
from xump_ext.memory.slab cimport memory_zeroed
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_free

cdef enum:
    EDGE_SLOTS_MIN = 16
    NODES_MIN = 16

cdef enum: CLOCK_MAX = 0xFFFFFFF0


cdef bint only_hashes(const char* at, const char* end) noexcept:
    """Whether nothing but `#` follows in a pattern, each behind its dot: `a.#.#` is `a.#`."""
    while at != end:
        if end - at < 2 or at[1] != c"#" or (end - at > 2 and at[2] != c"."):
            return False
        at += 2
    return True


cdef inline size_t edge_home(uint64_t token, uint32_t node) noexcept nogil:
    """A hash whose low bits are the slot where a search for the edge starts."""
    cdef uint64_t hashed = (token ^ (<uint64_t> node << 32)) * <uint64_t> HASH_A
    return <size_t> (hashed ^ hashed >> 32)


@cython.final
cdef class TopicTrie:
    """Topic patterns and their postings. At each word of the address, `match` costs a step for each node that it has reached.

    >>> trie = TopicTrie()
    >>> trie.add("flight.*.JFK", 1), trie.add("flight.#", 2)
    (True, True)
    >>> trie.match_list("flight.UA.JFK"), trie.match_list("flight")
    ([1, 2], [2])
    """

    def __cinit__(self):
        self.tokens.seed = <uint64_t> <Py_ssize_t> hash("xump")

    def __dealloc__(self):
        self.release()

    def __len__(self):
        return self.item_count

    def add(self, str pattern not None, uint32_t item):
        """Adds an item to a pattern; returns whether it is new there. If not, nothing changes. A step for each word."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.insert(text, len(text), item)

    def remove(self, str pattern not None, uint32_t item):
        """Removes an item from a pattern, and what no item needs any longer; returns whether it was there. A step for each
        word."""
        cdef bytes text = pattern.encode("utf-8", "surrogatepass")
        return self.erase(text, len(text), item)

    def match_list(self, str value not None):
        """The items of all patterns that match, sorted."""
        cdef u32_vector_t hits = u32_vector_t(NULL, 0, 0)
        cdef bytes text = value.encode("utf-8", "surrogatepass")
        try:
            self.match(text, len(text), &hits)
            return sorted([hits.items[i] for i in range(hits.count)])
        finally:
            u32_vector_free(&hits)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size()

    cdef size_t size(self) noexcept:
        """The bytes held beside the object itself."""
        cdef size_t scratch = self.open.capacity + self.plain[0].capacity + self.plain[1].capacity
        scratch += self.floating[0].capacity + self.floating[1].capacity
        return (self.node_capacity * sizeof(node_t) + self.edge_capacity * sizeof(edge_t) + string_table_size(&self.tokens)
                + posting_arrays_size(&self.arrays) + self.path_capacity * sizeof(step_t) + scratch * sizeof(uint32_t))

    # ---- adding and removing

    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef bint new
        if self.node_count == 0:
            self.node_new()
        try:
            new = postings_add(&self.arrays, self.end_of(pattern, pattern_bytes, True), item)
        except MemoryError:
            self.prune()
            raise
        self.item_count += new
        return new

    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1:
        cdef postings_t* end
        if self.item_count == 0:
            return False
        end = self.end_of(pattern, pattern_bytes, False)
        if end == NULL or not postings_remove(&self.arrays, end, item):
            return False
        self.item_count -= 1
        if self.item_count == 0:
            self.release()
        else:
            self.prune()
        return True

    cdef postings_t* end_of(self, const char* pattern, size_t pattern_bytes, bint make) except? NULL:
        """The postings of a pattern, and in `path` the way to them. Without `make` it is NULL if there is no such pattern."""
        cdef const char* at = pattern
        cdef const char* end = pattern + pattern_bytes
        cdef token_t token
        cdef string_t* text
        cdef uint32_t node = 0, child
        cdef bint last, below_many = False, behind_many = False
        self.path_count = 0
        if pattern_bytes == 0:
            return &self.nodes[0].here
        while True:
            self.path_reserve()
            at = token_read(pattern, at, end, self.tokens.seed, &token)
            last = at == end
            text = NULL
            if token.text_bytes == 1 and token.text[0] == c"#":
                if not below_many and only_hashes(at, end):
                    return &self.nodes[node].tail
                if behind_many:             # `#.#` is `#`
                    if last:
                        return &self.nodes[node].here
                    at += 1
                    continue
                below_many = behind_many = True
                child = self.nodes[node].many
                if child == 0 and make:
                    child = self.node_new()
                    self.nodes[node].many = child
            elif token.text_bytes == 1 and token.text[0] == c"*":
                behind_many = False
                child = self.nodes[node].one
                if child == 0 and make:
                    child = self.node_new()
                    self.nodes[node].one = child
            else:
                behind_many = False
                child = self.edge_find(token_find(&self.tokens, &token), node)
                if child == 0 and make:
                    child = self.edge_new(&token, node)
                text = string_table_find(&self.tokens, token.hash, 0, token.text, token.text_bytes)
            if child == 0:
                return NULL
            self.path[self.path_count] = step_t(node, child, text, token.hash)
            self.path_count += 1
            node = child
            if last:
                return &self.nodes[node].here
            at += 1

    cdef int path_reserve(self) except -1:
        """Makes room for one more step, before the step is taken. So every new node is in the path."""
        cdef step_t* path
        cdef uint32_t capacity
        if self.path_count == self.path_capacity:
            capacity = self.path_capacity * 2 if self.path_capacity else 16
            path = <step_t*> realloc(self.path, capacity * sizeof(step_t))
            if path == NULL:
                raise MemoryError()
            self.path = path
            self.path_capacity = capacity
        return 0

    cdef void prune(self) noexcept:
        """Walks `path` back and removes the nodes that are not needed any longer."""
        cdef step_t* step
        cdef node_t* node
        while self.path_count:
            step = &self.path[self.path_count - 1]
            node = &self.nodes[step.node]
            if node.here.count or node.tail.count or node.one or node.many or node.edges:
                return
            if step.token != NULL:
                self.edge_drop(step.token.meaning.id, step.parent)
                step.token.references -= 1
                if step.token.references == 0:
                    string_table_drop(&self.tokens, step.hash, step.token)
            elif self.nodes[step.parent].one == step.node:
                self.nodes[step.parent].one = 0
            else:
                self.nodes[step.parent].many = 0
            self.node_drop(step.node)
            self.path_count -= 1

    cdef void release(self) noexcept:
        """Frees all memory; the trie is empty again."""
        free(self.nodes)
        free(self.edges)
        free(self.path)
        self.nodes = NULL
        self.edges = NULL
        self.path = NULL
        self.node_count = self.node_capacity = self.node_free = self.node_used = 0
        self.edge_count = self.edge_capacity = 0
        self.path_count = self.path_capacity = 0
        string_table_free(&self.tokens)
        posting_arrays_free(&self.arrays)
        u32_vector_free(&self.plain[0])
        u32_vector_free(&self.plain[1])
        u32_vector_free(&self.floating[0])
        u32_vector_free(&self.floating[1])
        u32_vector_free(&self.open)

    # ---- nodes and edges

    cdef uint32_t node_new(self) except? 0:
        """The number of a new, empty node. The root, made first, is 0."""
        cdef node_t* nodes
        cdef uint32_t capacity, node = self.node_free
        if node:
            self.node_free = self.nodes[node].one
        else:
            if self.node_count == self.node_capacity:
                capacity = self.node_capacity + self.node_capacity // 2 if self.node_capacity else NODES_MIN
                nodes = <node_t*> realloc(self.nodes, capacity * sizeof(node_t))
                if nodes == NULL:
                    raise MemoryError()
                self.nodes = nodes
                self.node_capacity = capacity
            node = self.node_count
            self.node_count += 1
        self.nodes[node] = node_t(0, 0, 0, 0, postings_t(0, 0), postings_t(0, 0))
        self.node_used += 1
        return node

    cdef void node_drop(self, uint32_t node) noexcept:
        self.nodes[node].one = self.node_free
        self.node_free = node
        self.node_used -= 1

    cdef uint32_t edge_find(self, uint64_t token, uint32_t node) noexcept nogil:
        """The child of a node by a word, or 0."""
        cdef size_t mask = self.edge_capacity - 1, at = edge_home(token, node) & mask
        if token == 0 or self.nodes[node].edges == 0:
            return 0
        while self.edges[at].child and not (self.edges[at].token == token and self.edges[at].node == node):
            at = (at + 1) & mask
        return self.edges[at].child

    cdef uint32_t edge_new(self, const token_t* token, uint32_t node) except 0:
        """A new child of a node by a word."""
        cdef string_t* text
        cdef uint32_t child = 0
        cdef size_t at
        if self.edge_count * 2 >= self.edge_capacity and not self.edges_resize(self.edge_capacity * 2):
            raise MemoryError()
        text = string_table_add(&self.tokens, token.hash, 0, token.text, token.text_bytes)
        try:
            child = self.node_new()
        except MemoryError:
            if text.references == 0:
                string_table_drop(&self.tokens, token.hash, text)
            raise
        if text.references == 0:
            self.word_id += 1
            text.meaning.id = self.word_id
        text.references += 1
        at = edge_home(text.meaning.id, node) & (self.edge_capacity - 1)
        while self.edges[at].child:
            at = (at + 1) & (self.edge_capacity - 1)
        self.edges[at] = edge_t(text.meaning.id, node, child)
        self.edge_count += 1
        self.nodes[node].edges += 1
        return child

    cdef void edge_drop(self, uint64_t token, uint32_t node) noexcept:
        """Removes the edge of a node by a word; the slots behind it move up."""
        cdef size_t mask = self.edge_capacity - 1, hole = edge_home(token, node) & mask, at
        while self.edges[hole].token != token or self.edges[hole].node != node:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if self.edges[at].child == 0:
                break
            if ((at - edge_home(self.edges[at].token, self.edges[at].node)) & mask) >= ((at - hole) & mask):
                self.edges[hole] = self.edges[at]
                hole = at
        self.edges[hole].child = 0
        self.edge_count -= 1
        self.nodes[node].edges -= 1
        if self.edge_count * 8 < self.edge_capacity and self.edge_capacity > EDGE_SLOTS_MIN:
            self.edges_resize(self.edge_capacity // 2)      # without memory the table stays as it is

    cdef bint edges_resize(self, size_t capacity) noexcept:
        cdef edge_t* edges
        cdef size_t i, at
        capacity = max(capacity, <size_t> EDGE_SLOTS_MIN)
        edges = <edge_t*> memory_zeroed(capacity * sizeof(edge_t))
        if edges == NULL:
            return False
        for i in range(self.edge_capacity):
            if self.edges[i].child:
                at = edge_home(self.edges[i].token, self.edges[i].node) & (capacity - 1)
                while edges[at].child:
                    at = (at + 1) & (capacity - 1)
                edges[at] = self.edges[i]
        free(self.edges)
        self.edges = edges
        self.edge_capacity = capacity
        return True

    # ---- matching

    cdef int match(self, const char* value, size_t value_bytes, u32_vector_t* hits) except -1 nogil:
        cdef const char* at = value
        cdef const char* end = value + value_bytes
        cdef uint32_t node, side = 0
        cdef uint32_t opened
        cdef token_t token
        if self.item_count == 0:
            return 0
        if self.clock >= CLOCK_MAX - value_bytes:       # a match takes one tick, and one for each word
            for node in range(self.node_count):
                self.nodes[node].stamp = 0
            self.clock = 0
        self.clock += 1
        opened = self.clock
        self.open.count = self.plain[0].count = self.floating[0].count = 0
        u32_vector_add(&self.plain[0], 0)
        while value_bytes:
            at = token_read(value, at, end, self.tokens.seed, &token)
            self.clock += 1
            self.step_floating(&token, side, opened)
            self.step_plain(&token, side, opened, hits)
            self.step_open(&token, side, opened)
            side ^= 1
            if at == end or not (self.plain[side].count or self.open.count):
                break
            at += 1
        return self.finish(side, opened, hits)

    cdef int step_plain(self, token_t* token, uint32_t side, uint32_t opened, u32_vector_t* hits) except -1 nogil:
        """Takes a word from each plain node."""
        cdef u32_vector_t* next = &self.plain[side ^ 1]
        cdef uint32_t i, number
        cdef node_t* node
        next.count = 0
        for i in range(self.plain[side].count):
            number = self.plain[side].items[i]
            node = &self.nodes[number]
            postings_collect(&self.arrays, &node.tail, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
            if node.one:
                u32_vector_add(next, node.one)
            if node.edges:
                number = self.edge_find(self.word_id_of(token), number)
                if number:
                    u32_vector_add(next, number)
        return 0

    cdef int step_floating(self, token_t* token, uint32_t side, uint32_t opened) except -1 nogil:
        """Takes a word from each floating node."""
        cdef uint32_t i
        self.floating[side ^ 1].count = 0
        for i in range(self.floating[side].count):
            self.step_below(token, self.floating[side].items[i], side, opened)
        return 0

    cdef int step_open(self, token_t* token, uint32_t side, uint32_t opened) except -1 nogil:
        """Takes a word from each open node, which stays open. Comes after the others, because they open nodes at this word."""
        cdef uint32_t i = 0
        while i < self.open.count:
            self.step_below(token, self.open.items[i], side, opened)
            i += 1
        return 0

    cdef int step_below(self, token_t* token, uint32_t number, uint32_t side, uint32_t opened) except -1 nogil:
        """Takes a word from a node below a `#`."""
        cdef node_t* node = &self.nodes[number]
        if node.many:
            self.enter(&self.open, node.many, opened)
        if node.one:
            self.enter(&self.floating[side ^ 1], node.one, self.clock)
        if node.edges:
            number = self.edge_find(self.word_id_of(token), number)
            if number:
                self.enter(&self.floating[side ^ 1], number, self.clock)
        return 0

    cdef int finish(self, uint32_t side, uint32_t opened, u32_vector_t* hits) except -1 nogil:
        """Collects the hits at the end of the address."""
        cdef node_t* node
        cdef uint32_t i
        for i in range(self.plain[side].count):
            node = &self.nodes[self.plain[side].items[i]]
            postings_collect(&self.arrays, &node.tail, hits)
            postings_collect(&self.arrays, &node.here, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
        for i in range(self.floating[side].count):
            node = &self.nodes[self.floating[side].items[i]]
            postings_collect(&self.arrays, &node.here, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
        i = 0
        while i < self.open.count:
            node = &self.nodes[self.open.items[i]]
            postings_collect(&self.arrays, &node.here, hits)
            if node.many:
                self.enter(&self.open, node.many, opened)
            i += 1
        return 0

    cdef int enter(self, u32_vector_t* list, uint32_t node, uint32_t stamp) except -1 nogil:
        """Puts a node into a list, unless it has this stamp already."""
        if self.nodes[node].stamp != stamp:
            self.nodes[node].stamp = stamp
            u32_vector_add(list, node)
        return 0

    cdef uint64_t word_id_of(self, token_t* token) noexcept nogil:
        """The id of a word of the address, looked up when it is first needed."""
        if token.id == ID_UNREAD:
            token.id = token_find(&self.tokens, token)
        return token.id

    # ---- checking

    def counts(self):
        """The number of things held, by kind; all 0 without patterns. The root does not count as a node."""
        return {"items": self.item_count, "nodes": max(self.node_used, 1) - 1, "edges": self.edge_count,
                "words": self.tokens.count, "blocks": self.arrays.used}

    def check(self):
        """Verifies every invariant from scratch; raises AssertionError. O(size of the trie)."""
        cdef dict word_of = {}, used = {}
        cdef size_t i, postings = 0, nodes = 0, edges = 0, arrays = 0
        cdef token_t token
        cdef string_t* text
        cdef uint32_t number
        cdef edge_t* edge
        string_table_check(&self.tokens)
        for i in range(self.tokens.capacity):
            text = self.tokens.slots[i].text
            if text != NULL:
                token_read(string_text(text), string_text(text), string_text(text) + text.text_bytes, self.tokens.seed, &token)
                require(token.hash == self.tokens.slots[i].hash and token.text_bytes == text.text_bytes,
                        "a word has its hash")
                require(0 < text.meaning.id <= self.word_id, "a word's id was given")
                word_of[text.meaning.id] = text.references
        require(<size_t> len(word_of) == self.tokens.count, "two words have two ids")
        children = {}
        for i in range(self.edge_capacity):
            edge = &self.edges[i]
            if edge.child:
                edges += 1
                require(self.edge_find(edge.token, edge.node) == edge.child, "an edge is found where it is")
                used[edge.token] = used.get(edge.token, 0) + 1
                children.setdefault(edge.node, []).append(edge.child)
        require(edges == self.edge_count and edges * 2 <= self.edge_capacity,
                "edges are counted, and half of their table is empty")
        require(used == word_of, "a word has a reference from each of its edges")
        seen = set()
        pending = [(0, False)] if self.node_count else []
        while pending:
            number, below_many = pending.pop()
            require(number < self.node_count and number not in seen, "a node has one parent")
            seen.add(number)
            nodes += 1
            postings += self.check_node(number, below_many)
            arrays += (self.nodes[number].here.count > 1) + (self.nodes[number].tail.count > 1)
            below = children.pop(number, [])
            require(len(below) == self.nodes[number].edges, "a node counts its edges")
            pending.extend((child, below_many) for child in below)
            if self.nodes[number].one:
                pending.append((self.nodes[number].one, below_many))
            if self.nodes[number].many:
                pending.append((self.nodes[number].many, True))
        require(not children, "every edge starts at a node")
        require(nodes == self.node_used, "every node hangs on the root")
        require(postings == self.item_count, "items are counted")
        require(arrays == self.arrays.used, "every block of items belongs to a node")
        number = self.node_free
        while number:
            require(number not in seen and nodes < self.node_count, "a free node is free, once")
            number = self.nodes[number].one
            nodes += 1
        require(nodes == self.node_count, "a node is used or free")

    cdef size_t check_node(self, uint32_t number, bint below_many) except? 0:
        """Checks one node; returns the number of its items."""
        cdef node_t* node = &self.nodes[number]
        require(not number or node.here.count or node.tail.count or node.one or node.many or node.edges,
                "a node is there for something")
        require(not below_many or node.tail.count == 0, "below a `#` there are no tails")
        require(node.stamp <= self.clock, "no node was entered later than now")
        postings_check(&self.arrays, &node.here)
        postings_check(&self.arrays, &node.tail)
        return node.here.count + node.tail.count
