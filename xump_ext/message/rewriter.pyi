"""Rewriters of dead letters: they say what a message is where it goes when it cannot be processed."""

from collections.abc import Callable
from typing import Any, final

@final
class Rewriter:
    """A registered rewriter."""

    @property
    def name(self) -> str: ...

def stand_in(name: str) -> None:
    """Queues of a store that is only looked at may have a rewriter of that name, though it is not registered."""

def _register(name: str, function: Callable[..., Any]) -> None: ...
def rewriter_names() -> list[str]:
    """The names of the registered rewriters, in the order of their registration."""

def rewriter_function(name: str) -> Callable[..., Any] | None:
    """The Python function of a registered rewriter; None: it is compiled."""
