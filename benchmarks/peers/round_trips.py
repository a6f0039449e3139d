"""A message there and back, one at a time: the median of so many, in nanoseconds. Two ends in one thread, or in two."""

from __future__ import annotations

import asyncio
import queue
import socket
import statistics
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY

ADDRESS = "orders.eu.new"
LAST = b"last"


def timed(there_and_back: Callable[[], object], count: int) -> float:
    took = []
    for _ in range(count):
        started = perf_counter_ns()
        there_and_back()
        took.append(perf_counter_ns() - started)
    return statistics.median(took)


def deques(count: int) -> float:
    """The floor: two deques, in one thread."""
    there: deque[Any] = deque()
    back: deque[Any] = deque()

    def once() -> None:
        there.append((ADDRESS, BODY))
        back.append(there.popleft())
        back.popleft()

    return timed(once, count)


def queues(make: Callable[[], Any], count: int) -> float:
    """Two queues of Python, and a thread that answers."""
    there, back = make(), make()

    def answer() -> None:
        while (message := there.get()) is not None:
            back.put(message)

    def once() -> None:
        there.put((ADDRESS, BODY))
        back.get()

    return _beside(answer, once, lambda: there.put(None), count)


def simple_queues(count: int) -> float:
    return queues(queue.SimpleQueue, count)


def locked_queues(count: int) -> float:
    return queues(queue.Queue, count)


def tasks(count: int) -> float:
    """Two tasks of asyncio, and two of its queues."""
    async def run() -> float:
        there: asyncio.Queue[Any] = asyncio.Queue()
        back: asyncio.Queue[Any] = asyncio.Queue()

        async def answer() -> None:
            while True:
                await back.put(await there.get())

        task, took = asyncio.create_task(answer()), []
        for _ in range(count):
            started = perf_counter_ns()
            await there.put((ADDRESS, BODY))
            await back.get()
            took.append(perf_counter_ns() - started)
        task.cancel()
        return statistics.median(took)

    return asyncio.run(run())


def sockets(count: int) -> float:
    """A pair of sockets, and a thread that answers."""
    here, there = socket.socketpair()

    def answer() -> None:
        while message := there.recv(4096):
            there.sendall(message)

    def once() -> None:
        here.sendall(BODY)
        here.recv(4096)

    with here, there:
        return _beside(answer, once, lambda: here.shutdown(socket.SHUT_WR), count)


def zmq(count: int, *, threads: bool) -> float:
    """REQ and REP of pyzmq, within the process."""
    from zmq import REP, REQ, Context

    with Context() as context, context.socket(REP) as server, context.socket(REQ) as client:
        server.bind("inproc://benchmark")
        client.connect("inproc://benchmark")

        def answer() -> None:
            message = b""
            while message != LAST:
                message = server.recv()
                server.send(message)

        def once() -> None:
            client.send(BODY)
            if not threads:
                server.send(server.recv())
            client.recv()

        def last() -> None:
            client.send(LAST)
            client.recv()

        return _beside(answer, once, last, count) if threads else timed(once, count)


def _beside(answer: Callable[[], None], once: Callable[[], None], last: Callable[[], object], count: int) -> float:
    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return timed(once, count)
    finally:
        last()
        thread.join()
