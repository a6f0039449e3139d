"""Match operators: the built-in ones, and those that programs and plug-ins register.

An operator is a name and a function `matches(pattern, value) -> bool` of two strings. The three built-in operators are compiled
into the core's match index. A registered operator is called once for each pattern and address, and its answer is remembered for
that address, so it must depend on its arguments alone. Packages offer operators by the entry point group `xump.operators`, whose
entries are such functions. An entry is loaded when it is first used, so an entry that cannot be loaded is an error for that
operator only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from xump._names import name_of, surrogate_in
from xump.errors import Conflict, InvalidPattern
from xump.limits import pattern_bytes_max, pattern_words_max

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger("xump")

Matches = Callable[[str, str], bool]
Validate = Callable[[str], None]

BUILT_IN = ("eq", "topic", "prefix")
_registered: dict[str, tuple[Matches, Validate | None]] = {}
_lock = threading.RLock()


def register_operator(name: str, matches: Matches, validate: Validate | None = None) -> None:
    """Register a match operator, so that `match(name, pattern)` calls `matches(pattern, value)`.

    Args:
        name: The name of the operator.
        matches: Returns whether a value (the address, or another field) matches a pattern; both are str. Its answers are
            remembered, so they must depend on the arguments alone. If it raises, the message does not match, and the error is
            counted.
        validate: Called with the pattern when a condition is created; raises `ValueError` for a pattern that the operator does
            not accept. None: it accepts every pattern.

    Raises:
        Conflict: There is such an operator already.
        TypeError: `name` is not a str, or a function is not callable.
        ValueError: `name` is empty, too long, or has a lone surrogate.

    If it raises, nothing is registered. The operator is registered for this process. Cost: O(1); a message costs a call for each
    pattern, unless its address was matched before.

    >>> from fnmatch import fnmatchcase
    >>> from xump import match, register_operator
    >>> register_operator("shell", lambda pattern, address: fnmatchcase(address, pattern))
    >>> match("shell", "*.png")
    match('shell', '*.png')
    """
    name = name_of(name, "the name of an operator")
    if not callable(matches):
        raise TypeError(f"operator {name!r} must be callable as matches(pattern, value), got {type(matches).__name__}")
    if validate is not None and not callable(validate):
        raise TypeError(f"validate of operator {name!r} must be callable, got {type(validate).__name__}")
    with _lock:
        if name in operator_names():
            package = f", in the package {_package(_installed()[name])}" if name in _installed() else ""
            raise Conflict(f"operator {name!r} exists already{package}; there are {', '.join(operator_names())}")
        _registered[name] = (matches, validate)


def operator_names() -> list[str]:
    """The names of all operators: the built-in ones first, then the registered ones in their order, then those of packages."""
    return list(dict.fromkeys([*BUILT_IN, *_registered, *_installed()]))


def registered(name: str) -> Matches | None:
    """The function of a registered operator; None for a built-in one.

    Raises `InvalidPattern` for an operator that does not exist, or that cannot be loaded from its package.
    """
    if name in BUILT_IN:
        return None
    if name not in _registered:
        if name not in _installed():
            raise InvalidPattern(f"unknown operator {name!r}; there are {', '.join(operator_names())}")
        matches = _load(_installed()[name])     # without the lock, because it imports a module
        with _lock:
            _registered.setdefault(name, (matches, None))
    return _registered[name][0]


def validate(operator: str, pattern: str) -> tuple[str, str]:
    """Return both as exact str. Raises `InvalidPattern` or TypeError unless `operator` exists and accepts `pattern`."""
    if not isinstance(operator, str):
        raise TypeError(f"operator must be a str, got {type(operator).__name__}")
    if not isinstance(pattern, str):
        raise TypeError(f"pattern must be a str, got {type(pattern).__name__}")
    operator, pattern = str.__str__(operator), str.__str__(pattern)
    registered(operator)
    at = surrogate_in(pattern)
    if at is not None:
        raise InvalidPattern(f"pattern {pattern[:40]!a} has a lone surrogate at {at}: no message has that in a field", at)
    size = len(pattern.encode())
    if size > pattern_bytes_max:
        raise InvalidPattern(f"pattern has {size} bytes, allowed are {pattern_bytes_max}", pattern_bytes_max)
    if operator == "topic":
        _validate_topic(pattern)
    elif operator in _registered:
        check = _registered[operator][1]
        if check is not None:
            try:
                check(pattern)
            except Exception as error:
                said = str(error) or type(error).__name__
                raise InvalidPattern(f"operator {operator!r} does not accept {pattern!r}: {said}") from error
    return operator, pattern


def _validate_topic(pattern: str) -> None:
    """Raises `InvalidPattern` unless every wildcard is a word of its own: `a.b*` is more likely a mistake than an address."""
    position = 0
    for number, word in enumerate(pattern.split(".")):
        if number == pattern_words_max:
            count = pattern.count(".") + 1
            raise InvalidPattern(
                f"topic pattern has {count} words, allowed are {pattern_words_max}: the next one is at {position}", position)
        if len(word) > 1:
            for at, character in enumerate(word):
                if character in "*#":
                    raise InvalidPattern(
                        f"topic pattern {pattern!r}: {character!r} at {position + at} must be a word of its own", position + at
                    )
        position += len(word) + 1


@cache
def _installed() -> dict[str, EntryPoint]:
    """The operators that installed packages offer, by name. Of two with the same name, a built-in one or the first one counts."""
    from importlib.metadata import entry_points  # imported here: it would be a third of the time that importing xump takes

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group="xump.operators"):
        if entry.name in BUILT_IN or found.setdefault(entry.name, entry) is not entry:
            whose = "built in" if entry.name in BUILT_IN else f"of the package {_package(found[entry.name])}"
            logger.error("operator %r of the package %s is left out: there is one of that name, %s",
                         entry.name, _package(entry), whose)
    return found


def _load(entry: EntryPoint) -> Matches:
    whose = f"operator {entry.name!r} of the package {_package(entry)}"
    try:
        matches: Matches = entry.load()
    except Exception as error:
        raise InvalidPattern(f"{whose} cannot be loaded from {entry.value!r}: {type(error).__name__}: {error}") from error
    if not callable(matches):
        raise InvalidPattern(f"{whose} must be callable as matches(pattern, value), got {type(matches).__name__}")
    return matches


def _package(entry: EntryPoint) -> str:
    return "of unknown name" if entry.dist is None else entry.dist.name
