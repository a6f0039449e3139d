"""Xump beside its peers, in one workload at a time: `python -m benchmarks.beside W1`.

    W1      a queue in the process: publish, then consume, 100 bytes, an address and a fresh `{"k": "v"}`
    W2      topics: 10,000 patterns, addresses by Zipf's law; peers match, ours also publishes and copies into queues
    W3a     a durable queue, a commit for each message and each ack
    W3b     the same, a commit for each 1,000
    W4      one round trip, the median; on one core, since a change of cores costs more than any queue
    W5      a message made and deleted; all dropped at once, or held and then freed

All of a workload take turns in one run. Each row says what outlives what (its *promise*), and how many times as fast Xump's row
of the same work is. `in memory` promises nothing; `written` outlives the process, not the machine; `on the disk` is synced at
each commit, acks too. Peers that are not installed are left out, and named.

`python -m benchmarks peers` runs all of them, and the servers, into one page.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks import core_objects, durable_groups, durable_single, queue_in_process, request_reply, topics
from benchmarks.disk import data_directory, parser_with_data
from benchmarks.durable_groups import Run
from benchmarks.harness import BODY, Contestant, Table, describe, speed, take_turns
from benchmarks.match import Workload
from benchmarks.peers import (
    append_log,
    brokers,
    build,
    durable_by_hand,
    lmdb_by_hand,
    objects_in_python,
    queues_in_python,
    queues_on_sqlite,
    round_trips,
    servers,
    topic_matchers,
    wire,
)
from xump import INFINITE, Engine, always, deliver

MEMORY, WRITTEN, DISK = "in memory", "written", "on the disk"
ADDRESS = "orders.eu.new"
WIDTH = 50


@dataclass
class Beside:
    """Contestants of one workload; those that cannot run are named in `left_out`."""

    contestants: dict[str, Contestant] = field(default_factory=dict)
    promises: dict[str, str] = field(default_factory=dict)
    ours: dict[str, str] = field(default_factory=dict)
    """Of each row, the row of Xump that does the same work under the same promise; its own name: it is Xump's."""
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, contestant: Contestant, promise: str, ours: str = "", needs: str | None = None) -> None:
        """`ours`: the row of Xump that it is compared with, "": itself. `needs`: a package that has to be installed."""
        if needs is not None and find_spec(needs) is None:
            self.left_out.append(f"{name}: the package {needs} is not installed")
            return
        self.contestants[name], self.promises[name], self.ours[name] = contestant, promise, ours or name


@dataclass(frozen=True)
class Sizes:
    """How much of everything; `messages` where a row is as fast as ours."""

    messages: int
    slow: int
    directory: Path


# ---- W1

def in_process(sizes: Sizes, stack: ExitStack) -> Beside:
    count, shallow, found = sizes.messages, sizes.messages // 5, Beside()
    tuples, depth = queue_in_process.tuples, queue_in_process.DEPTH

    def held(make: Callable[[], tuple[Any, Any]], deep: int, all: int) -> Callable[[], float]:
        return lambda: tuples(*make(), deep, all)

    def a_deque() -> tuple[Any, Any]:
        waiting: deque[Any] = deque()
        return waiting.append, waiting.popleft

    def a_simple_queue() -> tuple[Any, Any]:
        waiting: SimpleQueue[Any] = SimpleQueue()
        return waiting.put, waiting.get

    deep, flat = f"Xump, {count:,} deep", f"Xump, {depth:,} deep at most"
    found.add(deep, lambda: queue_in_process.calls(queue_in_process.single(INFINITE), count, count), MEMORY)
    found.add("deque of tuples, deep", held(a_deque, count, count), MEMORY, deep)
    found.add("deque of tuples, deep, collector off",
              lambda: queues_in_python.without_collector(held(a_deque, count, count)), MEMORY, deep)
    found.add("deque of slotted objects, deep", partial(queues_in_python.slotted, count), MEMORY, deep)
    found.add("SimpleQueue, deep", held(a_simple_queue, count, count), MEMORY, deep)
    found.add("queue.Queue, deep", held(queues_in_python.locked, count, count), MEMORY, deep)
    found.add("asyncio.Queue, awaited, deep", partial(queues_in_python.awaited, count), MEMORY, deep)
    found.add("kombu memory://, with ack, deep", partial(queues_in_python.kombu, sizes.slow), MEMORY, deep, "kombu")
    found.add(flat, lambda: queue_in_process.calls(queue_in_process.single(INFINITE), depth, shallow), MEMORY)
    found.add("Xump, as deep, in batches",
              lambda: queue_in_process.batches(queue_in_process.single(INFINITE), depth, shallow), MEMORY)
    found.add("deque of tuples, as deep", held(a_deque, depth, shallow), MEMORY, flat)
    found.add("SimpleQueue, as deep", held(a_simple_queue, depth, shallow), MEMORY, flat)
    found.add("blinker, a receiver and no queue", partial(queues_in_python.blinker, shallow), MEMORY, flat, "blinker")
    return found


