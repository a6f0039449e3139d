"""The asynchronous Majordomo client for programs without asyncio: any thread asks, and gets a future of the reply.

A thread of its own runs `xump.zeromq.aio.Client`, so that matching, time limits and retries are the same.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

from xump.errors import RequestTimeout
from xump.zeromq import aio


class FutureClient:
    """Asks services of a Majordomo broker, any number at once, from any thread.

    Args:
        endpoints: The brokers; after a try without a reply a request goes to the next one.
        options: As for `xump.zeromq.aio.Client`: `timeout`, `retries`, `in_flight`, `version`, `keys`.

    >>> with FutureClient("tcp://127.0.0.1:9", timeout=0.01, retries=1) as client:
    ...     client.submit(b"echo", b"hello").result()
    Traceback (most recent call last):
    xump.errors.RequestTimeout: no reply from service b'echo' at tcp://127.0.0.1:9 within 2 tries of 0.01 seconds
    """

    def __init__(self, *endpoints: str, **options: Any) -> None:
        self._client = aio.Client(*endpoints, **options)
        self._what = ", ".join(endpoints)
        self._closing, self._coming = False, threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[asyncio.Task[list[bytes]], Future[list[bytes]]] = {}
        self._thread = threading.Thread(target=self._run, name="xump-majordomo-client")
        self._thread.start()

    def submit(self, service: bytes, *body: bytes) -> Future[list[bytes]]:
        """Ask a service, and return a future of the frames of the reply: those of all its parts, in order.

        The future raises `RequestTimeout` if no try was answered, or if the client is closed before.
        """
        future: Future[list[bytes]] = Future()
        with self._coming:                  # so that `close` ends all that came
            if self._closing:
                raise ValueError("the client is closed")
            self._loop.call_soon_threadsafe(self._start, future, service, body)
        return future

    def request(self, service: bytes, *body: bytes) -> list[bytes]:
        """Ask, and wait for the reply.

        Raises:
            RequestTimeout: No try was answered, or the client was closed.
        """
        return self.submit(service, *body).result()

    def _start(self, future: Future[list[bytes]], service: bytes, body: tuple[bytes, ...]) -> None:
        if future.set_running_or_notify_cancel():
            task = self._loop.create_task(self._client.request(service, *body))
            self._tasks[task] = future
            task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[list[bytes]]) -> None:
        future = self._tasks.pop(task)
        if task.cancelled():
            future.set_exception(RequestTimeout(f"the client of {self._what} was closed before the reply came"))
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()                   # its first step may still be to come: so the future is settled by the call-back
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._client.close()

    def close(self) -> None:
        """End the thread, and close the sockets. Requests that are out end with RequestTimeout."""
        with self._coming:
            if not self._closing:
                self._closing = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> FutureClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
