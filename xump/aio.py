"""Deliveries for asyncio: `async for delivery in xump.aio.deliveries(engine, "alice")`.

Who waits leaves a callback with the engine, which the next offer calls, in whatever thread that happens; the callback
asks the waiting task's own loop to wake it. No thread waits and nothing polls. The waking carries no delivery: the woken task
takes for itself, and nothing is awaited between its taking and its return, so a task that is cancelled while it waits
has taken nothing. Any number of tasks, loops and threads may wait for one destination; each delivery goes to one of them.

The engine's other calls do not wait for anything (but `sync`, for a disk) and are called as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump_ext.engine.delivery import Delivery

Taken = TypeVar("Taken")

TURN = 64
"""After so many deliveries without a wait the loop has its turn, so that a backlog starves no other task."""


def deliveries(engine: Engine, destination: str | None = None, *, timeout: float | None = None) -> Deliveries:
    """An asynchronous iterator over deliveries, as `Engine.deliveries` is an iterator: the same order, the same arguments.

    It ends when nothing has been deliverable for `timeout` seconds (None: never). What was nacked after it began is not yielded
    by it again. It may be left and resumed, also after its task was cancelled in it. Raises `Closed` when the engine is closed.
    """
    return Deliveries(engine, destination, timeout)


async def take(
    engine: Engine, n: int, destination: str | None = None, *, timeout: float | None = None
) -> list[Delivery]:
    """Up to n deliveries, in order of delivery; waits up to `timeout` seconds (None: for ever) for the first one."""
    engine.deliveries(destination, timeout=timeout)     # checks the arguments
    taken: list[Delivery] = engine.take(n, destination)
    if taken or timeout == 0 or n == 0:
        return taken
    return await _wait(engine, lambda: engine.take(n, destination) or None, destination, timeout) or []


class Deliveries(AsyncIterator["Delivery"]):
    """What `deliveries` returns."""

    def __init__(self, engine: Engine, destination: str | None, timeout: float | None) -> None:
        self._engine = engine
        self._destination = destination
        self._timeout = timeout
        self._source = engine.deliveries(destination, timeout=timeout)
        self._since_wait = 0

    def __aiter__(self) -> Deliveries:
        return self

    async def __anext__(self) -> Delivery:
        if self._since_wait >= TURN:
            self._since_wait = 0
            await asyncio.sleep(0)
        self._since_wait += 1
        delivery: Delivery | None = self._source.take()
        if delivery is None and self._timeout != 0:
            self._since_wait = 0
            delivery = await _wait(self._engine, self._source.take, self._destination, self._timeout)
        if delivery is None:
            raise StopAsyncIteration
        return delivery


async def _wait(
    engine: Engine, take: Callable[[], Taken | None], destination: str | None, timeout: float | None
) -> Taken | None:
    """What `take()` gives once it gives something; None after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    while True:
        woken: asyncio.Future[None] = loop.create_future()
        waiter = engine._await(destination, _waker(loop, woken))
        alarm = None if deadline is None else loop.call_at(deadline, _wake, woken)
        try:
            taken = take()
            if taken is not None or (deadline is not None and loop.time() >= deadline):
                return taken
            await woken
        finally:
            if alarm is not None:
                alarm.cancel()
            engine._withdraw(waiter)            # the engine has done so where it woke


def _waker(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> Callable[[], None]:
    """What the engine calls, in any thread, perhaps when the loop has ended, perhaps twice."""

    def wake() -> None:
        with suppress(RuntimeError):            # the loop is closed, and the task that waited with it
            loop.call_soon_threadsafe(_wake, woken)

    return wake


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
