"""The arguments of public calls: checked, and in the form in which the core takes them.

A check raises TypeError or ValueError, which names the argument, the value, and what is allowed. Names are checked in
`xump._names`; conditions and actions check their parts when they are created.
"""

from __future__ import annotations

import datetime
from types import FunctionType
from typing import Any

from xump import operators
from xump._names import name_of, plain, shown
from xump.actions import Action, Field
from xump.conditions import All, Condition, Match, Role, Where, check_made, match, where
from xump.errors import Conflict
from xump.filters import equalities
from xump_ext.engine.handles import QueueHandle
from xump_ext.infinite import INFINITE
from xump_ext.message.times import datetime_ns, seconds_ns

COUNT_MAX = 2**62
"""The largest limit or count: sums of two fit into 64 bits."""
RANK_MAX = 2**15 - 1
HOP_LIMIT_MAX = 65_534
DELIVERIES_MAX = 65_535
"""Deliveries of a message are counted up to this number."""
ID_MAX = 2**64 - 2
TIME_MIN, TIME_MAX = -(2**63) + 1, 2**63 - 2


# ---- numbers and names

def check_count(what: str, value: object, least: int, most: int, kinds: str = "an int") -> None:
    """Raises TypeError unless `value` is an int, ValueError unless it is from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be {kinds}, got {shown(value)}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be from {least} to {most}, got {value}")


def check_int(what: str, value: object, kind: str) -> None:
    """Raises TypeError unless `value` is an int; `kind` says what of."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be {kind}, got {shown(value)}")


def check_credit(credit: object) -> None:
    """Raises TypeError or ValueError unless it is the credit of a selector."""
    if credit is not INFINITE:
        check_count("credit", credit, 0, COUNT_MAX, "an int or xump.INFINITE")


