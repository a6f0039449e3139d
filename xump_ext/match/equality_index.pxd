"""Declarations of `equality_index.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.match.posting_list cimport posting_arrays_t
from xump_ext.match.string_table cimport string_t, string_table_t
from xump_ext.memory.u32_vector cimport u32_vector_t
from xump_ext.message.headers cimport content_t, header_t

cdef class EqualityIndex:
    cdef string_table_t names       # of headers
    cdef string_table_t values      # of the headers; a group is a name and a type
    cdef posting_arrays_t arrays
    cdef uint64_t name_id           # the last one given to a name
    cdef size_t item_count

    # Appends the items of all conditions that hold for the message.
    cdef int match(self, const content_t* content, u32_vector_t* hits) except -1 nogil
    cdef string_t* value_find(self, uint64_t name, header_t* header) noexcept nogil
    cdef void release(self) noexcept