# ---- W2

def by_topic(sizes: Sizes, stack: ExitStack) -> Beside:
    load, found = Workload(10_000, sizes.messages // 5), Beside()
    peer, router = topics.Peer(load), topics.Router(load, topics.QUEUES_MAX)
    stack.callback(router.engine.close)
    whole, bare = ("Xump, routed and copied, cold", "Xump, the same, addresses alone, cold")
    found.add(whole, lambda: router.passes(router.whole)["cold"], MEMORY)
    found.add(bare, lambda: router.passes(router.bare)["cold"], MEMORY)
    found.add("C++ flat trie, which remembers, cold", lambda: peer()["cold"], MEMORY, bare)
    found.add("dict trie in Python", partial(topic_matchers.dict_trie, load, remembers=False), MEMORY, bare)
    found.add("dict trie in Python, which remembers, cold", partial(topic_matchers.dict_trie, load, remembers=True), MEMORY, bare)
    found.add("paho MQTTMatcher", partial(topic_matchers.paho, load), MEMORY, bare, "paho")
    found.add("kombu, topic exchange", partial(topic_matchers.kombu, load, 20), MEMORY, bare, "kombu")
    place = tempfile.TemporaryDirectory()
    stack.callback(place.cleanup)
    server = servers.nats(Path(place.name))
    if server is None:
        found.left_out.append("NATS: there is no nats-server on this machine")
    else:
        stack.callback(server.stop)
        found.add("NATS, subjects, sent and received over TCP", partial(wire.nats_subjects, server.port, load), MEMORY, bare)
    return found


# ---- W3

HAND: tuple[tuple[str, Run, str, str | None, int], ...] = (
    (durable_groups.LOG, append_log.run, DISK, None, 100),
    ("ring of slots, write and fdatasync", durable_by_hand.ring, DISK, None, 100),
    ("mapped ring of slots, msync", durable_by_hand.mapped, DISK, None, 100),
    (durable_groups.LMDB, lmdb_by_hand.run, DISK, None, 100),
    (durable_groups.LMDB_AS_OURS, partial(lmdb_by_hand.run, metasync=False), DISK, None, 100),
    ("sqlite3 by hand, WAL, FULL", durable_by_hand.sqlite, DISK, None, 100),
    ("sqlite3 by hand, WAL, NORMAL", partial(durable_by_hand.sqlite, synchronous="NORMAL"), WRITTEN, None, 100),
    ("RocksDB by rocksdict, WAL synced", durable_by_hand.rocks, DISK, "rocksdict", 100),
    ("persist-queue, SQLiteAckQueue", queues_on_sqlite.persist_queue, DISK, "persistqueue", 2),
    ("litequeue", queues_on_sqlite.litequeue, WRITTEN, "litequeue", 3),
    ("diskcache.Deque", durable_by_hand.diskcache, WRITTEN, "diskcache", 10),
)
"""Name, what it does, its promise, the package that it needs, and the percentage of the messages that it gets in groups."""
BROKERS = (
    ("Redis stream, appendfsync always", servers.redis, brokers.redis, DISK, "redis", 20),
    ("Redis stream, appendfsync everysec", partial(servers.redis, fsync="everysec"), brokers.redis, WRITTEN, "redis", 20),
    ("RabbitMQ quorum queue, confirms", servers.rabbitmq, brokers.rabbitmq, DISK, "pika", 20),
    ("NATS JetStream, in files", servers.nats, brokers.nats, WRITTEN, "nats", 10),
)


def one_by_one(sizes: Sizes, stack: ExitStack) -> Beside:
    count, found = sizes.slow // 20, Beside()
    own = {DISK: "Xump, ring, sync", WRITTEN: "Xump, ring, process"}
    for store in ("ring", "lmdb"):
        for durability, promise in (("sync", DISK), ("process", WRITTEN)):
            found.add(f"Xump, {store}, {durability}",
                      lambda row=f"{store}, {durability}": durable_single.own(row, count, sizes.directory)[""], promise)
    return durable(found, own, count, 1, sizes, stack)


def in_groups(sizes: Sizes, stack: ExitStack) -> Beside:
    count, found = sizes.messages // 10, Beside()
    own = {DISK: "Xump, ring, group, many", WRITTEN: "Xump, ring, process, many"}
    for store in ("ring", "lmdb"):
        for durability, promise in (("group, many", DISK), ("group, call by call", DISK), ("process, many", WRITTEN)):
            found.add(f"Xump, {store}, {durability}",
                      lambda row=f"{store}, {durability}": durable_groups.own(row, count, sizes.directory)[""], promise)
    return durable(found, own, count, durable_groups.GROUP, sizes, stack)


def durable(found: Beside, own: dict[str, str], count: int, group: int, sizes: Sizes, stack: ExitStack) -> Beside:
    """The peers of both."""
    def fewer(percent: int) -> int:
        return count if group == 1 else max(group, count * percent // 100 // group * group)

    def by_hand(run: Run, messages: int) -> float:
        with tempfile.TemporaryDirectory(dir=sizes.directory) as place:
            return sum(run(Path(place), BODY, messages, group)) / messages

    for name, run, promise, needs, percent in HAND:
        found.add(name, partial(by_hand, run, fewer(percent)), promise, own[promise], needs)
    for name, start, use, promise, needs, percent in BROKERS:
        server = start(Path(tempfile.mkdtemp(dir=sizes.directory))) if find_spec(needs) is not None else None
        if server is not None:
            stack.callback(server.stop)
            messages = fewer(percent)
            found.add(name, lambda use=use, port=server.port, messages=messages: sum(
                use(port, BODY, messages, group)) / messages, promise, own[promise])
        else:
            what = "there is no such server on this machine" if find_spec(needs) else f"the package {needs} is not installed"
            found.left_out.append(f"{name}: {what}")
    return found


# ---- W4, W5

def there_and_back(sizes: Sizes, stack: ExitStack) -> Beside:
    count, found = sizes.slow, Beside()
    one, two = "Xump, one thread", "Xump, request and reply, two threads"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found.add(one, partial(xump_in_one_thread, count), MEMORY)
    found.add(two, partial(xump_in_two_threads, count), MEMORY)
    found.add("deque, one thread", partial(round_trips.deques, count), MEMORY, one)
    found.add("pyzmq, REQ and REP, one thread", partial(round_trips.zmq, count, threads=False), MEMORY, one, "zmq")
    found.add("asyncio.Queue, two tasks", partial(round_trips.tasks, count), MEMORY, one)
    found.add("SimpleQueue, two threads", partial(round_trips.simple_queues, count), MEMORY, two)
    found.add("queue.Queue, two threads", partial(round_trips.locked_queues, count), MEMORY, two)
    found.add("socketpair, two threads", partial(round_trips.sockets, count), MEMORY, two)
    found.add("pyzmq, REQ and REP, two threads", partial(round_trips.zmq, count, threads=True), MEMORY, two, "zmq")
    return found


def xump_in_one_thread(count: int) -> float:
    """Publish, take, publish the answer, take, ack both."""
    with Engine() as engine:
        with engine.building():
            for name in ("there", "back"):
                engine.create_queue(name)
                engine.create_selector(name, when=always, do=deliver(name), credit=10)

        def once() -> None:
            engine.publish("there", ADDRESS, BODY)
            (request,) = engine.take(1, "there")
            engine.publish("back", ADDRESS, request.message.body)
            request.ack()
            (reply,) = engine.take(1, "back")
            reply.ack()

        return round_trips.timed(once, count)


def xump_in_two_threads(count: int) -> float:
    with Engine() as engine:
        engine.create_queue("jobs")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)

        def request(body: bytes) -> object:
            return engine.request("jobs", "resize", body)

        took: list[float] = []
        request_reply.with_thread(
            partial(request_reply.by_deliveries, engine), lambda body: took.append(timed_once(request, body)), count)
        return statistics.median(took)


def timed_once(request: Callable[[bytes], object], body: bytes) -> float:
    return round_trips.timed(lambda: request(body), 1)


def objects(sizes: Sizes, stack: ExitStack) -> Beside:
    count, found, core = sizes.messages, Beside(), build("core_loop")
    dropped, held = "Xump, made, queued, dropped", "Xump, made, queued, held"
    compiled = build("objects")
    found.add(dropped, lambda: core_objects.in_core(core.dropped, None, count), MEMORY)
    found.add(held, lambda: core_objects.in_core(core.held, None, count), MEMORY)
    for how, ours in (("dropped", dropped), ("held", held)):
        made = getattr(objects_in_python, how)
        found.add(f"slotted objects, {how}", partial(made, queues_in_python.Slotted, count), MEMORY, ours)
        found.add(f"tuples, {how}", partial(getattr(core_objects, f"tuples_{how}"), count), MEMORY, ours)
        found.add(f"Cython objects with a free list, {how}", partial(made, compiled.Tracked, count), MEMORY, ours)
        found.add(f"the same, untracked, from C, {how}",
                  partial(each, getattr(compiled, f"untracked_{how}"), count, ADDRESS, BODY), MEMORY, ours)
        found.add(f"malloc, copy, free, {how}",
                  partial(each, getattr(compiled, f"memory_{how}"), count, ADDRESS.encode(), BODY), MEMORY, ours)
    return found


def each(run: Callable[..., float], count: int, *arguments: object) -> float:
    """Nanoseconds for one, of a function that returns them for all."""
    return run(count, *arguments) / count


# ---- running

WORKLOADS: dict[str, Callable[[Sizes, ExitStack], Beside]] = {
    "W1": in_process, "W2": by_topic, "W3a": one_by_one, "W3b": in_groups, "W4": there_and_back, "W5": objects}


def run(name: str, sizes: Sizes, rounds: int) -> None:
    """Measure and print one workload."""
    with ExitStack() as stack:
        found = WORKLOADS[name](sizes, stack)
        times = take_turns(found.contestants, rounds)
    table = Table(WIDTH, "ns", "min", "max", "a second", "promise", "Xump / it", width=12)
    for row, took in times.items():
        ratio = f"{speed(times[found.ours[row]], took):.2f}" if found.ours[row] != row else ""
        table.print(row, f"{statistics.median(took):,.0f}", f"{min(took):,.0f}", f"{max(took):,.0f}",
                    f"{1e9 / statistics.median(took):,.0f}", found.promises[row], ratio)
    for text in found.left_out:
        print(f"  left out: {text}")


@contextmanager
def directory_for(name: str, given: str | None) -> Iterator[Path]:
    """A real disk for what writes to one."""
    if name.startswith("W3"):
        with data_directory(given) as directory:
            yield directory
    else:
        yield Path()


def main() -> None:
    """Parse the command line and run."""
    parser = parser_with_data(__doc__)
    parser.add_argument("workload", choices=list(WORKLOADS), help="which; the text above explains them")
    options = parser.parse_args()
    describe("lmdb", *(package for package in ("kombu", "pyzmq", "redis", "pika", "paho-mqtt") if is_there(package)))
    with directory_for(options.workload, options.data) as directory:
        messages, slow = (20_000, 2_000) if options.quick else (1_000_000, 20_000)
        run(options.workload, Sizes(messages, slow, directory), options.rounds)


def is_there(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
