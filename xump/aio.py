"""The engine's calls that wait, for asyncio: `async for delivery in xump.aio.deliveries(engine, "alice")`.

A task that waits leaves a callback with the engine. The call that offers the next delivery calls it, in whatever thread that call
runs; the callback asks the task's own loop to wake the task. No thread waits, and nothing polls. Waking carries no delivery: the
woken task takes one itself, and awaits nothing between taking and returning. So a task that is cancelled while it waits has taken
nothing. Any number of tasks, loops and threads may wait for one destination (consumer name); each delivery goes to one of them.

Something may fall due while tasks wait: a delay or a retry ends, a message expires. One timer of the loop, for all of its tasks
that wait for an engine, then calls `engine.tick()`, and that wakes those for whom something came.

The engine's other calls wait for nothing in RAM: call them as they are. With queues on disk, enter `engine.not_waiting()` once
in the loop's thread, and await `durable(engine)` instead of calling `engine.sync()`. Await nothing inside a `building()` block:
other tasks would be in it, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from xump._aio_wait import soon, wait
from xump._arguments import check_timeout
from xump._requests import no_reply
from xump.errors import StoreFull

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.types import Body, Destinations, Headers, Moment
    from xump_ext.engine.delivery import Delivery
    from xump_ext.engine.publishers import Publisher
    from xump_ext.message.message import Message

SWITCH_AFTER = 64
"""After so many deliveries without a wait the loop gets its turn, so that a backlog does not starve other tasks."""


def deliveries(engine: Engine, destination: Destinations = None, *, timeout: float | None = None) -> Deliveries:
    """Iterate over deliveries, as `Engine.deliveries` does, in `async for`.

    Args:
        engine: The engine to take from.
        destination: The destination (consumer name) to take from; several, as a list, tuple or set; None: all destinations.
        timeout: The iteration ends when there has been no delivery for this many seconds; None: never.

    Returns:
        An asynchronous iterator of `Delivery` objects. It does not yield messages again that were nacked after this call, unless
        they come back by time (`retry_delay`). You may leave it and go on with it later, also after its task was cancelled in it.

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
    return await wait(engine, lambda: engine._take(n, wanted) or None, wanted, timeout) or []


async def get(engine: Engine, queue: str | Queue, *, timeout: float | None = 0.0) -> Delivery | None:
    """Take a message out of a queue by hand, as `Engine.get` does, without blocking the loop.

    Args:
        engine: The engine of the queue.
        queue: The queue, or its name.
        timeout: How many seconds to wait for a message; 0: do not wait; None: for ever.

    Returns:
        A delivery of the first message that is free, or None, as from `Engine.get`.

    Raises:
        QueueNotFound: No queue has this name, or it is deleted while the call waits.
        Closed: The engine is closed, or is closed while the call waits.
        StoreFailed, TypeError, ValueError: As `Engine.get`.

    Cost: that of `Engine.get`.

    >>> import asyncio
    >>> from xump import Engine
    >>> with Engine() as engine:
    ...     number = engine.create_queue("jobs").publish("resize")
    ...     delivery = asyncio.run(get(engine, "jobs"))
    ...     delivery.message.address
    'resize'
    """
    may_wait = _may_wait(engine, timeout)
    delivery = engine.get(queue)
    if delivery is not None or not may_wait:
        return delivery
    engine._check_open()
    handle = engine._queue(queue, "queue")
    return await wait(engine, lambda: engine._get(handle), handle, timeout)


async def publish(
    engine: Engine,
    queue: str | Queue,
    address: str | Message = "",
    body: Body = b"",
    headers: Headers | None = None,
    *,
    reply_to: str | None = None,
    message_id: str | None = None,
    correlation_id: str | None = None,
    delay: float | None = None,
    at: Moment | None = None,
    ttl: float | None = None,
    expires: Moment | None = None,
    priority: int = 0,
    timeout: float | None = 0.0,
) -> int:
    """Publish a message, as `Engine.publish` does, and wait for room without blocking the loop.

    Args:
        engine: The engine to publish in.
        queue: The queue that the message enters: its name, or a `Queue`.
        address, body, headers, reply_to, message_id, correlation_id: As for `Engine.publish`.
        delay, at, ttl, expires, priority: As for `Engine.publish`.
        timeout: How many seconds to wait for room, if the queue is full; None: for ever.

    Returns:
        The id that the queue issued; 0 if the message went to a dead letter queue instead.

    Raises:
        QueueFull: The queue is full, also after `timeout`.
        Closed: The engine is closed, or is closed while the call waits.
        QueueNotFound, StoreFull, StoreFailed, TypeError, ValueError: As `Engine.publish`.

    If it raises, nothing has changed. A task that is cancelled while it waits has published nothing, unless there was room just
    before.

    Cost: that of `Engine.publish`.

    >>> import asyncio
    >>> from xump import Engine
    >>> async def fill_and_empty(engine):
    ...     waiting = asyncio.ensure_future(publish(engine, "jobs", "rotate", timeout=None))
    ...     await asyncio.sleep(0)              # the queue is full: it waits
    ...     engine.get("jobs").ack()            # makes room
    ...     return await waiting
    >>> with Engine() as engine:
    ...     number = engine.create_queue("jobs", limit=1).publish("resize")
    ...     asyncio.run(fill_and_empty(engine))
    2
    """
    given = (address, body, headers, reply_to, message_id, correlation_id, delay, at, ttl, expires, priority)
    if not _may_wait(engine, timeout):
        return engine._publish_at_once(queue, *given)
    now = asyncio.get_running_loop().time
    end = None if timeout is None else now() + timeout
    while True:
        held: list[Publisher] = []
        try:
            publisher = engine._publish_later(held, _nobody, queue, *given)
            waited = publisher.waits
            if waited:
                left = None if end is None else max(end - now(), 0.0)
                await wait(engine, partial(_let_in, engine, publisher), (("room", id(publisher)),), left, publisher)
        finally:
            still_waits = engine._still_waits(held)
        if not (waited and isinstance(publisher.error, StoreFull)):     # else the call that let it in cleaned no store
            return engine._publish_no_longer(publisher, still_waits, queue, *given)


