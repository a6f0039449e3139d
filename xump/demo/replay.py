"""The graph of the demo, and the replay of the flights through it.

The graph has one of everything:

    flights     a Parrot of topics: every flight is published here under flight.CARRIER.ORIGIN.DEST; `jfk` and `sfo`
                listen to patterns, `late-UA` to a pattern and a filter; `records` keeps in its history the last ten that
                were ten hours late; `honolulu` has a small queue, and no reader
    parse       a Wolfpack: four workers share the parsing of the bodies; one now and then nacks, one leaves for good
                with its hands full, and all reject the flights that never arrived
    desk        a Housecat: a reporter asks the clerk, which reads the workers' tables; the answer comes to `reply_to`
    dead        the dead letter: cancelled flights, which no selector wants, flights that the workers rejected, and a letter
                to a manager that does not exist, which goes back to its sender

All runs in one thread, so that the same messages give the same numbers; you can call the engine from many threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field as dataclass_field
from itertools import islice
from typing import Any

from xump import INFINITE, Engine, always, copy_to, default, deliver, discard, match, move_to, where
from xump.demo.actors import CREDIT, Actor, Clerk, Delays, Listener, Reporter, Worker, merge
from xump.topologies import Housecat, Parrot, Wolfpack

CHUNK = 4_096
"""Flights that one call publishes: so many that the call itself costs nothing, and a few MiB."""

FLIGHTS_MIN = 100
"""An airline with fewer flights has no mean worth telling."""


@dataclass
class Before:
    """The work of a process that was killed, as its store tells it."""

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
    """The engine and all actors, and the time that each part of the work took."""

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
        """The results of all workers, put together."""
        return merge(self.workers)

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


# ---- the graph

def build(engine: Engine, store: str = "ram", worker: type[Worker] = Worker, listener: type[Listener] = Listener) -> Replay:
    """Makes the graph in one building block, so that no message meets half of it. The engine's dead letter is `dead`.

    `store` has the queues that must outlive the process. The wolves' own queues need not be there: a message that a wolf has
    taken and not acked still belongs to the pack.
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
    """Joins the Parrot `flights`. A member that joins has its queue in RAM; for a queue on disk, this does the same by hand."""
    if store == "ram":
        Parrot(engine, "flights").join(name, pattern, credit=CREDIT)
        return
    engine.create_queue(name, store=store)
    engine.create_selector("flights", when=match("topic", pattern), do=copy_to(name))
    engine.create_selector(name, when=always, do=deliver(name), credit=CREDIT)


# ---- the replay

def run(replay: Replay, flights: Iterator[Any], total: int, tell: Callable[[int, str], None]) -> None:
    """Publishes in chunks; after each chunk all actors work until nothing is left. Half way, one of the pack leaves.

    Calls `tell` with the number of published flights, and news."""
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
    """Lets all actors work until nothing is left."""
    actors: list[Actor] = [*replay.workers, *replay.listeners, replay.clerk, replay.reporter]
    while handled := sum(actor.work() for actor in actors):
        replay.deliveries += handled


def inspect(replay: Replay) -> None:
    """Plays the inspector at the end of the day: 20 credits, so 20 dead letters. Acks ten, and keeps ten in hand."""
    selector = next(selector for selector in replay.engine.selectors.values() if selector.name == "inspector")
    selector.grant(20)
    replay.inspected = replay.engine.take(20, "inspector")
    replay.engine.ack(replay.inspected[:10])
    replay.deliveries += len(replay.inspected)


def news(replay: Replay) -> str:
    """The airline that was most delayed so far, in a line."""
    table = {carrier: delays for carrier, delays in replay.table().items() if delays.flights >= FLIGHTS_MIN}
    if not table:
        return ""
    worst = max(table, key=lambda carrier: table[carrier].mean)
    return f"most delayed so far: {worst}, {table[worst].mean:.1f} min on average"
