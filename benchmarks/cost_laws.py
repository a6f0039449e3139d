"""The laws of cost, in counted instructions: what else there is must not make a call dearer. `python -m benchmarks.cost_laws`.

Each law varies one size over decades and counts the instructions of the same calls, by valgrind's callgrind: only within the
calls, the graph is built outside. Counts include the interpreter's part (about a hundred a call), and are nearly the same each
time, on any machine, busy or not. Of cache misses they know nothing.

A law's verdict, from its smallest size to its largest:

    flat            at most a fifth more
    logarithmic     at most as much more as the sizes' logarithms
    grows           more than that; the exponent says how fast: 1 is proportional to the size

Needs valgrind. The largest sizes take minutes, since what is built is built under valgrind too.

    python -m benchmarks.cost_laws --law "publish, backlog" --quick
    python -m benchmarks.cost_laws --list
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.harness import BODY, Table, describe, parser_of
from benchmarks.peers import build, load
from xump import INFINITE, Engine, Wolfpack, always, copy_to, deliver, match

FLAT = 1.2
CALLS = 200
WOLVES = 1_000

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

    @contextmanager
    def counted(self, name: str, calls: int) -> Iterator[None]:
        self.requests.start()
        yield
        self.requests.stop(f"{calls} {name}".encode())

    def calls(self, name: str, call: Callable[[], Any], calls: int = CALLS) -> None:
        call()
        call()
        with self.counted(name, calls):
            for _ in range(calls):
                call()


def fill(engine: Engine, queue: str, count: int, address: str = "") -> None:
    """A backlog. Messages are made a chunk at a time, so that only the engine keeps them."""
    messages = ((address, BODY) for _ in range(count))
    while chunk := list(islice(messages, 10_000)):
        engine.publish_many(queue, chunk)


# ---- publish


@law("publish, backlog", "messages that wait", 100, 10_000, 1_000_000)
def publish_backlog(counter: Counter, size: int) -> None:
    engine = Engine()
    engine.create_queue("idle")
    engine.create_queue("starved")
    engine.create_selector("starved", when=always, do=deliver("worker"), credit=0)
    engine.create_queue("served")
    engine.create_selector("served", when=match("eq", "red"), do=deliver("red"), credit=0)
    engine.create_selector("served", when=match("eq", "green"), do=deliver("green"), credit=10 * CALLS)
    for queue, address in (("idle", ""), ("starved", ""), ("served", "red")):
        fill(engine, queue, size, address)
    counter.calls("into a queue without selectors", partial(engine.publish, "idle", "", BODY))
    counter.calls("to wait behind the backlog", partial(engine.publish, "starved", "", BODY))
    counter.calls("past a backlog that is not for it", partial(engine.publish, "served", "green", BODY))


@law("publish, selectors", "selectors that do not match", 100, 10_000, 100_000, 1_000_000)
def publish_selectors(counter: Counter, size: int) -> None:
    """Half of them want an address, half a topic; one more takes what is published."""
    engine = Engine()
    with engine.building():
        engine.create_queue("topics")
        engine.create_queue("others")
        others = copy_to("others")
        for number in range(size // 2):
            engine.create_selector("topics", when=match("eq", f"mine.{number}.eu"), do=others)
            engine.create_selector("topics", when=match("topic", f"ours.{number}.*.#"), do=others)
        engine.create_selector("topics", when=match("topic", "orders.#"), do=deliver("worker"), credit=INFINITE)
    publish = engine.publish
    publish("topics", "orders.eu.new", BODY)
    counter.calls("an address seen before", partial(publish, "topics", "orders.eu.new", BODY))
    addresses = [f"orders.{number}.new" for number in range(CALLS)]
    with counter.counted("new addresses", CALLS):
        for address in addresses:
            publish("topics", address, BODY)


@law("publish, workers", "workers without credit", 10, 1_000, 10_000)
def publish_workers(counter: Counter, size: int) -> None:
    """All wolves have a delivery that they do not ack."""
    engine = Engine()
    with engine.building():
        wolves = Wolfpack(engine, "jobs")
        for number in range(size):
            wolves.join(f"wolf-{number}")
    fill(engine, "jobs", size)
    assert engine.queues["jobs"].outstanding == size
    counter.calls("to wait", partial(engine.publish, "jobs", "", BODY))
    engine.queues["jobs"].purge()
    wolves.join("rested", credit=10 * CALLS)
    counter.calls("to the one wolf with credit", partial(engine.publish, "jobs", "", BODY))
    assert engine.queues["rested"].outstanding == CALLS + 2


# ---- grant, take, ack


@law("grant and ack, backlog", "messages that wait", 100, 10_000, 1_000_000)
def grant_ack_backlog(counter: Counter, size: int) -> None:
    engine = Engine()
    engine.create_queue("jobs")
    worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=0)
    fill(engine, "jobs", size + 2 * CALLS)
    counter.calls("grant", partial(worker.grant, 1), CALLS // 2)
    taken = engine.take(CALLS // 2 + 2)
    for delivery in taken[-2:]:
        delivery.ack()
    with counter.counted("ack", CALLS // 2):
        for delivery in taken[:-2]:
            delivery.ack()
    counter.calls("take and ack", lambda: [delivery.ack() for delivery in engine.deliveries()], 1)


@law("grant past others, backlog", "older messages that are not for it", 100, 10_000, 1_000_000)
def grant_past_others(counter: Counter, size: int) -> None:
    engine = Engine()
    engine.create_queue("lights")
    engine.create_selector("lights", when=match("eq", "red"), do=deliver("red"), credit=0)
    green = engine.create_selector("lights", when=match("eq", "green"), do=deliver("green"), credit=0)
    fill(engine, "lights", size, "red")
    fill(engine, "lights", CALLS, "green")
    counter.calls("grant", partial(green.grant, 1), CALLS // 2)


@law("grant, groups", "sets of selectors that messages wait for", 10, 1_000, 10_000)
def grant_groups(counter: Counter, size: int) -> None:
    """One worker takes all, and each address has one more selector without credit: messages wait in as many groups."""
    engine = Engine()
    with engine.building():
        engine.create_queue("jobs")
        worker = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=0)
        for number in range(size):
            engine.create_selector("jobs", when=match("eq", f"job-{number}"), do=deliver("idle"), credit=0)
    for number in range(max(size, 2 * CALLS)):
        engine.publish("jobs", f"job-{number % size}", BODY)
    counter.calls("grant", partial(worker.grant, 1), CALLS // 2)


# ---- joining and leaving


def pack(size: int, wolves: int) -> tuple[Engine, Wolfpack]:
    """Wolves with a credit of 1, each with a delivery, and messages that wait."""
    engine = Engine()
    with engine.building():
        made = Wolfpack(engine, "jobs")
        for number in range(wolves):
            made.join(f"wolf-{number}")
    fill(engine, "jobs", wolves + size)
    assert engine.queues["jobs"].ready == size
    return engine, made


def come_and_go(counter: Counter, wolves: Wolfpack, calls: int = 20) -> None:
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
    _, wolves = pack(size, WOLVES)
    come_and_go(counter, wolves)


@law("join and leave, pack", "wolves, with 1,000 messages that wait", 10, 100, 1_000, 10_000)
def join_pack(counter: Counter, size: int) -> None:
    _, wolves = pack(1_000, size)
    come_and_go(counter, wolves)


# ---- counting


def count(law: Law, size: int) -> dict[str, float]:
    """Instructions a call by name: the law at one size, in a process under callgrind."""
    requests = build("counting").__file__  # here, and not by each process that is counted
    assert requests is not None
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out", sys.executable,
                   "-m", "benchmarks.cost_laws", "--law", law.name, "--size", str(size), "--requests", requests]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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


def judge(sizes: list[int], counts: list[float]) -> str:
    growth, decades = counts[-1] / counts[0], sizes[-1] / sizes[0]
    if growth <= FLAT:
        return "flat"
    if growth <= math.log(sizes[-1]) / math.log(sizes[0]) * 1.05:
        return "logarithmic"
    return f"grows, exponent {math.log(growth) / math.log(decades):.2f}"


def report(law: Law, quick: bool) -> None:
    """Count and print one law."""
    sizes = [size for size in law.sizes if size <= 10_000] if quick else list(law.sizes)
    started = perf_counter()
    counts = [count(law, size) for size in sizes]
    print(f"\n  {law.name}: {law.varies} ({perf_counter() - started:.0f} s)")
    table = Table(36, *(f"{size:,}" for size in sizes), "growth", "", width=10)
    for name in counts[0]:
        row = [found[name] for found in counts]
        table.print(name, *(f"{figure:,.0f}" for figure in row), f"{row[-1] / row[0]:.2f}", " " + judge(sizes, row))


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
        counter = Counter(options.requests)
        for one in laws:
            one.count(counter, options.size)
    else:
        describe()
        print("instructions a call")
        for one in laws:
            report(one, options.quick)


if __name__ == "__main__":
    main()
