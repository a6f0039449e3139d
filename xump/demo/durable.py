"""The demo with a durable store: a process replays the flights and is killed half way; another one goes on from the store.

Everything that must outlive a process is in the store, your program's own results, too: a worker publishes its results into
the queue `results` in the same transaction in which it acks the flights. So a flight is parsed and counted, or neither.

    the child      publishes, works, and tells in a pipe: the flights handed out, before it touches them; how many are confirmed,
                   by `Queue.durable_id` of `flights` and `results`
    the parent     reads that, kills the child with SIGKILL in the middle of its work, opens the store, compares it with the
                   confirmed numbers, goes on to the end, and counts every flight once more, out of the store

A flight's number is its message id.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from xump.demo.actors import Listener, Row, Worker
from xump.demo.errors import ProcessEnded, Unwritable
from xump.demo.flights import data_folder, read_flights
from xump.demo.replay import CHUNK, Before, Replay, build, work_off
from xump.engine import Engine
from xump.store_types import file_bytes
from xump_ext.engine.delivery import Delivery

STORE = "flights"
RESULTS = "results"
CHUNKS_MIN = 8
"""Of the child: it publishes less at a time where there is little to publish, so that the kill comes in the middle."""
HANDED_MORE = 40
"""The parent kills the child at a random moment: after half of the flights, it hears at most so often of deliveries."""


def numbered(flights: Iterator[Any], first: int) -> Iterator[Any]:
    """Yields the flights from that number on, each with its number."""
    for number, (address, body, headers) in enumerate(islice(flights, first - 1, None), first):
        yield address, body, headers, None, str(number)


# ---- actors that keep their results

class KeepingWorker(Worker):
    """Acks and publishes its results in one transaction."""

    def settle(self, done: list[Delivery], rows: list[Row]) -> None:
        both = zip(done, rows, strict=True)
        lines = (f"{delivery.message.message_id},{carrier},{delay}" for delivery, (carrier, delay) in both)
        keep(self.engine, self.name, done, lines)


class KeepingListener(Listener):
    """Does the same for airports."""

    def settle(self, deliveries: list[Delivery]) -> None:
        lines = (f"{one.message.message_id},{one.message.address.rpartition('.')[2]}" for one in deliveries)
        keep(self.engine, self.name, deliveries, lines)


def keep(engine: Engine, name: str, deliveries: list[Delivery], lines: Iterator[str]) -> None:
    if deliveries:
        with engine.transaction() as transaction:
            for delivery in deliveries:
                transaction.ack(delivery)
            transaction.publish(RESULTS, name, "\n".join(lines).encode())


def results(engine: Engine) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the name of an actor, and its rows in one message."""
    for message in engine.queues[RESULTS].browse():
        yield message.address, [line.split(",") for line in message.body.decode().split("\n")]


def open_and_build(kind: str, path: str) -> Replay:
    """Raises as `create_store`."""
    engine = Engine(dead_letter="dead")
    try:
        engine.create_store(STORE, kind, path=path)
        with engine.building():
            engine.create_queue(RESULTS, store=STORE)
            return build(engine, STORE, KeepingWorker, KeepingListener)
    except BaseException:
        engine.close()
        raise


# ---- the child

