"""The arguments of queue.declare: which are known, what they may be, and what they are for the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xump._arguments import COUNT_MAX, DELIVERIES_MAX
from xump._queue_properties import REWRITER_BYTES_MAX
from xump.broker.errors import ProtocolError, precondition
from xump.broker.tables import INTEGERS, TYPE_NAMES, Table, Typed, plain, shown
from xump_ext.amqp.dead_letters import EXCHANGES

NAME_BYTES_MAX = REWRITER_BYTES_MAX - 16
"""Of the exchange of dead letters, and of their routing key, in UTF-8: they are in the argument of a rewriter, or as long."""
EXPIRES_MS_MAX = 315_360_000_000
"""The longest time that RabbitMQ takes: ten years."""


def _integer(typed: Typed) -> str | None:
    return None if typed.kind in INTEGERS else f'"expected integer, got {TYPE_NAMES[typed.kind]}"'


def _unacceptable(typed: Typed) -> str:
    return f"{{unacceptable_type,{TYPE_NAMES[typed.kind]}}}"


def _count(typed: Typed) -> str | None:
    wrong = _integer(typed)
    return wrong or (f"{{value_negative,{typed.value}}}" if typed.value < 0 else None)


def _time(typed: Typed) -> str | None:
    wrong = _count(typed)
    return wrong or (f"{{value_too_large,{typed.value}}}" if typed.value > EXPIRES_MS_MAX else None)


def _expires(typed: Typed) -> str | None:
    wrong = _integer(typed)
    return wrong or ("{value_zero,0}" if typed.value == 0 else _time(typed))


def _priority(typed: Typed) -> str | None:
    wrong = _count(typed)
    return wrong or (f"{{max_value_exceeded,{typed.value}}}" if typed.value > 255 else None)


def _version(typed: Typed) -> str | None:
    wrong = _count(typed)
    return wrong or (f"\"unsupported queue version '{typed.value}'\"" if typed.value not in (1, 2) else None)


def _size(typed: Typed) -> str | None:
    wrong = _count(typed)
    return wrong or ("{value_zero,0}" if typed.value == 0 else None)


def _text(typed: Typed) -> str | None:
    return None if typed.kind == "S" else _unacceptable(typed)


def _name(typed: Typed) -> str | None:
    """The engine keeps it with the queue."""
    wrong = _text(typed)
    size = 0 if wrong else len(_as_utf8(typed.value.decode(errors="surrogateescape")).encode())
    return wrong or (f"{{max_length_exceeded,{size}}}" if size > NAME_BYTES_MAX else None)


def _bool(typed: Typed) -> str | None:
    return None if typed.kind == "t" else _unacceptable(typed)


def _one_of(wrong_value: str, *allowed: bytes) -> Callable[[Typed], str | None]:
    def check(typed: Typed) -> str | None:
        wrong = _text(typed)
        if wrong is None and typed.value not in allowed:
            wrong = wrong_value.replace("VALUE", typed.value.decode(errors="replace"))
        return wrong

    return check


CHECKS: dict[str, Callable[[Typed], str | None]] = {
    "x-expires": _expires,
    "x-message-ttl": _time,
    "x-dead-letter-exchange": _name,
    "x-dead-letter-routing-key": _name,
    "x-dead-letter-strategy": _one_of("invalid_dlx_strategy", b"at-most-once", b"at-least-once"),
    "x-max-length": _count,
    "x-max-length-bytes": _count,
    "x-max-in-memory-length": _count,
    "x-max-in-memory-bytes": _count,
    "x-max-priority": _priority,
    "x-overflow": _one_of("invalid_overflow", b"drop-head", b"reject-publish", b"reject-publish-dlx"),
    "x-queue-mode": _one_of("\"unsupported queue mode 'VALUE'\"", b"default", b"lazy"),
    "x-queue-type": _one_of("\"unsupported queue type 'VALUE'\"", b"classic", b"quorum", b"stream"),
    "x-queue-version": _version,
    "x-quorum-initial-group-size": _size,
    "x-single-active-consumer": _bool,
    "x-queue-master-locator": _text,
}

COMPARED = (
    "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-max-length",
    "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-max-priority", "x-overflow", "x-queue-mode",
    "x-queue-version", "x-single-active-consumer", "x-delivery-limit", "x-queue-type", "x-quorum-initial-group-size",
)
"""Arguments in which a second declaration must be like the first, if the type of the queue knows it."""

LOCATOR = _one_of("invalid_queue_locator_arg", b"client-local", b"balanced", b"random", b"least-leaders")
"""Values of `x-queue-leader-locator`, where it is known."""

OF_STREAMS = frozenset({"x-max-age", "x-initial-cluster-size", "x-stream-max-segment-size-bytes"})
UNKNOWN = {
    "classic": OF_STREAMS | {
        "x-delivery-limit", "x-quorum-initial-group-size", "x-max-in-memory-length", "x-max-in-memory-bytes",
        "x-dead-letter-strategy", "x-queue-leader-locator"},
    "quorum": OF_STREAMS | {"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"},
    "stream": frozenset(),
}
"""Arguments that a type of queue does not know, and refuses, though others do."""


def check_arguments(what: str, arguments: Table, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    """Refuse what has no meaning. `what` is the queue, as texts name it."""
    for name, check in CHECKS.items():
        typed = arguments.get(name)
        if name == "x-dead-letter-exchange" and typed is not None and typed.kind != "S":
            raise wrong_type(name, what, typed)
        wrong = None if typed is None else check(typed)
        if wrong is not None:
            raise precondition(f"invalid arg '{name}' for {what}: {wrong}")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise precondition(f"invalid arg 'x-dead-letter-routing-key' for {what}: "
                           "routing_key_but_no_dlx_defined")
    kind = queue_type(arguments)
    for name in arguments:
        if name in UNKNOWN[kind]:
            raise unknown_to(name, what, kind)
    locator = arguments.get("x-queue-leader-locator")
    wrong = None if locator is None else LOCATOR(locator)
    if wrong is not None:
        raise precondition(f"invalid arg 'x-queue-leader-locator' for {what}: {wrong}")
    if kind != "classic":
        for name, value in (("non-durable", not durable), ("exclusive-owner", exclusive), ("auto-delete", auto_delete)):
            if value:
                raise precondition(f"invalid property '{name}' for {what}")
    if kind == "stream":
        raise precondition(f"invalid arg 'x-queue-type' for {what}: there are no streams; declare a classic or a quorum queue")


def unknown_to(name: str, what: str, kind: str) -> ProtocolError:
    """406 for an argument that a type of queue does not know."""
    return precondition(f"invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue")


def queue_type(arguments: Table) -> str:
    """`"classic"`, `"quorum"` or `"stream"`."""
    typed = arguments.get("x-queue-type")
    return "classic" if typed is None else str(typed.value.decode())


def check_equivalent(what: str, names: tuple[str, ...], current: Table, given: Table) -> None:
    """Refuse a second declaration whose arguments differ; the type counts, but not how wide a number is."""
    for name in names:
        before, now = current.get(name), given.get(name)
        usual = Typed("S", b"classic") if name == "x-queue-type" else None
        if not same_argument(before or usual, now or usual):
            if before is None or now is None:
                raise precondition(f"inequivalent arg '{name}' for {what}: received {shown(now)} but current is {shown(before)}")
            raise precondition(
                f"inequivalent arg '{name}' for {what}: received '{plain(now)}' but current is '{plain(before)}'")


def wrong_type(name: str, what: str, typed: Typed) -> ProtocolError:
    """406 for a name that is no text."""
    return precondition(f"invalid type '{TYPE_NAMES[typed.kind]}' for arg '{name}' in {what}")


def same_argument(one: Typed | None, other: Typed | None) -> bool:
    """Whether two values of an argument are the same."""
    if one is None or other is None:
        return one is other
    alike = one.kind == other.kind or (one.kind in INTEGERS and other.kind in INTEGERS)
    return alike and bool(one.value == other.value)


def check_field(what: str, name: str, current: Any, given: Any) -> None:
    """Refuse a second declaration that differs in one of its bits."""
    if current != given:
        raise precondition(f"inequivalent arg '{name}' for {what}: received '{_plain(given)}' but current is '{_plain(current)}'")


def _plain(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def number(arguments: Table, name: str) -> int | None:
    """The value of an argument that is a number."""
    typed = arguments.get(name)
    return None if typed is None else int(typed.value)


def string(arguments: Table, name: str) -> str | None:
    """The value of an argument that is a text."""
    typed = arguments.get(name)
    return None if typed is None else str(typed.value.decode(errors="surrogateescape"))


def engine_properties(arguments: Table) -> dict[str, Any]:
    """The same as arguments of `Engine.create_queue`."""
    properties: dict[str, Any] = {}
    refuses = string(arguments, "x-overflow") in ("reject-publish", "reject-publish-dlx")
    ttl = number(arguments, "x-message-ttl")
    if ttl is not None:
        properties["ttl"] = ttl / 1000
    for name, known in (("x-max-length", "limit"), ("x-max-length-bytes", "limit_bytes")):
        value = number(arguments, name)
        if value is not None:
            properties[known] = min(value, COUNT_MAX - 1)
    priority = number(arguments, "x-max-priority")
    if priority:
        properties["priority"] = priority
    limit = arguments.get("x-delivery-limit")
    if limit is not None and limit.kind in INTEGERS:    # RabbitMQ does not look at it: what is no number limits nothing
        most = max(limit.value, 0) + 1                              # it counts what comes after the first
        if most <= DELIVERIES_MAX:                                  # no more are counted: that is no limit
            properties["delivery_limit"] = most
    if ("limit" in properties or "limit_bytes" in properties) and not refuses:
        properties["when_full"] = "drop_to_fit"
    elif "limit_bytes" in properties and string(arguments, "x-overflow") == "reject-publish":
        properties["limit_bytes"] += 1      # a queue with all its bytes takes an empty body yet: see `BrokerQueue.has_room`
    if "x-dead-letter-exchange" in arguments:
        properties |= dead_letter_properties(arguments)
    return properties


def dead_letter_properties(arguments: Table) -> dict[str, Any]:
    """Where dead letters go, and what the rewriter has to know: whether what a full queue refuses is none (`-`), and the routing
    key (`=` and the key) if they get another one."""
    exchange, key = string(arguments, "x-dead-letter-exchange"), string(arguments, "x-dead-letter-routing-key")
    argument = "-" if string(arguments, "x-overflow") == "reject-publish" else ""
    argument += "" if key is None else f"={_as_utf8(key)}"
    return {"dead_letter": EXCHANGES + _as_utf8(exchange or ""), "rewriter": ["amqp", argument]}


def _as_utf8(text: str) -> str:
    """No exchange, and no routing key, is anything else."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


