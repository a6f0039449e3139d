"""Declarations of `unmatched.pyx`."""

from xump_ext.state.graph cimport engine_t, entry_t, queue_t, visited_t

cdef int route_unmatched(engine_t* engine, entry_t* entry, visited_t* visited) except -1
cdef int keep_unmatched(queue_t* queue) except -1
