"""Declarations of `prefix.pyx`."""

from libc.stdint cimport uint32_t

from xump_ext.match.posting_list cimport posting_arrays_t
from xump_ext.match.string_table cimport string_table_t
from xump_ext.memory.u32_vector cimport u32_vector_t

# The number of different prefixes of one length.
cdef struct length_t:
    uint32_t text_bytes
    uint32_t strings

cdef class PrefixIndex:
    cdef string_table_t strings
    cdef posting_arrays_t arrays
    cdef length_t* lengths          # ascending
    cdef uint32_t length_count
    cdef uint32_t length_capacity
    cdef size_t item_count

    # `insert` returns whether the item is new for the prefix, `erase` whether it was there.
    cdef bint insert(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1
    cdef bint erase(self, const char* pattern, size_t pattern_bytes, uint32_t item) except -1
    # Appends the items of all prefixes of the value.
    cdef int match(self, const char* value, size_t value_bytes, u32_vector_t* hits) except -1 nogil
    cdef size_t size(self) noexcept

    cdef int lengths_reserve(self) except -1
    cdef uint32_t length_place(self, uint32_t text_bytes) noexcept
    cdef void length_gain(self, uint32_t text_bytes) noexcept
    cdef void length_lose(self, uint32_t text_bytes) noexcept
    cdef void release(self) noexcept
