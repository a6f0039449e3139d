"""The instructions of calls, beside those of another checkout of Xump. `python -m benchmarks.instructions --against DIR`, and
what each use of time, priority, keys and windows costs beside a queue without. `python -m benchmarks.instructions --features`.

What a change makes dearer, it should make dearer for those only who use it. Each program here makes one kind of call many times,
under valgrind's callgrind, with the core of this checkout and with that of the other one, which is compiled already. The
preparation is not counted. Counts are the same each time to a percent or so, on any machine, busy or not; they know nothing of
caches.

With `--features` the programs are others: each has a feature's figure, that of the same calls without it, and a bar on the ratio.

    python -m benchmarks.instructions --features
    python -m benchmarks.instructions --against ../xump-before
    python -m benchmarks.instructions --against ../xump-before --program "join, leave" --bar 3
    python -m benchmarks.instructions --program columns --profile      # which functions of this checkout they are

Needs valgrind. The programs use what a checkout of the first version has, too.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from xump import INFINITE, Engine, Message, Parrot, Wolfpack, always, copy_to, deliver, match, where

ROOT = Path(__file__).resolve().parents[1]
BODY = b"x" * 100
HEADERS: dict[str, Any] = {"size": 700, "region": "EU"}
BATCH = 100
ROUNDS = 50
BAR = 3.0

Made = tuple[Iterable[Callable[[], Any]], int]
Program = Callable[[], Made]
"""Makes what is there before; the calls that are counted, of which the first two are not, and for how many each counts."""
PROGRAMS: dict[str, Program] = {}
BARS: dict[str, float] = {}
"""Of those that have a bar of their own, in percent."""


def program(name: str, bar: float | None = None) -> Callable[[Program], Program]:
    def keep(made: Program) -> Program:
        PROGRAMS[name] = made
        if bar is not None:
            BARS[name] = bar
        return made

    return keep


def jobs(credit: Any = INFINITE) -> Engine:
    """A queue and its worker."""
    engine = Engine()
    engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=credit)
    return engine


def contents(count: int = BATCH) -> list[tuple[Any, ...]]:
    return [("resize", BODY, HEADERS)] * count


def table(count: int) -> Any:
    """Rows with an address, a body and two headers."""
    import pyarrow

    headers = pyarrow.array([HEADERS] * count, pyarrow.struct([("size", pyarrow.int64()), ("region", pyarrow.string())]))
    return pyarrow.record_batch({"address": ["resize"] * count, "body": pyarrow.array([BODY] * count), "headers": headers})


# ---- publish


@program("publish, nobody there")
def publish_nobody() -> Made:
    engine = Engine()
    engine.create_queue("jobs")
    return [lambda: engine.publish("jobs", "resize", BODY, HEADERS)] * (BATCH * ROUNDS), 1


@program("publish, take, ack, one by one")
def one_by_one() -> Made:
    engine = jobs()

    def call() -> None:
        engine.publish("jobs", "resize", BODY, HEADERS)
        engine.take(1, "worker")[0].ack()

    return [call] * (BATCH * ROUNDS), 1


@program("publish, in a with block")
def with_block() -> Made:
    engine = jobs()

    def call() -> None:
        engine.publish("jobs", "resize", BODY)
        for delivery in engine.deliveries("worker"):
            with delivery as message:
                len(message.body)

    return [call] * (BATCH * ROUNDS), 1


@program("publish_many")
def publish_many() -> Made:
    engine, messages = jobs(), contents()
    return [lambda: engine.publish_many("jobs", messages)] * ROUNDS, BATCH


@program("publish_many, take, ack")
def batches() -> Made:
    engine, messages = jobs(), contents()

    def call() -> None:
        engine.publish_many("jobs", messages)
        engine.ack(engine.take(BATCH, "worker"))

    return [call] * ROUNDS, BATCH


@program("publish_many, take, ack, credit 10")
def batches_little_credit() -> Made:
    engine, messages = jobs(10), contents()

    def call() -> None:
        engine.publish_many("jobs", messages)
        while taken := engine.take(BATCH, "worker"):
            engine.ack(taken)

    return [call] * ROUNDS, BATCH


@program("take, of many")
def take() -> Made:
    engine = jobs()
    engine.publish_many("jobs", contents(BATCH * ROUNDS))
    kept: list[Any] = []
    return [lambda: kept.append(engine.take(BATCH, "worker"))] * ROUNDS, BATCH


@program("ack, of many")
def ack() -> Made:
    engine = jobs()
    engine.publish_many("jobs", contents(BATCH * ROUNDS))
    taken = [engine.take(BATCH, "worker") for _ in range(ROUNDS)]
    return [lambda: engine.ack(taken.pop())] * ROUNDS, BATCH


@program("ack alone")
def ack_alone() -> Made:
    return taken_one_by_one(lambda delivery: delivery.ack())


@program("nack alone")
def nack_alone() -> Made:
    return taken_one_by_one(lambda delivery: delivery.nack())


def taken_one_by_one(then: Callable[[Any], Any]) -> Made:
    """Each of many deliveries was taken before."""
    engine = jobs(BATCH * ROUNDS)
    engine.publish_many("jobs", contents(BATCH * ROUNDS))
    taken = [engine.take(1, "worker")[0] for _ in range(BATCH * ROUNDS)]
    return [lambda: then(taken.pop())] * (BATCH * ROUNDS), 1


@program("nack")
def nack() -> Made:
    engine = jobs(1)
    engine.publish_many("jobs", contents())

    def call() -> None:
        engine.take(1, "worker")[0].nack()

    return [call] * (BATCH * ROUNDS // 2), 1


# ---- columns


@program("columns, publish_batch of many")
def publish_batch() -> Made:
    engine, rows = jobs(), table(BATCH * 10)
    return [lambda: engine.publish_batch("jobs", rows)] * (ROUNDS // 5), BATCH * 10


@program("columns, publish_batch of one")
def publish_batch_of_one() -> Made:
    engine, rows = jobs(), table(1)
    return [lambda: engine.publish_batch("jobs", rows)] * (BATCH * 5), 1


@program("columns, take_batch of many")
def take_batch() -> Made:
    return taken_in_columns(BATCH * 10, ROUNDS // 5, lambda batch: None)


@program("columns, take_batch of one")
def take_batch_of_one() -> Made:
    return taken_in_columns(1, BATCH * 5, lambda batch: None)


# Three columns more than there were once: pyarrow alone takes 24,000 instructions to import them (docs/internals.md).
@program("columns, take_batch of one, read, acked", bar=14.0)
def take_batch_read() -> Made:
    import pyarrow

    return taken_in_columns(1, BATCH * 5, lambda batch: (pyarrow.record_batch(batch), batch.ack()))


def taken_in_columns(rows: int, calls: int, then: Callable[[Any], Any]) -> Made:
    engine = jobs()
    engine.publish_many("jobs", contents(rows * calls))

    def call() -> None:
        then(engine.take_batch(rows, "worker"))

    return [call] * calls, rows


# ---- topologies, conditions


def flock(credit: Any) -> Engine:
    """A Parrot of ten, all of whom want everything."""
    engine = Engine()
    with engine.building():
        made = Parrot(engine, "news")
        for number in range(10):
            made.join(f"bird-{number}", "#", credit=credit)
    return engine


@program("Parrot of ten")
def parrot() -> Made:
    engine = flock(INFINITE)
    messages = [("news.eu", BODY)] * 10

    def call() -> None:
        engine.publish_many("news", messages)
        engine.ack(engine.take(100))

    return [call] * ROUNDS, 100


@program("Parrot of ten, call by call")
def parrot_calls() -> Made:
    engine = flock(10)

    def call() -> None:
        engine.publish("news", "news.eu", BODY)
        for delivery in engine.deliveries():
            delivery.ack()

    return [call] * (BATCH * 5), 10


@program("Wolfpack of ten")
def wolfpack() -> Made:
    engine = Engine()
    with engine.building():
        made = Wolfpack(engine, "jobs")
        for number in range(10):
            made.join(f"wolf-{number}", credit=10)

    def call() -> None:
        engine.publish("jobs", "", BODY)
        engine.take(1)[0].ack()

    return [call] * (BATCH * ROUNDS // 5), 1


@program("a filter, a topic")
def filtered() -> Made:
    engine = Engine()
    engine.create_queue("jobs")
    engine.create_queue("others")
    engine.create_selector("jobs", when=match("topic", "job.#") & where("size > 100 AND region = 'EU'"), do=copy_to("others"))
    engine.create_selector("jobs", when=match("eq", "none"), do=deliver("nobody"))
    return [lambda: engine.publish("jobs", "job.new", BODY, HEADERS)] * (BATCH * ROUNDS // 2), 1


# ---- the graph


@program("join, leave a selector")
def join_and_leave() -> Made:
    engine = jobs(1)
    action = deliver("guest")
    return [lambda: engine.create_selector("jobs", when=always, do=action, credit=1).delete()] * (BATCH * 5), 1


@program("join, leave a Wolfpack")
def join_and_leave_a_pack() -> Made:
    pack = Wolfpack(Engine(), "jobs")
    return [lambda: pack.join("guest").leave()] * (BATCH * 5), 1


@program("create, delete a queue")
def create_and_delete() -> Made:
    engine = Engine()

    def call() -> None:
        engine.create_queue("scratch")
        engine.delete_queue("scratch")

    return [call] * (BATCH * 5), 1


@program("building, empty")
def building() -> Made:
    engine = jobs()

    def call() -> None:
        with engine.building():
            pass

    return [call] * (BATCH * 5), 1


# ---- messages, and the rest


@program("Message")
def message() -> Made:
    return [lambda: Message("resize", BODY, HEADERS)] * (BATCH * ROUNDS), 1


@program("Message, read")
def message_read() -> Made:
    made = Message("resize", BODY, HEADERS, reply_to="here")
    return [lambda: (made.address, made.body, made.headers["size"], made.reply_to)] * (BATCH * ROUNDS), 1


@program("Message, replaced")
def message_replaced() -> Made:
    made = Message("resize", BODY, HEADERS)
    return [lambda: made.replace(address="other")] * (BATCH * ROUNDS // 2), 1


@program("transaction")
def transaction() -> Made:
    engine = jobs()

    def call() -> None:
        with engine.transaction() as tx:
            tx.publish("jobs", "resize", BODY)
        with engine.transaction() as tx:
            tx.ack(engine.take(1, "worker")[0])

    return [call] * (BATCH * 5), 1


@program("browse")
def browse() -> Made:
    engine = Engine()
    queue = engine.create_queue("jobs")
    engine.publish_many("jobs", contents())
    return [lambda: sum(1 for _ in queue.browse())] * ROUNDS, BATCH


# ---- counting


def program_named(name: str) -> Program:
    """One of these, or of a feature: those are of this checkout, and the other one need not have their file."""
    if name in PROGRAMS:
        return PROGRAMS[name]
    from benchmarks import feature_calls

    return feature_calls.PROGRAMS[name]


def count_here(name: str, requests: ModuleType) -> None:
    """In the process that valgrind runs."""
    gc.freeze()
    made, weight = program_named(name)()
    first, second, *calls = list(made)
    first()
    second()
    gc.collect()
    gc.disable()  # it comes when it likes
    requests.start()
    for call in calls:
        call()
    requests.stop(str(len(calls) * weight).encode())
    sys.stdout.flush()
    os._exit(0)  # without taking the engine apart


def counted(name: str, checkout: Path, requests: str, out: Path) -> tuple[float, Path]:
    """Instructions a message, or a call, with the core of that checkout; and the file that has them by function."""
    out.mkdir()
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}/counts", sys.executable, "-P",
               __file__, "--count", name, "--requests", requests]  # fmt: skip
    variables = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, in {checkout}:\n{done.stderr[-2_000:]}")
    for path in out.iterdir():
        text = path.read_text()
        calls = re.search(r"^desc: Trigger: Client Request: (\d+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if calls is not None and total is not None:
            return int(total[1]) / int(calls[1]), path
    raise SystemExit(f"{name}, in {checkout}: nothing was counted")


def compare(names: list[str], checkouts: list[Path], bar: float, profile: bool) -> bool:
    """Count and print; whether none is dearer here than in the last checkout by more percent than the bar."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: nothing is counted")
    from benchmarks.peers import build

    requests = build("counting").__file__
    assert requests is not None
    dearer = False
    print(f"{'instructions each':42}" + "".join(f"{title:>10}" for title in ("here", "there", "")[: len(checkouts) + 1]))
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(os.cpu_count()) as pool:
        given = [[pool.submit(counted, name, checkout, requests, Path(directory) / f"{at}-{place}")
                  for place, checkout in enumerate(checkouts)] for at, name in enumerate(names)]  # fmt: skip
        for name, futures in zip(names, given, strict=True):
            figures = [future.result() for future in futures]
            here, there = figures[0][0], figures[-1][0]
            more = 100 * (here / there - 1)
            too_dear = more > BARS.get(name, bar)
            dearer |= too_dear
            against = f"{there:10,.0f}{more:+9.1f}%" + ("  dearer" if too_dear else "") if len(checkouts) > 1 else ""
            print(f"{name:42}{here:10,.0f}{against}", flush=True)
            for _, path in figures if profile else []:
                shown = subprocess.run(["callgrind_annotate", str(path)], capture_output=True, text=True, check=True)
                print("\n".join(shown.stdout.splitlines()[:60]))
    return not dearer


