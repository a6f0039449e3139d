"""What it costs to use time, priority, keys and windows: each beside a queue without. `python -m benchmarks.time_and_order`.

Nanoseconds a message, of the processor: on a busy machine, too, only what this thread did. With delays the engine has a clock of
its own, which stands still while the messages are published, so nothing falls due on the way.

    delay       1,000,000 are published, due at random moments of an hour, in any order; then the clock passes that hour, and each
                is routed in a run of its own, at its moment. Beside a publish; and beside a publish that is routed at once, less
                one that is not
    priority    256 levels, in any order: publish; take and ack, one by one
    key         100,000 keys, one of which has nine tenths of all messages: publish; take and ack
    window      each message id is new, and the window is full; by `publish`, and 1,000 at a time by `publish_many`

What falls due lies anywhere in memory, what is routed at once was written just before. So it is printed what memory takes by
itself: three cache lines of an entry and its extra are touched, in a compiled loop that does nothing else and fetches them 16
places ahead, in the order in which they lie, and in any.

`heapq` with tuples, `sched` and APScheduler keep as many (the last two only 10,000): to add one, and to get it back when it is
due. They do less: nothing is queued, routed or acked. Bars are on ratios of rates.

Memory that an engine has left is kept for the next one (`keep_memory`), and the first round is not counted: else what the system
takes to clear huge pages, from 0 to 300 ns a message on a virtual machine, would be most of the difference.
"""

from __future__ import annotations

import heapq
import random
import statistics
from array import array
from collections.abc import Callable
from functools import cache, partial
from time import thread_time_ns
from typing import Any

from benchmarks.harness import BODY, Contestant, Table, compare, describe, parser_of, speed_table, take_turns, verdict
from benchmarks.peers import build
from benchmarks.schedule import FEW, HOUR, START, by_apscheduler, by_sched
from xump import INFINITE, Engine, Message, Queue, always, deliver, field
from xump_ext.memory.slab import keep_memory

LEVELS = 256
KEYS = 100_000
BIG_KEY_SHARE = 0.9
MANY = 1_000
KEPT_BYTES = 1 << 30
AHEAD = 16
ENTRY_BYTES = 400
"""A delayed message takes less, without its body."""


