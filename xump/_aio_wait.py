"""How tasks wait for an engine: what `xump.aio` is made of.

A task waits for a future, which a callback in the engine sets. One timer of the loop does whatever falls due meanwhile, the
alarm, for all tasks that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from xump._taking import Awaited
    from xump.engine import Engine
    from xump_ext.state.sleeper import Sleeper

Taken = TypeVar("Taken")


def soon(loop: asyncio.AbstractEventLoop, tell: Callable[..., object], *given: object) -> None:
    """Call `tell(*given)` in the loop, from any thread; nothing once the loop is closed: what waited there is gone with it."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(tell, *given)


class Alarm:
    """Does what falls due in an engine, for all tasks of one loop that wait for it; a context manager for each of them.

    It has one timer, for the next moment at which something falls due, and sets it anew when that changes.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._tasks = 0
        self._waits = True                                      # for disks, until a task begins to wait in `not_waiting`
        self._waiting: dict[asyncio.Future[None], None] = {}    # what the tasks wait for, in the order in which they came
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: Sleeper | None = None

    def __enter__(self) -> Self:
        self._tasks += 1
        self._engine._alarms[self._loop] = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._tasks -= 1
        if self._tasks == 0:
            del self._engine._alarms[self._loop]
            self._clear()

    def begin(self) -> asyncio.Future[None]:
        """A task waits for this future from now on, until `end`."""
        self._waits = self._waits and self._engine._patience.waits
        woken: asyncio.Future[None] = self._loop.create_future()
        self._waiting[woken] = None
        return woken

    def end(self, woken: asyncio.Future[None]) -> None:
        """The task does not wait for that future any more."""
        del self._waiting[woken]

    def set(self) -> None:
        """Set the timer, unless it is set."""
        if self._waiter is not None:
            return
        self._waiter = self._engine._await_alarm(self._moved)
        try:
            due = self._engine._seconds_until_due()
            self._timer = None if due is None else self._loop.call_later(due, self._ring)
        except BaseException:
            self._clear()
            raise

    def _clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._waiter is not None:
            self._engine._withdraw(self._waiter)
        self._timer = self._waiter = None

    def _moved(self) -> None:
        """The engine calls this, in any thread, when something falls due earlier than was known."""
        soon(self._loop, self._ring)

    def _ring(self) -> None:
        if self._tasks == 0 or self._engine.closed:     # they ended while this call was on its way, or closing has woken them
            return
        self._clear()
        try:
            with nullcontext() if self._waits else self._engine.not_waiting():
                self._engine.tick()
                self.set()
        except Exception as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        """One task that waits raises the error, as if its own call had done what fell due; the others look for themselves, and
        set the timer again."""
        for woken in self._waiting:
            if not woken.done():
                woken.set_exception(error)
                break
        else:                                   # all of them are awake already
            self._loop.call_exception_handler({"message": "what fell due in a Xump engine raised", "exception": error})
        for woken in self._waiting:
            _wake(woken)


async def wait(
    engine: Engine, take: Callable[[], Taken | None], awaited: Awaited, timeout: float | None, woken_by: Sleeper | None = None
) -> Taken | None:
    """Call `take()` until it returns something other than None, at most for `timeout` seconds; else return None. `awaited`:
    what it is woken for; or `woken_by` wakes it."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    with engine._alarms.get(loop) or Alarm(engine, loop) as alarm:
        while True:
            woken, timer = alarm.begin(), None
            wake = _waker(loop, woken)
            waiter = engine._await(awaited, wake, False)
            try:
                if woken_by is not None:
                    woken_by.call = wake
                alarm.set()
                taken = take()
                if taken is not None or (deadline is not None and loop.time() >= deadline):
                    return taken
                timer = None if deadline is None else loop.call_at(deadline, _wake, woken)
                await woken
            finally:
                if timer is not None:
                    timer.cancel()
                engine._withdraw(waiter)            # if the engine has called it, it is gone already
                alarm.end(woken)


def _waker(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> Callable[[], None]:
    """The callback for the engine, which may call it in any thread, twice, or after the loop has ended."""
    return partial(soon, loop, _wake, woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
