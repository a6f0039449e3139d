"""Declarations of `pattern_index.pyx`."""

from libc.stdint cimport uint32_t

from xump_ext.match.posting_list cimport posting_arrays_t
from xump_ext.match.prefix cimport PrefixIndex
from xump_ext.match.string_table cimport string_table_t
from xump_ext.match.topic cimport TopicTrie
from xump_ext.memory.u32_vector cimport u32_vector_t

cdef class MatchIndex:
    cdef string_table_t exact       # `eq`
    cdef string_table_t literal     # `topic` without a wildcard
    cdef posting_arrays_t arrays    # of both tables
    cdef TopicTrie topics
    cdef PrefixIndex prefixes
    cdef dict registered            # (operator, pattern): (function, items, ascending)
    cdef size_t item_count          # of all patterns
    cdef readonly list errors       # (operator, pattern, exception) of registered operators that raised

    # Appends the items of all patterns that match, in no order; an item comes once for each such pattern.
    cdef int match(self, const char* value, Py_ssize_t value_bytes, u32_vector_t* hits) except -1
    cdef int match_registered(self, const char* value, Py_ssize_t value_bytes, u32_vector_t* hits) except -1
    cdef string_table_t* table_of(self, str operator, str pattern) except? NULL
    cdef bint add_registered(self, str operator, str pattern, uint32_t item, object function) except -1
    cdef bint remove_registered(self, str operator, str pattern, uint32_t item) except -1
    cdef int check_table(self, const string_table_t* table, size_t* postings, size_t* arrays) except -1