class Clock:
    """The engine's: it stands where it is put."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


@cache
def spans(count: int) -> list[float]:
    draw = random.Random(7)
    return [draw.random() * (HOUR / 1e9) for _ in range(count)]


@cache
def priorities(count: int) -> list[int]:
    draw = random.Random(8)
    return [draw.randrange(LEVELS) for _ in range(count)]


@cache
def keys(count: int) -> list[dict[str, str]]:
    """Headers: nine tenths have one key, the others one of many."""
    draw = random.Random(9)
    names = [{"customer": f"customer-{number}"} for number in range(KEYS)]
    return [names[0] if draw.random() < BIG_KEY_SHARE else names[draw.randrange(KEYS)] for _ in range(count)]


@cache
def message_ids(count: int) -> list[str]:
    draw = random.Random(10)
    return [f"{draw.getrandbits(128):032x}" for _ in range(count)]


def timed(act: Callable[[], Any], count: int) -> float:
    started = thread_time_ns()
    act()
    return (thread_time_ns() - started) / count


def delayed(count: int, routed: bool) -> dict[str, float]:
    """Plain ones and delayed ones, each into a queue that routes or does not."""

    def publish_all() -> None:
        publish = engine.publish
        for _ in range(count):
            publish("q", "resize", BODY)

    def publish_delayed() -> None:
        publish = engine.publish
        for delay in spans(count):
            publish("q", "resize", BODY, delay=delay)

    figures = {}
    spans(count)
    for name, act in (("plain", publish_all), ("delayed", publish_delayed)):
        clock = Clock()
        with Engine(clock=clock) as engine:
            engine.create_queue("q")
            if routed:
                engine.create_selector("q", when=always, do=deliver("worker"), credit=INFINITE)
            figures[name] = timed(act, count)
            clock.now += HOUR
            if name == "delayed":
                figures["fall due"] = timed(engine.tick, count)
            assert engine.queues["q"].ready == count and engine.queues["q"].delayed == 0
    return figures


def take_and_ack(engine: Engine, count: int) -> None:
    take = engine.take
    for _ in range(count):
        take(1)[0].ack()


def ordered(publish_all: Callable[[Engine], Any], count: int, **properties: Any) -> dict[str, float]:
    with Engine() as engine:
        engine.create_queue("q", **properties)
        engine.create_selector("q", when=always, do=deliver("worker"), credit=10)
        return {"publish": timed(lambda: publish_all(engine), count),
                "take and ack": timed(lambda: take_and_ack(engine, count // 2), count // 2)}  # fmt: skip


def by_priority(count: int, levels: bool) -> dict[str, float]:
    def publish_all(engine: Engine) -> None:
        publish = engine.publish
        for priority in priorities(count):
            publish("q", "resize", BODY, priority=priority)

    return ordered(publish_all, count, priority=LEVELS - 1 if levels else None)


def by_key(count: int, keyed: bool) -> dict[str, float]:
    def publish_all(engine: Engine) -> None:
        publish = engine.publish
        for headers in keys(count):
            publish("q", "resize", BODY, headers)

    return ordered(publish_all, count, group=field("headers.customer") if keyed else None)


def with_window(count: int, window: bool, many: bool = False) -> float:
    """What a publish of a message with an id takes, the window full of others; `many`: by `publish_many`."""
    ids = message_ids(2 * count)
    with Engine() as engine:
        queue: Queue = engine.create_queue("q", dedup=3_600.0, dedup_limit=count) if window else engine.create_queue("q")
        publish = engine.publish
        for message_id in ids[:count]:
            publish("q", "resize", BODY, message_id=message_id)
        queue.purge()

        def act() -> None:
            for message_id in ids[count:]:
                publish("q", "resize", BODY, message_id=message_id)

        def act_many() -> None:
            for messages in lists:
                engine.publish_many("q", messages)

        if not many:
            return timed(act, count)
        made = [Message("resize", BODY, message_id=message_id) for message_id in ids[count:]]
        lists = [made[first : first + MANY] for first in range(0, count, MANY)]
        return timed(act_many, count)


def by_heapq(count: int) -> dict[str, float]:
    heap: list[tuple[float, int, str, bytes]] = []

    def add() -> None:
        for number, due in enumerate(spans(count)):
            heapq.heappush(heap, (due, number, "resize", BODY))

    def fall_due() -> None:
        while heap:
            heapq.heappop(heap)

    return {"delayed": timed(add, count), "fall due": timed(fall_due, count)}


def memory(lines: Any, count: int) -> dict[str, float]:
    """What the memory of so many entries takes."""
    order = list(range(count))
    in_order = array("q", order)
    random.Random(11).shuffle(order)
    return {"in order": lines.touched(in_order, AHEAD), "in any order": lines.touched(array("q", order), AHEAD)}


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--most", type=int, default=10_000_000, help="so many delayed ones in the largest row; a kilobyte each")
    options = parser.parse_args()
    count = 20_000 if options.quick else 1_000_000
    keep_memory(KEPT_BYTES)
    contestants: dict[str, Contestant] = {
        f"{count:,} not routed": partial(delayed, count, False),
        f"{count:,} routed": partial(delayed, count, True),
        f"heapq {count:,}": partial(by_heapq, count),
        f"sched {FEW:,}": partial(by_sched, FEW),
        f"apscheduler {FEW:,}": partial(by_apscheduler, FEW),
    }
    for name, act in (("priorities", by_priority), ("keys", by_key)):
        contestants[f"{name}, ignored"] = partial(act, count, False)
        contestants[name] = partial(act, count, True)
    contestants["ids, no window"] = partial(with_window, count, False)
    contestants["ids, window"] = partial(with_window, count, True)
    contestants["ids of many, no window"] = partial(with_window, count, False, True)
    contestants["ids of many, window"] = partial(with_window, count, True, True)
    times = take_turns(contestants, options.rounds)
    # After all else: the others would find the memory that it leaves.
    times |= take_turns({"entries touched": partial(memory, build("cache_lines"), count)}, options.rounds)
    describe("apscheduler")
    report(times, count)
    if not options.quick:
        sizes(options.most)


def report(times: dict[str, list[float]], count: int) -> None:
    table = speed_table(44)
    idle, routed = f"{count:,} not routed", f"{count:,} routed"
    compare(table, times, f"{idle}, plain", [f"{idle}, delayed"], 1 / 1.5)
    times["a plain routing"] = [both - one for both, one in zip(times[f"{routed}, plain"], times[f"{idle}, plain"], strict=True)]
    compare(table, times, "a plain routing", [f"{routed}, fall due"], 1 / 1.5)
    for order in ("in order", "in any order"):
        name = f"entries touched, {order}"
        table.print(name, *(f"{figure(times[name]):.0f}" for figure in (statistics.median, min, max)))
    for act, theirs in (("delayed", "add"), ("fall due", "fall due")):
        compare(table, times, f"heapq {count:,}, {act}", [f"{routed}, {act}"], None)
        for other in ("sched", "apscheduler"):
            name = f"{other} {FEW:,}, {theirs}"
            table.print(name, f"{statistics.median(times[name]):.0f}")
    for name in ("priorities", "keys"):
        bar = 1 / 1.3 if name == "priorities" else None
        for act in ("publish", "take and ack"):
            compare(table, times, f"{name}, ignored, {act}", [f"{name}, {act}"], bar if act != "publish" else None)
    for ids in "ids", "ids of many":
        compare(table, times, f"{ids}, no window", [f"{ids}, window"], None)
        both = zip(times[f"{ids}, window"], times[f"{ids}, no window"], strict=True)
        added = statistics.median(window - none for window, none in both)
        table.print("the window adds", f"{added:.0f}", "", "", "", "60", verdict(added <= 60))


def sizes(most: int) -> None:
    """The same with few and with many: what there is must not make it dearer. The second run counts, in memory that the first one
    has left; of the first one only what it shows of memory that is used for the first time."""
    print()
    keep_memory(most * ENTRY_BYTES)
    table = Table(44, "ns", "plain", "new memory", "plain")
    for count in (FEW, most):
        first, second = delayed(count, False), delayed(count, False)
        acts = [one[act] for one in (second, first) for act in ("delayed", "plain")]
        table.print(f"{count:,} not routed, delayed", *(f"{one:.0f}" for one in acts))
        table.print(f"{count:,} not routed, fall due", f"{second['fall due']:.0f}", "", f"{first['fall due']:.0f}")


if __name__ == "__main__":
    main()
