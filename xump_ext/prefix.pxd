"""Prefixes: which of many texts does a value start with."""

from libc.stdint cimport uint32_t

from xump_ext.hits cimport hits_t
from xump_ext.items cimport blocks_t
from xump_ext.texts cimport texts_t

# How many different prefixes have this length.
cdef struct length_t:
    uint32_t text_bytes
    uint32_t texts

cdef class PrefixIndex:
    cdef texts_t texts
    cdef blocks_t blocks
    cdef length_t* lengths          # ascending
    cdef uint32_t length_count
    cdef uint32_t length_capacity
    cdef size_t item_count

    # Whether the item is new for the prefix; whether it was there.
    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1
    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1
    # Appends the items of all prefixes of the value.
    cdef int match(self, const char* value, size_t value_bytes, hits_t* hits) except -1 nogil
    cdef size_t size(self) noexcept

    cdef int lengths_reserve(self) except -1
    cdef uint32_t length_place(self, uint32_t text_bytes) noexcept
    cdef void length_gain(self, uint32_t text_bytes) noexcept
    cdef void length_lose(self, uint32_t text_bytes) noexcept
    cdef void release(self) noexcept
