"""When a selector is invoked: immutable values that say which messages it selects.

`match` compares one field of the envelope with a pattern, `where` evaluates a filter, `&` joins them. `always`, `default`
and `overflow` stand alone. Values are checked when they are made, whoever makes them. A condition is inert: the core compiles
it when a selector is created. What the operators mean belongs to `xump_ext.match.pattern_index`, what filters mean to `xump.filters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field as dataclass_field, fields
from typing import Any, NoReturn, Union

from xump import filters, operators
from xump._names import surrogate_in
from xump._value import Inert
from xump.errors import InvalidPattern
from xump.limits import address_bytes_max
from xump_ext.state.constants import ROLES

FilterSource = Union[str, Mapping[str, Any], Callable[[Any], bool]]


class Condition(Inert):
    """The root of all conditions. Compare with `==`, join with `&`."""

    __slots__ = ()

    def __and__(self, other: Condition) -> Condition:
        """Both must hold.

        >>> match("eq", "audit") & where("size > 100")
        match('eq', 'audit') & where('size > 100')
        """
        if not isinstance(other, Condition):
            return NotImplemented
        terms = [*self.terms(), *other.terms()]
        return All(tuple(dict.fromkeys(terms)))

    def __or__(self, other: object) -> NoReturn:
        raise TypeError("conditions do not join with |: make a selector for each, or write one filter, where('... OR ...')")

    __ror__ = __or__

    def __invert__(self) -> NoReturn:
        raise TypeError("a condition has no ~: write a filter, where('NOT ...'), or give what another selector takes to that one "
                        "and the rest to when=default")

    def terms(self) -> tuple[Condition, ...]:
        """The conditions that are joined in this one."""
        return (self,)


@dataclass(frozen=True, repr=False)
class Role(Condition):
    """`always`, `default` or `overflow`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in ROLES:
            raise ValueError(f"unknown role {self.name!r}; allowed are {', '.join(ROLES)}")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name

    def terms(self) -> tuple[Condition, ...]:
        raise TypeError(f"{self.name} does not combine with other conditions; it stands alone")


always = Role("always")
default = Role("default")
overflow = Role("overflow")


@dataclass(frozen=True, repr=False)
class Match(Condition):
    """One field of the envelope against a pattern; see `match`."""

    operator: str
    pattern: str
    field: str = "address"

    def __post_init__(self) -> None:
        operator, pattern = operators.validate(self.operator, self.pattern)
        object.__setattr__(self, "operator", operator)
        object.__setattr__(self, "pattern", pattern)
        object.__setattr__(self, "field", check_field(self.field, ("address", "reply_to")))

    def __repr__(self) -> str:
        field = "" if self.field == "address" else f", field={self.field!r}"
        return f"match({self.operator!r}, {self.pattern!r}{field})"


@dataclass(frozen=True, repr=False)
class Where(Condition):
    """A filter; see `where`. `source` is the text, the items of the dict, or the callable; `tree` what it means."""

    source: Any
    tree: Any = dataclass_field(init=False, compare=False)

    def __post_init__(self) -> None:
        given = dict(self.source) if isinstance(self.source, filters.Pairs) else self.source
        source, tree = filters.compile(given)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "tree", tree)

    def __repr__(self) -> str:
        source = dict(self.source) if isinstance(self.source, tuple) else self.source
        return f"where({source!r})"


@dataclass(frozen=True, repr=False)
class All(Condition):
    """Conditions joined by `&`, in the order in which they were written."""

    parts: tuple[Condition, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple) or not self.parts:
            raise TypeError(f"two or more conditions are joined by &, as a tuple, got {self.parts!r}")

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))

    def terms(self) -> tuple[Condition, ...]:
        return self.parts


def match(operator: str, pattern: str = ..., field: str = "address") -> Match:  # type: ignore[assignment]
    """Select by comparing a field of the envelope with a pattern.

    `operator` is `"eq"`, `"topic"` (words split by `.`; `*` is one word, `#` any number of words, none included), `"prefix"` or
    one that was registered; `field` is `"address"`, `"reply_to"` or `"headers.NAME"` (text headers only). Matching costs O(length
    of the field), whatever the number of selectors. Raises `InvalidPattern`, with the position.

    >>> match("topic", "flight.*.JFK.#")
    match('topic', 'flight.*.JFK.#')
    """
    if pattern is ...:      # type: ignore[comparison-overlap]
        raise TypeError(f"match takes an operator and a pattern, as in match('topic', 'a.#'); got {operator!r} alone; "
                        f"operators are {', '.join(operators.operator_names())}")
    return Match(operator, pattern, field)


def where(filter: FilterSource) -> Where:
    """Select by a filter: a string in the JMS selector syntax, a dict, or a callable `message -> bool`.

    A dict asks for equality of every header named in it; a list is IN. Raises `InvalidFilter`, with the position.

    >>> where({"region": "EU", "tier": ["gold", "silver"]})
    where({'region': 'EU', 'tier': ('gold', 'silver')})
    """
    return Where(filter)


def check_made(value: Any) -> None:
    """Raises TypeError and ValueError unless a dataclass is as its `__init__` leaves it, which may not have been called. A filter
    is not read again: what its tree may be, the core checks."""
    missing = [field.name for field in fields(value) if not hasattr(value, field.name)]
    if missing:
        raise TypeError(f"a {type(value).__name__} without {' and '.join(missing)} was not made by calling its class or function")
    if not isinstance(value, Where):
        value.__post_init__()


def check_field(name: str, fixed: tuple[str, ...]) -> str:
    """The name as an exact str. Raises `InvalidPattern` unless it is one of `fixed` or `headers.NAME`."""
    if not isinstance(name, str):
        raise TypeError(f"field must be a str, got {type(name).__name__}")
    name = str.__str__(name)
    if name not in fixed and not (name.startswith("headers.") and len(name) > len("headers.")):
        allowed = ", ".join(map(repr, fixed))
        raise InvalidPattern(f"unknown field {name!r}; allowed are {allowed} and 'headers.NAME'")
    at = surrogate_in(name)
    if at is not None:
        raise InvalidPattern(f"field {name[:40]!a} has a lone surrogate at {at}: no header has that in its name", at)
    if len(name.encode("utf-8")) > address_bytes_max:
        raise InvalidPattern(f"field name has {len(name)} characters, allowed are {address_bytes_max} bytes", address_bytes_max)
    return name
