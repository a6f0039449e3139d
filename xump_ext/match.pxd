"""The match index: which patterns, of whatever operator, match one field of the envelope."""

from libc.stdint cimport uint32_t

from xump_ext.hits cimport hits_t
from xump_ext.items cimport blocks_t
from xump_ext.prefix cimport PrefixIndex
from xump_ext.texts cimport texts_t
from xump_ext.topic cimport TopicTrie

cdef class MatchIndex:
    cdef texts_t exact              # `eq`
    cdef texts_t literal            # `topic` without a wildcard
    cdef blocks_t blocks            # of both
    cdef TopicTrie topics
    cdef PrefixIndex prefixes
    cdef dict registered            # (operator, pattern): (function, items, ascending)
    cdef size_t item_count          # of all
    cdef readonly list errors       # (operator, pattern, exception): of registered operators that raised

    # Appends the items of all patterns that match, each once for every pattern that it stands behind, in no order.
    cdef int match(self, const char* value, Py_ssize_t value_bytes, hits_t* hits) except -1
    cdef int match_registered(self, const char* value, Py_ssize_t value_bytes, hits_t* hits) except -1
    cdef texts_t* table_of(self, str operator, str pattern) except? NULL
    cdef bint add_registered(self, str operator, str pattern, uint32_t item, object function) except -1
    cdef bint remove_registered(self, str operator, str pattern, uint32_t item) except -1
    cdef int check_table(self, const texts_t* table, size_t* items, size_t* blocks) except -1
