"""Outbox, inbox and tasks with asyncio: the same statements and loops, waiting through the event loop.

Nothing is written twice here: an `AsyncConnection` runs the synchronous code in SQLAlchemy's greenlet, as it runs the driver's.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.util import greenlet_spawn

from xump.sql import cleaner, inbox, metrics, outbox, processor, relay, scaler, schema, tasks, worker
from xump.sql.hosts import LoopHost
from xump.sql.schema import configure_sqlite
from xump.sql.tables import Tables, tables
from xump.sql.transactions import refuse
from xump.sql.wake import Wake

__all__ = ["Inbox", "Metrics", "Outbox", "Running", "Task", "Tasks", "Wake", "check", "configure_sqlite", "init", "tables"]

Connecting = AsyncConnection | AsyncSession


async def init(engine: AsyncEngine, tables: Tables | None = None) -> None:
    """Create the tables that are missing, as `xump.sql.init` does."""
    await greenlet_spawn(schema.init, engine.sync_engine, tables)


async def check(engine: AsyncEngine, tables: Tables | None = None) -> None:
    """Tell whether the tables are there, as `xump.sql.check` does."""
    await greenlet_spawn(schema.check, engine.sync_engine, tables)


class Running:
    """A relay, processor, worker, cleaner or scaler. `loop` is the synchronous one, with its counts."""

    def __init__(self, loop: relay.Relay | processor.Processor | worker.Worker | cleaner.Cleaner | scaler.Scaler) -> None:
        self.loop: Any = loop
        """The object whose calls run in the greenlet."""

    async def run(self) -> None:
        """Run until `stop()`."""
        await greenlet_spawn(self.loop.run)

    async def step(self) -> Any:
        """One round: of a relay, a processor, a cleaner or a scaler."""
        return await greenlet_spawn(self.loop.step)

    async def drain(self) -> int:
        """Run tasks until none is due, of a worker; send until nothing is left, of a relay."""
        return int(await greenlet_spawn(self.loop.drain))

    def stop(self) -> None:
        """Have `run` return."""
        self.loop.stop()


class Looked:
    """The calls of all three for those that look after them."""

    _sync: Any

    async def stats(self, connection: Connecting) -> dict[str, Any]:
        """How much is there, in numbers."""
        return dict(await connection.run_sync(self._sync.stats))

    async def dead(self, connection: Connecting, limit: int = 100) -> list[dict[str, Any]]:
        """The dead rows, each with its `error`."""
        return list(await connection.run_sync(self._sync.dead, limit))

    async def revive(self, connection: Connecting, ids: Iterable[int]) -> Any:
        """Have what is dead tried again."""
        return await connection.run_sync(self._sync.revive, ids)

    async def drop(self, connection: Connecting, ids: Iterable[int]) -> int:
        """Give what is dead up."""
        return int(await connection.run_sync(self._sync.drop, ids))


class Outbox(Looked):
    """`xump.sql.Outbox` with awaits; the arguments are the same."""

    def __init__(self, **options: Any) -> None:
        self._sync: outbox.Outbox = outbox.Outbox(**options)

    def waking(self, connection: Connecting | None = None) -> AbstractContextManager[None]:
        """Wake relays when the block has ended without an exception: `with outbox.waking():`, and the commit in it."""
        return self._sync.waking()

    async def publish(self, connection: Connecting, queue: str, address: str = "", body: bytes = b"", headers: Any = None,
                      **options: Any) -> str:
        """Write a message into the outbox, in the transaction of `connection`."""
        return await connection.run_sync(self._sync.publish, queue, address, body, headers, **options)

    async def publish_many(self, connection: Connecting, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Write many."""
        return await connection.run_sync(self._sync.publish_many, rows)

    def relay(self, target: Any, *, engine: AsyncEngine, batch: int = 2000, poll: float = 1.0, lease: float = 30.0,
              max_attempts: int = 5, retry_delay: float | tuple[float, ...] = (1, 5, 30), on_dead: str = "block") -> Running:
        """Make a relay. Its target may block: it is called in a thread."""
        return Running(relay.Relay(self._sync, target, LoopHost(engine), batch=batch, poll=poll, lease=lease,
                                   max_attempts=max_attempts, retry_delay=retry_delay, on_dead=on_dead))


class Inbox(Looked):
    """`xump.sql.Inbox` with awaits; handlers are coroutine functions."""

    def __init__(self, **options: Any) -> None:
        self._sync: inbox.Inbox = inbox.Inbox(**options)

    @asynccontextmanager
    async def once(self, connection: Connecting, delivery: Any = None, *, source: str | None = None,
                   message_id: str | None = None) -> AsyncIterator[bool]:
        """Mark a message as done in the transaction of `connection`, and say whether it was not before."""
        fresh, began = await connection.run_sync(self._sync._mark, delivery, source, message_id)
        yield fresh
        await greenlet_spawn(refuse, began)

    async def handle(self, engine: AsyncEngine, delivery: Any, handler: Callable[..., Any]) -> bool:
        """Handle a message once, and ack it."""
        return bool(await greenlet_spawn(self._sync._handle, LoopHost(engine), delivery, handler))

    async def receive(self, engine: AsyncEngine, deliveries: Any) -> int:
        """Store messages, commit, and ack them."""
        return int(await greenlet_spawn(self._sync.receive, engine.sync_engine, deliveries))

    async def purge(self, engine: AsyncEngine) -> int:
        """Forget what was done long ago."""
        return int(await greenlet_spawn(self._sync.purge, engine.sync_engine))

    def process(self, handler: Callable[..., Any], *, engine: AsyncEngine, workers: int = 1, batch: int = 10, lease: float = 60.0,
                poll: float = 1.0, max_attempts: int = 5, retry_delay: float | tuple[float, ...] = (1, 10, 60)) -> Running:
        """Make a processor of stored messages, which handles so many of them at once."""
        return Running(processor.Processor(self._sync, handler, LoopHost(engine), workers=workers, batch=batch, lease=lease,
                                           poll=poll, max_attempts=max_attempts, retry_delay=retry_delay))


