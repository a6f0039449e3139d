"""What looks like a function and is none: conditions and actions that are written without parentheses."""

from __future__ import annotations

from typing import NoReturn


class Inert:
    """A value that somebody may try to call. It is no callable, though Python says so: `where` and the like refuse it."""

    __slots__ = ()

    def __call__(self, *arguments: object, **named: object) -> NoReturn:
        raise TypeError(f"{self!r} is a value, not a function: write it without the parentheses behind it")
