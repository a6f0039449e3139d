"""The time of a call: the clock is read once, at the first look."""

from libc.stdint cimport int64_t

from xump_ext.state.constants cimport TIME_UNREAD
from xump_ext.state.graph cimport engine_t

cdef extern from *:
    """
    #include <time.h>
    static inline long long xump_system_time(void) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        return (long long) t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    """
    int64_t system_time "xump_system_time"() noexcept nogil

cdef inline int64_t now_of(engine_t* engine) noexcept:
    """The time of this call, which reads the clock once."""
    if engine.now == TIME_UNREAD:
        engine.now = system_time()
    return engine.now

cdef inline int64_t time_of(engine_t* engine) noexcept:
    """The highest time that there was, now included: spans are counted from it. A clock that runs backwards undoes nothing."""
    cdef int64_t now = now_of(engine)
    if engine.time < now:
        engine.time = now
    return engine.time
