"""The demo with a durable store: a process replays the flights, and is killed half way; another one goes on where it was.

What must outlive a process is in the store, the application's own findings, too: whoever parses flights publishes what it found
into the queue `results` in the same transaction in which it acks them. So a flight is parsed and counted, or neither.

    the child      publishes, works, and tells in a pipe: the flights that were handed out, before anything is done with them; how
                   many are confirmed, by `Queue.durable_id` of `flights` and `results`
    the parent     reads that, kills the child with SIGKILL in the middle of it, opens the store, compares what it finds with what
                   was confirmed, goes on to the end, and counts every flight once more, out of the store

A flight's number is its message id.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from xump.demo import (
    CHUNK,
    Before,
    Listener,
    ProcessEnded,
    Replay,
    Row,
    Unwritable,
    Worker,
    build,
    data_folder,
    news,
    read_airlines,
    read_flights,
    run,
    work_off,
)
from xump.engine import Engine
from xump.errors import XumpError
from xump.store import factory_of
from xump.store_commands import file_bytes
from xump.store_report import counted, size_text
from xump_ext.delivery import Delivery

STORE = "flights"
RESULTS = "results"
CHUNKS_MIN = 8
"""Of the child: it publishes less at a time where there is little, so that it is killed in the middle."""
HANDED_MORE = 40
"""The parent kills it at a moment that nobody knows before: so often it is told at most of what was handed out, after half."""


def numbered(flights: Iterator[Any], first: int) -> Iterator[Any]:
    """From the one with that number on, each with its number."""
    for number, (address, body, headers) in enumerate(islice(flights, first - 1, None), first):
        yield address, body, headers, None, str(number)


# ---- those who keep what they find

class KeepingWorker(Worker):
    """Acks and says what it found in one transaction."""

    def settle(self, done: list[Delivery], rows: list[Row]) -> None:
        both = zip(done, rows, strict=True)
        lines = (f"{delivery.message.message_id},{carrier},{delay}" for delivery, (carrier, delay) in both)
        keep(self.engine, self.name, done, lines)


class KeepingListener(Listener):
    """The same for airports."""

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
    """Who found it, and the rows of a message."""
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
    """Works until it is killed; having done all, it waits for that."""
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
            engine.sync()           # from now on it may be killed
            waited = True
        work_off(replay)
    engine.sync()
    os.write(1, f"confirmed {flights.durable_id} {found.durable_id}\ndone\n".encode())
    sys.stdin.read()


@dataclass
class Killed:
    """What the child had told until its end."""

    confirmed: int = 0
    confirmed_results: int = 0
    handed: set[int] = field(default_factory=set)
    seconds: float = 0.0


def run_and_kill(kind: str, path: str, total: int, tell: Callable[[int, str], None]) -> Killed:
    """Starts a child, and kills it some time after half of the flights were confirmed, in the middle of its work. Raises
    `ProcessEnded`."""
    killed, began, alive = Killed(), time.perf_counter(), True
    left = random.randrange(1, HANDED_MORE)     # times that something is handed out, until the kill
    command = [sys.executable, "-m", "xump.demo_store", kind, path, str(total)]
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
            child.kill()            # whatever happened here
    if child.returncode != -signal.SIGKILL or alive:
        raise ProcessEnded(f"the process with the store {path} ended by itself, with status {child.returncode}")
    return killed


# ---- after the kill

@dataclass
class Found:
    """What the store has of every flight, by number."""

    parsed: Counter[int]
    rejected: Counter[int]
    cancelled: Counter[int]
    waiting: Counter[int]

    def all(self) -> Counter[int]:
        return self.parsed + self.rejected + self.cancelled + self.waiting


def find(engine: Engine) -> Found:
    """Counts by reading, not by what counters say."""
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
    """What was confirmed, and what was found."""

    killed: Killed
    published: int
    results: int
    found: Found
    seconds: float
    file_bytes: int
    unmarked: set[int] = field(default_factory=set)
    """Of those that come again, which did not say so."""

    @cached_property
    def again(self) -> set[int]:
        """Handed out before the kill, its ack was not durable: so it is handed out once more."""
        return {number for number in self.killed.handed if self.found.waiting[number]}

    @property
    def forgotten(self) -> int:
        """Handed out before the kill, before their publishing was durable: they were never published, and are published again."""
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
        """What comes again has to say so."""
        for delivery in deliveries:
            number = int(str(delivery.message.message_id))
            if number in self.again and not delivery.redelivered:
                self.unmarked.add(number)


def recover(kind: str, path: str, killed: Killed) -> tuple[Replay, Recovery]:
    """Opens the store and looks at it before the graph is built; then goes on with it, as if nothing had happened."""
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
    """Those who work know again what they had found."""
    workers = {worker.name: worker for worker in replay.workers}
    listeners = {listener.name: listener for listener in replay.listeners}
    for name, rows in results(replay.engine):
        for row in rows:
            if name in workers:
                workers[name].note(row[1], int(row[2]))
            else:
                listeners[name].note(row[1])


def wrong_at_the_end(replay: Replay, recovery: Recovery) -> list[str]:
    """What is not as it was promised, as sentences, when all flights have gone through: read out of the store once more."""
    found, total = find(replay.engine), replay.published
    there = found.all()
    for delivery in replay.inspected[:10]:      # which the inspector has acked
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


# ---- the command

def show(options: argparse.Namespace, folder: Path) -> int:
    """As `xump.demo` does with RAM. Raises `Unwritable`, `ProcessEnded`."""
    from xump import demo_report

    kind, total, screen = options.store, options.messages, demo_report.Screen(options.quiet)
    path = str(Path(options.output) / f"flights.{kind}")
    factory: Any = factory_of(kind)
    clear(factory, path)
    try:
        with ExitStack() as stack:
            with screen.progress(total) as tell:
                killed = run_and_kill(kind, path, total, tell)
                replay, recovery = recover(kind, path, killed)
                engine = stack.enter_context(replay.engine)
                for worker in replay.workers:
                    worker.hears = recovery.hears
                tell(replay.published, news(replay))
                run(replay, numbered(read_flights(folder), replay.published + 1), total, tell)
            engine.sync()
            engine.check()
            what = demo_report.AfterKill(rows_of(recovery), wrong_at_the_end(replay, recovery))
            status = demo_report.report(replay, read_airlines(folder), Path(options.output), screen, what)
        report = factory.check(path)
    except (XumpError, OSError) as error:
        raise Unwritable(f"{path}: {error}") from error
    if not options.quiet:
        state = "DAMAGED" if report.damage else "whole"
        print(f"{path} is {state}: {counted(report.records, 'record')}, {size_text(report.bytes)}; try: xump stats {path}")
    return status or int(bool(report.damage))


def rows_of(recovery: Recovery) -> list[tuple[str, str]]:
    """The table of the kill."""
    killed, found = recovery.killed, recovery.found
    confirmed, published = killed.confirmed, recovery.published
    return [
        ("flights whose publishing was confirmed (durable_id) before the kill -9", f"{confirmed:,}"),
        ("of these found in the store afterwards", f"{confirmed - len(recovery.lost):,}"),
        ("lost", f"{len(recovery.lost):,}"),
        ("found besides: published, and not confirmed yet", f"{max(0, published - confirmed):,}"),
        ("gone with what was not confirmed: handed out, and published again now", f"{recovery.forgotten:,}"),
        ("parsed, and acked by a transaction: each of these counts once", f"{found.parsed.total():,}"),
        ("results that were confirmed and are lost", f"{recovery.lost_results:,}"),
        ("still to be parsed", f"{found.waiting.total():,}"),
        ("of these handed out before the kill, and again now: delivered twice, marked redelivered", f"{len(recovery.again):,}"),
        ("in the store twice", f"{len(recovery.doubled):,}"),
        ("time to open the store again", f"{recovery.seconds:.2f} s for {size_text(recovery.file_bytes)}"),
    ]


def clear(factory: Any, path: str) -> None:
    """An earlier demo's store, and nothing else, is removed. Raises `Unwritable`."""
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
