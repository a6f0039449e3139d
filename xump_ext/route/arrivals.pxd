"""Declarations of `arrivals.pyx`, and the way of a message that is due at once, inline."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport NEVER, Times, later
from xump_ext.route.clock cimport time_of
from xump_ext.route.ledger cimport enter, enter_special
from xump_ext.state.graph cimport engine_t, queue_t, visited_t

cdef content_t* content_with_ttl(engine_t* engine, content_t* content, Times times, int64_t due) except NULL

cdef inline int64_t due_at(engine_t* engine, int64_t moment) noexcept:
    """NEVER for a moment that is not in the future: the message is not delayed."""
    return NEVER if moment == NEVER or moment <= time_of(engine) else moment

cdef inline int64_t due_by(engine_t* engine, Times times) noexcept:
    """When a message that is published now is due; NEVER: at once."""
    if times is None:
        return NEVER
    return due_at(engine, times.at if times.delay == NEVER else later(time_of(engine), times.delay))

cdef inline content_t* content_timed(engine_t* engine, content_t* content, Times times, int64_t due) except NULL:
    """The same content with the end of its ttl, if `times` has one; `due` is from `due_by`. Takes over the reference, unless it
    raises: ValueError for a content that has its own `expires`."""
    return content if times is None or times.ttl == NEVER else content_with_ttl(engine, content, times, due)

cdef inline uint64_t enter_due(
    engine_t* engine, queue_t* queue, content_t* content, int64_t due, int flags, visited_t* visited
) except 0:
    """Enters a message that was published, delayed until `due` (NEVER: not at all), and returns its id. `flags`: FOUND_ROOM, or
    0. Takes over the reference to `content`, unless it raises."""
    if due == NEVER:
        return enter(engine, queue, content, 0, 0, flags, NULL, visited)
    return enter_special(engine, queue, content, 0, 0, flags, NULL, visited, due)
