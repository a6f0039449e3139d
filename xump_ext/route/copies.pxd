"""Declarations of `copies.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.state.graph cimport engine_t, entry_t, route_t, selector_t, visited_t

cdef bint make_copies(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1
cdef int make_copy(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1

cdef inline bint was_away(const entry_t* entry, uint64_t moment) noexcept:
    """Whether the message was not routed, and not in its place, at this moment of the engine's events."""
    return entry.extra != NULL and entry.extra.left <= moment < entry.extra.came


cdef inline bint comes_now(const selector_t* selector, const entry_t* entry) noexcept:
    """Whether the selector came, or has replayed, while the message was not routed, and not in its place: delayed at its entry,
    or taken by hand. Then the message is for the selector as if it had just come."""
    if not was_away(entry, selector.began):
        return False
    return not (entry.extra.replayable and selector.replayed <= entry.id < selector.start)
