"""Checks of names and other short texts that programs pass.

Any `str` is accepted, and an exact `str` is returned. A subclass counts by its value, even if its `__str__` says something else:
a member of `enum.StrEnum` is its value.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from xump.limits import address_bytes_max

SHOWN_MAX = 8
"""So many names are in an error that says what is there."""

REPLIES = "xump.replies"
"""The queue to which replies to requests come. An engine makes it by itself."""


def shown(value: object) -> str:
    """A value as an error names it: its type, and what it is, in short."""
    return "NoneType" if value is None else f"{type(value).__name__} {reprlib.repr(value)}"


def plain(value: Any) -> Any:
    """A str of a subclass as an exact str, so that it is found by its value, whatever its hash; anything else as it is."""
    return value if type(value) is str or not isinstance(value, str) else str.__str__(value)


def text_of(value: object, what: str) -> str:
    """Return `value` as an exact str; `what` names the argument in errors.

    Raises TypeError for anything but a str, and ValueError, with the position, for text that UTF-8 cannot encode.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, got {shown(value)}")
    at = surrogate_in(value)
    if at is not None:
        raise ValueError(f"{what} has a lone surrogate, {value[at]!a}, at {at}, which UTF-8 cannot encode")
    return str.__str__(value)


def name_of(value: object, what: str) -> str:
    """Return the name of something as an exact str, as `text_of` does. A name must not be empty.

    A name has at most as many bytes as an address: it may become an address, and it is stored in records.
    """
    text = text_of(value, what)
    if not text:
        raise ValueError(f"{what} must not be empty")
    if len(text) > address_bytes_max // 4 and len(text.encode()) > address_bytes_max:
        raise ValueError(f"{what} has {len(text.encode())} bytes, allowed are {address_bytes_max}")
    return text


def what_is_there(name: object, names: Iterable[object], nothing: str = "there is none") -> str:
    """The end of an error like "no queue 'jbos' in this engine": the name that was meant perhaps, or those that there are."""
    there = list(names)
    like = get_close_matches(name, [other for other in there if isinstance(other, str)], 1) if isinstance(name, str) else []
    if like:
        return f"; did you mean {like[0]!r}?"
    if not there:
        return f"; {nothing}"
    shown = ", ".join(map(repr, there[:SHOWN_MAX]))
    return f"; there {'is' if len(there) == 1 else 'are'} {shown}" + (
        f" and {len(there) - SHOWN_MAX:,} more" if len(there) > SHOWN_MAX else "")


def surrogate_in(text: str) -> int | None:
    """Return the position of the first lone surrogate, or None. Cost: O(length)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
