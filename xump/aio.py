"""Deliveries for asyncio: `async for delivery in xump.aio.deliveries(engine, "alice")`.

A task that waits leaves a callback with the engine. The call that offers the next delivery calls it, in whatever thread that call
runs; the callback asks the task's own loop to wake the task. No thread waits, and nothing polls. Waking carries no delivery: the
woken task takes one itself, and awaits nothing between taking and returning. So a task that is cancelled while it waits has taken
nothing. Any number of tasks, loops and threads may wait for one destination (consumer name); each delivery goes to one of them.

The engine's other calls wait for nothing in RAM: call them as they are. Calls that wait for a disk belong in a thread, as in
`await asyncio.to_thread(engine.sync)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from xump._taking import Awaited
    from xump.engine import Engine
    from xump.types import Destinations
    from xump_ext.engine.delivery import Delivery

Taken = TypeVar("Taken")

SWITCH_AFTER = 64
"""After so many deliveries without a wait the loop gets its turn, so that a backlog does not starve other tasks."""


def deliveries(engine: Engine, destination: Destinations = None, *, timeout: float | None = None) -> Deliveries:
    """Iterate over deliveries, as `Engine.deliveries` does, in `async for`.

    Args:
        engine: The engine to take from.
        destination: The destination (consumer name) to take from; several, as a list, tuple or set; None: all destinations.
        timeout: The iteration ends when there has been no delivery for this many seconds; None: never.

    Returns:
        An asynchronous iterator of `Delivery` objects. It does not yield messages again that were nacked after this call. You may
        leave it and go on with it later, also after its task was cancelled in it.

    Raises:
        Closed: The engine is closed, or is closed while the iteration waits.
        TypeError, ValueError: An argument is wrong.

    Cost: O(1) a delivery.

    >>> import asyncio
    >>> from xump import Engine, always, deliver
    >>> async def work(engine):
    ...     async for delivery in deliveries(engine, "worker", timeout=0.0):
    ...         with delivery as message:
    ...             print(message.address)
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
    ...     asyncio.run(work(engine))
    resize
    rotate
    """
    return Deliveries(engine, destination, timeout)


async def take(
    engine: Engine, n: int, destination: Destinations = None, *, timeout: float | None = 0.0
) -> list[Delivery]:
    """Take up to `n` deliveries, as `Engine.take` does, without blocking the loop.

    Args:
        engine: The engine to take from.
        n: The largest number of deliveries to take.
        destination: The destination (consumer name) to take from; several, as a list, tuple or set; None: all destinations.
        timeout: How many seconds to wait for the first delivery, if there is none; None: for ever.

    Returns:
        The deliveries that there are, at most `n`; an empty list if there is none after `timeout`.

    Raises:
        Closed: The engine is closed, or is closed while the call waits.
        TypeError, ValueError: An argument is wrong.

    Cost: O(n).

    >>> import asyncio
    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     number = jobs.publish("resize")
    ...     [delivery] = asyncio.run(take(engine, 10, "worker"))
    ...     delivery.message.address
    'resize'
    """
    wanted = engine._checked_taking(destination, timeout)
    taken: list[Delivery] = engine.take(n, wanted)
    if taken or timeout == 0 or n == 0:
        return taken
    return await _wait(engine, lambda: engine._take(n, wanted) or None, wanted, timeout) or []


class Deliveries(AsyncIterator["Delivery"]):
    """An asynchronous iterator of deliveries. Created by `deliveries`."""

    def __init__(self, engine: Engine, destination: Destinations, timeout: float | None) -> None:
        self._engine = engine
        self._destination = engine._checked_taking(destination, timeout)
        self._timeout = timeout
        self._source = engine.deliveries(destination, timeout=timeout)
        self._since_wait = 0

    def __aiter__(self) -> Deliveries:
        return self

    async def __anext__(self) -> Delivery:
        if self._since_wait >= SWITCH_AFTER:
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
    engine: Engine, take: Callable[[], Taken | None], awaited: Awaited, timeout: float | None
) -> Taken | None:
    """Call `take()` until it returns something other than None, at most for `timeout` seconds; else return None."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    while True:
        woken: asyncio.Future[None] = loop.create_future()
        waiter = engine._await(awaited, _waker(loop, woken))
        alarm = None
        try:
            taken = take()
            if taken is not None or (deadline is not None and loop.time() >= deadline):
                return taken
            due = engine._seconds_until_due()
            moments = [deadline, None if due is None else loop.time() + due]
            alarm_at = min((moment for moment in moments if moment is not None), default=None)
            alarm = None if alarm_at is None else loop.call_at(alarm_at, _wake, woken)
            await woken
        finally:
            if alarm is not None:
                alarm.cancel()
            engine._withdraw(waiter)            # if the engine has called it, it is gone already


def _waker(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> Callable[[], None]:
    """The callback for the engine, which may call it in any thread, twice, or after the loop has ended."""

    def wake() -> None:
        with suppress(RuntimeError):            # the loop is closed, and the task that waited is gone with it
            loop.call_soon_threadsafe(_wake, woken)

    return wake


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
