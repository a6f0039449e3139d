"""Conditions: which messages a selector is for. Immutable values.

`match` compares a field of the message with a pattern, `where` evaluates a filter, and `&` joins conditions. `always`, `default`
and `overflow` stand alone. A condition checks its parts when it is created, however it is created. It does nothing by itself:
the core compiles it when a selector is created. `xump_ext.match.pattern_index` has the meaning of the operators, `xump.filters`
that of filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field as dataclass_field, fields
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from xump import filters, operators
from xump._names import surrogate_in
from xump._value import Value, described
from xump.errors import InvalidPattern
from xump.limits import address_bytes_max
from xump_ext.state.constants import ROLES

if TYPE_CHECKING:
    from xump.types import FilterFunction, FilterSource, MatchField, Operator


class Condition(Value):
    """The base class of all conditions. Compare conditions with `==`, and join them with `&`."""

    __slots__ = ()

    def __and__(self, other: Condition) -> Condition:
        """Join two conditions: both must hold. A condition that is given twice counts once.

        >>> match("eq", "audit") & where("size > 100")
        match('eq', 'audit') & where('size > 100')
        """
        if not isinstance(other, Condition):
            if isinstance(other, (str, dict, FunctionType)):
                raise TypeError(f"& joins conditions, got {type(other).__name__}; wrap it in where(...)")
            return NotImplemented
        terms = [*self.terms(), *other.terms()]
        try:
            return All(tuple(dict.fromkeys(terms)))
        except TypeError:       # the function of a filter may have no hash, as objects that are compared by their values
            return All(tuple(term for at, term in enumerate(terms) if term not in terms[:at]))

    def __or__(self, other: object) -> NoReturn:
        raise TypeError("conditions do not join with |: create a selector for each, or write one filter, where('... OR ...')")

    __ror__ = __or__

    def __invert__(self) -> NoReturn:
        raise TypeError("a condition has no ~: write a filter, where('NOT ...'), or create one selector with this condition and "
                        "one with when=default, which gets the rest")

    def terms(self) -> tuple[Condition, ...]:
        """The conditions that `&` has joined in this one, in order; of a single condition, itself."""
        return (self,)


@dataclass(frozen=True, repr=False)
class Role(Condition):
    """A condition that stands alone: `always`, `default` or `overflow`. Use these three, and compare with `==`.

    >>> always == default, always.name
    (False, 'always')
    """

    name: str
    """`"always"`, `"default"` or `"overflow"`."""

    def __post_init__(self) -> None:
        if self.name not in ROLES:
            raise ValueError(f"unknown role {self.name!r}; allowed are {', '.join(ROLES)}")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name

    def terms(self) -> tuple[Condition, ...]:
        """Raises TypeError: `always`, `default` and `overflow` do not combine with other conditions."""
        raise TypeError(f"{self.name} does not combine with other conditions; it stands alone")


always = described(Role("always"), """
    The condition that holds for every message of the queue. Write it without parentheses.

    It does not combine with other conditions. For all messages that no other selector matches, use `default`.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    """)

default = described(Role("default"), """
    The condition that holds for the messages that no ordinary selector of the queue matches. Write it without parentheses.

    An ordinary selector is one whose condition is neither `default` nor `overflow`. A queue has at most one enabled selector with
    this condition; another one raises `Conflict`. It is decided when a message is routed, by matching alone: a message that
    matches a selector without credit waits for that selector. RabbitMQ's alternate exchange is the nearest thing.

    >>> from xump import Engine, default, deliver, match
    >>> with Engine() as engine:
    ...     mail = engine.create_queue("mail")
    ...     clerk = engine.create_selector("mail", when=match("eq", "clerk"), do=deliver("clerk"))
    ...     others = engine.create_selector("mail", when=default, do=deliver("post office"))
    ...     number = mail.publish("manager")
    ...     engine.take(1)[0].destination
    'post office'
    """)

overflow = described(Role("overflow"), """
    The condition that holds for the messages that come while the queue is full. Write it without parentheses.

    A queue is full when it has `limit` messages that are ready or delayed. The action must consume the message, and must not put
    it into the same queue. A queue has at most one enabled selector with this condition; another one raises `Conflict`.

    >>> from xump import INFINITE, Engine, move_to, overflow
    >>> with Engine() as engine:
    ...     small, spill = engine.create_queue("small", limit=1), engine.create_queue("spill")
    ...     selector = engine.create_selector("small", when=overflow, do=move_to("spill"), credit=INFINITE)
    ...     ids = engine.publish_many("small", [("first",), ("second",)])
    ...     [message.address for message in spill.browse()]
    ['second']
    """)


@dataclass(frozen=True, repr=False)
class Match(Condition):
    """A condition that compares a field of the message with a pattern. Created by `match`. Compare with `==`.

    >>> match("topic", "image.#").pattern
    'image.#'
    """

    operator: str
    """The name of the match operator."""
    pattern: str
    """The text that the operator compares the field with."""
    field: str = "address"
    """The field that is compared: `"address"`, `"reply_to"` or `"headers.NAME"`."""

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
    """A condition that evaluates a filter. Created by `where`. Compare with `==`.

    >>> where("size > 100").source
    'size > 100'
    """

    source: str | filters.Pairs | FilterFunction
    """The filter as it was given: the text, the items of the dict, or the function."""
    tree: Any = dataclass_field(init=False, compare=False)
    """The filter as nested tuples; `xump.filters.tree` describes them."""

    if TYPE_CHECKING:       # it accepts more than it keeps

        def __init__(self, source: FilterSource) -> None: ...

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
    """Conditions joined by `&`. It holds if all of them do. Compare with `==`.

    >>> (match("eq", "audit") & where("size > 100")).parts
    (match('eq', 'audit'), where('size > 100'))
    """

    parts: tuple[Condition, ...]
    """The joined conditions, in the order in which they were written."""

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple) or not self.parts:
            raise TypeError(f"two or more conditions are joined by &, as a tuple, got {self.parts!r}")

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))

    def terms(self) -> tuple[Condition, ...]:
        """The joined conditions, in the order in which they were written."""
        return self.parts


def match(operator: Operator, pattern: str = ..., field: MatchField = "address") -> Match:  # type: ignore[assignment]
    """A condition that compares a field of the message with a pattern.

    Args:
        operator: `"eq"` (the same text), `"prefix"` (text that begins with the pattern), `"topic"` (words separated by `.`, where
            `*` in the pattern is one word and `#` any number of words, also none), or an operator that was registered.
        pattern: The text to compare with, at most 65,534 bytes of UTF-8; a topic pattern has at most 1,000 words.
        field: `"address"`, `"reply_to"` or `"headers.NAME"`. A header that is absent or not text does not match.

    Returns:
        A condition for `Engine.create_selector(when=...)`. Join it with others by `&`.

    Raises:
        InvalidPattern: There is no such operator or field, or the operator does not accept the pattern; has the `position`.
        TypeError: An argument is not a str, or there is no pattern.

    Cost: a message is matched in O(length of the field), however many selectors the queue has.

    >>> match("topic", "flight.*.JFK.#")
    match('topic', 'flight.*.JFK.#')
    """
    if pattern is ...:      # type: ignore[comparison-overlap]
        raise TypeError(f"match takes an operator and a pattern, as in match('topic', 'a.#'); got {operator!r} alone; "
                        f"operators are {', '.join(operators.operator_names())}")
    return Match(operator, pattern, field)


def where(filter: FilterSource) -> Where:
    """A condition that evaluates a filter over the headers and the envelope of the message.

    Args:
        filter: Text in the JMS selector syntax, at most 4,096 characters: `"size > 100 AND region = 'EU'"`. Single quotes make a
            string, double quotes the name of a header. docs/filters.md has the language. Or a dict of headers and the values
            that they must have; a list means any of its values. Or a function that is called with the message and returns a
            bool. If the function raises, the message does not match, and the error is counted.

    Returns:
        A condition for `Engine.create_selector(when=...)`. Join it with others by `&`.

    Raises:
        InvalidFilter: The filter cannot be read; has the `position` in the text.
        TypeError: `filter` is none of these.

    Cost: a filter is evaluated on the messages that the `match` conditions joined with it let through. A test of the address or
    a header for equality is looked up in an index, however many selectors the queue has.

    >>> where("size > 100 AND region = 'EU'")
    where("size > 100 AND region = 'EU'")
    >>> where({"region": "EU", "tier": ["gold", "silver"]})
    where({'region': 'EU', 'tier': ('gold', 'silver')})
    """
    return Where(filter)


_FIELDS: dict[type, tuple[str, ...]] = {}
"""The names of the fields of a dataclass: there are a handful of classes, and each selector that is created asks for two."""


def check_made(value: Any) -> None:
    """Raises TypeError and ValueError unless a dataclass is as its `__init__` leaves it, which may not have been called.

    A filter is not read again: the core checks the tree of a filter.
    """
    names = _FIELDS.get(type(value))
    if names is None:
        names = _FIELDS[type(value)] = tuple(field.name for field in fields(value))
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise TypeError(f"a {type(value).__name__} without {' and '.join(missing)} was not created by calling its class or "
                        "function")
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
