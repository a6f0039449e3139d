"""The properties of a queue: their defaults, how they are checked, and the form in which the core keeps them.

The core has times in nanoseconds, a group as the name of a field, and names of queues as texts; all else is as it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

from xump._arguments import COUNT_MAX, DELIVERIES_MAX, check_bool, check_count, queue_name
from xump._names import text_of
from xump.actions import Field
from xump.rewriters import rewriter_name
from xump_ext.message.times import seconds_ns
from xump_ext.state.constants import DEDUP_LIMIT

QUEUE_DEFAULTS: dict[str, Any] = {
    "store": "ram", "limit": None, "history_limit": 0, "auto_delete": False, "dead_letter": None, "rewriter": None,
    "delivery_limit": None,
    "retry_delay": None, "ttl": None, "priority": None, "group": None, "dedup": None, "dedup_limit": DEDUP_LIMIT,
    "limit_bytes": None, "when_full": "refuse", "unmatched": "drop", "transit": False, "staged": False,
}
"""All properties, and what they are when they are not given."""
TOPOLOGY_PROPERTIES = tuple(name for name in QUEUE_DEFAULTS if name != "staged")
"""Those that a topology describes. Staged queues come and go with what a program stages."""
TRANSIT_PROPERTIES = ("transit", "auto_delete", "dead_letter", "rewriter")
"""The properties that a transit queue may have."""
PRIORITY_MAX = 255
RETRY_DELAYS_MAX = 1000
REWRITER_BYTES_MAX = 65_000


def _count(name: str, least: int, most: int, kinds: str = "an int", *, optional: bool = True) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if value is not None or not optional:
            check_count(name, value, least, most, kinds)
        return value
    return checked


def _seconds(name: str) -> Callable[[Any], Any]:
    return lambda value: None if value is None else seconds_ns(value, name)


def _one_of(name: str, *allowed: str) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}")
        return str.__str__(value)
    return checked


def _bool(name: str) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        check_bool(name, value)
        return value
    return checked


def _dead_letter(value: Any) -> Any:
    return None if value is None else queue_name(value, "dead_letter")


def _rewriter(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, (str, list, tuple)) or not isinstance(value, str) and not (
            len(value) == 2 and all(isinstance(text, str) for text in value)):
        raise TypeError(f"rewriter must be the name of a registered rewriter, or (name, argument), got {value!r:.60}")
    name, argument = (value, "") if isinstance(value, str) else value
    name, argument = rewriter_name(name), text_of(argument, "the argument of rewriter")
    size = len(name.encode()) + len(argument.encode())
    if size > REWRITER_BYTES_MAX:
        raise ValueError(f"the name and the argument of rewriter have {size} bytes, allowed are {REWRITER_BYTES_MAX}")
    return name, argument


def _retry_delay(value: Any) -> Any:
    if value is None:
        return None
    delays = value if isinstance(value, (list, tuple)) else [value]
    if not 1 <= len(delays) <= RETRY_DELAYS_MAX:
        raise ValueError(f"retry_delay must be a number of seconds, or a list of 1 to {RETRY_DELAYS_MAX} of them, got a list of "
                         f"{len(delays)}")
    return tuple(seconds_ns(delay, "retry_delay") for delay in delays)


def _group(value: Any) -> Any:
    if value is not None and not isinstance(value, Field):
        raise TypeError(f"group must be a field('...') of the message, or None, got {type(value).__name__}")
    return None if value is None else value.name


CHECKS: dict[str, Callable[[Any], Any]] = {
    "limit": _count("limit", 0, COUNT_MAX),
    "history_limit": _count("history_limit", 0, COUNT_MAX, "an int, or None to keep all messages"),
    "auto_delete": _bool("auto_delete"),
    "dead_letter": _dead_letter,
    "rewriter": _rewriter,
    "delivery_limit": _count("delivery_limit", 1, DELIVERIES_MAX),
    "retry_delay": _retry_delay,
    "ttl": _seconds("ttl"),
    "priority": _count("priority", 1, PRIORITY_MAX),
    "group": _group,
    "dedup": _seconds("dedup"),
    "dedup_limit": _count("dedup_limit", 1, COUNT_MAX, optional=False),
    "limit_bytes": _count("limit_bytes", 0, COUNT_MAX),
    "when_full": _one_of("when_full", "refuse", "drop_oldest", "drop_to_fit"),
    "unmatched": _one_of("unmatched", "drop", "keep"),
    "transit": _bool("transit"),
    "staged": _bool("staged"),
}
"""For each property but the store, what checks a value and gives it as the core keeps it."""


NAMES = tuple(CHECKS)
"""The properties but the store, in the order in which `create_queue` gives them to `checked_properties`."""
DEFAULTS = tuple(QUEUE_DEFAULTS[name] for name in NAMES)
READ_AS_GIVEN = ("limit", "history_limit", "dead_letter", "rewriter", "delivery_limit", "priority", "dedup_limit", "limit_bytes")
"""The properties that a store keeps in the form in which they were given, so that the same checks hold for what it says."""


def checked_properties(given: tuple[Any, ...]) -> dict[str, Any]:
    """The properties that differ from their defaults, as the core keeps them; `given`: all, in the order of `NAMES`. Raises
    TypeError and ValueError. Most queues have none."""
    if all(map(is_, given, DEFAULTS)):
        return {}
    return {name: CHECKS[name](value) for name, value, usual in zip(NAMES, given, DEFAULTS, strict=True) if value is not usual}


def check_transit(store: str, properties: Mapping[str, Any]) -> None:
    """A transit queue keeps nothing, so it has no use for what is about keeping. `properties` are checked ones."""
    if not properties.get("transit"):
        return
    for name in properties:
        if name not in TRANSIT_PROPERTIES and properties[name] != CHECKS[name](QUEUE_DEFAULTS[name]):
            raise ValueError(f"{name} is for queues that keep messages; a transit queue keeps none: leave it out, or give it to "
                             "the queues that this one leads to")
    if store != "ram":
        raise ValueError(f"a transit queue keeps nothing, so it is in the store 'ram', not in {store!r}: leave out store")


def check_staged(properties: Mapping[str, Any]) -> None:
    """Nothing happens to the messages of a staged queue, so it has no use for what would. `properties` are checked ones."""
    if not properties.get("staged"):
        return
    for name in properties:
        if name != "staged" and properties[name] != CHECKS[name](QUEUE_DEFAULTS[name]):
            raise ValueError(f"{name} is for queues that route or age their messages; a staged queue does neither: leave it out, "
                             "or give it to the queue that adopts this one")


def check_read(properties: Mapping[str, Any]) -> None:
    """Raises TypeError and ValueError for what no queue may have; `properties`: all, as they were read from a store."""
    for name in READ_AS_GIVEN:
        CHECKS[name](properties[name])
    for span in (properties["ttl"], properties["dedup"], *(properties["retry_delay"] or ())):
        if span is not None and span < 0:
            raise ValueError(f"a time of {span} ns")
    if properties["group"] is not None:
        Field(properties["group"])
    check_staged(properties)


def differing(given: Mapping[str, Any], had: Mapping[str, Any]) -> str | None:
    """The first property in which what is wanted differs from what a queue has, both as the core keeps them; or None.

    A property that is left out of `given` has its default.
    """
    return next((name for name, check in CHECKS.items() if given.get(name, check(QUEUE_DEFAULTS[name])) != had[name]), None)
