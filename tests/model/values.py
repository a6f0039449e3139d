"""Small things that all rooms of the model need: times, durations, names, counts."""

from datetime import UTC, datetime, timedelta

COUNT_MAX = 2**62
SECONDS_MAX = 100 * 31_557_600      # 100 years of 365.25 days; the sum of a time and a duration saturates
DURATION_MAX = SECONDS_MAX * 10**9
TIME_MIN, TIME_MAX = -(2**63) + 1, 2**63 - 2


def nanoseconds(moment):
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"{moment!r} has no time zone")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def duration(what, seconds, least=0):
    """Seconds as nanoseconds, rounded to the nearest."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, got {type(seconds).__name__}")
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"{what} must be seconds from 0 to {SECONDS_MAX}, got {seconds}")
    found = seconds * 10**9 if isinstance(seconds, int) else round(seconds * 1e9)
    if not least <= found <= DURATION_MAX:
        raise ValueError(f"{what} must be at least {least} ns, and at most {DURATION_MAX} ns, got {seconds} s")
    return found


def optional_duration(what, seconds):
    return None if seconds is None else duration(what, seconds)


def moment(what, value):
    """A time as POSIX nanoseconds."""
    if isinstance(value, datetime):
        value = nanoseconds(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an aware datetime or POSIX nanoseconds, got {type(value).__name__}")
    if not TIME_MIN <= value <= TIME_MAX:
        raise ValueError(f"{what} must fit into 64 bits, got {value}")
    return value


def after(time, nanoseconds):
    return min(time + nanoseconds, TIME_MAX)


def integer(what, value, least, most):
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, got {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be from {least} to {most}, got {value}")
    return value


def name_of(queue):
    return getattr(queue, "name", queue)


def count(counts, reason):
    counts[reason] = counts.get(reason, 0) + 1
