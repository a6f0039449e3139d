"""Opening a store with a backlog. `python -m benchmarks.recovery`.

1,000,000 messages with bodies of 100 bytes wait in a queue of a store that was closed well. What is timed is `create_store` on
it in a new engine: every record is read and its CRC verified, the index is built, and the queue is back, held. The peers read
the file once, from the first byte to the last.

    warm            the file is in the page cache, for both; so the peer is a copy in memory
    cold            the page cache was told to forget the file (`posix_fadvise`), for both; so the peer is the disk
    read            into a buffer of 1 MiB that is used again: nothing is kept, and the buffer never leaves the processor's cache
    read, kept      into memory, as `read_bytes` does
    read, CRC-32    as `read`, and each byte goes through zlib's CRC, too: what a program does that does not trust a disk

The stores are made once, and opened in turns. Times are milliseconds for all; the bar: opening takes less than three times as
long as reading.

    python -m benchmarks.recovery --once ring --messages 100000         # made, then opened once, for profilers
"""

from __future__ import annotations

import os
import statistics
import zlib
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from benchmarks.disk import data_directory, engine_on, parser_with_data
from benchmarks.harness import BODY, Contestant, Table, Times, describe, speed, take_turns, verdict
from xump import Engine

ADDRESS = "orders.eu.new"
STORES = ("ring", "lmdb")
CHUNK = 10_000
BUFFER_BYTES = 1 << 20
BAR = 3.0
PEERS = ("read", "read, kept")


def fill(directory: Path, store: str, messages: int) -> Path:
    """A store with that many; its path."""
    path = directory / store
    with engine_on(path, store, None, durability="process") as engine:
        for _ in range(messages // CHUNK):
            engine.publish_many("jobs", [(ADDRESS, BODY, {"k": "v"}) for _ in range(CHUNK)])
        engine.sync()
        assert engine.queues["jobs"].ready == messages
    return path


def file_of(path: Path) -> Path:
    """Where the messages are: a ring is a file, LMDB's environment a directory."""
    return path / "data.mdb" if path.is_dir() else path


def prepare(path: Path, cold: bool) -> None:
    """The file leaves the page cache, or comes into it."""
    with file_of(path).open("rb", buffering=0) as file:
        if cold:
            os.fsync(file.fileno())     # what is not on the disk yet would stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(BUFFER_BYTES):
                pass


def opened(path: Path, store: str, messages: int, cold: bool) -> float:
    """Nanoseconds."""
    prepare(path, cold)
    with Engine() as engine:
        started = perf_counter_ns()
        engine.create_store("disk", store, path=path)
        took = perf_counter_ns() - started
        queue = engine.queues["jobs"]
        assert queue.held and queue.ready == messages
        last = queue.fetch(messages)
        assert last is not None and last.body == BODY and last.headers["k"] == "v"
    return took


def read(path: Path, cold: bool, checked: bool) -> float:
    """Nanoseconds."""
    prepare(path, cold)
    buffer = bytearray(BUFFER_BYTES)
    view, size, crc = memoryview(buffer), 0, 0
    started = perf_counter_ns()
    with file_of(path).open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            size += count
            if checked:
                crc = zlib.crc32(view[:count], crc)
    took = perf_counter_ns() - started
    assert size == file_of(path).stat().st_size
    return took


def kept(path: Path, cold: bool) -> float:
    """Nanoseconds."""
    prepare(path, cold)
    started = perf_counter_ns()
    data = file_of(path).read_bytes()
    took = perf_counter_ns() - started
    assert len(data) == file_of(path).stat().st_size
    return took


def measure(directory: Path, messages: int, rounds: int) -> None:
    """Print the table."""
    contestants: dict[str, Contestant] = {}
    for store in STORES:
        started = perf_counter_ns()
        path = fill(directory, store, messages)
        size = file_of(path).stat().st_size
        took = (perf_counter_ns() - started) / 1e9
        print(f"  {messages:,} messages in {store}, {size / 1e6:.0f} MB, made in {took:.1f} s", flush=True)
        for cold in (False, True):
            heat = "cold" if cold else "warm"
            contestants[f"{store}, {heat}, read"] = partial(read, path, cold, False)
            contestants[f"{store}, {heat}, read, kept"] = partial(kept, path, cold)
            contestants[f"{store}, {heat}, read, CRC-32"] = partial(read, path, cold, True)
            contestants[f"{store}, {heat}, opened"] = partial(opened, path, store, messages, cold)
    report(take_turns(contestants, rounds))


def report(times: Times) -> None:
    """Times longer than reading, as a program would see them: less is better."""
    table = Table(30, "ms", "min", "max")
    for name, took in times.items():
        table.print(name, *(f"{figure / 1e6:.0f}" for figure in (statistics.median(took), min(took), max(took))))
    print()
    table = Table(46, "times", "bar", "")
    for name, took in times.items():
        if name.endswith("opened"):
            for peer in PEERS:
                longer = 1 / speed(took, times[name.replace("opened", peer)])
                table.print(f"{name} / {peer}", f"{longer:.1f}", f"{BAR:.1f}", verdict(longer < BAR))


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="whole tens of thousands")
    parser.add_argument("--once", choices=STORES, help="one opening, for profilers")
    options = parser.parse_args()
    messages = (50_000 if options.quick else options.messages) // CHUNK * CHUNK
    with data_directory(options.data) as directory:
        if options.once:
            print(f"{opened(fill(directory, options.once, messages), options.once, messages, False) / 1e6:.0f} ms")
            return
        describe("lmdb")
        measure(directory, messages, options.rounds)


if __name__ == "__main__":
    main()
