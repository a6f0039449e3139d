"""Spans and moments of time as a program gives them, checked and in nanoseconds.

A span is a number of seconds. A moment is an aware datetime, or a number of POSIX nanoseconds.
"""

import datetime

cimport cython
from cpython.float cimport PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from libc.math cimport rint

cdef enum:
    SECONDS_LIMIT = 3_155_760_000       # as SECONDS_MAX

cdef object EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
cdef object YEARS_MAX = 100
cdef object SECONDS_MAX = YEARS_MAX * 31_557_600        # of 365.25 days; such a span after a moment of our time fits into 64 bits
cdef object MOMENT_MIN = -(2 ** 63) + 1
cdef object MOMENT_MAX = 2 ** 63 - 2


cpdef int64_t seconds_ns(object seconds, str what) except -1:
    """Seconds as nanoseconds; `what` names them in errors."""
    if PyFloat_CheckExact(seconds) and 0 <= <double> seconds <= SECONDS_LIMIT:
        return <int64_t> rint(<double> seconds * 1e9)       # as `round` does
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, got {type(seconds).__name__}")
    if not 0 <= seconds <= SECONDS_MAX:         # a NaN is not, either
        raise ValueError(f"{what} must be from 0 to {SECONDS_MAX} seconds ({YEARS_MAX} years), got {seconds}")
    return round(seconds * 1e9) if isinstance(seconds, float) else seconds * 10 ** 9


def seconds_of(nanoseconds):
    """Nanoseconds as seconds: an int if these are whole seconds, else a float; None for None."""
    if nanoseconds is None:
        return None
    return nanoseconds / 10 ** 9 if nanoseconds % 10 ** 9 else nanoseconds // 10 ** 9


def datetime_ns(moment, str what):
    """An aware datetime as POSIX nanoseconds, which may need more than 64 bits. Raises ValueError for one without a time zone."""
    if moment.utcoffset() is None:
        raise ValueError(f"{what} {moment!r} has no time zone; give an aware datetime, as datetime.now(timezone.utc)")
    since_epoch = moment - EPOCH
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 10 ** 9 + since_epoch.microseconds * 1000


cpdef int64_t moment_ns(object moment, str what) except? -1:
    """A moment as POSIX nanoseconds; `what` names it in errors."""
    cdef int overflow = 0
    cdef long long number
    if PyLong_CheckExact(moment):
        number = PyLong_AsLongLongAndOverflow(moment, &overflow)
        if not overflow and -NEVER <= number < NEVER:
            return number
    given = moment
    if isinstance(moment, datetime.datetime):
        moment = datetime_ns(moment, what)
    elif isinstance(moment, bool) or not isinstance(moment, int):
        raise TypeError(f"{what} must be an aware datetime, or POSIX nanoseconds as an int, got {type(moment).__name__}"
                        + ("; int(seconds * 1e9) are nanoseconds" if isinstance(moment, float) else ""))
    if not MOMENT_MIN <= moment <= MOMENT_MAX:
        raise ValueError(f"{what} must be from {MOMENT_MIN} to {MOMENT_MAX} POSIX nanoseconds (the year 2262), got {given!r}")
    return moment


@cython.final
@cython.freelist(8)         # each publish that says something of time has one, for a moment
cdef class Times:
    """The times of a publish: when the message is due, and how long it may wait from then on."""

    def __cinit__(self):
        self.delay = self.at = self.ttl = NEVER


cdef Times times_given(object delay, object at, object ttl, object expires):
    cdef Times times
    if delay is None and at is None and ttl is None:
        return None
    if delay is not None and at is not None:
        raise ValueError(f"delay={delay!r} and at={at!r} both say when the message is due; give one of them")
    if ttl is not None and expires is not None:
        raise ValueError(f"ttl={ttl!r} and expires={expires!r} both say when the message expires; give one of them")
    times = Times.__new__(Times)
    if delay is not None:
        times.delay = seconds_ns(delay, "delay")
    if at is not None:
        times.at = moment_ns(at, "at")
    if ttl is not None:
        times.ttl = seconds_ns(ttl, "ttl")
    return times


def times_or_none(delay, at, ttl, expires):
    """`Times` of the arguments of a publish, checked; None if they say nothing of when it is due or how long it may wait."""
    return times_given(delay, at, ttl, expires)