def be_killed(kind: str, path: str, total: int) -> None:
    """Works until the kill; waits for it when all is done."""
    replay = open_and_build(kind, path)
    engine = replay.engine
    flights, found = engine.queues["flights"], engine.queues[RESULTS]

    def tell(deliveries: list[Delivery]) -> None:
        numbers = " ".join(str(delivery.message.message_id) for delivery in deliveries)
        os.write(1, f"confirmed {flights.durable_id} {found.durable_id}\nhanded {numbers}\n".encode())

    for worker in replay.workers:
        worker.hears = tell
    source = islice(numbered(read_flights(data_folder()), 1), total)
    size, waited = max(1, min(CHUNK // 4, total // CHUNKS_MIN)), False
    while chunk := list(islice(source, size)):
        engine.publish_many(flights, chunk)
        if not waited and 2 * flights.last_id >= total:
            engine.sync()           # from now on the kill may come
            waited = True
        work_off(replay)
    engine.sync()
    os.write(1, f"confirmed {flights.durable_id} {found.durable_id}\ndone\n".encode())
    sys.stdin.read()


@dataclass
class Killed:
    """Everything that the child told before its end."""

    confirmed: int = 0
    confirmed_results: int = 0
    handed: set[int] = field(default_factory=set)
    seconds: float = 0.0


def run_and_kill(kind: str, path: str, total: int, tell: Callable[[int, str], None]) -> Killed:
    """Starts a child, and kills it in the middle of its work, some time after half of the flights were confirmed. Raises
    `ProcessEnded`."""
    killed, began, alive = Killed(), time.perf_counter(), True
    left = random.randrange(1, HANDED_MORE)     # lines about deliveries until the kill
    command = [sys.executable, "-m", "xump.demo.durable", kind, path, str(total)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if not line.endswith(b"\n"):
                    break           # cut by the kill
                what, *numbers = line.decode().split()
                if what == "confirmed":
                    killed.confirmed, killed.confirmed_results = map(int, numbers)
                    tell(killed.confirmed, "")
                elif what == "handed":
                    killed.handed.update(map(int, numbers))
                left -= what == "handed" and 2 * killed.confirmed >= total
                if alive and (what == "done" or left == 0):
                    os.kill(child.pid, signal.SIGKILL)
                    killed.seconds, alive = time.perf_counter() - began, False
        finally:
            child.kill()            # also after an error here
    if child.returncode != -signal.SIGKILL or alive:
        raise ProcessEnded(f"the process with the store {path} ended by itself, with status {child.returncode}")
    return killed


# ---- after the kill

@dataclass
class Found:
    """The flights in the store, by number, and how often each is there."""

    parsed: Counter[int]
    rejected: Counter[int]
    cancelled: Counter[int]
    waiting: Counter[int]

    def all(self) -> Counter[int]:
        return self.parsed + self.rejected + self.cancelled + self.waiting


def find(engine: Engine) -> Found:
    """Counts by reading the messages, not by asking the counters."""
    found = Found(Counter(), Counter(), Counter(), Counter())
    for name, rows in results(engine):
        if name.startswith("wolf-"):
            found.parsed.update(int(row[0]) for row in rows)
    for message in engine.queues["dead"].browse():
        if message.message_id is not None and message.message_id.isdigit():
            kind = found.cancelled if message.address.startswith("cancelled.") else found.rejected
            kind[int(message.message_id)] += 1
    for name in ("flights", "parse"):
        found.waiting.update(int(str(message.message_id)) for message in engine.queues[name].browse(state="ready"))
    return found


@dataclass
class Recovery:
    """The confirmed flights, and the flights found in the store."""

    killed: Killed
    published: int
    results: int
    found: Found
    seconds: float
    file_bytes: int
    unmarked: set[int] = field(default_factory=set)
    """Flights that came again without the redelivered mark."""

    @cached_property
    def again(self) -> set[int]:
        """Flights handed out before the kill, whose acks were not durable: they are handed out once more."""
        return {number for number in self.killed.handed if self.found.waiting[number]}

    @property
    def forgotten(self) -> int:
        """Counts the flights handed out before their publishing was durable. The store never had them: they are published
        again."""
        return sum(number > self.published for number in self.killed.handed)

    @property
    def lost(self) -> list[int]:
        there = self.found.all()
        return [number for number in range(1, self.killed.confirmed + 1) if not there[number]]

    @property
    def lost_results(self) -> int:
        return max(0, self.killed.confirmed_results - self.results)

    @property
    def doubled(self) -> list[int]:
        return [number for number, times in self.found.all().items() if times > 1]

    def hears(self, deliveries: list[Delivery]) -> None:
        """Notes deliveries that come again without saying so."""
        for delivery in deliveries:
            number = int(str(delivery.message.message_id))
            if number in self.again and not delivery.redelivered:
                self.unmarked.add(number)


def recover(kind: str, path: str, killed: Killed) -> tuple[Replay, Recovery]:
    """Opens the store, looks at it before it builds the graph, and then goes on as if nothing had happened."""
    size, began = file_bytes(path), time.perf_counter()
    engine = Engine(dead_letter="dead")
    try:
        engine.create_store(STORE, kind, path=path)
        seconds = time.perf_counter() - began
        published, kept = engine.queues["flights"].last_id, engine.queues[RESULTS].last_id
        recovery = Recovery(killed, published, kept, find(engine), seconds, size)
        entered, counts = {name: queue.last_id for name, queue in engine.queues.items()}, engine.queues["parse"].counters()
        with engine.building():
            replay = build(engine, STORE, KeepingWorker, KeepingListener)
    except BaseException:
        engine.close()
        raise
    found = recovery.found
    replay.published, replay.cancelled = recovery.published, found.cancelled.total()
    replay.before = Before(recovery.published, found.parsed.total(), found.rejected.total(), found.cancelled.total(),
                           counts["entered"] - counts["ready"], killed.seconds + seconds, entered)
    remember(replay)
    return replay, recovery


def remember(replay: Replay) -> None:
    """Gives the actors their results back."""
    workers = {worker.name: worker for worker in replay.workers}
    listeners = {listener.name: listener for listener in replay.listeners}
    for name, rows in results(replay.engine):
        for row in rows:
            if name in workers:
                workers[name].note(row[1], int(row[2]))
            else:
                listeners[name].note(row[1])


def wrong_at_the_end(replay: Replay, recovery: Recovery) -> list[str]:
    """The broken promises, as sentences, when all flights have gone through: read out of the store once more."""
    found, total = find(replay.engine), replay.published
    there = found.all()
    for delivery in replay.inspected[:10]:      # the inspector has acked these
        if (delivery.message.message_id or "").isdigit():
            there[int(delivery.message.message_id)] += 1
    waiting = found.waiting.total()
    said = [f"{sum(not there[number] for number in range(1, total + 1)):,} flights are nowhere"] * (len(there) < total)
    said += [f"{sum(times > 1 for times in there.values()):,} flights are there more than once"] * (there.total() > len(there))
    said += [f"{waiting:,} flights still wait"] * (waiting > 0)
    said += [f"{len(recovery.lost):,} confirmed flights were lost"] * bool(recovery.lost)
    said += [f"{recovery.lost_results:,} confirmed results were lost"] * bool(recovery.lost_results)
    said += [f"{len(recovery.doubled):,} flights were there twice after the kill"] * bool(recovery.doubled)
    said += [f"{len(recovery.unmarked):,} deliveries came again and did not say so"] * bool(recovery.unmarked)
    for listener in replay.listeners:
        numbers = Counter(row[0] for name, rows in results(replay.engine) if name == listener.name for row in rows)
        said += [f"{listener.name} heard of a flight more than once"] * (numbers.total() > len(numbers))
    return said


def clear(factory: Any, path: str) -> None:
    """Removes an earlier demo's store, and nothing else. Raises `Unwritable`."""
    if not os.path.lexists(path):
        return
    if not factory.recognises(path):
        raise Unwritable(f"{path} is there, and no store of an earlier demo; move it away")
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


if __name__ == "__main__":
    be_killed(sys.argv[1], sys.argv[2], int(sys.argv[3]))