def features(bar_only: list[str] | None) -> bool:
    """Count and print what each feature costs; whether all are within their bars."""
    from benchmarks.feature_calls import FEATURES
    from benchmarks.peers import build

    rows = [row for row in FEATURES if not bar_only or row.name.startswith(tuple(bar_only))]
    names = sorted({name for row in rows for name in (row.program, row.beside, row.less) if name is not None})
    requests = build("counting").__file__
    assert requests is not None
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(os.cpu_count()) as pool:
        given = {name: pool.submit(counted, name, ROOT, requests, Path(directory) / str(at)) for at, name in enumerate(names)}
        figures = {name: future.result()[0] for name, future in given.items()}
    met = True
    print(f"{'instructions each':44}{'':>10}{'without':>10}{'ratio':>8}{'bar':>8}")
    for row in rows:
        beside = figures[row.beside] - (figures[row.less] if row.less is not None else 0)
        ratio = figures[row.program] / beside
        met &= ratio <= row.bar
        print(f"{row.name:44}{figures[row.program]:10,.0f}{beside:10,.0f}{ratio:8.2f}{row.bar:8.1f}   "
              + ("met" if ratio <= row.bar else "missed"), flush=True)
    return met


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, with its core compiled")
    parser.add_argument("--program", action="append", help="those whose name begins so; may be given several times")
    parser.add_argument("--bar", type=float, default=BAR, help="percent that a call may be dearer here (default: %(default)g)")
    parser.add_argument("--features", action="store_true", help="what the uses of time, priority, keys and windows cost")
    parser.add_argument("--profile", action="store_true", help="print the functions in which the instructions are")
    parser.add_argument("--list", action="store_true", help="the names of the programs")
    parser.add_argument("--count", help=argparse.SUPPRESS)
    parser.add_argument("--requests", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        spec = importlib.util.spec_from_file_location("counting", options.requests)
        assert spec is not None and spec.loader is not None
        requests = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(requests)
        count_here(options.count, requests)
    if options.features:
        sys.exit(None if features(options.program) else "a bar is missed")
    names = [name for name in PROGRAMS if not options.program or name.startswith(tuple(options.program))]
    if options.list:
        print("\n".join(names))
    elif not names:
        parser.error(f"no program begins with {options.program[0]!r}; --list has them all")
    else:
        checkouts = [ROOT, *([options.against.resolve()] if options.against else [])]
        if not compare(names, checkouts, options.bar, options.profile):
            sys.exit(f"dearer here by more than {options.bar:g} %")


if __name__ == "__main__":
    main()
