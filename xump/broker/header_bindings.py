"""Bindings of a headers exchange: which messages they are for, as a check and as conditions of the engine.

Values are compared as RabbitMQ 3.10.8 does: numbers and timestamps by their value, 5 equals 5.0; texts and binaries by their
bytes; tables and lists by their fields in order, whose types count. Void means that a header is there.

The engine finds what headers hit by an index, so that many bindings cost as little as few: a binding becomes selectors whose
condition has an equality. Values that no equality knows (void, tables, lists, decimals) are left to the check, after the index.
A text may come as a text or as a binary, which are two values to the engine, so it takes two selectors; a message is copied
once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from xump.broker.tables import INTEGERS, TYPE_NAMES, Table, Typed
from xump.conditions import always, where

if TYPE_CHECKING:
    from xump.conditions import Condition
    from xump_ext.message.message import Message

NUMBERS = INTEGERS + "dfT"
"""The types that are compared as numbers."""
INT_END = 1 << 63
"""The engine's whole numbers are below it."""

Equality = tuple[str, Any]
"""The name of a header, and a value of the engine's."""


def headers_match(arguments: Table, headers: Table) -> bool:
    """Whether headers match the arguments of a binding, as `x-match` says."""
    matches = (_has(headers, name, value) for name, value in wanted(arguments))
    return any(matches) if mode(arguments).startswith("any") else all(matches)


def _has(headers: Table, name: str, value: Typed) -> bool:
    return name in headers and (value.kind == "V" or same_value(value, headers[name]))


def mode(arguments: Table) -> str:
    """`all`, `any`, `all-with-x` or `any-with-x`."""
    given = arguments.get("x-match")
    return "all" if given is None else str(given.value.decode())


def wanted(arguments: Table) -> list[tuple[str, Typed]]:
    """The arguments that headers are compared with."""
    with_x = mode(arguments).endswith("-with-x")
    return [(name, value) for name, value in arguments.items() if name != "x-match" and (with_x or not name.startswith("x-"))]


def same_value(one: Typed, other: Typed) -> bool:
    """Whether two values are equal."""
    if one.kind in NUMBERS and other.kind in NUMBERS:
        return bool(one.value == other.value)
    if one.kind in "Sx" and other.kind in "Sx":
        return bool(one.value == other.value)
    return same_term(one, other)


def same_term(one: Typed, other: Typed) -> bool:
    """Whether two values have the same type and are equal; so it is within tables and lists."""
    if TYPE_NAMES[one.kind] != TYPE_NAMES[other.kind]:
        return False
    if one.kind == "F":
        return list(one.value) == list(other.value) and all(
            same_term(value, other.value[name]) for name, value in one.value.items())
    if one.kind == "A":
        return len(one.value) == len(other.value) and all(map(same_term, one.value, other.value))
    return bool(one.value == other.value)


# ---- conditions

class HeaderBindings:
    """The bindings of one exchange: which equality is the rarest among them, and so the one to look up."""

    def __init__(self, headers_in: Callable[[Message], Table]) -> None:
        self._headers_in = headers_in
        self._counts: Counter[Equality] = Counter()
        self._chosen: dict[Hashable, Equality] = {}

    def gone(self, binding: Hashable) -> None:
        """A binding has gone."""
        chosen = self._chosen.pop(binding, None)
        if chosen is not None:
            self._counts[chosen] -= 1
            if not self._counts[chosen]:
                del self._counts[chosen]

    def conditions(self, binding: Hashable, arguments: Table) -> list[Condition]:
        """The conditions of a binding that comes. A message is for it if one of them holds."""
        given = wanted(arguments)
        found = {name: equal_values(name, value) for name, value in given}
        if mode(arguments).startswith("any"):
            return self._any(given, found)
        if not given:
            return [always]
        names = [name for name, values in found.items() if values]
        if not names:
            return [self._check(all, given)]
        rarest = min(names, key=lambda name: self._counts[name, found[name][0]])
        chosen = self._chosen[binding] = rarest, found[rarest][0]
        self._counts[chosen] += 1
        rest = self._rest([(name, value) for name, value in given if name != rarest], found)
        return [where({rarest: value}) & rest if rest is not None else where({rarest: value}) for value in found[rarest]]

    def _any(self, given: list[tuple[str, Typed]], found: dict[str, list[Any]]) -> list[Condition]:
        conditions: list[Condition] = [where({name: value}) for name, values in found.items() for value in values]
        others = [(name, value) for name, value in given if not found[name]]
        return [*conditions, self._check(any, others)] if others else conditions

    def _rest(self, given: list[tuple[str, Typed]], found: dict[str, list[Any]]) -> Condition | None:
        """All of these must hold, too; None: there are none."""
        condition: Condition | None = None
        equal = {name: found[name] for name, _value in given if found[name]}
        others = [(name, value) for name, value in given if not found[name]]
        if equal:
            condition = where(equal)
        if others:
            condition = self._check(all, others) if condition is None else condition & self._check(all, others)
        return condition

    def _check(self, how: Callable[[Iterable[bool]], bool], given: list[tuple[str, Typed]]) -> Condition:
        def check(message: Message) -> bool:
            """Whether the headers of a message have what was given."""
            headers = self._headers_in(message)
            return how(_has(headers, name, value) for name, value in given)

        return where(check)


def equal_values(name: str, value: Typed) -> list[Any]:
    """The values of the engine's of which a header has one if, and only if, it equals this one; none: the engine cannot say."""
    if not name or not _is_text(name.encode("utf-8", "surrogateescape")):
        return []
    if value.kind in "Sx":
        return [value.value.decode(), value.value] if _is_text(value.value) else [value.value]
    if value.kind == "t" or (value.kind in NUMBERS and math.isfinite(value.value) and -INT_END <= value.value < INT_END):
        return [value.value]
    return []


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
