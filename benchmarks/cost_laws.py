"""The laws of cost, in counted instructions: what else there is must not make a call dearer. `python -m benchmarks.cost_laws`.

Each law varies one size over decades and counts the instructions of the same calls, by valgrind's callgrind: only within the
calls; what is there is made before. Counts include the interpreter's part (about a hundred a call), and are nearly the same each
time, on any machine, busy or not; so several are counted at once. Of cache misses they know nothing.

The verdict, from the smallest size to the largest:

    flat            at most a fifth more
    logarithmic     at most as much more as the sizes' logarithms
    grows           more than that; the exponent, of the two largest sizes, says how fast: 1 is proportional to the size

Needs valgrind.

    python -m benchmarks.cost_laws --law "publish, backlog" --quick
    python -m benchmarks.cost_laws --list
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness import BODY, Table, describe, parser_of
from benchmarks.peers import build, load
from xump import INFINITE, Delivery, Engine, Wolfpack, always, copy_to, deliver, field, match, move_to

FLAT = 1.2
CALLS = 200
WOLVES = 1_000
QUICK = (100, 1_000, 10_000)

Body = Callable[["Counter", int], None]


@dataclass(frozen=True)
class Law:
    """`count` builds something of a size and counts `CALLS` calls, or the number it gives, under one or several names."""

    name: str
    varies: str
    sizes: tuple[int, ...]
    count: Body


LAWS: dict[str, Law] = {}


def law(name: str, varies: str, *sizes: int) -> Callable[[Body], Body]:
    def keep(count: Body) -> Body:
        LAWS[name] = Law(name, varies, sizes, count)
        return count

    return keep


class Counter:
    """Runs calls between a start and a stop of the counting; twice before that uncounted, so that nothing is new."""

    def __init__(self, path: str | None) -> None:
        self.requests = build("counting") if path is None else load("counting", path)
        self.engines: list[Engine] = []  # kept: to take them apart is not what is counted

    def engine(self) -> Engine:
        self.engines.append(Engine())
        return self.engines[-1]

    @contextmanager
    def counted(self, name: str, calls: int) -> Iterator[None]:
        gc.disable()  # it comes when it likes
        self.requests.start()
        yield
        self.requests.stop(f"{calls} {name}".encode())
        gc.enable()

    def calls(self, name: str, call: Callable[[], Any], calls: int = CALLS) -> None:
        call()
        call()
        with self.counted(name, calls):
            for _ in range(calls):
                call()

    def each(self, name: str, call: Callable[[Any], Any], arguments: list[Any]) -> None:
        """A call for each, of which the first two are not counted."""
        call(arguments[0])
        call(arguments[1])
        with self.counted(name, len(arguments) - 2):
            for argument in arguments[2:]:
                call(argument)


def fill(engine: Engine, queue: str, count: int, address: str = "") -> None:
    """A backlog. Messages are made a chunk at a time, so that only the engine keeps them."""
    messages = ((address, BODY) for _ in range(count))
    while chunk := list(islice(messages, 10_000)):
        engine.publish_many(queue, chunk)


def grouped(engine: Engine, queue: str, groups: int) -> None:
    """An address for each of as many more selectors, without credit: messages of as many addresses wait in as many groups."""
    for number in range(groups):
        engine.create_selector(queue, when=match("eq", f"job-{number}"), do=deliver("idle"), credit=0)


# ---- publish


@law("publish, backlog", "messages that wait", 1_000, 100_000, 1_000_000)
def publish_backlog(counter: Counter, size: int) -> None:
    engine = counter.engine()
    engine.create_queue("idle")
    engine.create_queue("starved")
    engine.create_selector("starved", when=always, do=deliver("worker"), credit=0)
    engine.create_queue("served")
    engine.create_selector("served", when=match("eq", "red"), do=deliver("red"), credit=0)
    engine.create_selector("served", when=match("eq", "green"), do=deliver("green"), credit=3 * CALLS)
    for queue, address in (("idle", ""), ("starved", ""), ("served", "red")):
        fill(engine, queue, size, address)
    counter.calls("into a queue without selectors", partial(engine.publish, "idle", "", BODY))
    counter.calls("to wait behind the backlog", partial(engine.publish, "starved", "", BODY))
    counter.calls("past a backlog that is not for it", partial(engine.publish, "served", "green", BODY))
    for name, queue, address in (("to wait", "starved", ""), ("past", "served", "green")):
        messages = [(address, BODY)] * (CALLS // 4)
        counter.calls(f"publish_many of {len(messages)}, {name}", partial(engine.publish_many, queue, messages), 4)


@law("publish, selectors", "selectors that do not match", 1_000, 100_000, 1_000_000)
def publish_selectors(counter: Counter, size: int) -> None:
    """Half of them want an address, half a topic; one more takes what is published."""
    engine = counter.engine()
    with engine.building():
        engine.create_queue("topics")
        engine.create_queue("others")
        others = copy_to("others")
        for number in range(size // 2):
            engine.create_selector("topics", when=match("eq", f"mine.{number}.eu"), do=others)
            engine.create_selector("topics", when=match("topic", f"ours.{number}.*.#"), do=others)
        engine.create_selector("topics", when=match("topic", "orders.#"), do=deliver("worker"), credit=INFINITE)
    counter.calls("an address seen before", partial(engine.publish, "topics", "orders.eu.new", BODY))
    addresses = [f"orders.{number}.new" for number in range(CALLS)]
    counter.each("a new address", partial(engine.publish, "topics"), addresses)
    messages = [("orders.eu.new", BODY)] * (CALLS // 4)
    counter.calls(f"publish_many of {len(messages)}", partial(engine.publish_many, "topics", messages), 4)


@law("publish, workers", "workers without credit in a Wolfpack", 10, 1_000, 10_000)
def publish_workers(counter: Counter, size: int) -> None:
    """All wolves have a delivery that they do not ack."""
    engine = counter.engine()
    wolves = pack(engine, 0, size)
    counter.calls("to wait", partial(engine.publish, "jobs", "", BODY))
    engine.queues["jobs"].purge()
    wolves.join("rested", credit=2 * CALLS)
    counter.calls("to the one wolf with credit", partial(engine.publish, "jobs", "", BODY))
    assert engine.queues["rested"].outstanding == CALLS + 2


# ---- grant, take, ack, nack


@law("grant, ack, nack; backlog", "messages that wait", 1_000, 100_000, 1_000_000)
def grant_ack_backlog(counter: Counter, size: int) -> None:
    """A grant, and an ack, let the next message go. What is nacked is the oldest again, and goes again."""
    engine = counter.engine()
    engine.create_queue("jobs")
    worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=0)
    fill(engine, "jobs", size + 3 * CALLS)
    counter.calls("grant", partial(worker.grant, 1))
    counter.each("ack", Delivery.ack, engine.take(CALLS))

    def take_and_ack() -> None:
        engine.take(1)[0].ack()

    counter.calls("take and ack", take_and_ack, CALLS // 2)
    counter.each("nack", Delivery.nack, engine.take(CALLS // 2))
    taken = engine.take(CALLS // 2)
    worker.disable()
    counter.each("nack, to wait", Delivery.nack, taken)


@law("nack, outstanding", "messages taken by one worker, nacked in any order, to wait", 100, 1_000, 10_000)
def nack_outstanding(counter: Counter, size: int) -> None:
    engine = counter.engine()
    engine.create_queue("jobs")
    worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=size)
    fill(engine, "jobs", size)
    taken = engine.take(size)
    random.Random(7).shuffle(taken)
    worker.disable()
    counter.each("nack", Delivery.nack, taken)


@law("grant past others, backlog", "older messages that are not for it", 1_000, 100_000, 1_000_000)
def grant_past_others(counter: Counter, size: int) -> None:
    engine = counter.engine()
    engine.create_queue("lights")
    engine.create_selector("lights", when=match("eq", "red"), do=deliver("red"), credit=0)
    green = engine.create_selector("lights", when=match("eq", "green"), do=deliver("green"), credit=0)
    fill(engine, "lights", size, "red")
    fill(engine, "lights", 2 * CALLS, "green")
    counter.calls("grant", partial(green.grant, 1))
    counter.each("ack", Delivery.ack, engine.take(CALLS // 2))
    counter.each("nack", Delivery.nack, engine.take(CALLS // 2))


@law("grant, ack, nack; groups", "sets of selectors that messages wait for", 10, 1_000, 10_000)
def grant_groups(counter: Counter, size: int) -> None:
    """One worker takes all, and each address has one more selector without credit: messages wait in as many groups."""
    engine = counter.engine()
    with engine.building():
        engine.create_queue("jobs")
        worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=0)
        grouped(engine, "jobs", size)
    for number in range(size * (1 + 3 * CALLS // size)):
        engine.publish("jobs", f"job-{number % size}", BODY)
    counter.calls("grant", partial(worker.grant, 1))
    counter.each("ack", Delivery.ack, engine.take(CALLS // 2))
    counter.each("nack", Delivery.nack, engine.take(CALLS // 2))


@law("field targets, names", "names that wait, of one selector that moves to where the message says", 100, 1_000, 10_000)
def field_targets(counter: Counter, size: int) -> None:
    """Each target has what its limit allows, and for each two more messages wait."""
    engine = counter.engine()
    names = [f"name-{number}" for number in range(size)]
    with engine.building():
        engine.create_queue("jobs")
        for name in names:
            engine.create_queue(name, limit=1)
        engine.create_selector("jobs", when=always, do=move_to(field("address")), credit=INFINITE)
    engine.publish_many("jobs", [(name, BODY) for name in names] * 3)
    counter.each("free a place", lambda name: engine.queues[name].purge(), names[:CALLS])
    counter.calls("publish, to wait", partial(engine.publish, "jobs", names[-1], BODY))


@law("field targets without limits, names", "names that wait, of one selector that moves to where the message says",
     1_000, 10_000, 100_000)  # fmt: skip
def field_targets_without_limits(counter: Counter, size: int) -> None:
    engine = counter.engine()
    with engine.building():
        engine.create_queue("jobs")
        for number in range(size):
            engine.create_queue(f"name-{number}")
        engine.create_queue("first")
        mover = engine.create_selector("jobs", when=always, do=move_to(field("address")), credit=1)
        engine.create_selector("first", when=always, do=deliver("worker"), credit=1)
    engine.publish_many("jobs", [("first", BODY)] * (3 * CALLS) + [(f"name-{number}", BODY) for number in range(size)])

    def take_and_ack() -> None:
        engine.take(1)[0].ack()

    counter.calls("take and ack", take_and_ack)
    counter.calls("grant", partial(mover.grant, 1))


# ---- time, and order per key


class Clock:
    """The engine's: it stands where it is put."""

    now = 1_700_000_000 * 10**9

    def __call__(self) -> int:
        return self.now


