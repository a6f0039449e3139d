"""A selector: a condition and an action on a queue. Its properties are in `SelectorHandle`; here are its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xump_ext.engine.handles import SelectorHandle
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.actions import Action
    from xump.conditions import Condition
    from xump.engine import Engine
    from xump.queue import Queue


class Selector(SelectorHandle):
    """A selector of an engine. Equal to its number; made by `Engine.create_selector`."""

    if TYPE_CHECKING:       # what the core holds without knowing it

        @property
        def engine(self) -> Engine: ...

        @property
        def source(self) -> Queue: ...

        @property
        def when(self) -> Condition: ...

        @property
        def do(self) -> Action: ...

    def grant(self, n: int) -> None:
        """Widen the window by n credits; a negative n narrows it, down to what is outstanding. Settles nothing.

        Raises ValueError for a selector with INFINITE credit, and for a window below what is outstanding.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n must be a number of credits, got {type(n).__name__}")
        self.engine._grant(self, n)

    def pay(self, n: int = 1) -> None:
        """Pay for the n messages that the application took first from this selector, and has not paid for.

        For selectors that deliver to the application only: the others are paid from below. Raises ValueError for more than
        were taken.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n must be a number of messages, got {type(n).__name__}")
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        if self.do.verb != "deliver" or self.do.queue is not None:
            raise ValueError(f"selector {self.id} does {self.do!r} and is paid from below; only deliveries are paid for")
        if self.credit is INFINITE:
            raise ValueError(f"selector {self.id} has INFINITE credit; what it delivers is settled when it is taken")
        self.engine._pay(self, n)

    def enable(self) -> None:
        """Let it copy and take. Idempotent."""
        self.engine._enable(self, True)

    def disable(self) -> None:
        """Stop the copying and taking; what it has taken stays outstanding. Idempotent."""
        self.engine._enable(self, False)

    def delete(self) -> bool:
        """`Engine.delete_selector` of this one: what is outstanding returns to its queue."""
        return self.engine.delete_selector(self)
