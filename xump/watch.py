"""Watching the graph: what came and went, told when a call is over. `Engine.watch` begins it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.selector import Selector


class Change(NamedTuple):
    """Something that came into the graph of an engine, or went.

    - `what`: `"queue"` or `"selector"`.
    - `came`: True if it came, False if it went.
    - `thing`: the `Queue` or `Selector`. Of one that went only names and ids can be read.
    """

    what: Literal["queue", "selector"]
    """Whether it is a queue or a selector."""
    came: bool
    """Whether it came; else it went."""
    thing: Queue | Selector
    """The `Queue` or `Selector`. Of one that went only names and ids can be read."""


class Watch:
    """A function that is told of changes of the graph. Created by `Engine.watch`; as a context manager it stops at the end."""

    def __init__(self, engine: Engine, call: Callable[[list[Change]], object]) -> None:
        self._engine = engine
        self._call = call

    def __call__(self, changes: list[tuple[Any, ...]]) -> None:
        """Tell of changes. The engine calls this when a call is over."""
        self._call([Change(*change) for change in changes])

    def stop(self) -> None:
        """Tell no more. Does nothing the second time."""
        self._engine._watch_no_more(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()
