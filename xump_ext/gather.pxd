"""What a run begins with: the declarations of `gather.pyx`."""

from xump_ext.graph cimport engine_t, entry_t, queue_t, route_t

cdef int rematch_returned(engine_t* engine) except -1
cdef int stirred_gather(engine_t* engine) except -1
# What is still to be routed when a run ends too soon, or before what others have gathers.
cdef int work_put_off(engine_t* engine) except -1
# The turn of the oldest entry of a backlog has come.
cdef void backlog_forward(engine_t* engine, queue_t* queue) noexcept
cdef bint some_may_act(const route_t* route, entry_t* entry) except -1

cdef inline bint may_act(const route_t* route, entry_t* entry) except -1:
    """Whether somebody in the hit set is enabled and does not start behind the message, or has replayed it."""
    return (route.clause_count and route.clauses[0].enabled) or some_may_act(route, entry)