def check_bool(what: str, value: object) -> None:
    """Raises TypeError unless `value` is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be a bool, got {shown(value)}")


def checked_destination(destination: object) -> str | tuple[str, ...] | None:
    """A str, None, or several as a tuple, each once. Raises TypeError for anything else."""
    if destination is None:
        return None
    if isinstance(destination, str):
        return str.__str__(destination)
    if not isinstance(destination, (list, tuple, set, frozenset)):
        raise TypeError(f"destination must be a str, a list or set of them, or None, got {shown(destination)}")
    for one in destination:
        if not isinstance(one, str):
            raise TypeError(f"a destination must be a str, got {type(one).__name__} among several")
    return tuple(dict.fromkeys(map(plain, destination)))


def check_timeout(timeout: object) -> None:
    """Raises TypeError or ValueError unless `timeout` is a number of seconds, not negative, or None."""
    if timeout is None:
        return
    if not isinstance(timeout, float):
        if isinstance(timeout, bool) or not isinstance(timeout, int):
            raise TypeError(f"timeout must be a number of seconds or None, got {shown(timeout)}")
        try:
            float(timeout)
        except OverflowError:
            raise ValueError("timeout must be seconds that a float can hold, or None for ever; this int is larger") from None
    if not timeout >= 0:
        raise ValueError(f"timeout must not be negative, got {timeout}")


def queue_name(name: object, what: str) -> str:
    """The name of a queue that is given by its name or as a `Queue`. The queue need not exist."""
    return name.name if isinstance(name, QueueHandle) else name_of(name, what)


def field_of(name: object) -> str | None:
    """The name of the field, if a target or destination is one."""
    return name.name if isinstance(name, Field) else None


def start_of(start: object, words: str = "'head', 'current'") -> Any:
    """An id, or a time as the core takes it: ("time", nanoseconds). `words` are the texts that are allowed too, for the error."""
    if isinstance(start, datetime.datetime):
        return ("time", min(max(datetime_ns(start, "start"), TIME_MIN), TIME_MAX))
    if isinstance(start, bool) or not isinstance(start, int):
        if isinstance(start, str):
            raise ValueError(f"unknown start {start!r}; allowed are {words}, an id, or an aware datetime")
        raise TypeError(f"start must be a str, an id, or an aware datetime, got {shown(start)}")
    if not 0 <= start <= ID_MAX:
        raise ValueError(f"start must be an id from 0 to {ID_MAX}, got {start}")
    return start


# ---- selectors

def compile_condition(when: object) -> tuple[str, tuple[Any, ...]]:
    """The role of a condition, and its terms as the core takes them. Terms that differ in a type only differ in their repr."""
    if not isinstance(when, Condition):
        allowed = "always, default, overflow, match(...), where(...)"
        hint = ""
        if isinstance(when, (str, dict, FunctionType)):
            hint = "; call it" if when is match or when is where else "; wrap it in where(...)"
        raise TypeError(f"when must be a condition ({allowed}), got {type(when).__name__}{hint}")
    if isinstance(when, (Role, All)):
        check_made(when)
    if isinstance(when, Role):
        return when.name, ()
    terms: list[tuple[Any, ...]] = []
    for part in when.parts if isinstance(when, All) else (when,):
        if isinstance(part, (Match, Where)):
            check_made(part)
        if isinstance(part, Match):
            terms.append(("match", part.operator, part.pattern, part.field, operators.registered(part.operator)))
        elif isinstance(part, Where) and part.tree[0] == "call":
            terms.append(("call", part.tree[1]))
        elif isinstance(part, Where):
            terms.append(("filter", part.tree, tuple(equalities(part.tree)), repr(part.tree)))
        else:
            raise TypeError(f"{part!r} is no condition that a selector can have; use match(...) and where(...)")
    return "always", tuple(terms)


def check_action(do: object, role: str, start: object, source: object) -> None:
    """Raises TypeError or ValueError unless a selector with a condition of this role can do `do`."""
    if not isinstance(do, Action):
        hint = "; call it, as in deliver('worker')" if callable(do) else ""
        raise TypeError(f"do must be an action (copy_to, move_to, deliver, bounce_to, discard), got {type(do).__name__}{hint}")
    check_made(do)
    if role == "overflow":
        if not do.consuming:
            raise ValueError(f"an overflow selector must take the message out of its full queue, got {do!r}; use move_to, "
                             "deliver, bounce_to or discard")
        if do.queue is not None and do.queue == source:
            raise ValueError(f"an overflow selector cannot put messages into its own queue {str(source)!r}, which is full")
    if do.consuming and start != "current":
        raise ValueError(f"start={start!r} is for copy_to; {do!r} takes ready messages only: leave start out, or use 'current'")


def check_ack_timeout(seconds: object, do: Action, credit: object) -> int:
    """The `ack_timeout` in nanoseconds. Raises TypeError or ValueError unless a selector with this action and credit can have
    it."""
    nanoseconds = seconds_ns(seconds, "ack_timeout")
    if nanoseconds == 0:
        raise ValueError(f"ack_timeout={seconds!r} leaves no time to answer; give more than 0 seconds, or None for any time")
    if do.verb != "deliver" or do.queue is not None:
        raise ValueError(f"ack_timeout={seconds!r} is for selectors that deliver to your program; got do={do!r}")
    if credit is INFINITE:
        raise ValueError(f"ack_timeout={seconds!r} with INFINITE credit: its deliveries are settled when they are taken; give a "
                         "finite credit")
    return nanoseconds


def check_through(queue: QueueHandle, when: Condition, do: Action, start: object) -> None:
    """Raises ValueError unless a transit queue can have a selector of this condition, action and start."""
    if do.verb not in ("copy", "discard"):
        raise ValueError(f"queue {queue.name!r} is a transit queue, which keeps nothing that could wait for credit or room; its "
                         f"selectors copy or discard, got do={do!r}: use copy_to, and take from the target")
    if when == Role("overflow"):
        raise ValueError(f"queue {queue.name!r} is a transit queue, which is never full: it has no overflow selector")
    if start != "current":
        raise ValueError(f"queue {queue.name!r} is a transit queue, which keeps nothing to start from; got start={start!r}: "
                         "leave it out")


def check_rank(rank: object, do: Action) -> None:
    """Raises TypeError or ValueError unless a selector with this action can have this rank."""
    check_count("rank", rank, -RANK_MAX - 1, RANK_MAX, "an int of 16 bits")
    if not do.consuming:
        raise ValueError(f"rank={rank} is for selectors that take messages; {do!r} copies every one: leave rank out")


def check_ahead(ahead: object, do: Action, role: str) -> None:
    """Raises TypeError or ValueError unless a selector with this action and role can have this `ahead`."""
    check_count("ahead", ahead, 1, COUNT_MAX, "an int or None")
    if do.verb != "deliver" or do.queue is not None:
        raise ValueError(f"ahead={ahead!r} is for selectors that deliver to your program; got do={do!r}")
    if role == "overflow":
        raise ValueError(f"ahead={ahead!r} is not for overflow selectors, which take messages that find no room; leave ahead out")


def check_window(do: Action, role: str, credit: object) -> None:
    """Raises ValueError unless a selector with this action, role and credit can share a window."""
    if do.verb != "deliver" or do.queue is not None or credit is INFINITE:
        raise ValueError(f"window is for selectors of finite credit that deliver to your program; got do={do!r}, "
                         f"credit={credit!r}")
    if role == "overflow":
        raise ValueError("window is not for overflow selectors, which take messages that find no room; leave window out")


# ---- what exists already

def plain_value(value: object) -> object:
    """The value as an error shows it: a queue by its name."""
    return value.name if isinstance(value, QueueHandle) else value


def check_same(what: str, names: tuple[str, ...], existing: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Raises `Conflict` unless what exists has the properties that are wanted; says the first that differs."""
    for name, has, asked in zip(names, existing, wanted, strict=True):
        if has != asked:
            raise Conflict(f"{what} exists with {name}={has!r}; you asked for {name}={asked!r}")
