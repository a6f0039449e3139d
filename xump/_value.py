"""The base of conditions and actions: values that a program writes without parentheses and may mistake for functions."""

from __future__ import annotations

from inspect import cleandoc
from typing import NoReturn, TypeVar

Described = TypeVar("Described")


class Value:
    """The base class of conditions and actions.

    Calling a value raises a TypeError that names the mistake: `always()` for `always`. So `callable(value)` is true, and code
    that accepts functions (`where`, for example) has to refuse a `Value`.
    """

    __slots__ = ()

    def __call__(self, *arguments: object, **named: object) -> NoReturn:
        raise TypeError(f"{self!r} is a value, not a function: write it without parentheses")


def described(value: Described, doc: str) -> Described:
    """Give a single instance a docstring of its own, which `help()` shows. Returns the instance.

    The docstring is not a part of the value: `==`, `hash` and pickle do not see it.
    """
    object.__setattr__(value, "__doc__", cleandoc(doc))
    return value
