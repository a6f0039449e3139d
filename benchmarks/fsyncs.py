"""How often the disk is asked to make something durable. `python -m benchmarks.fsyncs`.

strace counts what the kernel is asked, LMDB's syncs in C included: calls of `fsync`, `fdatasync` and `msync`. For each store
and durability a child process does each of these things so many times in turn, with messages of 100 bytes:

    publish         a call
    many            `publish_many` of a thousand
    take            `take(1)`
    ack             of what was taken
    both            a transaction that publishes and acks
    sync            a publish, then `engine.sync()`
    idle            `engine.sync()`, with nothing new

In "group" and "none" the store's own thread would write after `group_ms`; that is a minute here, so that `engine.sync()` alone
does. The table has the calls for one of each. The bar: a group that has to be on the disk takes one of a ring, two of LMDB,
whose meta page is synced after the pages that it names; whatever need not be there takes none, but that in "group" what came
in is written when it is a megabyte.

Needs strace.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.disk import data_directory, engine_on, fresh, parser_with_data
from benchmarks.harness import BODY, Table, describe, verdict
from xump import Delivery, Engine

ADDRESS = "orders.eu.new"
MANY = 1_000
GROUP_MS = 60_000.0
SYNCS = ("fsync", "fdatasync", "msync")
CALL = re.compile(rf"\b({'|'.join(SYNCS)})\((\d+|0x[0-9a-f]+)")
NO_FILE = 999_999_999
A_GROUP = {"ring": 1, "lmdb": 2}
EACH_CALL = ("publish", "many", "ack", "both")
DURABILITIES = ("sync", "group", "process", "none")


def boundary() -> None:
    """A call that fails, and that strace shows: a step begins or ends."""
    try:
        os.fsync(NO_FILE)
    except OSError:
        return
    raise AssertionError(f"fsync({NO_FILE}) did not fail")


class Steps:
    """What is counted, in the order of the columns."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.taken: list[Delivery] = []

    def publish(self) -> None:
        self.engine.publish("jobs", ADDRESS, BODY, {"k": "v"})

    def many(self) -> None:
        self.engine.publish_many("jobs", [(ADDRESS, BODY, {"k": "v"})] * MANY)

    def take(self) -> None:
        self.taken += self.engine.take(1)

    def ack(self) -> None:
        self.taken.pop().ack()

    def both(self) -> None:
        (delivery,) = self.engine.take(1)
        with self.engine.transaction() as transaction:
            transaction.publish("jobs", ADDRESS, BODY, {"k": "v"})
            transaction.ack(delivery)

    def sync(self) -> None:
        self.publish()
        self.engine.sync()

    def idle(self) -> None:
        self.engine.sync()


STEPS: dict[str, Callable[[Steps], None]] = {
    "publish": Steps.publish, "many": Steps.many, "take": Steps.take, "ack": Steps.ack, "both": Steps.both, "sync": Steps.sync,
    "idle": Steps.idle,
}


def child(store: str, durability: str, path: Path, calls: int) -> None:
    """What strace looks at."""
    with engine_on(path, store, calls + 1, durability=durability, group_ms=GROUP_MS) as engine:
        steps = Steps(engine)
        for step in STEPS.values():
            engine.sync()
            boundary()
            for _ in range(calls):
                step(steps)
            boundary()


def count(store: str, durability: str, directory: Path, calls: int) -> list[Counter[str]]:
    """The system calls of each step."""
    trace = directory / "trace"
    command = ["strace", "-f", "-o", str(trace), "-e", f"trace={','.join(SYNCS)}", "-e", "signal=none", sys.executable, "-m",
               "benchmarks.fsyncs", "--calls", str(calls), "--child", store, durability, str(fresh(directory))]
    subprocess.run(command, check=True)
    parts: list[Counter[str]] = [Counter()]
    for line in trace.read_text().splitlines():
        if found := CALL.search(line):
            if found[2] == str(NO_FILE):
                parts.append(Counter())
            else:
                parts[-1][found[1]] += 1
    assert len(parts) == 2 * len(STEPS) + 1     # before the first step, in it, between it and the second, …
    return parts[1::2]


def allowed(store: str, durability: str, step: str) -> int:
    """For one of each."""
    durable = step == "sync" or (durability == "sync" and step in EACH_CALL) or (durability == "group" and step == "many")
    return A_GROUP[store] if durable else 0


def measure(directory: Path, calls: int) -> None:
    """Print the table."""
    table = Table(16, *STEPS, "bar", "", is_exact=True)
    kinds: dict[str, Counter[str]] = {store: Counter() for store in A_GROUP}
    for store, most in A_GROUP.items():
        for durability in DURABILITIES:
            parts = count(store, durability, directory, calls)
            met = all(part.total() <= calls * allowed(store, durability, step) for step, part in zip(STEPS, parts, strict=True))
            kinds[store] += sum(parts, Counter())
            cells = [f"{part.total() / calls:.2f}" for part in parts]
            table.print(f"{store}, {durability}", *cells, str(most), verdict(met))
    for store, found in kinds.items():
        print(f"  {store}: " + ", ".join(f"{number} times {kind}" for kind, number in sorted(found.items())))


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--child", nargs=3, metavar=("STORE", "DURABILITY", "PATH"), help="what this program starts itself")
    options = parser.parse_args()
    if options.child:
        store, durability, path = options.child
        child(store, durability, Path(path), options.calls)
        return
    describe("lmdb")
    if shutil.which("strace") is None:
        print("  strace is not installed: nothing was counted")
        return
    with data_directory(options.data) as directory:
        measure(directory, 10 if options.quick else options.calls)


if __name__ == "__main__":
    main()
