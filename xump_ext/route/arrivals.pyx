"""The times of a publish: when its message is due, and when that expires."""

from xump_ext.message.content cimport content_expiring
from xump_ext.message.headers cimport expires_of
from xump_ext.message.times cimport later
from xump_ext.message.times import seconds_of
from xump_ext.route.clock cimport time_of


cdef content_t* content_with_ttl(engine_t* engine, content_t* content, Times times, int64_t due) except NULL:
    if expires_of(content) != NEVER:
        raise ValueError(f"ttl={seconds_of(times.ttl)!r} beside a Message with expires={expires_of(content)}; give one of them")
    return content_expiring(content, later(time_of(engine) if due == NEVER else due, times.ttl))
