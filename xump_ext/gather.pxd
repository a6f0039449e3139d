"""What a run begins with: the declarations of `gather.pyx`."""

from xump_ext.graph cimport engine_t, entry_t, route_t

cdef int rematch_returned(engine_t* engine) except -1
cdef int stirred_gather(engine_t* engine) except -1
cdef bint may_act(const route_t* route, entry_t* entry) except -1