class Task:
    """A coroutine function that is a task. Await a call of it, and it runs here and now; `enqueue` it, and a worker runs it."""

    def __init__(self, made: tasks.Task) -> None:
        self._sync = made
        functools.update_wrapper(self, made.spec.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._sync(*arguments, **named)

    async def enqueue(self, connection: Connecting, *arguments: Any, **named: Any) -> int:
        """Enqueue it in the transaction of `connection`, with these arguments. Returns the id."""
        return await connection.run_sync(lambda one: self._sync.enqueue(one, *arguments, **named))


class Tasks(Looked):
    """`xump.sql.Tasks` with awaits; tasks are coroutine functions."""

    def __init__(self, engine: AsyncEngine, **options: Any) -> None:
        self._engine = engine
        self._sync: tasks.Tasks = tasks.Tasks(engine.sync_engine, **options)

    def task(self, name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Task]:
        """Make a coroutine function a task."""
        def _made(function: Callable[..., Any]) -> Task:
            return Task(self._sync.task(name, **options)(function))

        return _made

    def waking(self) -> AbstractContextManager[None]:
        """Wake workers when the block has ended without an exception: `with tasks.waking():`, and the commit in it."""
        return self._sync.waking()

    async def enqueue(self, connection: Connecting, name: str, payload: Any = None, **options: Any) -> int:
        """Enqueue a task in the transaction of `connection`."""
        return await connection.run_sync(self._sync.enqueue, name, payload, **options)

    async def enqueue_many(self, connection: Connecting, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """Enqueue many."""
        return await connection.run_sync(self._sync.enqueue_many, rows)

    async def cancel(self, connection: Connecting, id: int) -> bool:
        """Take back a task that waits."""
        return await connection.run_sync(self._sync.cancel, id)

    def worker(self, *, concurrency: int = 1, prefetch: int = 0, lanes: Iterable[str] | None = None, poll: float = 1.0,
               retry_time: float = 0.2, giveup_time: float = 5.0) -> Running:
        """Make a worker, which runs tasks in this event loop."""
        return Running(worker.Worker(self._sync, LoopHost(self._engine), concurrency=concurrency, prefetch=prefetch, lanes=lanes,
                                     poll=poll, retry_time=retry_time, giveup_time=giveup_time))

    def schedule(self, name: str, cron: str, task: str, payload: Any = None, *, missed: str = "once", zone: str = "UTC") -> None:
        """Have a task come again and again."""
        self._sync.schedule(name, cron, task, payload, missed=missed, zone=zone)

    def scaler(self, command: str | Iterable[str], *, minimum: int = 1, maximum: int, drain: float = 60.0,
               interval: float = 5.0) -> Running:
        """Make a scaler, which starts and ends processes of workers."""
        return Running(scaler.Scaler(self._sync, LoopHost(self._engine), command, minimum, maximum, drain, interval))

    def cleaner(self, *, interval: float = 60.0) -> Running:
        """Make a cleaner."""
        return Running(cleaner.Cleaner(self._sync, LoopHost(self._engine), interval))


class Metrics:
    """`xump.sql.Metrics` with awaits, of what is made here; `loops` are what these have made."""

    def __init__(self, engine: AsyncEngine, *, outbox: Outbox | None = None, inbox: Inbox | None = None,
                 tasks: Tasks | None = None, loops: Mapping[str, list[Running]] | None = None, every: float = 5.0) -> None:
        self._engine = engine
        self._sync: metrics.Metrics = metrics.Metrics(
            engine.sync_engine, outbox=None if outbox is None else outbox._sync, inbox=None if inbox is None else inbox._sync,
            tasks=None if tasks is None else tasks._sync,
            loops={name: [each.loop for each in given] for name, given in (loops or {}).items()}, every=every)

    @property
    def numbers(self) -> dict[str, metrics.Numbers]:
        """As the last look had them."""
        return self._sync.numbers

    async def look(self) -> dict[str, metrics.Numbers]:
        """Ask the database now."""
        return await greenlet_spawn(self._sync.look)

    async def run(self) -> None:
        """Look each `every` seconds, until `stop()`."""
        await greenlet_spawn(self._sync._run, LoopHost(self._engine))

    def stop(self) -> None:
        """Have `run` return."""
        self._sync.stop()

    def show_on(self, broker: Any) -> None:
        """Show the numbers on the live page of an `xump.broker.Broker`, and in its `/metrics`."""
        self._sync.show_on(broker)
