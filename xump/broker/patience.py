"""The broker's loop does not wait for disks: whatever it does in an engine is in a block of `Engine.not_waiting`.

A block holds for a thread, and a task that awaits inside one would take others with it. So each step of a task, from one `await`
to the next, is in a block of its own (`in_steps`). A change that the stores have no room for yet is made when they have some
(`with_room`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import xump.aio
from xump.errors import Closed, StoreFull

if TYPE_CHECKING:
    from xump.engine import Engine

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def not_waiting(engine: Engine) -> Iterator[None]:
    """As `Engine.not_waiting`; the block is carried out, too, if the engine is closed."""
    with ExitStack() as stack:
        with suppress(Closed):
            stack.enter_context(engine.not_waiting())
        yield


async def in_steps(engine: Engine, work: Callable[P, Coroutine[Any, Any, T]], *given: P.args, **named: P.kwargs) -> T:
    """Await `work(...)`, with each of its steps in a block of `not_waiting`."""
    return await _Steps(engine, work(*given, **named))


class _Steps(Generic[T]):
    """A coroutine that is carried out in steps."""

    def __init__(self, engine: Engine, coroutine: Coroutine[Any, Any, T]) -> None:
        self._engine = engine
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            with not_waiting(self._engine):
                try:
                    awaited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
                except StopIteration as end:
                    found: T = end.value
                    return found
            error = None
            try:
                yield awaited
            except BaseException as raised:             # it was cancelled, or the loop has ended
                error = raised


async def with_room(engine: Engine, do: Callable[[], T]) -> T:
    """Call `do()`, which changes nothing if it raises `StoreFull`; again, if the stores can make room for it. Raises `StoreFull`
    if they cannot."""
    while True:
        try:
            return do()
        except StoreFull:
            if not engine.pressed:
                raise
        await xump.aio.relieved(engine)
