"""What the benchmarks of durable stores share: a directory on a real disk, what that disk takes, and an engine with one queue
on it.

A fsync on a file system in memory costs nothing, so figures from there say nothing. Without `--data` it is the system's
directory for temporary files, or `build` where that is in memory.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import parser_of
from benchmarks.peers import ROOT
from xump import Engine, always, deliver

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
PROBES = 100
PAGE = bytes(4096)


def parser_with_data(module_text: str | None) -> ArgumentParser:
    """The command line that all have, and where files go."""
    parser = parser_of(module_text)
    parser.add_argument("--data", metavar="DIRECTORY", help="on a real disk; files go into a new directory in it")
    return parser


@contextmanager
def data_directory(given: str | None) -> Iterator[Path]:
    """A new directory, gone with all that is in it at the end. Prints what it lies on, and what a sync takes there."""
    (ROOT / "build").mkdir(exist_ok=True)
    places = [given] if given else [tempfile.gettempdir(), str(ROOT / "build")]
    where = next((place for place in places if file_system(place)[0] not in IN_MEMORY), places[0])
    with tempfile.TemporaryDirectory(prefix="xump-benchmark-", dir=where) as name:
        kind, device = file_system(name)
        if kind in IN_MEMORY:
            print(f"  files on {kind}, in memory, where a sync costs nothing: these figures say nothing; give --data", flush=True)
        else:
            took = sync_times(Path(name) / "probe")
            p50, p99 = statistics.median(took) / 1000, took[len(took) * 99 // 100 - 1] / 1000
            print(f"  files on {kind} ({device}), where to append 4 KiB and fdatasync takes {p50:.0f} µs, p99 {p99:.0f} µs",
                  flush=True)
        yield Path(name)


def file_system(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Its type and device; of the mount that the path lies in."""
    real = Path(path).resolve()
    found, kind, device = -1, "unknown", "unknown"
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else []:
        source, where, type = line.split()[:3]
        point = Path(where.replace("\\040", " "))
        if real.is_relative_to(point) and len(point.parts) >= found:
            found, kind, device = len(point.parts), type, source
    return kind, device


def sync_times(path: Path) -> list[int]:
    """Nanoseconds of appending a page and syncing it, sorted."""
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(PROBES):
            started = perf_counter_ns()
            file.write(PAGE)
            os.fdatasync(file.fileno())
            took.append(perf_counter_ns() - started)
    path.unlink()
    return sorted(took)


def fresh(directory: Path) -> Path:
    """A path in there that nothing has yet."""
    return Path(tempfile.mkdtemp(dir=directory)) / "store"


def engine_on(path: Path, store: str, credit: int | None, **options: Any) -> Engine:
    """With the queue "jobs" in a store of that type, and one consumer of it; None: without one."""
    engine = Engine()
    with engine.building():
        engine.create_store("disk", store, path=path, **options)
        engine.create_queue("jobs", store="disk")
        if credit is not None:
            engine.create_selector("jobs", when=always, do=deliver("worker"), credit=credit)
    engine.sync()
    return engine
