"""Conditions that test one header for equality."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.block cimport content_t, header_t
from xump_ext.hits cimport hits_t
from xump_ext.items cimport blocks_t
from xump_ext.texts cimport text_t, texts_t

cdef class EqualityIndex:
    cdef texts_t names              # of headers
    cdef texts_t values             # of the headers, by group
    cdef blocks_t blocks
    cdef uint64_t name_id           # the last that was given
    cdef size_t item_count

    # Appends the items whose header equals the message's.
    cdef int match(self, const content_t* content, hits_t* hits) except -1 nogil
    cdef text_t* value_find(self, uint64_t name, header_t* header) noexcept nogil
    cdef void release(self) noexcept
