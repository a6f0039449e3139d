"""Declarations of `sleeper.pyx`."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #include <time.h>
    static inline long long xump_steady_time(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (long long) t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    """
    # Nanoseconds of a clock that nobody sets: moments until which a thread sleeps.
    int64_t steady_time "xump_steady_time"() noexcept nogil

cdef class Sleeper:
    cdef tuple keys         # what it waits for: texts and None are destinations, tuples something else
    cdef bint for_queue     # it waits for a message that can be taken by hand
    cdef uint64_t number    # among those that wait for a call of the engine to wake them; 0: it is none of them
    cdef public object call     # wakes a task; None: a thread sleeps
    cdef bint unalarmed     # somebody else does what falls due, so it is not woken when that is earlier than was known
    cdef void* lock         # that thread's; NULL: it has not slept yet
    cdef bint woken         # since it last slept
    cdef readonly bint served   # it has what it waited for

    cdef int wake(self) except -1
    cdef int serve(self) except -1
    cdef bint sleep(self, int64_t until) except -1
