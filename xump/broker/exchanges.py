"""Exchanges: which queues a message goes to, by its routing key or its headers.

A binding says which messages of its source, an exchange, go to its destination, a queue or another exchange. An exchange
remembers where a routing key led, until a binding comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from xump.broker.errors import ProtocolError
from xump.broker.header_bindings import headers_match
from xump.broker.queue_arguments import string
from xump.broker.tables import Table, Typed, shown
from xump_ext.amqp.decoder import erlang_binary

TYPES = ("direct", "fanout", "topic", "headers")
DELAYED, DELAYED_TYPE = "x-delayed-message", "x-delayed-type"
"""The type of an exchange that delays, as of RabbitMQ's plug-in, and the argument that names one of TYPES for its bindings."""

STANDARD = {
    "": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers",
    "amq.match": "headers", "amq.rabbitmq.trace": "topic",
}
"""The exchanges that are there from the beginning."""

REMEMBERED_MAX = 4096
"""Of so many routing keys an exchange remembers where they led."""


@dataclass(frozen=True)
class Destination:
    """Where a binding leads."""

    kind: str
    """`"queue"` or `"exchange"`."""
    name: str
    """The name of the queue or exchange."""


Key = tuple[Destination, str, bytes]
"""Tells a binding from others of its exchange: where it leads, its binding key, and its arguments encoded."""


@dataclass(eq=False)
class Binding:
    """A binding of an exchange."""

    destination: Destination
    """Where it leads."""
    key: str
    """The binding key."""
    arguments: Table
    """Its arguments: of a headers exchange, what it matches."""


@dataclass(eq=False)
class Exchange:
    """An exchange of a virtual host."""

    name: str
    """Its name."""
    type: str
    """One of TYPES, or DELAYED."""
    durable: bool = True
    """Whether it was declared durable."""
    auto_delete: bool = False
    """Whether it goes with the last binding from it."""
    internal: bool = False
    """Whether only exchanges publish to it."""
    arguments: Table = field(default_factory=dict)
    """Its arguments."""
    bindings: dict[Key, Binding] = field(default_factory=dict)
    """The bindings from it, in the order in which they came."""
    serial: bytes = b""
    """Tells it from others of its name, before and after it, in bindings that are kept."""
    _remembered: dict[str, tuple[Destination, ...]] = field(default_factory=dict)

    @property
    def delays(self) -> bool:
        """Whether messages with a header `x-delay` reach its queues so many milliseconds later."""
        return self.type == DELAYED

    @property
    def routes(self) -> str:
        """How its bindings route: one of TYPES."""
        return str(self.arguments[DELAYED_TYPE].value.decode()) if self.delays else self.type

    @property
    def alternate(self) -> str | None:
        """The exchange for what no binding matches. A name that is not UTF-8 is that of none."""
        return string(self.arguments, "alternate-exchange")

    def bind(self, key: Key, binding: Binding) -> bool:
        """Add a binding. False: it was there."""
        self._remembered.clear()
        return self.bindings.setdefault(key, binding) is binding

    def unbind(self, key: Key) -> None:
        """Remove a binding."""
        self._remembered.clear()
        del self.bindings[key]

    def matching(self, key: str, headers: Callable[[], Table]) -> tuple[Destination, ...]:
        """Where a message goes from here, each destination once; in order of the bindings."""
        if self.routes == "headers":
            return tuple(dict.fromkeys(
                binding.destination for binding in self.bindings.values() if headers_match(binding.arguments, headers())))
        found = self._remembered.get(key)
        if found is None:
            found = tuple(dict.fromkeys(
                binding.destination for binding in self.bindings.values() if KEY_MATCHES[self.routes](binding.key, key)))
            if len(self._remembered) == REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = found
        return found


def reached(exchange: Exchange, exchanges: dict[str, Exchange]) -> list[Exchange]:
    """The exchanges that messages may reach from this one, by bindings and alternates; itself first. `exchanges`: all of them."""
    found, seen = [exchange], {exchange.name}
    for one in found:                       # which grows meanwhile
        names = {binding.destination.name for binding in one.bindings.values() if binding.destination.kind == "exchange"}
        names |= set() if one.alternate is None else {one.alternate}
        found += [exchanges[name] for name in sorted(names - seen) if name in exchanges]
        seen |= names
    return found


def topic_matches(pattern: str, key: str) -> bool:
    """Whether a routing key matches a pattern of words, where `*` is one word and `#` any number of them, none included."""
    words = key.split(".") if key else []
    wanted = pattern.split(".") if pattern else []
    reached = {0}               # how many words the pattern so far may have used up
    for word in wanted:
        if word == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(words) and word in ("*", words[at])}
    return len(words) in reached


KEY_MATCHES: dict[str, Callable[[str, str], bool]] = {
    "direct": lambda pattern, key: pattern == key,
    "fanout": lambda pattern, key: True,
    "topic": topic_matches,
}


def check_binding(source: Exchange, arguments: Table) -> None:
    """Refuse a binding of a headers exchange whose `x-match` has no meaning."""
    given = arguments.get("x-match")
    if source.routes != "headers" or given is None:
        return
    if given.kind != "S":
        raise ProtocolError(406, f"Invalid x-match field type {type_name(given)} (value {given.value}); expected longstr")
    if given.value not in (b"all", b"any", b"all-with-x", b"any-with-x"):
        shown_value = erlang_binary(given.value)
        raise ProtocolError(406, f"Invalid x-match field value {shown_value}; expected all, any, all-with-x, or any-with-x")


def type_name(typed: Typed) -> str:
    """RabbitMQ's name for the type of a value."""
    return shown(typed).rpartition(" type ")[2].strip("'")


def standard() -> Iterator[Exchange]:
    """The exchanges that are there from the beginning."""
    for name, kind in STANDARD.items():
        yield Exchange(name, kind, internal=name == "amq.rabbitmq.trace")
