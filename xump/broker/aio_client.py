"""The client of a broker over Arrow Flight, for asyncio: `Client`, whose calls wait in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import pyarrow

from xump.broker.answers import Committed, Offsets, Plan, Published, Staged, Target
from xump.broker.client import COMMIT_SECONDS, Client
from xump.broker.taken import Taken

if TYPE_CHECKING:
    from xump.broker.client import Start
    from xump.types import Stats

T = TypeVar("T")

THREADS_MAX = 32
"""So many calls wait at once; more of them wait for their turn. Streams are none of them."""


class AsyncClient:
    """`Client` for asyncio: the same arguments, calls and errors; each call is awaited, or iterated over with `async for`.

    Flight has no calls that do not block, so each call waits in a thread, of at most 32, and each stream in one of its own. A
    task that is cancelled ends its stream; a call that is no stream goes on without it.

    >>> import asyncio, pyarrow
    >>> from xump import Engine
    >>> from xump.broker import AsyncClient, Broker
    >>> async def main():
    ...     with Engine() as engine:
    ...         async with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
    ...             async with AsyncClient(broker.flight.url) as client:
    ...                 await client.create_queue("jobs")
    ...                 print(await client.publish("jobs", pyarrow.table({"address": ["resize", "rotate"]})))
    ...                 async for batch in client.browse("jobs", columns=["id", "address"]):
    ...                     print(batch.to_pylist())
    >>> asyncio.run(main())
    Published(rows=2, first_id=1, last_id=2)
    [{'id': 1, 'address': 'resize'}, {'id': 2, 'address': 'rotate'}]
    """

    def __init__(
        self, endpoint: str = "grpc://127.0.0.1:8815", *, token: str | None = None, user: str | None = None,
        password: str | None = None, tls_root_certs: bytes | None = None, vhost: str = "/", timeout: float = 30.0,
    ) -> None:
        self._client = Client(endpoint, token=token, user=user, password=password, tls_root_certs=tls_root_certs, vhost=vhost,
                              timeout=timeout)
        self._threads = ThreadPoolExecutor(THREADS_MAX, "xump-client")
        self._streams: set[ThreadPoolExecutor] = set()
        """The threads of streams, one each."""

    async def _call(self, call: Callable[..., T], *given: Any, **options: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *given, **options))

    @contextmanager
    def _stream(self, end: Callable[[], object] = lambda: None) -> Iterator[Callable[..., Awaitable[Any]]]:
        """A block with a stream, and how its calls are made: in a thread of its own, since it may wait for long. That ends with
        `end()`, when the call has ended that is under way."""
        thread = ThreadPoolExecutor(1, "xump-client-stream")
        self._streams.add(thread)

        def ended() -> None:
            """The last call."""
            self._streams.discard(thread)
            end()

        try:
            yield partial(asyncio.get_running_loop().run_in_executor, thread)
        finally:
            with suppress(RuntimeError):        # the client was closed meanwhile, or the interpreter ends
                thread.submit(ended)
            thread.shutdown(wait=False)

    async def _each(self, begin: Callable[[], Iterator[T]], end: Callable[[], object] | None = None) -> AsyncIterator[T]:
        """The values of an iterator, of which each step waits in a thread; `end` wakes it when nobody waits for it any more."""
        with self._stream() as call:
            items = await call(begin)
            try:
                while (item := await call(next, items, None)) is not None:
                    yield item
            except (asyncio.CancelledError, GeneratorExit):
                if end is not None:
                    end()
                raise

    async def close(self) -> None:
        """Close the connection, when the calls have ended that are under way."""
        for threads in (*self._streams, self._threads):
            await asyncio.to_thread(threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- publishing and reading

    async def publish(
        self, queue: str, batches: Any, *, address: str | None = None, producer: str | None = None, sequence: int | None = None,
        on_full: Literal["wait", "error"] = "wait",
    ) -> Published:
        """As `Client.publish`. An iterable of batches is iterated over in a thread."""
        return await self._call(self._client.publish, queue, batches, address=address, producer=producer, sequence=sequence,
                                on_full=on_full)

    def publishing(
        self, queue: str, batches: Any, *, address: str | None = None, producer: str | None = None, sequence: int | None = None,
        on_full: Literal["wait", "error"] = "wait",
    ) -> AsyncIterator[Published]:
        """As `Client.publishing`."""
        return self._each(partial(self._client.publishing, queue, batches, address=address, producer=producer, sequence=sequence,
                                  on_full=on_full))

    async def browse(
        self, queue: str, *, start: Start = None, end: int | datetime | None = None, where: str | Mapping[str, Any] | None = None,
        state: str = "all", reverse: bool = False, columns: Sequence[str] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """As `Client.browse`: an iterator of record batches."""
        reader = await self._call(self._client.browse, queue, start=start, end=end, where=where, state=state, reverse=reverse,
                                  columns=columns, headers=headers)
        with self._stream(reader.close) as call:
            while (batch := await call(_next_of, reader)) is not None:
                yield batch

    def take(
        self, source: str, *, destination: bool = False, credit: int = 1000, timeout: float | None = None
    ) -> AsyncTaken:
        """As `Client.take`: `async with client.take("jobs") as taken`, in it `async for batch in taken`."""
        return AsyncTaken(self, partial(self._client.take, source, destination=destination, credit=credit, timeout=timeout))

    # ---- the graph

    async def create_queue(self, name: str, **properties: Any) -> None:
        """As `Client.create_queue`."""
        await self._call(self._client.create_queue, name, **properties)

    async def delete_queue(self, name: str) -> bool:
        """As `Client.delete_queue`."""
        return await self._call(self._client.delete_queue, name)

    async def lease(self, name: str, seconds: float) -> None:
        """As `Client.lease`."""
        await self._call(self._client.lease, name, seconds)

    async def purge(self, name: str, upto: int | None = None) -> int:
        """As `Client.purge`."""
        return await self._call(self._client.purge, name, upto)

    async def apply(self, topology: Mapping[str, Any]) -> None:
        """As `Client.apply`."""
        await self._call(self._client.apply, topology)

    async def topology(self) -> dict[str, Any]:
        """As `Client.topology`."""
        return await self._call(self._client.topology)

    async def stats(self) -> Stats:
        """As `Client.stats`."""
        return await self._call(self._client.stats)

    async def queues(self) -> list[dict[str, Any]]:
        """As `Client.queues`."""
        return await self._call(self._client.queues)

    async def clock(self) -> int:
        """As `Client.clock`."""
        return await self._call(self._client.clock)

    async def sync(self, queue: str | None = None) -> None:
        """As `Client.sync`."""
        await self._call(self._client.sync, queue)

    async def target(self, queue: str) -> Target:
        """As `Client.target`."""
        return await self._call(self._client.target, queue)

    async def offsets(self, queue: str) -> Offsets:
        """As `Client.offsets`."""
        return await self._call(self._client.offsets, queue)

    async def plan(self, queue: str, partitions: int, start: int | None = None, end: int | None = None) -> Plan:
        """As `Client.plan`."""
        return await self._call(self._client.plan, queue, partitions, start, end)

    # ---- what becomes visible whole

    async def stage(
        self, run: str, partition: int, attempt: int, target: str, batches: Any, *, key: tuple[str, int] | None = None,
        address: str | None = None,
    ) -> Staged:
        """As `Client.stage`."""
        return await self._call(self._client.stage, run, partition, attempt, target, batches, key=key, address=address)

    async def commit(
        self, run: str, target: str, winners: Iterable[Staged], *, key: tuple[str, int] | None = None,
        timeout: float | None = COMMIT_SECONDS,
    ) -> Committed:
        """As `Client.commit`."""
        return await self._call(self._client.commit, run, target, winners, key=key, timeout=timeout)

    async def abort(self, run: str, target: str, *, timeout: float | None = None) -> str:
        """As `Client.abort`."""
        return await self._call(self._client.abort, run, target, timeout=timeout)


class AsyncTaken:
    """Messages that are taken; made by `AsyncClient.take`."""

    def __init__(self, client: AsyncClient, begin: Callable[[], Taken]) -> None:
        self._client = client
        self._begin = begin
        self._taken: Taken

    async def __aenter__(self) -> Self:
        self._taken = await self._client._call(self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._taken._reader.cancel()        # wakes the thread that waits for a batch, if the task was cancelled

    def __aiter__(self) -> AsyncIterator[pyarrow.RecordBatch]:
        return self._client._each(lambda: self._taken.batches, self._taken._reader.cancel)

    async def ack(self, ids: Any) -> int:
        """As `Taken.ack`."""
        return await self._client._call(self._taken.ack, ids)

    async def nack(self, ids: Any) -> int:
        """As `Taken.nack`."""
        return await self._client._call(self._taken.nack, ids)


def _next_of(reader: pyarrow.RecordBatchReader) -> pyarrow.RecordBatch | None:
    """The next batch, or None."""
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None
