"""A large backlog on the disk, and what of it is in memory. `python -m benchmarks.backlog`.

10,000,000 messages with bodies of 100 bytes in one queue of an `lmdb` store. One process fills it and closes it; another opens
it, ends a `building()` block in which the queue got a consumer with a credit of 1,000, so that all of them are routed, and
takes and acks a tenth of them, a thousand at a time, reading bodies and headers. In "process" durability: what waits for the
disk is not the subject.

    resident        VmRSS, with the pages of LMDB's map, which belong to the page cache and go when somebody else needs them
    its own         RssAnon: what of it is not a file's
    at the end, most    when the step has ended, and within it, looked at from outside every 10 ms

The most of each has to be less than 1 GiB; MiB here. It takes a minute or more, so this one is run by its name only. Linux.

    python -m benchmarks.backlog --messages 1000000 --store ring
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from benchmarks.disk import data_directory, engine_on, parser_with_data
from benchmarks.harness import BODY, Table, describe, verdict
from xump import Engine, always, deliver

ADDRESS = "orders.eu.new"
CHUNK = 10_000
GROUP = 1_000
MIB = 1 << 20
BAR_MIB = 1 << 10
KINDS = {"VmRSS": "resident", "RssAnon": "its own"}
LOOK_SECONDS = 0.01


class Steps:
    """Says after each step of a child what it took: seconds, and what is in memory."""

    def __init__(self) -> None:
        self.started = perf_counter()

    def done(self, what: str) -> None:
        print(what, f"{perf_counter() - self.started:.2f}", *memory("self").values(), sep="\t", flush=True)
        self.started = perf_counter()


def memory(process: int | str) -> dict[str, int]:
    """In MiB."""
    pairs = (line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {name: int(text.split()[0]) // 1024 for name, text in pairs if name in KINDS}


class Watch:
    """A thread that looks at another process: the most of each kind since it was asked."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._most: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with suppress(FileNotFoundError, ProcessLookupError):       # it has ended, and is not waited for yet
                for kind, size in memory(self._process).items():
                    self._most[kind] = max(self._most.get(kind, 0), size)

    def most(self, now: dict[str, int]) -> list[int]:
        most, self._most = self._most, {}
        return [max(size, most.get(kind, 0)) for kind, size in now.items()]

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def fill(path: Path, store: str, messages: int) -> None:
    """In the first child."""
    steps = Steps()
    with engine_on(path, store, None, durability="process") as engine:
        for _ in range(messages // CHUNK):
            engine.publish_many("jobs", [(ADDRESS, BODY, {"k": "v"}) for _ in range(CHUNK)])
        steps.done("filled")


def consume(path: Path, store: str, messages: int) -> None:
    """In the second child."""
    steps = Steps()
    with Engine() as engine:
        engine.create_store("disk", store, path=path, durability="process")
        steps.done("opened")
        assert engine.queues["jobs"].ready == messages
        with engine.building():
            engine.create_selector("jobs", when=always, do=deliver("worker"), credit=GROUP)
        steps.done("building() ended")
        size = 0
        for _ in range(messages // 10 // GROUP):
            deliveries = engine.take(GROUP)
            for delivery in deliveries:
                message = delivery.message
                size += len(message.body)
                message.headers["k"]
            engine.ack(deliveries)
        assert size == messages // 10 // GROUP * GROUP * len(BODY)
        steps.done("a tenth delivered and acked")
    steps.done("closed")


CHILDREN = {"fill": fill, "consume": consume}


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, help="whole tens of thousands")
    parser.add_argument("--store", choices=("lmdb", "ring"), default="lmdb")
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "PATH"), help="what this program starts itself")
    options = parser.parse_args()
    messages = (200_000 if options.quick else options.messages) // CHUNK * CHUNK
    if options.child:
        what, path = options.child
        CHILDREN[what](Path(path), options.store, messages)
        return
    describe("lmdb")
    with data_directory(options.data) as directory:
        print(f"  {messages:,} messages in {options.store}", flush=True)
        table = Table(42, "seconds", "at the end", "most", "bar", "")
        for what in CHILDREN:
            command = [sys.executable, "-m", "benchmarks.backlog", "--messages", str(messages), "--store", options.store,
                       "--child", what, str(directory / "store")]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                watch = Watch(child.pid)
                for line in child.stdout:
                    step, seconds, *sizes = line.rstrip().split("\t")
                    now = dict(zip(KINDS, map(int, sizes), strict=True))
                    for kind, size, most in zip(KINDS.values(), sizes, watch.most(now), strict=True):
                        table.print(f"{step}, {kind}", seconds, size, str(most), str(BAR_MIB), verdict(most < BAR_MIB))
                watch.stop()
            if child.returncode:
                raise SystemExit(child.returncode)
        files = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
        print(f"  {files / MIB:,.0f} MiB in files")


if __name__ == "__main__":
    main()
