"""Where the processors' time goes while Spark writes into a broker. `python -m benchmarks.spark_cpu`; needs what `spark` needs.

The contestants are those of the first part of `benchmarks.spark`: 1,000,000 rows, two tasks. Of each it prints, per row, the
wall's time, and the CPU that was used meanwhile: by the JVM, by the Python workers, by the broker (of a bare `do_put`: the
server that counts); the sum of these, which is what a contestant costs; by other programs, and the host of a virtual machine;
and what the processors had left. Where little is left, only less work makes it faster.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from pyspark.sql import DataFrame

from benchmarks import spark as program
from benchmarks.harness import Contestant, Table, describe, parser_of, take_turns
from xump.broker.client import Client
from xump.spark import publish

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""What the kernel counts the time of processes in."""

PARTS = ("JVM", "workers", "broker")
ALL = (*PARTS, "sum", "others", "idle")


class Process(NamedTuple):
    """A process of this machine."""

    parent: int
    """Its parent."""
    name: str
    """Of its program."""
    used: int
    """The CPU that it has used, with those of its children whose end it has seen, in ns."""


def processes() -> dict[int, Process]:
    """All of them."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):     # it has ended meanwhile
                continue
            fields = rest.split()
            found[int(folder.name)] = Process(int(fields[1]), name, sum(map(int, fields[11:15])) * TICK_NS)
    return found


def used(broker: int) -> dict[str, int]:
    """The CPU that was used until now, in ns."""
    there = processes()
    mine = {os.getpid()}
    while more := {pid for pid, one in there.items() if one.parent in mine} - mine:
        mine |= more
    jvm = {pid for pid in mine if there[pid].name == "java"}
    under = set(jvm)
    while more := {pid for pid, one in there.items() if one.parent in under} - under:
        under |= more
    found = {"JVM": own(jvm), "workers": sum(there[pid].used for pid in under - jvm), "broker": there[broker].used}
    machine, idle = of_machine()
    total = sum(found.values())
    return found | {"sum": total, "others": machine - total, "idle": idle}


def own(pids: set[int]) -> int:
    """The CPU of processes without that of their children, in ns."""
    return sum(sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) for pid in pids) * TICK_NS


def of_machine() -> tuple[int, int]:
    """(used, idle) of all processors, in ns."""
    times = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = times[3] + times[4]
    return (sum(times) - idle) * TICK_NS, idle * TICK_NS


def counted(run: Callable[[], object], broker: int, rows: int, end: Callable[[], object] | None = None) -> Mapping[str, float]:
    """What a contestant takes and uses, in ns a row; `end` tidies up after it."""
    before, begun = used(broker), perf_counter_ns()
    run()
    took, after = perf_counter_ns() - begun, used(broker)
    if end is not None:
        end()
    return {"wall": took / rows} | {part: (after[part] - before[part]) / rows for part in ALL}


@contextmanager
def broker(text: str) -> Iterator[tuple[str, int]]:
    """(where it listens, its process)."""
    before = set(processes())
    with program.broker(text) as url:
        [pid] = [pid for pid, one in processes().items() if pid not in before and one.parent == os.getpid()]
        yield url, pid


def contestants(df: DataFrame, rows: int, servers: ExitStack) -> dict[str, Contestant]:
    bare, counting = servers.enter_context(broker(program.BARE))
    url, pid = servers.enter_context(broker(program.SERVER))
    client = servers.enter_context(Client(url))
    sent = {f"xump, {delivery.replace('-', ' ')}": partial(
        counted, partial(publish, df, url, "jobs", delivery=delivery), pid, rows,
        lambda: program.check(client.purge("one"), rows))
        for delivery in ("at-least-once", "exactly-once")}
    return {"mapInArrow, counts": partial(counted, partial(program.counted, df, rows), pid, rows),
            "bare do_put, counts": partial(counted, partial(program.by_bare_put, df, bare, rows), counting, rows)} | sent


def main(arguments: list[str] | None = None) -> None:
    options = parser_of(__doc__).parse_args(arguments)
    rows = program.ROWS // 10 if options.quick else program.ROWS
    describe("pyspark", "pyarrow")
    program.let_workers_find_this()
    with ExitStack() as servers:
        spark = program.started(servers, servers.enter_context(tempfile.TemporaryDirectory()))
        times = take_turns(contestants(program.frame(spark, rows), rows, servers), options.rounds)
    print(f"  {rows:,} rows, ns a row, medians of {options.rounds} rounds")
    table = Table(24, "wall", *ALL)
    for name in dict.fromkeys(name.rpartition(", ")[0] for name in times):
        table.print(name, *(f"{statistics.median(times[f'{name}, {part}']):.0f}" for part in ("wall", *ALL)))


if __name__ == "__main__":
    main()
