"""Where loops run: in a thread that may block, or in an event loop. Their code is written once, for both.

In an event loop the work runs in SQLAlchemy's greenlet: its statements wait through the loop as those of `AsyncEngine` do, and so
does what this module waits for.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

logger = logging.getLogger("xump.sql")


def _guarded(function: Callable[[], None]) -> None:
    """The renewal of leases goes on, whatever was wrong once: without it, others would take what runs here."""
    try:
        function()
    except Exception:
        logger.exception("what is done again and again failed; it goes on")


class ThreadPlaces:
    """Threads."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="xump-task")

    def start(self, function: Callable[[Any], None], argument: Any) -> None:
        """Run it as soon as a place is free."""
        self._pool.submit(function, argument)

    def end(self) -> None:
        """Wait for all."""
        self._pool.shutdown()


class OwnPlace:
    """The thread that asks: for one that has nothing else to do meanwhile. It spares two changes of threads for each function."""

    def start(self, function: Callable[[Any], None], argument: Any) -> None:
        """Run it now. `argument.error` is what it raised: Ctrl-C is for this thread, not for the function."""
        function(argument)
        if isinstance(argument.error, KeyboardInterrupt):
            raise argument.error

    def end(self) -> None:
        """Nothing runs."""


class LoopPlaces:
    """Tasks of the event loop."""

    def __init__(self, count: int) -> None:
        self._free, self._running = asyncio.Semaphore(count), set[asyncio.Task[None]]()

    def start(self, function: Callable[[Any], None], argument: Any) -> None:
        """Run it as soon as a place is free."""
        task = asyncio.get_running_loop().create_task(self._run(function, argument))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, function: Callable[[Any], None], argument: Any) -> None:
        async with self._free:
            await greenlet_spawn(function, argument)

    def end(self) -> None:
        """Wait for all."""
        if self._running:
            await_only(asyncio.wait(list(self._running)))


class ThreadHost:
    """Waits by blocking the thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        """The database."""

    def event(self) -> Any:
        """An event that any thread may set."""
        return threading.Event()

    def wait(self, event: Any, seconds: float) -> bool:
        """Wait until it is set, or the time is over."""
        return bool(event.wait(seconds))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what may block."""
        return function(*arguments)

    def places(self, count: int, most: int) -> ThreadPlaces | OwnPlace:
        """Where so many functions run at once, and no more than `most` are given."""
        return OwnPlace() if most == 1 else ThreadPlaces(count)

    def every(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Call a function each so many seconds, beside what goes on here; returns what ends it."""
        over = threading.Event()

        def _repeat() -> None:
            while not over.wait(seconds):
                _guarded(function)

        thread = threading.Thread(target=_repeat, name="xump-renew", daemon=True)
        thread.start()

        def _end() -> None:
            over.set()
            thread.join()

        return _end

    def together(self, count: int, function: Callable[[], None]) -> None:
        """Call a function so many times at once, one of them here, and wait for all. Raises what one of them raised."""
        raised: list[BaseException] = []

        def _other() -> None:
            try:
                function()
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=_other, daemon=True) for _ in range(count - 1)]
        for thread in threads:
            thread.start()
        try:
            function()
        finally:
            for thread in threads:
                thread.join()
        if raised:
            raise raised[0]

    def handle(self, handler: Callable[..., Any], connection: Connection | None, *arguments: Any) -> Any:
        """Call a handler of the user's, with a connection or without."""
        return handler(*arguments) if connection is None else handler(connection, *arguments)


class LoopEvent:
    """An `asyncio.Event` that any thread may set."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()

    def set(self) -> None:
        """Set it, from any thread; not any more once the loop is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Unset it."""
        self._event.clear()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        """Wait until it is set, or the time is over."""
        try:
            # In Python 3.11 `wait_for` forgets a cancellation that comes just when the event is set.
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class LoopHost:
    """Waits by going back to the event loop. Used inside of SQLAlchemy's greenlet only."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.asynchronous = engine
        """The database."""
        self.engine = engine.sync_engine
        """The same, as statements in the greenlet see it."""

    def event(self) -> Any:
        """An event that any thread may set."""
        return LoopEvent()

    def wait(self, event: LoopEvent, seconds: float) -> bool:
        """Wait until it is set, or the time is over."""
        return bool(await_only(event.wait(seconds)))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what may block in a thread."""
        return await_only(asyncio.to_thread(function, *arguments))

    def places(self, count: int, most: int) -> LoopPlaces:
        """Where so many functions run at once."""
        return LoopPlaces(count)

    def every(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Call a function each so many seconds, beside what goes on here; returns what ends it."""
        over = LoopEvent()

        async def _repeat() -> None:
            while not await over.wait(seconds):
                await greenlet_spawn(_guarded, function)

        task = asyncio.get_running_loop().create_task(_repeat())

        def _end() -> None:
            over.set()          # no cancel: it may be in a transaction, which would be left open
            await_only(asyncio.wait([task]))

        return _end

    def together(self, count: int, function: Callable[[], None]) -> None:
        """Call a function so many times at once, one of them here, and wait for all. Raises what one of them raised."""
        tasks = [asyncio.get_running_loop().create_task(greenlet_spawn(function)) for _ in range(count - 1)]
        try:
            function()
        finally:
            if tasks:
                await_only(asyncio.wait(tasks))
        for task in tasks:
            task.result()

    def handle(self, handler: Callable[..., Any], connection: Connection | None, *arguments: Any) -> Any:
        """Call a handler of the user's; if it is a coroutine function, await it."""
        given = arguments if connection is None else (AsyncConnection(self.asynchronous, connection), *arguments)
        result = handler(*given)
        return await_only(result) if inspect.isawaitable(result) else result


Host = ThreadHost | LoopHost
