"""The demo with a broker: the flights go through a process of their own, `xump serve`, to clients that know only RabbitMQ.

They are published over Arrow Flight, as columns, into an exchange that the clients have bound queues to.
Three workers share a queue (a Wolfpack), and two subscribers hear of the flights of an airport (a Parrot). One worker is killed
with `kill -9` half way, with deliveries in its hands: the broker gives them to the others, marked redelivered. In the end each
flight was handled, and those that were handled twice said so.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from xump.demo.clients import EXCHANGE
from xump.demo.errors import ProcessEnded
from xump.demo.flights import read_flights

FLIGHTS = 30_000
"""So many go through unless the command says otherwise: a client library handles some thousand a second."""

WORKERS = 3
SUBSCRIBERS = {"out of JFK": "flight.*.JFK.#", "to SFO": "flight.*.*.SFO"}
QUEUE = "parse"
AT_ONCE = 500
"""So many flights are published at once, as columns."""

SERVE = ("-m", "xump", "serve", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--flight", "127.0.0.1:0")


@dataclass
class Client:
    """A process, and all that it has told."""

    name: str
    process: subprocess.Popen[bytes]
    ready: threading.Event = field(default_factory=threading.Event)
    first: Counter[str] = field(default_factory=Counter)
    """How often each flight came that did not say that it came again."""
    again: Counter[str] = field(default_factory=Counter)
    """How often each flight came redelivered."""
    killed: bool = False

    @property
    def handled(self) -> int:
        return self.first.total() + self.again.total()

    def hear(self) -> None:
        """Reads what it tells, until it ends. A line that the kill has cut is not counted."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, _, redelivered = line.decode().strip().partition(" ")
            if number == "ready":
                self.ready.set()
            elif line.endswith(b"\n"):
                (self.again if redelivered == "1" else self.first)[number] += 1
        self.ready.set()


@dataclass
class Outcome:
    """The result."""

    published: int
    expected: dict[str, int]
    """By subscriber, how many flights its pattern matches."""
    workers: list[Client]
    subscribers: list[Client]
    seconds: float
    overview: dict[str, Any]

    @property
    def first(self) -> Counter[str]:
        return sum((client.first for client in self.workers), Counter())

    @property
    def again(self) -> Counter[str]:
        return sum((client.again for client in self.workers), Counter())

    def wrong(self) -> list[str]:
        """The broken promises, as sentences."""
        first, again = self.first, self.again
        numbers = {str(number) for number in range(1, self.published + 1)}
        missing, doubled = numbers - set(first) - set(again), [number for number, times in first.items() if times > 1]
        said = [f"{len(missing):,} flights were handled by no worker"] * bool(missing)
        said += [f"{len(doubled):,} flights came twice and did not say so"] * bool(doubled)
        for client in self.subscribers:
            wanted = self.expected[client.name]
            said += [f"the subscriber {client.name} heard of {client.handled:,} flights, not of {wanted:,}"] * (
                client.handled != wanted)
        return said


def run(folder: Path, total: int, output: Path, tell: Callable[[int, str], None], say: Callable[[str], None]) -> Outcome:
    """Starts the broker and its clients, publishes, kills, counts; leaves a picture in `output`. Raises `ProcessEnded`."""
    with ExitStack() as stack:
        url, web, fly = stack.enter_context(broker())
        say(f"The broker is a process of its own. Look at it while it runs: {web}")
        stack.enter_context(declared(url))
        publisher = stack.enter_context(connect(fly))
        workers = [stack.enter_context(client("worker", f"worker {number}", url, QUEUE)) for number in range(1, WORKERS + 1)]
        subscribers = [stack.enter_context(client("subscriber", name, url, pattern)) for name, pattern in SUBSCRIBERS.items()]
        for one in (*workers, *subscribers):
            one.ready.wait()
        began = time.perf_counter()
        expected = dict.fromkeys(SUBSCRIBERS, 0)
        published = 0
        flights = islice(read_flights(folder), total)
        while chunk := list(islice(flights, AT_ONCE)):
            publish(publisher, chunk, published)
            published += len(chunk)
            for address, _, _ in chunk:
                for name, pattern in SUBSCRIBERS.items():
                    expected[name] += matches(pattern, address)
            if not workers[0].killed and 2 * published >= total:
                kill(workers[0])
            tell(published, f"handled {sum(one.handled for one in workers):,}")
        wait(web, lambda: sum(one.handled for one in subscribers) >= sum(expected.values()))
        seconds = time.perf_counter() - began
        overview = json.loads(ask(web + "overview"))
        (output / "broker.svg").write_bytes(ask(web + "graph.svg"))
    return Outcome(published, expected, workers, subscribers, seconds, overview)


@contextmanager
def broker() -> Iterator[tuple[str, str, str]]:
    """`xump serve`: where clients connect, the address of the live page, and where Flight is."""
    with subprocess.Popen([sys.executable, *SERVE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = re.search(r"AMQP on (\S+), HTTP on (\S+), Flight on (\S+)", process.stdout.readline())
        if said is None:
            raise ProcessEnded("the broker did not start")
        try:
            yield f"amqp://guest:guest@{said[1]}/", said[2], said[3]
        finally:
            process.terminate()


@contextmanager
def declared(url: str) -> Iterator[None]:
    """The exchange and the queue are there."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "topic")
    channel.queue_declare(QUEUE)
    channel.queue_bind(QUEUE, EXCHANGE, "#")
    try:
        yield
    finally:
        if connection.is_open:
            connection.close()


def connect(url: str) -> Any:
    """A client of Flight. By its name: the demo knows no broker but by its address."""
    return importlib.import_module("xump.broker").Client(url)


def publish(publisher: Any, chunk: list[Any], before: int) -> None:
    """All of them, or none: the broker has them when this returns."""
    import pyarrow

    addresses, bodies, headers = zip(*chunk, strict=True)
    publisher.publish(f"amq.x/{EXCHANGE}", pyarrow.record_batch({
        "address": list(addresses), "body": list(bodies), "headers": list(headers),
        "message_id": [str(number) for number in range(before + 1, before + 1 + len(chunk))]}))


def matches(pattern: str, address: str) -> bool:
    """Whether a topic pattern with `*`, and `#` at its end, matches an address."""
    words, given = pattern.split("."), address.split(".")
    if words[-1] == "#":
        words, given = words[:-1], given[:len(words) - 1]
    return len(words) == len(given) and all(word in ("*", other) for word, other in zip(words, given, strict=True))


@contextmanager
def client(role: str, name: str, url: str, what: str) -> Iterator[Client]:
    """A client, whose lines are heard by a thread; ended with the block."""
    command = [sys.executable, "-m", "xump.demo.clients", role, url, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        one = Client(name, process)
        hearing = threading.Thread(target=one.hear)
        hearing.start()
        try:
            yield one
        finally:
            process.kill()
            hearing.join()


def kill(worker: Client) -> None:
    """With deliveries in its hands, if it has any."""
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.killed = True


def wait(web: str, heard: Callable[[], bool]) -> None:
    """Until every queue is empty, every delivery answered, and the lines of the subscribers have come."""
    while any(queue["ready"] or queue["outstanding"] for queue in json.loads(ask(web + "queues"))) or not heard():
        time.sleep(0.05)


def ask(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        found: bytes = response.read()
    return found
