"""Declarations of `copies.pyx`."""

from xump_ext.state.graph cimport engine_t, entry_t, route_t, selector_t, visited_t

cdef bint make_copies(engine_t* engine, entry_t* entry, route_t* hits, visited_t* visited) except -1
cdef int make_copy(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1
