"""Declarations of `gather.pyx`, and whether a selector may act, inline."""

from xump_ext.route.copies cimport was_away
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, route_t, selector_t

cdef int rematch_returned(engine_t* engine) except -1
cdef int gather_dirty(engine_t* engine) except -1
cdef int parked_place(engine_t* engine) except -1
cdef int parked_look(engine_t* engine, queue_t* queue) except -1
# Puts off all that is still to be routed, to be gathered again: when a run is interrupted, or before one gathers other messages.
cdef int run_queue_postpone(engine_t* engine) except -1
cdef bint some_may_act(const route_t* route, entry_t* entry) except -1

cdef inline bint has_acted(const selector_t* selector, const entry_t* entry) noexcept:
    """Whether a replay of the selector, which starts behind the message, stands for its copy (decision 16). It does not for a
    message that was routed before the selector came: that one's hit set does not have it."""
    return entry.id >= selector.replayed and (entry.id >= selector.joined or was_away(entry, selector.created))

cdef inline bint may_act(const route_t* route, entry_t* entry) except -1:
    """Whether a selector in the hit set is enabled and does not start behind the message, or has replayed it."""
    return (route.clause_count and route.clauses[0].enabled) or some_may_act(route, entry)
