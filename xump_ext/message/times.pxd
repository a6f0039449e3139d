"""Declarations of `times.pyx`."""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #define XUMP_NEVER INT64_MAX
    """
    const int64_t NEVER "XUMP_NEVER"        # no moment, or no span, of time

cdef class Times:
    # each NEVER if it was not given
    cdef int64_t delay          # ns from the call on
    cdef int64_t at             # POSIX ns
    cdef int64_t ttl            # ns from when the message is due

# What a publish says of time, checked; None: nothing. `expires` is only held against `ttl`.
cdef Times times_given(object delay, object at, object ttl, object expires)
# Seconds as nanoseconds; `what` names them in errors.
cpdef int64_t seconds_ns(object seconds, str what) except -1
# A moment as POSIX nanoseconds.
cpdef int64_t moment_ns(object moment, str what) except? -1

cdef inline int64_t later(int64_t moment, int64_t span) noexcept nogil:
    """The moment so many ns (0 or more) after another; at most the last one before NEVER."""
    return moment + span if moment < 0 or span < NEVER - moment else NEVER - 1
