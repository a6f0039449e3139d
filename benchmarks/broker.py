"""The broker beside RabbitMQ, Redis streams and NATS JetStream: messages of 100 bytes through one queue.
`python -m benchmarks.broker`.

Both are processes of their own, and a raw client in this one sends the same prebuilt frames to either: what a client library
costs is not measured. A round publishes a batch of messages with confirms, and waits for all confirms; then a consumer with a
prefetch takes and acks all of them, `multiple` for each buffer that it read. The other servers speak protocols of their own,
which `benchmarks.peers.wire` writes as raw. Servers are Debian's, started here; one that is not installed is left out, which is
said. `--store ring` measures durable queues: what is confirmed is on the disk in Xump and in Redis (`appendfsync always`);
RabbitMQ's classic queue and JetStream's file have only written it.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from benchmarks.harness import BODY, Contestant, compare, describe, parser_of, speed_table, take_turns
from benchmarks.peers import servers, wire

BAR = 10
BATCH = 1000
PREFETCH = 1000
ACK, NACK, DELIVER = (60, 80), (60, 120), (60, 60)


def method(channel: int, class_id: int, method_id: int, fields: bytes = b"") -> bytes:
    """A method frame."""
    payload = struct.pack(">HH", class_id, method_id) + fields
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def message(exchange: str, key: str, durable: bool) -> bytes:
    """The three frames of a publish."""
    properties = struct.pack(">HB", 1 << 12, 2) if durable else b"\0\0"
    header = struct.pack(">HHQ", 60, 0, len(BODY)) + properties
    return (method(1, 60, 40, b"\0\0" + short(exchange) + short(key) + b"\0")
            + struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce"
            + struct.pack(">BHI", 3, 1, len(BODY)) + BODY + b"\xce")


class Link:
    """A connection with one channel."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.until((10, 10))
        self.socket.sendall(method(0, 10, 11, b"\0\0\0\0" + short("PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest"
                                   + short("en_US")))
        self.until((10, 30))
        self.socket.sendall(method(0, 10, 31, struct.pack(">HIH", 2047, 131072, 0)) + method(0, 10, 40, short("/") + b"\0\0"))
        self.until((10, 41))
        self.ask(method(1, 20, 10, b"\0"), (20, 11))

    def ask(self, frames: bytes, answer: tuple[int, int]) -> None:
        """Send a method, and wait for its answer."""
        self.socket.sendall(frames)
        self.until(answer)

    def until(self, wanted: tuple[int, int]) -> None:
        """Read up to a method."""
        for found, _ in self.frames():
            if found == wanted:
                return

    def frames(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        """The methods that come, and their fields."""
        while True:
            data = self.rest
            at = 0
            while len(data) - at >= 8:
                kind, _, size = struct.unpack_from(">BHI", data, at)
                if len(data) - at < size + 8:
                    break
                payload = data[at + 7:at + 7 + size]
                at += size + 8
                if kind == 1:
                    self.rest = data[at:]
                    yield struct.unpack_from(">HH", payload), payload[4:]
            self.rest = data[at:] + self.read()

    def read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data

    def publish(self, frames: bytes, count: int, confirmed: int) -> None:
        """Publish batches of frames, and wait until as many are confirmed."""
        wanted = confirmed + count
        self.socket.setblocking(True)
        sent = 0
        while sent < count:
            self.socket.sendall(frames)
            sent += BATCH
            self.take_confirms(wanted, False)
        self.take_confirms(wanted, True)

    def take_confirms(self, wanted: int, wait: bool) -> None:
        """Read what was confirmed; `wait`: until all are. Only the last frame that came counts: confirms are in order."""
        while self.confirmed < wanted:
            if not wait:
                try:
                    data = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
            else:
                data = self.read()
            self.rest += data
            whole = len(self.rest) // 21 * 21           # each is a frame of 21 bytes
            if whole:
                kind, tag = struct.unpack_from(">I", self.rest, whole - 14)[0], struct.unpack_from(">Q", self.rest, whole - 10)[0]
                if kind != 60 << 16 | 80:
                    raise RuntimeError("a message was not confirmed")
                self.rest = self.rest[whole:]
                self.confirmed = tag
            if not wait:
                return

    def consume(self, count: int, frame_bytes: int) -> None:
        """Take and ack so many messages, each of so many bytes on the wire. More than these count for the next call."""
        wanted = self.wanted = self.wanted + count
        self.left += len(self.rest)
        self.rest = b""
        while True:
            self.taken += self.left // frame_bytes
            self.left %= frame_bytes
            if self.taken - self.acked >= PREFETCH // 4 or self.taken >= wanted > self.acked:
                self.socket.sendall(method(1, 60, 80, struct.pack(">QB", self.taken, 1)))
                self.acked = self.taken
            if self.taken >= wanted:
                return
            self.left += len(self.read())

    confirmed = 0                           # the highest tag
    wanted = taken = acked = left = 0       # messages that were asked for, came, and were acked; bytes of the next one


def turn(address: tuple[str, int], durable: bool, count: int) -> dict[str, float]:
    """Nanoseconds a message for publishing with confirms, and for consuming with acks."""
    publisher, consumer = Link(address), Link(address)
    name = "benchmark"
    publisher.ask(method(1, 50, 10, b"\0\0" + short(name) + bytes([2 if durable else 0]) + b"\0\0\0\0"), (50, 11))
    publisher.ask(method(1, 85, 10, b"\0"), (85, 11))
    frames = message("", name, durable) * BATCH
    publisher.publish(frames, BATCH, 0)
    begun = perf_counter_ns()
    publisher.publish(frames, count, BATCH)
    published = perf_counter_ns()
    consumer.ask(method(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0)), (60, 11))
    consumer.socket.sendall(method(1, 60, 20, b"\0\0" + short(name) + short("c") + b"\0\0\0\0\0"))
    consumer.until((60, 21))
    content = len(message("", name, durable)) - len(method(1, 60, 40, b"\0\0\0" + short(name) + b"\0"))
    consumer.consume(count + BATCH, content + len(method(1, 60, 60, short("c") + bytes(9) + short("") + short(name))))
    consumed = perf_counter_ns()
    consumer.ask(method(1, 50, 40, b"\0\0" + short(name) + b"\0"), (50, 41))
    for link in (publisher, consumer):
        link.socket.close()
    return {"publish": (published - begun) / count, "consume": (consumed - published) / (count + BATCH)}


@contextmanager
def xump(store: str) -> Iterator[tuple[str, int]]:
    """`xump serve`; its address."""
    with serving(store) as (address, _process):
        yield address


@contextmanager
def serving(store: str, *more: str) -> Iterator[tuple[tuple[str, int], int]]:
    """`xump serve` with these options; its address and process."""
    with tempfile.TemporaryDirectory() as folder:
        options = [*more] if store == "ram" else [*more, "--store", store, "--path", f"{folder}/broker.xump"]
        with subprocess.Popen([sys.executable, "-m", "xump", "serve", "--amqp", "127.0.0.1:0", *options],
                              stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = re.search(r"on (.+):(\d+)", process.stdout.readline())
            assert said is not None
            try:
                yield (said[1], int(said[2])), process.pid
            finally:
                process.terminate()


def main(arguments: list[str] | None = None) -> None:
    from tests.broker import rabbitmq

    parser = parser_of(__doc__)
    parser.add_argument("--store", choices=("ram", "ring", "lmdb"), default="ram", help="where the queue keeps its messages")
    options = parser.parse_args(arguments)
    durable = options.store != "ram"
    count = 20_000 if options.quick else 200_000
    describe()
    with ExitStack() as running:
        contestants: dict[str, Contestant] = {
            "xump": partial(turn, running.enter_context(xump(options.store)), durable, count)}
        if rabbitmq.is_installed():
            contestants["rabbitmq"] = partial(turn, running.enter_context(rabbitmq.running()), durable, count // 10)
        else:
            print("RabbitMQ is not installed, and left out: apt-get install rabbitmq-server")
        contestants |= others(durable, count // 10, running)
        times = take_turns(contestants, options.rounds)
    table = speed_table()
    peers = [name for name in contestants if name != "xump"]
    for part in ("publish", "consume"):
        for name in peers:
            compare(table, times, f"{name}, {part}", [f"xump, {part}"], BAR if name == "rabbitmq" else None)
        if not peers:
            compare(table, times, f"xump, {part}", [], None)


def others(durable: bool, count: int, running: ExitStack) -> dict[str, Contestant]:
    """Redis and NATS, if they are installed: other protocols, the same work."""
    found: dict[str, Contestant] = {}
    folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
    for name in ("redis", "nats"):
        place = folder / name
        place.mkdir()
        server = servers.redis(place, "always" if durable else None) if name == "redis" else servers.nats(place)
        if server is None:
            print(f"{name}-server is not installed, and left out: apt-get install {name}-server")
            continue
        running.callback(server.stop)
        if name == "redis":
            found["Redis stream"] = partial(wire.redis_stream, server.port, BODY, count)
        else:
            found["NATS JetStream"] = partial(wire.jetstream, server.port, "file" if durable else "memory", BODY, count)
    return found


if __name__ == "__main__":
    main()
