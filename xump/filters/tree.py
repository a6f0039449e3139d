"""Compiles what `where()` was given into a form that can be compared, and a tree.

A tree is nested tuples: `("and", a, b)`, `("=", a, b)`, `("in", a, (1, 2))`, `("header", name)`, `("sys", name)`, `("literal",
value)` and so on; a callable is `("call", function)`. `xump.filters.syntax` reads text. Mappings are read here: all of their
items must hold, and a list means IN. `xump_ext.match.filter` evaluates trees on messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from xump._value import Value
from xump.errors import InvalidFilter
from xump.filters.syntax import Parser, Tree, joined, type_name
from xump.limits import headers_bytes_max

SHOWN_CHARS_MAX = 80
"""How much of a filter an error shows."""


def compile(source: str | Mapping[str, Any] | Callable[[Any], bool]) -> tuple[Any, Tree]:
    """Compile a filter. Returns its source in a form that can be compared and hashed, and its tree.

    The form is the text, the `Pairs` of a mapping, or the callable. Raises `InvalidFilter`, with the position, and TypeError if
    the source is none of these, or has a value that no header can have. Cost: O(length of the source).

    >>> compile("size > 100")
    ('size > 100', ('>', ('header', 'size'), ('literal', 100)))
    >>> compile({"region": "EU", "tier": ["gold", "silver"]})[0]
    (('region', 'EU'), ('tier', ('gold', 'silver')))
    """
    if isinstance(source, str):
        text = str.__str__(source)
        try:
            return text, Parser(text).filter()
        except InvalidFilter as error:
            raise InvalidFilter(f"{error}, in the filter {_around(text, error.position)}", error.position) from None
    if isinstance(source, Mapping):
        pairs = Pairs(_pair(name, value) for name, value in source.items())
        return pairs, pairs.tree()
    if callable(source) and not isinstance(source, Value):
        return source, ("call", source)
    raise TypeError(f"a filter is a str, a mapping or a callable, got {type(source).__name__}")


def _around(text: str, position: int) -> str:
    """The part of the text around a position."""
    begin = min(max(0, position - SHOWN_CHARS_MAX // 2), max(0, len(text) - SHOWN_CHARS_MAX))
    end = begin + SHOWN_CHARS_MAX
    return f"{'…' if begin else ''}{text[begin:end]!r}{'…' if end < len(text) else ''}"


def equalities(tree: Tree) -> list[tuple[str, str, Any]]:
    """The equalities that must hold for the filter to select: `("header", name, value)` and `("sys", "address", value)`, in
    order.

    These are the comparisons with a literal that stand alone or are joined by AND; the core looks them up in an index. The
    value has the type of its literal: a number equals an int and a float of the same value, but never a bool.

    >>> equalities(compile("region = 'EU' AND size > 100 AND 'jobs' = sys.address")[1])
    [('header', 'region', 'EU'), ('sys', 'address', 'jobs')]
    """
    if tree[0] == "and":
        return equalities(tree[1]) + equalities(tree[2])
    if tree[0] == "=":
        for (kind, name, *_), (other, value, *_) in ((tree[1], tree[2]), (tree[2], tree[1])):
            if other == "literal" and (kind == "header" or (kind == "sys" and name == "address")):
                return [(kind, name, value)]
    return []


# ---- mappings


class Pairs(tuple[Any, ...]):
    """The items of a mapping, with tuples for lists. Two are equal if they select the same: 1 is not True, order is ignored."""

    __slots__ = ()

    def tree(self) -> Tree:
        """The tree of the filter: all items must hold, and a tuple means IN."""
        if not self:
            raise InvalidFilter("an empty mapping selects everything; use always, or leave it out")
        size = self.bytes()
        if size > headers_bytes_max:
            raise InvalidFilter(f"a mapping has {size} bytes of names and values, allowed are {headers_bytes_max}")
        return joined("and", [_pair_tree(*pair) for pair in self])

    def bytes(self) -> int:
        """The size of names and values in UTF-8; a number counts 8 bytes."""
        return sum(len(name.encode()) + sum(map(_bytes, _values(value))) for name, value in self)

    def _meaning(self) -> frozenset[Any]:
        return frozenset((name, frozenset((type_name(v), v) for v in _values(value))) for name, value in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pairs) and self._meaning() == other._meaning()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._meaning())


def _pair(name: Any, value: Any) -> tuple[str, Any]:
    """Check one item. The value that is returned has an exact built-in type, or is a tuple of such values without repetitions."""
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be a str, got {type(name).__name__}")
    if not name or _bytes(name) > 65535:
        raise InvalidFilter(f"a header's name has {_bytes(name)} bytes, allowed are 1 to 65535")
    if not isinstance(value, (list, tuple, set, frozenset)):
        return str.__str__(name), _value(name, value)
    if not value:
        raise InvalidFilter(f"header {name!r}: an empty list selects nothing; list one or more values")
    values = {(type_name(v), v): v for v in (_value(name, v) for v in value)}
    keys = sorted(values) if isinstance(value, (set, frozenset)) else values     # the order of a set differs between processes
    return str.__str__(name), tuple(values[key] for key in keys)


def _pair_tree(name: str, value: Any) -> Tree:
    values = _values(value)
    if len(values) == 1:
        return "=", ("header", name), ("literal", values[0])
    return "in", ("header", name), values


def _values(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _value(name: str, value: Any) -> bool | int | float | str | bytes:
    """The value of a header as an exact built-in type. Raises for a value that no header can have."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidFilter(f"header {name!r}: {str(value)[:40]} does not fit in 64 bits, allowed are -2**63 to 2**63 - 1")
        return int.__int__(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise InvalidFilter(f"header {name!r}: nan equals nothing, so it would select nothing")
        return float.__float__(value)
    if isinstance(value, str):
        _bytes(value)
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    raise TypeError(
        f"header {name!r} is compared with a bool, int, float, str, bytes or a list of these, got {type(value).__name__}"
        + ("; to select messages without a header, write text: 'NAME IS NULL'" if value is None else "")
    )


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        try:
            return len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidFilter(f"{value[:40]!r} has a lone surrogate, which no header can have", error.start) from None
    return len(value) if isinstance(value, bytes) else 8
