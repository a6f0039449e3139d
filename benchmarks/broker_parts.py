"""More of what the broker is measured by, beside RabbitMQ: `python -m benchmarks.broker_parts [PART ...]`.

- *single*: one durable message at a time, each confirmed before the next is sent: median and 99th percentile; beside an append
  and fdatasync to a file, in turns: the speed of a disk changes.
- *flood*: from the publish of one message to its delivery, in a broker that is idle, and while another client, a process of its
  own, floods a durable queue, in turns; of each percentile the median of the turns.
- *both*: one client publishes with confirms while another consumes and acks: messages a second, until all are acked.
- *bindings*: a topic exchange with 10,000 bindings, one of which matches: messages a second, with confirms.
- *idle*: memory of the broker for each of many connections that do nothing. Xump only.
- *consumers*: 1,000 consumers share a queue; 200 vanish and 50 stand still, each with messages that it has not acked. All that
  vanished had is delivered again; then all is acked but what those have that stand still. Xump only.
- *ahead*: for ten minutes a client publishes as fast as it may, and another one takes a tenth of what it could: memory of the
  broker at its largest, beside its bound. Xump only.
- *millions*: ten million durable messages go in, and out again: memory of the broker at its largest. Xump only.

Servers and client are processes of their own; messages have 100 bytes, and frames are built beforehand.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import selectors
import socket
import statistics
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.sharedctypes import Synchronized
from time import monotonic, perf_counter_ns, sleep

from benchmarks import broker
from benchmarks.broker import BATCH, Link, message, method, short
from benchmarks.harness import describe, parser_of

Address = tuple[str, int]
BINDINGS = 10_000
CONSUMERS, VANISH, STAND = 1_000, 200, 50
SLOW, AHEAD_BYTES = 50_000, 256 << 20
"""Messages that are taken a second while more come in, and the bound of the broker's memory then."""
TURNS = 5
FORK = multiprocessing.get_context("fork")


def declare(link: Link, name: str, durable: bool) -> None:
    link.ask(method(1, 50, 10, b"\0\0" + short(name) + bytes([2 if durable else 0]) + b"\0\0\0\0"), (50, 11))


def delete(link: Link, name: str) -> None:
    link.ask(method(1, 50, 40, b"\0\0" + short(name) + b"\0"), (50, 41))


def confirming(link: Link) -> None:
    link.ask(method(1, 85, 10, b"\0"), (85, 11))


def consuming(link: Link, name: str, prefetch: int, *, acks: bool = True) -> None:
    link.ask(method(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0)), (60, 11))
    link.ask(method(1, 60, 20, b"\0\0" + short(name) + short("c") + bytes([0 if acks else 2]) + b"\0\0\0\0"), (60, 21))


