"""What a publish says of time: when its message is due, and when that expires."""

from xump_ext.message.content cimport content_expiring
from xump_ext.message.headers cimport expires_of
from xump_ext.message.times cimport later
from xump_ext.message.times import seconds_of
from xump_ext.route.ledger cimport time_of


cdef int64_t due_by(engine_t* engine, Times times) noexcept:
    if times is None:
        return NEVER
    if times.delay != NEVER:
        return due_at(engine, later(time_of(engine), times.delay))
    return due_at(engine, times.at)


cdef int64_t due_at(engine_t* engine, int64_t moment) noexcept:
    """NEVER for a moment that is not in the future: the message is not delayed."""
    return NEVER if moment == NEVER or moment <= time_of(engine) else moment


cdef content_t* content_timed(engine_t* engine, content_t* content, Times times, int64_t due) except NULL:
    if times is None or times.ttl == NEVER:
        return content
    if expires_of(content) != NEVER:
        raise ValueError(f"ttl={seconds_of(times.ttl)!r} beside a Message with expires={expires_of(content)}; give one of them")
    return content_expiring(content, later(time_of(engine) if due == NEVER else due, times.ttl))
