"""A queue on the disk, in groups of 1,000: publish, then deliver and ack all. `python -m benchmarks.durable_groups`.

100-byte bodies. Every group of publishes and every group of acks has what the row says before the next one begins:

    on the disk     ours in durability "group" with `engine.sync()` after each 1,000, or in "sync", where a call is on the disk
                    when it returns: so with a thousand in a call
    written         it survives the process, not the machine: ours in durability "process"

    call by call    `publish`, an iterator over deliveries, `ack`
    many            `publish_many`, `take`, `ack(deliveries)`, a thousand a call

Ours publish an address, the body and a fresh `{"k": "v"}`, and who takes one reads its body and its header; in "group" a thread
writes, too, what came in during 2 ms. The ring's file has 64 MiB from the beginning (`min_bytes`), as a ring that has been
in use has, so that it need not grow. Peers get the body alone, and hand it out; one of LMDB's rows has as many bytes as our
records. What they do is in `benchmarks/peers`: `append_log`, `lmdb_by_hand`, `queues_on_sqlite`, `brokers`. Of those that take
long fewer messages are sent: their rates are compared. Brokers are Debian's packages, when they are installed.

All take turns in one run. Ratios are of rates over both halves, so more is better: a half of the log's and of LMDB's rate, ten
times that of the queues on SQLite, and no less than the brokers', each at the same durability.

    python -m benchmarks.durable_groups --once "ring, group, many"       # one contestant, for profilers
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from benchmarks.disk import data_directory, engine_on, fresh, parser_with_data
from benchmarks.harness import BODY, Contestant, Table, Times, compare, describe, speed_table, take_turns
from benchmarks.peers import append_log, brokers, lmdb_by_hand, queues_on_sqlite, servers
from xump import Engine

ADDRESS = "orders.eu.new"
GROUP = 1_000
RING_BYTES = 64 << 20
WIDTH = 50
Run = Callable[[Path, bytes, int, int], tuple[int, int]]
Use = Callable[[int, bytes, int, int], tuple[int, int]]

ON_DISK = ("group, call by call", "group, many", "sync, many")
WRITTEN = ("process, call by call", "process, many")
OWN = tuple(f"{store}, {how}" for store in ("ring", "lmdb") for how in (*ON_DISK, *WRITTEN))
LOG = "append log, write and fdatasync"
LMDB = "LMDB by hand, sync=True"
LMDB_AS_OURS = "LMDB by hand, metasync=False, then sync"
LMDB_AS_LARGE = "LMDB by hand, the same, 215 bytes"
AS_LARGE = bytes(215)
"""As large as a record of ours, which has an address, a header, ids and CRCs beside the body, and a longer key."""
QUEUES = {"persist-queue": ("persist-queue, on the disk each message", "persistqueue", queues_on_sqlite.persist_queue, 2),
          "litequeue": ("litequeue, written", "litequeue", queues_on_sqlite.litequeue, 3)}
BROKERS = {"Redis": ("Redis stream, on the disk", "redis", servers.redis, brokers.redis, 20),
           "RabbitMQ": ("RabbitMQ quorum queue, on the disk", "pika", servers.rabbitmq, brokers.rabbitmq, 20),
           "NATS": ("NATS JetStream, written", "nats", servers.nats, brokers.nats, 10)}


def calls(engine: Engine, messages: int, sync: bool) -> tuple[int, int]:
    """Nanoseconds that all messages took to be published, and to be delivered and acked, one by one."""
    address, body, size, publish = ADDRESS, BODY, 0, engine.publish
    started = perf_counter_ns()
    for _ in range(messages // GROUP):
        for _ in range(GROUP):
            publish("jobs", address, body, {"k": "v"})
        if sync:
            engine.sync()
    between = perf_counter_ns()
    for taken, delivery in enumerate(engine.deliveries(), 1):
        message = delivery.message
        size += len(message.body)
        message.headers["k"]
        delivery.ack()
        if sync and taken % GROUP == 0:
            engine.sync()
    ended = perf_counter_ns()
    assert size == messages * len(body)
    return between - started, ended - between


def many(engine: Engine, messages: int, sync: bool) -> tuple[int, int]:
    """The same, many at once."""
    address, body, size = ADDRESS, BODY, 0
    started = perf_counter_ns()
    for _ in range(messages // GROUP):
        engine.publish_many("jobs", [(address, body, {"k": "v"}) for _ in range(GROUP)])
        if sync:
            engine.sync()
    between = perf_counter_ns()
    while deliveries := engine.take(GROUP):
        for delivery in deliveries:
            message = delivery.message
            size += len(message.body)
            message.headers["k"]
        engine.ack(deliveries)
        if sync:
            engine.sync()
    ended = perf_counter_ns()
    assert size == messages * len(body)
    return between - started, ended - between


def own(name: str, messages: int, directory: Path) -> dict[str, float]:
    """By the name of the row."""
    store, durability, how = name.split(", ")
    sync = durability == "group"
    options = {"min_bytes": RING_BYTES} if store == "ring" else {}
    with engine_on(fresh(directory), store, GROUP, durability=durability, **options) as engine:
        took = (many if how == "many" else calls)(engine, messages, sync)
        queue = engine.stats()["queues"]["jobs"]
        assert queue["settled"] == messages == queue["entered"]
        assert durability == "process" or engine.queues["jobs"].durable_id == messages
    return figures(took, messages)


def figures(took: tuple[int, int], messages: int) -> dict[str, float]:
    """Nanoseconds a message: of both halves, and of each."""
    publish, deliver = took
    return {"": (publish + deliver) / messages, "publish": publish / messages, "deliver": deliver / messages}


def peer(run: Run, messages: int, directory: Path, body: bytes = BODY) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        return figures(run(Path(place), body, messages, GROUP), messages)


def sent(use: Use, port: int, messages: int) -> dict[str, float]:
    return figures(use(port, BODY, messages, GROUP), messages)


def contestants(messages: int, directory: Path, stack: ExitStack) -> dict[str, Contestant]:
    """By name; what takes longer has fewer messages."""
    def fewer(percent: int) -> int:
        return max(GROUP, messages * percent // 100 // GROUP * GROUP)

    given: dict[str, Contestant] = {
        LOG: partial(peer, append_log.run, messages, directory),
        LMDB: partial(peer, lmdb_by_hand.run, messages, directory),
        LMDB_AS_OURS: partial(peer, partial(lmdb_by_hand.run, metasync=False), messages, directory),
        LMDB_AS_LARGE: partial(peer, partial(lmdb_by_hand.run, metasync=False), messages, directory, AS_LARGE),
        **{name: partial(own, name, fewer(10) if name.endswith(WRITTEN[0]) else messages, directory) for name in OWN},
    }
    for name, module, run, percent in QUEUES.values():
        if importlib.util.find_spec(module) is None:
            print(f"  left out: {name}; the package is not installed", flush=True)
            continue
        given[name] = partial(peer, run, fewer(percent), directory)
    for name, module, start, use, percent in BROKERS.values():
        if importlib.util.find_spec(module) is None:
            print(f"  left out: {name}; the package {module} is not installed", flush=True)
            continue
        server = start(Path(tempfile.mkdtemp(dir=directory)))
        if server is None:
            print(f"  left out: {name}; there is no such server on this machine", flush=True)
            continue
        stack.callback(server.stop)
        count = fewer(percent)
        given[name] = partial(sent, use, server.port, count)
    return given


def report(times: Times) -> None:
    """A table for each peer, then the halves."""
    table = speed_table(WIDTH, width=10)

    def rows(title: str, name: str, by: tuple[str, ...], bar: float, stores: tuple[str, ...] = ("ring", "lmdb")) -> None:
        if name in times:
            print(f"  {title}")
            compare(table, times, name, [f"{store}, {how}" for store in stores for how in by], bar)

    rows("log: the limit, each group on the disk", LOG, ON_DISK, 0.5, ("ring",))
    rows("LMDB: a transaction for each group, on the disk", LMDB, ON_DISK, 0.5, ("lmdb",))
    rows("LMDB as ours: two fdatasyncs for each group", LMDB_AS_OURS, ON_DISK, 0.5, ("lmdb",))
    rows("LMDB as ours, and records as large", LMDB_AS_LARGE, ON_DISK, 0.5, ("lmdb",))
    rows("persist-queue: each message on the disk, ours each group", QUEUES["persist-queue"][0], ON_DISK, 10.0)
    rows("litequeue: each group written; ours, too, or even on the disk", QUEUES["litequeue"][0], (WRITTEN[1], *ON_DISK), 10.0)
    rows("Redis: each group on the disk", BROKERS["Redis"][0], ON_DISK, 1.0)
    rows("RabbitMQ: each group on the disk", BROKERS["RabbitMQ"][0], ON_DISK, 1.0)
    rows("NATS: each message written; ours, too, or each group", BROKERS["NATS"][0], WRITTEN, 1.0)
    print_halves(times)


def print_halves(times: Times) -> None:
    """A table of medians."""
    print("\n  halves: ns a message")
    halves = Table(WIDTH, "publish", "deliver")
    for name in times:
        if f"{name}, publish" in times:
            halves.print(name, *(f"{statistics.median(times[f'{name}, {half}']):.0f}" for half in ("publish", "deliver")))


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="of ours and of those that are as fast; whole thousands")
    parser.add_argument("--once", metavar="NAME", choices=OWN, help=f"one of ours, once, for profilers: {'; '.join(OWN)}")
    options = parser.parse_args()
    messages = 10_000 if options.quick else options.messages // GROUP * GROUP
    with data_directory(options.data) as directory, ExitStack() as stack:
        if options.once:
            print({half or "both": f"{took:.0f} ns" for half, took in own(options.once, messages, directory).items()})
            return
        describe("lmdb")
        report(take_turns(contestants(messages, directory, stack), options.rounds))


if __name__ == "__main__":
    main()
