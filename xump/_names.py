"""Names and other short texts, as programs give them: any str, checked, and made an exact one.

A subclass counts by its value, also where its `__str__` says something else: a member of `enum.StrEnum` is its value.
"""

from __future__ import annotations

from xump.limits import address_bytes_max


def text_of(value: object, what: str) -> str:
    """The exact str. Raises TypeError for what is none, ValueError, with the position, for what UTF-8 cannot express."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, got {type(value).__name__}")
    at = surrogate_in(value)
    if at is not None:
        raise ValueError(f"{what} has a lone surrogate, {value[at]!a}, at {at}: UTF-8 does not have that")
    return str.__str__(value)


def name_of(value: object, what: str) -> str:
    """`text_of` something that must have a name: it is not empty, and has at most as many bytes as an address, which it may
    become; in records it stands, too."""
    text = text_of(value, what)
    if not text:
        raise ValueError(f"{what} must not be empty")
    if len(text) > address_bytes_max // 4 and len(text.encode()) > address_bytes_max:
        raise ValueError(f"{what} has {len(text.encode())} bytes, allowed are {address_bytes_max}")
    return text


def surrogate_in(text: str) -> int | None:
    """Where the first lone surrogate is, or None. O(length)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
