"""The structs of the Arrow C data interface, and inline code that reads its buffers.

https://arrow.apache.org/docs/format/CDataInterface.html fixes the layout. Any library that implements it hands its columns over
by pointer, so none of them is a dependency. The holder of a struct whose `release` is not NULL calls that once. A struct is moved
by copying it and setting `release` of the original to NULL.

Buffers need not be aligned (slices of files are not), so every number is read by memcpy, which compiles to one load.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    ARROW_FLAG_NULLABLE = 2

cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept nogil
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
    const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
    void (*release)(ArrowArrayStream*) noexcept nogil
    void* private_data

cdef inline bint bit_at(const uint8_t* bits, int64_t at) noexcept nogil:
    return (bits[at >> 3] >> (at & 7)) & 1

cdef inline int32_t int32_at(const char* numbers, int64_t at) noexcept nogil:
    cdef int32_t number
    memcpy(&number, numbers + 4 * at, 4)
    return number

cdef inline int64_t int64_at(const char* numbers, int64_t at) noexcept nogil:
    cdef int64_t number
    memcpy(&number, numbers + 8 * at, 8)
    return number

# Offsets have 32 bits, or 64 in the large types.
cdef inline int64_t offset_at(const char* offsets, int64_t at, bint large) noexcept nogil:
    return int64_at(offsets, at) if large else int32_at(offsets, at)
