"""RAM queues in an engine that has durable stores, too. `python -m benchmarks.mixed_stores`.

Throughput: two engines with the same RAM queue, 1,000 deep, call by call, credit 10; one has a `ring` and an `lmdb` store open
as well, each with a queue that holds a backlog and gets messages, delivers and acks them between the timed parts. The two take
turns every 10,000 messages. The bar is on the ratio of rates: 0.97, for with stores nothing is done in RAM that is not done
without.

Latency: `publish`, `take(1)` and `ack` on the RAM queue, while a store has something to write whose fsync takes a second: the
store's `sync` sleeps so long before it does its work, without the interpreter's lock, as a slow disk does. The peer is the same
with a sync that does not sleep. As long as one fsync is stalled, calls are timed one by one.

    group       the store's own thread writes; now and then a message is published into the stalled store's queue, too, which is
                not timed
    sync        another thread publishes into the store and waits for it

Whoever waited for the fsync would be a second late: the bar for the 99th percentile is twice the peer's; of the slowest call of
all, which is in the table for comparison, the machine has its part.
"""

from __future__ import annotations

import statistics
import threading
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from benchmarks.disk import data_directory, fresh, parser_with_data
from benchmarks.harness import BODY, Contestant, Table, Times, compare, describe, speed, speed_table, take_turns, verdict
from xump import Engine, always, deliver
from xump.store_types import register_store
from xump.stores.lmdb import LmdbStore
from xump.stores.ring import RingStore

ADDRESS = "orders.eu.new"
STORES = ("ring", "lmdb")
PART = 10_000
DEPTH = 1_000
BACKLOG = 10_000
BESIDE = 1_000
RATE_BAR = 0.97
LATE_BAR = 2.0
STALL_SECONDS = 1.0


class Stalling:
    """A store whose next sync goes on until it is let go."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stalls = False
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def sync(self) -> None:
        if self.stalls:
            self.stalls = False
            self.entered.set()
            self.let_go.wait()
        super().sync()      # type: ignore[misc]


class StallingRing(Stalling, RingStore):  # type: ignore[misc]
    pass


class StallingLmdb(Stalling, LmdbStore):  # type: ignore[misc]
    pass


def ram_engine() -> Engine:
    """One RAM queue, one consumer."""
    engine = Engine()
    with engine.building():
        engine.create_queue("jobs")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
    return engine


def add_stores(engine: Engine, directory: Path) -> None:
    """A queue in each, with a backlog."""
    for store in STORES:
        with engine.building():
            engine.create_store(store, store, path=fresh(directory))
            engine.create_queue(f"on {store}", store=store)
            engine.create_selector(f"on {store}", when=always, do=deliver(f"of {store}"), credit=BESIDE)
        engine.publish_many(f"on {store}", [(ADDRESS, BODY, {"k": "v"}) for _ in range(BACKLOG)])


def use_stores(engine: Engine) -> None:
    """What comes in goes out; all of it is on the disk."""
    for store in STORES:
        engine.publish_many(f"on {store}", [(ADDRESS, BODY, {"k": "v"}) for _ in range(BESIDE)])
        engine.ack(engine.take(BESIDE, f"of {store}"))
    engine.sync()


def part(engine: Engine) -> int:
    """Nanoseconds of a part."""
    address, body, size, publish = ADDRESS, BODY, 0, engine.publish
    started = perf_counter_ns()
    for _ in range(PART // DEPTH):
        for _ in range(DEPTH):
            publish("jobs", address, body, {"k": "v"})
        for delivery in engine.deliveries("worker"):
            message = delivery.message
            size += len(message.body)
            message.headers["k"]
            delivery.ack()
    took = perf_counter_ns() - started
    assert size == PART * len(body)
    return took


def throughput(messages: int, directory: Path) -> dict[str, float]:
    """Nanoseconds a message, of both engines."""
    with ram_engine() as plain, ram_engine() as mixed:
        add_stores(mixed, directory)
        took = {"without stores": 0, "with stores": 0}
        for number in range(messages // PART):
            use_stores(mixed)
            for name, engine in sorted({"without stores": plain, "with stores": mixed}.items(), reverse=bool(number % 2)):
                took[name] += part(engine)
    return {name: nanoseconds / messages for name, nanoseconds in took.items()}


def latency(store: str, durability: str, stalled: bool, seconds: float, directory: Path) -> dict[str, float]:
    """Nanoseconds of one message through the RAM queue, while one sync goes on, or for as long."""
    with ram_engine() as engine:
        backend = engine.create_store("disk", f"stalling {store}", path=fresh(directory), durability=durability).backend
        engine.create_queue("slow", store="disk")
        engine.sync()
        backend.stalls = stalled
        other = threading.Thread(target=engine.publish, args=("slow", ADDRESS, BODY, {"k": "v"}))
        other.start()
        if stalled:
            assert backend.entered.wait(60)
        try:
            took = round_trips(engine, seconds, durability == "group")
            assert not stalled or engine.queues["slow"].durable_id == 0     # the fsync had not returned when the last was timed
        finally:
            backend.let_go.set()
        other.join()
        engine.sync()
        assert engine.queues["slow"].durable_id >= 1
    took.sort()
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "max": took[-1]}


def round_trips(engine: Engine, seconds: float, beside: bool) -> list[int]:
    """Nanoseconds of each."""
    address, body, publish, take, took = ADDRESS, BODY, engine.publish, engine.take, []
    end = perf_counter_ns() + int(seconds * 1e9)
    while (started := perf_counter_ns()) < end:
        publish("jobs", address, body, {"k": "v"})
        (delivery,) = take(1, "worker")
        len(delivery.message.body)
        delivery.ack()
        took.append(perf_counter_ns() - started)
        if beside and len(took) % 1_000 == 0:
            publish("slow", address, body, {"k": "v"})
    return took


def report(times: Times) -> None:
    """The latencies."""
    table = Table(30, "p50", "p99", "max", "times", "bar", "", width=12)
    for name in [name.removesuffix(", p99") for name in times if name.endswith("stalled, p99")]:
        peer = name.replace("stalled", "quick")
        later = 1 / speed(times[f"{name}, p99"], times[f"{peer}, p99"])
        for row in (peer, name):
            cells = [f"{statistics.median(times[f'{row}, {figure}']):,.0f}" for figure in ("p50", "p99", "max")]
            cells += ["1.00"] if row == peer else [f"{later:.2f}", f"{LATE_BAR:.1f}", verdict(later < LATE_BAR)]
            table.print(row, *cells)


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    options = parser.parse_args()
    messages = (50_000 if options.quick else options.messages) // PART * PART
    seconds = 0.2 if options.quick else STALL_SECONDS
    register_store("stalling ring", StallingRing)
    register_store("stalling lmdb", StallingLmdb)
    with data_directory(options.data) as directory:
        describe("lmdb")
        given: dict[str, Contestant] = {"RAM": lambda: throughput(messages, directory)}
        for store in STORES:
            for durability in ("group", "sync"):
                for how in ("quick", "stalled"):
                    given[f"{store}, {durability}, {how}"] = partial(
                        latency, store, durability, how == "stalled", seconds, directory)
        times = take_turns(given, options.rounds)
    print("  throughput: a RAM queue, publish, deliver, ack")
    compare(speed_table(30), times, "RAM, without stores", ["RAM, with stores"], RATE_BAR)
    print(f"  latency: ns of publish, take, ack on a RAM queue while a sync takes {seconds:g} s")
    report(times)


if __name__ == "__main__":
    main()
