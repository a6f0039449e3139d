"""Queues that Python has, and libraries that are the nearest to one in a process. Each is given the number of messages, puts an
address, a body and a fresh `{"k": "v"}` for each, then gets them all, and reads body and header.

    kombu       `memory://`, a SimpleQueue, with ack: the closest in features
    blinker     a signal with one receiver: no queue, so nothing waits
"""

from __future__ import annotations

import asyncio
import gc
import queue
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY

ADDRESS = "orders.eu.new"


class Slotted:
    """A message as one writes it in Python."""

    __slots__ = ("address", "body", "headers")

    def __init__(self, address: str, body: bytes, headers: Any) -> None:
        self.address, self.body, self.headers = address, body, headers


def slotted(count: int) -> float:
    """A deque of objects with slots."""
    waiting: deque[Slotted] = deque()
    put, get, size = waiting.append, waiting.popleft, 0
    address, body = ADDRESS, BODY
    started = perf_counter_ns()
    for _ in range(count):
        put(Slotted(address, body, {"k": "v"}))
    for _ in range(count):
        message = get()
        size += len(message.body)
        message.headers["k"]
    return _done(started, size, count)


def without_collector(run: Callable[[], float]) -> float:
    """The same while the cyclic collector is off."""
    gc.disable()
    try:
        return run()
    finally:
        gc.enable()


def awaited(count: int) -> float:
    """`asyncio.Queue`, awaited."""
    async def run() -> float:
        waiting: asyncio.Queue[Any] = asyncio.Queue()
        put, get, size = waiting.put, waiting.get, 0
        started = perf_counter_ns()
        for _ in range(count):
            await put((ADDRESS, BODY, {"k": "v"}))
        for _ in range(count):
            _, content, headers = await get()
            size += len(content)
            headers["k"]
        return _done(started, size, count)

    return asyncio.run(run())


def locked() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    """Put and get of a `queue.Queue`."""
    waiting: queue.Queue[Any] = queue.Queue()
    return waiting.put, waiting.get


def kombu(count: int) -> float:
    from kombu.connection import Connection

    size = 0
    with Connection("memory://") as connection:
        waiting = connection.SimpleQueue("benchmark", serializer="raw")
        waiting.clear()
        started = perf_counter_ns()
        for _ in range(count):
            waiting.put(BODY, headers={"k": "v", "address": ADDRESS})
        for _ in range(count):
            message = waiting.get_nowait()
            size += len(message.payload)
            message.headers["k"]
            message.ack()
        took = _done(started, size, count)
        waiting.close()
    return took


def blinker(count: int) -> float:
    from blinker import Signal

    signal, read = Signal(), [0]

    def receive(sender: str, body: bytes, headers: dict[str, str]) -> None:
        read[0] += len(body)
        headers["k"]

    signal.connect(receive)
    started = perf_counter_ns()
    for _ in range(count):
        signal.send(ADDRESS, body=BODY, headers={"k": "v"})
    return _done(started, read[0], count)


def _done(started: int, size: int, count: int) -> float:
    took = perf_counter_ns() - started
    assert size == count * len(BODY)
    return took / count
