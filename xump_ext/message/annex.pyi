"""Kinds of annexes: their registration, and what a compiled reader puts."""

from collections.abc import Callable, Mapping

from xump_ext.message.message import _HeaderValue

KIND_MAX: int
KIND_OWN_MAX: int

def register_annex(
    kind: int, name: str, reader: Callable[[bytes], Mapping[str, _HeaderValue]] | None = None
) -> None:
    """Register a kind of annexes."""