def percentiles(times: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    return statistics.median(times), sorted(times)[int(len(times) * 0.99)]


def said(turns: list[tuple[float, float]]) -> str:
    """Of median and 99th percentile the medians of the turns, in nanoseconds; the least and the largest 99th percentile."""
    middle, late = (statistics.median(one) for one in zip(*turns, strict=True))
    return (f"p50 {middle / 1000:,.0f} µs, p99 {late / 1000:,.0f} µs "
            f"({min(one for _, one in turns) / 1000:,.0f} to {max(one for _, one in turns) / 1000:,.0f})")


# ---- beside RabbitMQ

def single(address: Address, count: int) -> str:
    link = Link(address)
    declare(link, "single", True)
    confirming(link)
    frames = message("", "single", True)
    confirmed: list[tuple[float, float]] = []
    appended: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/file", "wb", buffering=0) as file:
        done = 0
        for _turn in range(TURNS):
            times: list[float] = []
            for _number in range(count // TURNS):
                begun = perf_counter_ns()
                file.write(frames)
                os.fdatasync(file.fileno())
                times.append(perf_counter_ns() - begun)
            appended.append(percentiles(times))
            times = []
            for _number in range(count // TURNS):
                done += 1
                begun = perf_counter_ns()
                link.socket.sendall(frames)
                link.take_confirms(done, True)
                times.append(perf_counter_ns() - begun)
            confirmed.append(percentiles(times))
    delete(link, "single")
    ratio = statistics.median(one / other for (one, _), (other, _) in zip(confirmed, appended, strict=True))
    return f"{said(confirmed)}; append and fdatasync {said(appended)}; p50 {ratio:.2f} times"


def trips(address: Address, count: int) -> list[float]:
    publisher, consumer = Link(address), Link(address)
    declare(publisher, "trip", False)
    consuming(consumer, "trip", 0, acks=False)
    times: list[float] = []
    frames = message("", "trip", False)
    for _number in range(count):
        begun = perf_counter_ns()
        publisher.socket.sendall(frames)
        consumer.until((60, 60))
        times.append(perf_counter_ns() - begun)
    delete(publisher, "trip")
    for link in (publisher, consumer):
        link.socket.close()
    return times


def publish_on(address: Address, published: Synchronized[int]) -> None:
    """Flood, a batch ahead of the confirms. In a process of its own, until that is ended: in a thread it would hold up whoever
    measures, five milliseconds at a time."""
    link = Link(address)
    declare(link, "flood", True)
    confirming(link)
    frames = message("", "flood", True) * BATCH
    while True:
        link.publish(frames, BATCH, published.value)
        published.value += BATCH


@contextmanager
def flooding(address: Address) -> Iterator[Synchronized[int]]:
    published: Synchronized[int] = FORK.Value("q", 0)
    process = FORK.Process(target=publish_on, args=(address, published))
    process.start()
    while published.value < 10 * BATCH:
        sleep(0.01)
    try:
        yield published
    finally:
        process.terminate()
        process.join()
        link = Link(address)
        delete(link, "flood")
        link.socket.close()
        sleep(0.5)              # what was deleted is written


def flood(address: Address, count: int) -> str:
    idle: list[tuple[float, float]] = []
    flooded: list[tuple[float, float]] = []
    rates: list[float] = []
    for _turn in range(TURNS):
        idle.append(percentiles(trips(address, count)))
        with flooding(address) as published:
            before, begun = published.value, perf_counter_ns()
            flooded.append(percentiles(trips(address, count)))
            rates.append((published.value - before) / (perf_counter_ns() - begun) * 1e9)
    ratio = statistics.median(one / other for (_, one), (_, other) in zip(flooded, idle, strict=True))
    return (f"idle {said(idle)}; flooded {said(flooded)}, by {statistics.median(rates):,.0f} a second; "
            f"p99 {ratio:.1f} times")


def both(address: Address, count: int) -> str:
    publisher, consumer = Link(address), Link(address)
    declare(publisher, "both", False)
    confirming(publisher)
    consuming(consumer, "both", broker.PREFETCH)
    frames = message("", "both", False) * BATCH
    content = len(message("", "both", False)) - len(method(1, 60, 40, b"\0\0\0" + short("both") + b"\0"))
    size = content + len(method(1, 60, 60, short("c") + bytes(9) + short("") + short("both")))
    thread = threading.Thread(target=publisher.publish, args=(frames, count, 0))
    begun = perf_counter_ns()
    thread.start()
    consumer.consume(count, size)
    took = perf_counter_ns() - begun
    thread.join()
    delete(publisher, "both")
    return f"{count / took * 1e9:,.0f} messages a second"


def bindings(address: Address, count: int) -> str:
    link = Link(address)
    declare(link, "bound", False)
    for number in range(BINDINGS):
        arguments = b"\0\0" + short("bound") + short("amq.topic") + short(f"house.{number}.*") + b"\0\0\0\0\0"
        link.ask(method(1, 50, 20, arguments), (50, 21))
    confirming(link)
    frames = b"".join(message("amq.topic", f"house.{number * 7919 % BINDINGS}.lamp", False) for number in range(BATCH))
    link.publish(frames, BATCH, 0)
    begun = perf_counter_ns()
    link.publish(frames, count, BATCH)
    took = perf_counter_ns() - begun
    delete(link, "bound")
    return f"{count / took * 1e9:,.0f} messages a second"


# ---- Xump only

def rss(process: int) -> int:
    """Bytes of memory that a process has."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def idle(address: Address, process: int, count: int) -> str:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    first = [Link(address) for _number in range(100)]
    before = rss(process)
    links = [Link(address) for _number in range(count)]
    found = (rss(process) - before) / count
    for link in (*first, *links):
        link.socket.close()
    return f"{found / 1024:,.1f} KiB a connection, of {count:,}"


def consumers(address: Address, process: int, count: int) -> str:
    publisher, links = Link(address), [Link(address) for _number in range(CONSUMERS)]
    declare(publisher, "shared", False)
    confirming(publisher)
    selector = selectors.DefaultSelector()
    for number, link in enumerate(links):
        consuming(link, "shared", 10)
        if number >= VANISH + STAND:
            link.socket.setblocking(False)
            selector.register(link.socket, selectors.EVENT_READ, [0, 0])
    content = len(message("", "shared", False)) - len(method(1, 60, 40, b"\0\0\0" + short("shared") + b"\0"))
    size = content + len(method(1, 60, 60, short("c") + bytes(9) + short("") + short("shared")))
    before, begun = rss(process), perf_counter_ns()
    thread = threading.Thread(target=publisher.publish, args=(message("", "shared", False) * BATCH, count, 0))
    thread.start()
    acked, vanished, largest = 0, False, before
    while acked < count - STAND * 10:
        for key, _events in selector.select(60):
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(1 << 16)
            key.data[0] += len(data)
            tag = key.data[0] // size
            if tag > key.data[1]:
                key.fileobj.sendall(method(1, 60, 80, struct.pack(">QB", tag, 1)))
                acked += tag - key.data[1]
                key.data[1] = tag
        largest = max(largest, rss(process))
        if not vanished and acked > count // 2:
            vanished = True
            for link in links[:VANISH]:
                link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                link.socket.close()
    took = perf_counter_ns() - begun
    thread.join()
    for link in links[VANISH:]:
        link.socket.close()
    delete(publisher, "shared")
    return f"{count / took * 1e9:,.0f} messages a second, {(largest - before) / 2**20:,.0f} MiB more at its largest"


def millions(address: Address, process: int, count: int) -> str:
    publisher, consumer = Link(address), Link(address)
    declare(publisher, "millions", True)
    confirming(publisher)
    before = largest = rss(process)
    frames = message("", "millions", True) * BATCH
    begun = perf_counter_ns()
    for done in range(0, count, 100 * BATCH):
        publisher.publish(frames, 100 * BATCH, done)
        largest = max(largest, rss(process))
    written = perf_counter_ns()
    consuming(consumer, "millions", broker.PREFETCH)
    content = len(message("", "millions", True)) - len(method(1, 60, 40, b"\0\0\0" + short("millions") + b"\0"))
    size = content + len(method(1, 60, 60, short("c") + bytes(9) + short("") + short("millions")))
    for _done in range(0, count, 100 * BATCH):
        consumer.consume(100 * BATCH, size)
        largest = max(largest, rss(process))
    took = perf_counter_ns() - written
    delete(publisher, "millions")
    return (f"{count:,}: in {count / (written - begun) * 1e9:,.0f} a second, out {count / took * 1e9:,.0f} a second, "
            f"{(largest - before) / 2**20:,.0f} MiB more at its largest")


def ahead(address: Address, process: int, seconds: int) -> str:
    """`flooding` publishes into a durable queue of a broker without a store: into RAM."""
    before = largest = rss(process)
    consumer = Link(address)
    declare(consumer, "flood", True)
    consuming(consumer, "flood", broker.PREFETCH)
    content = len(message("", "flood", True)) - len(method(1, 60, 40, b"\0\0\0" + short("flood") + b"\0"))
    size = content + len(method(1, 60, 60, short("c") + bytes(9) + short("") + short("flood")))
    end, taken = monotonic() + seconds, 0
    with flooding(address) as published:
        while monotonic() < end:
            consumer.consume(SLOW // 10, size)
            taken += SLOW // 10
            largest = max(largest, rss(process))
            sleep(0.1)
        came = published.value
    return (f"{came:,} published and {taken:,} taken in {seconds} s; {(largest - before) / 2**20:,.0f} MiB more at its largest, "
            f"bound {AHEAD_BYTES >> 20} MiB")


BARS = {
    "single": "p50 at most 1.5 times that of an append and fdatasync",
    "flood": "p99 when flooded at most 3 times that when idle",
    "both": "at least 300,000 messages a second, and 10 times RabbitMQ",
    "bindings": "at least 300,000 messages a second, half of the bar of one queue, and 10 times RabbitMQ",
    "idle": "at most 8 KiB a connection",
    "consumers": "it ends: nothing is lost or stuck; memory does not grow with the messages",
    "ahead": "messages stay under the bound, the process grows by little more, and both clients go on",
    "millions": "it ends, and memory does not grow with the messages beyond what each waiting one needs: some tens of bytes",
}
"""What each part is held against."""

BESIDE: dict[str, tuple[Callable[[Address, int], str], int]] = {
    "single": (single, 2_000), "flood": (flood, 2_000), "both": (both, 200_000), "bindings": (bindings, 200_000)}
ALONE: dict[str, tuple[Callable[[Address, int, int], str], int]] = {
    "idle": (idle, 5_000), "consumers": (consumers, 200_000), "ahead": (ahead, 600),
    "millions": (millions, 10_000_000)}


@contextmanager
def server(part: str) -> Iterator[tuple[Address, int]]:
    """`xump serve`, with a disk where the part has durable queues; its address and process."""
    store = "ring" if part in ("single", "flood", "millions") else "ram"
    more = ("--memory-bytes", str(AHEAD_BYTES)) if part == "ahead" else ()
    with broker.serving(store, *more) as (address, process):
        yield address, process


def main(arguments: list[str] | None = None) -> None:
    from tests.broker import rabbitmq

    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join((*BESIDE, *ALONE))}; default: all")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in BESIDE and part not in ALONE:
            parser.error(f"there is no part {part!r}; there are {', '.join((*BESIDE, *ALONE))}")
    describe()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for part in options.parts or (*BESIDE, *ALONE):
        print(f"{part:10} bar       {BARS[part]}")
        with ExitStack() as stack:
            address, process = stack.enter_context(server(part))
            if part in ALONE:
                measure, count = ALONE[part]
                print(f"{part:10} Xump      {measure(address, process, count // 10 if options.quick else count)}", flush=True)
                continue
            compared, count = BESIDE[part]
            count = count // 10 if options.quick else count
            print(f"{part:10} Xump      {compared(address, count)}", flush=True)
            if rabbitmq.is_installed():
                print(f"{part:10} RabbitMQ  {compared(stack.enter_context(rabbitmq.running()), count)}", flush=True)
            else:
                print("RabbitMQ is not installed, and left out: apt-get install rabbitmq-server")


if __name__ == "__main__":
    main()