@law("schedule", "messages that are delayed, by up to an hour, in any order", 1_000, 100_000, 1_000_000)
def schedule(counter: Counter, size: int) -> None:
    draw, clock = random.Random(7), Clock()
    with Engine(clock=clock) as engine:
        queue = engine.create_queue("jobs")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=INFINITE)
        for _ in range(size):
            engine.publish("jobs", "", BODY, delay=60 + 3_600 * draw.random())
        counter.calls("publish with a delay", lambda: engine.publish("jobs", "", BODY, delay=60 + 3_600 * draw.random()))
        counter.each("delete", queue.delete, draw.sample(range(1, size + 1), min(CALLS, size // 2)))
        moments = sorted(clock.now + int(50e9 * draw.random()) for _ in range(CALLS))
        for moment in moments:
            engine.publish("jobs", "", BODY, at=moment)

        def fall_due(moment: int) -> None:
            clock.now = moment
            engine.tick()

        counter.each("one falls due", fall_due, moments)
        clock.now += 3_600 * 10**9
        with counter.counted("each of all falls due", queue.delayed):
            engine.tick()


@law("order per key", "messages of one key, and as many others of a key each", 1_000, 100_000, 300_000)
def order_per_key(counter: Counter, size: int) -> None:
    engine = counter.engine()
    engine.create_queue("jobs", group=field("address"))
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=1)
    engine.publish_many("jobs", [("big" if number % 2 else f"key-{number}", BODY) for number in range(2 * size)])

    def take_and_ack() -> None:
        engine.take(1)[0].ack()

    counter.calls("publish, behind many", partial(engine.publish, "jobs", "big", BODY))
    counter.calls("publish, a new key", lambda: engine.publish("jobs", str(engine.queues["jobs"].ready), BODY))
    counter.calls("take and ack", take_and_ack)


@law("drop the oldest", "messages that are bound in a full queue, of 256 priorities, in any order", 1_000, 100_000, 300_000)
def drop_the_oldest(counter: Counter, size: int) -> None:
    """A selector with unlimited credit has bound them. Each publish pushes out the one of the lowest priority."""
    engine, draw = counter.engine(), random.Random(7)
    queue = engine.create_queue("jobs", limit=size, when_full="drop_oldest", priority=255)
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=INFINITE)

    def publish() -> None:
        engine.publish("jobs", "", BODY, priority=draw.randrange(256))

    for _ in range(size):
        publish()
    counter.calls("publish, and drop", publish)
    counter.calls("take", partial(engine.take, 1))
    assert queue.ready == max(size - CALLS - 2, 0)


# ---- joining and leaving


def pack(engine: Engine, size: int, wolves: int, groups: int = 0) -> Wolfpack:
    """Wolves with a credit of 1, each with a delivery, and messages that wait."""
    with engine.building():
        made = Wolfpack(engine, "jobs")
        for number in range(wolves):
            made.join(f"wolf-{number}")
        grouped(engine, "jobs", groups)
    fill(engine, "jobs", wolves)
    fill(engine, "jobs", size)
    assert engine.queues["jobs"].ready == size
    return made


def come_and_go(counter: Counter, wolves: Wolfpack, calls: int = 20) -> None:
    """Who joins gets a message at once, which comes back when he leaves."""
    for number in range(2):
        wolves.join(f"guest-{number}").leave()
    with counter.counted("join", calls):
        guests = [wolves.join(f"late-{number}") for number in range(calls)]
    assert guests[-1].queue.outstanding == 1
    with counter.counted("leave", calls):
        for guest in guests:
            guest.leave()


@law("join and leave, backlog", "messages that wait, in a Wolfpack of 1,000", 1_000, 100_000, 1_000_000)
def join_backlog(counter: Counter, size: int) -> None:
    come_and_go(counter, pack(counter.engine(), size, WOLVES))


@law("join and leave, pack", "wolves, with 1,000 messages that wait", 10, 1_000, 10_000)
def join_pack(counter: Counter, size: int) -> None:
    come_and_go(counter, pack(counter.engine(), 1_000, size))


@law("join and leave, groups", "sets of selectors that messages wait for, in a Wolfpack of 10", 10, 1_000, 10_000)
def join_groups(counter: Counter, size: int) -> None:
    engine = counter.engine()
    wolves = pack(engine, 0, 10, size)
    for number in range(max(size, 100)):
        engine.publish("jobs", f"job-{number % size}", BODY)
    come_and_go(counter, wolves)


# ---- counting


def count(law: Law, size: int, requests: str) -> dict[str, float]:
    """Instructions a call by name: the law at one size, in a process under callgrind."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out", sys.executable,
                   "-m", "benchmarks.cost_laws", "--law", law.name, "--size", str(size), "--requests", requests]  # fmt: skip
        variables = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        if done.returncode:
            raise SystemExit(done.stderr[-2_000:])
        found: dict[str, float] = {}
        for path in sorted(Path(directory).iterdir()):
            text = path.read_text()
            trigger = re.search(r"^desc: Trigger: Client Request: (\d+) (.+)$", text, re.MULTILINE)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
            if trigger is not None and total is not None:
                found[trigger[2]] = int(total[1]) / int(trigger[1])
        return found


def judge(sizes: tuple[int, ...], counts: list[float]) -> str:
    growth = counts[-1] / counts[0]
    if growth <= FLAT:
        return "flat"
    if growth <= math.log(sizes[-1]) / math.log(sizes[0]) * 1.05:
        return "logarithmic"
    return f"grows, exponent {math.log(counts[-1] / counts[-2]) / math.log(sizes[-1] / sizes[-2]):.2f}"


def report(law: Law, sizes: tuple[int, ...], counts: list[dict[str, float]]) -> None:
    """Print one law."""
    print(f"\n  {law.name}: {law.varies}")
    table = Table(36, *(f"{size:,}" for size in sizes), "growth", "", width=10, is_exact=True)
    for name in counts[0]:
        row = [found[name] for found in counts]
        table.print(name, *(f"{figure:,.0f}" for figure in row), f"{row[-1] / row[0]:.2f}", "  " + judge(sizes, row))


def count_all(laws: list[Law], quick: bool) -> None:
    """Count and print, as many sizes at once as there are cores."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: nothing is counted")
    requests = build("counting").__file__  # here, and not by each process that counts
    assert requests is not None
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = {law.name: QUICK if quick and law.sizes[-1] > QUICK[-1] else law.sizes for law in laws}
        given = {law.name: [pool.submit(count, law, size, requests) for size in sizes[law.name]] for law in laws}
        for one in laws:
            report(one, sizes[one.name], [counts.result() for counts in given[one.name]])


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--law", action="append", choices=list(LAWS), help="one of them; may be given several times")
    parser.add_argument("--list", action="store_true", help="names, what they vary, and sizes")
    parser.add_argument("--size", type=int, help="one size, in this process: for the counting process, or a profiler")
    parser.add_argument("--requests", help=argparse.SUPPRESS)
    options = parser.parse_args()
    laws = [LAWS[name] for name in options.law or LAWS]
    if options.list:
        for one in laws:
            print(f"{one.name:28} {one.varies}: {', '.join(f'{size:,}' for size in one.sizes)}")
    elif options.size:
        gc.freeze()
        counter = Counter(options.requests)
        for one in laws:
            one.count(counter, options.size)
        sys.stdout.flush()
        os._exit(0)  # without taking the engines apart
    else:
        describe()
        print("instructions a call")
        count_all(laws, options.quick)


if __name__ == "__main__":
    main()