def _let_in(engine: Engine, publisher: Publisher) -> bool | None:
    if publisher.waits:
        engine._check_open()
    return None if publisher.waits else True


async def request(
    engine: Engine,
    queue: str | Queue,
    address: str = "",
    body: Body = b"",
    headers: Headers | None = None,
    *,
    timeout: float | None = 30.0,
) -> Message:
    """Publish a request and wait for the reply, as `Engine.request` does, without blocking the loop.

    Args:
        engine: The engine to publish in.
        queue: The queue that the request enters.
        address, body, headers: As for `Engine.request`.
        timeout: How many seconds to wait for the reply; None: for ever.

    Returns:
        The reply; or the request itself, if it was bounced.

    Raises:
        RequestTimeout: No reply came in time. One that comes later is dropped and counted (`late`).
        Closed: The engine is closed, or is closed while the call waits.
        QueueNotFound, QueueFull, StoreFull, StoreFailed, TypeError, ValueError: As `Engine.publish`.

    A task that is cancelled does not wait any more; its request stays where it is.

    Cost: two publishes, and waking a task if the reply does not come at once.

    >>> import asyncio
    >>> from xump import Engine, always, deliver
    >>> async def work(engine):
    ...     async for delivery in deliveries(engine, "upper", timeout=0.0):
    ...         with delivery as message:
    ...             delivery.reply(message.body.upper())
    >>> async def ask(engine):
    ...     asking = asyncio.ensure_future(request(engine, "upper", body=b"hello"))
    ...     await asyncio.sleep(0)
    ...     await work(engine)
    ...     return (await asking).body
    >>> with Engine() as engine:
    ...     queue = engine.create_queue("upper")
    ...     selector = engine.create_selector("upper", when=always, do=deliver("upper"))
    ...     asyncio.run(ask(engine))
    b'HELLO'
    """
    check_timeout(timeout)
    asked = engine._requested(queue, address, body, headers, _nobody)

    def answer() -> Message | None:
        if asked.answer is None:
            engine._check_open()
        return asked.answer

    try:
        reply = asked.answer
        if reply is None and _may_wait(engine, timeout):
            reply = await wait(engine, answer, (("reply", asked.message_id),), timeout, asked)
    finally:
        engine._end_request(asked)
    if reply is None:
        raise no_reply(queue, timeout)
    return reply


async def durable(engine: Engine) -> None:
    """Wait until everything that was done before this call is durable, without blocking the loop.

    Args:
        engine: The engine whose stores to wait for.

    Raises:
        StoreFailed: A write or an fsync failed.
        Closed: The engine is closed.

    Durable is what `Engine.when_durable` calls so. If the engine is closed meanwhile, that makes everything durable, too. A
    task that is cancelled does not wait any more; the changes become durable all the same.

    Cost: the stores write at once what they have gathered; tasks that wait at the same time share that.

    >>> import asyncio
    >>> from xump import Engine
    >>> async def confirm(engine):
    ...     number = engine.publish("jobs", "resize")
    ...     await durable(engine)
    ...     return number
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     asyncio.run(confirm(engine))
    1
    """
    await _told(engine.when_durable)


async def relieved(engine: Engine) -> None:
    """Wait until the engine is not `pressed`, without blocking the loop. Returns at once if it is not.

    Args:
        engine: The engine in which to publish less; see `Engine.not_waiting`.

    Raises:
        StoreFailed: A store has failed, and will not catch up.
        Closed: The engine is closed.

    >>> import asyncio
    >>> from xump import Engine
    >>> async def fill(engine):
    ...     with engine.not_waiting():
    ...         for number in range(1000):
    ...             engine.publish("jobs", str(number))
    ...             if engine.pressed:
    ...                 await relieved(engine)
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     asyncio.run(fill(engine))
    ...     jobs.ready
    1000
    """
    if engine.pressed or engine.closed:
        await _told(engine.when_relieved)


async def _told(ask: Callable[[Callable[[BaseException | None], object]], None]) -> None:
    """Wait until the engine calls back; raise the error that it calls with."""
    loop, own = asyncio.get_running_loop(), threading.get_ident()
    future: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if threading.get_ident() == own:        # before `ask` returns: the loop need not be woken
            _settle(future, error)
            return
        soon(loop, _settle, future, error)

    ask(tell)
    await future


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():                           # it was cancelled
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _nobody() -> None:
    """Wakes nobody: the task that called has not begun to wait."""


def _may_wait(engine: Engine, timeout: float | None) -> bool:
    check_timeout(timeout)
    return timeout != 0 and not engine._is_building()


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
            self._source.warn()
            delivery = await wait(self._engine, self._source.take, self._destination, self._timeout)
        if delivery is None:
            raise StopAsyncIteration
        return delivery
