"""Declarations of `group.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.state.graph cimport store_t

cdef class Group:
    """A sealed group: a buffer that a store writes as a whole."""
    cdef char* data
    cdef uint64_t size
    cdef uint64_t capacity
    cdef readonly uint64_t position
    cdef readonly uint64_t number
    cdef readonly uint64_t records
    cdef uint32_t salt
    cdef uint64_t synced
    cdef bint finished
    cdef bint carries           # has records that were copied forward

cdef int merge_ends(store_t* store) except -1
