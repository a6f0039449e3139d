"""Copies: the declarations of `copies.pyx`."""

from xump_ext.graph cimport engine_t, entry_t, route_t, selector_t, trip_t

cdef bint make_copies(engine_t* engine, entry_t* entry, route_t* hits, trip_t* trip) except -1
cdef int make_copy(engine_t* engine, selector_t* selector, entry_t* entry, trip_t* trip) except -1
