"""Redis streams and NATS over raw sockets: prebuilt commands are sent, and of the answers no more is read than it takes to count
them. So what a client library costs is not measured; `benchmarks.broker` does the same for AMQP.

    redis_stream    XADD, 1,000 to a send; a consumer group reads and settles (XACK, XDEL) a quarter of the prefetch at a time
    jetstream       a stream, published with acks; a pull consumer, each message acked by itself, the last of 1,000 answered
    nats_subjects   no queue and no ack: subscriptions of one connection, messages of another; what arrives is counted
"""

from __future__ import annotations

import json
import re
import socket
from time import perf_counter_ns
from typing import Any

from benchmarks.match import Workload

BATCH, PREFETCH = 1000, 1000
STREAM = "jobs"
SERVED = re.compile(rb"MSG jobs \d+ (\S+) \d+\r\n")
ENTRY = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")


class Wire:
    """A connection whose answers are counted."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, *, wait: bool = True) -> bytes:
        """What is there; without `wait`, b"" if that is nothing."""
        try:
            data = self.socket.recv(1 << 20, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data

    def send_counted(self, batch: bytes, batches: int, mark: bytes, marks: int) -> None:
        """Send it as often as that, and read until so many marks have come. A mark may be cut in two where a read ends."""
        seen, rest = 0, b""
        for number in range(batches + 1):
            if number < batches:
                self.socket.sendall(batch)
            while seen < marks:
                data = self.read(wait=number == batches)
                if not data:
                    break
                if b"-ERR" in data or b'"error"' in data:
                    raise RuntimeError(f"the server refused: {data[:300]!r}")
                data = rest + data
                seen += data.count(mark)
                end = data.rfind(mark)
                rest = data[max(end + len(mark) if end >= 0 else 0, len(data) - len(mark) + 1):]


def resp(*words: bytes) -> bytes:
    """A command for Redis."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def redis_stream(port: int, body: bytes, count: int) -> dict[str, float]:
    """Nanoseconds a message for publishing, and for taking and settling."""
    link, step = Wire(port), PREFETCH // 4
    for command in (resp(b"FLUSHALL"), resp(b"XGROUP", b"CREATE", b"jobs", b"workers", b"0", b"MKSTREAM")):
        link.send_counted(command, 1, b"\r\n", 1)
    batch = resp(b"XADD", b"jobs", b"*", b"body", body) * BATCH
    begun = perf_counter_ns()
    link.send_counted(batch, count // BATCH, b"\r\n", 2 * count)        # a length, and an id
    published = perf_counter_ns()
    more = resp(b"XREADGROUP", b"GROUP", b"workers", b"one", b"COUNT", b"%d" % step, b"STREAMS", b"jobs", b">")
    taken, settle = 0, b""
    while taken < count:
        link.socket.sendall(settle + more)
        data = b""
        while data.count(body + b"\r\n") < step:
            data += link.read()
        ids = ENTRY.findall(data)
        assert len(ids) == step
        taken += step
        settle = resp(b"XACK", b"jobs", b"workers", *ids) + resp(b"XDEL", b"jobs", *ids)
    link.socket.sendall(settle)
    data = b""
    while data.count(b"\r\n") < 2:
        data += link.read()
    consumed = perf_counter_ns()
    assert data == b":%d\r\n" % step * 2
    link.socket.close()
    return {"publish": (published - begun) / count, "consume": (consumed - published) / count}


class Nats(Wire):
    """A connection to nats-server."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB answer 1\r\nPING\r\n')
        while b"PONG" not in self.read():
            pass

    def ask(self, subject: str, request: dict[str, Any]) -> dict[str, Any]:
        """A request to JetStream."""
        text = json.dumps(request)
        self.socket.sendall(f"PUB {subject} answer {len(text)}\r\n{text}\r\n".encode())
        data = b""
        while not data.endswith(b"}\r\n"):
            data += self.read()
        answer: dict[str, Any] = json.loads(data.split(b"\r\n", 1)[1])
        return answer


def jetstream(port: int, storage: str, body: bytes, count: int) -> dict[str, float]:
    """As `redis_stream`; `storage` is `memory` or `file`."""
    link = Nats(port)
    link.ask(f"$JS.API.STREAM.DELETE.{STREAM}", {})
    for subject, request in (
            (f"$JS.API.STREAM.CREATE.{STREAM}",
             {"name": STREAM, "subjects": [STREAM], "retention": "workqueue", "storage": storage}),
            (f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.workers",
             {"stream_name": STREAM, "config": {"durable_name": "workers", "ack_policy": "explicit",
                                                "max_ack_pending": 10 * PREFETCH, "mem_storage": storage == "memory"}})):
        answer = link.ask(subject, request)
        if "error" in answer:
            raise RuntimeError(f"{subject}: {answer['error']}")
    batch = b"PUB jobs answer %d\r\n%s\r\n" % (len(body), body) * BATCH
    begun = perf_counter_ns()
    link.send_counted(batch, count // BATCH, b'"seq":', count)
    published = perf_counter_ns()
    ask = json.dumps({"batch": PREFETCH}).encode()
    more = b"PUB $JS.API.CONSUMER.MSG.NEXT.jobs.workers served %d\r\n%s\r\n" % (len(ask), ask)
    link.socket.sendall(b"SUB served 2\r\n")
    for _ in range(count // PREFETCH):
        link.socket.sendall(more)
        left, rest = PREFETCH, b""
        while left:
            rest += link.read()
            whole = rest.rfind(body + b"\r\n") + len(body) + 2
            replies = SERVED.findall(rest[:whole]) if whole > len(body) + 1 else []
            rest = rest[whole:] if replies else rest
            left -= len(replies)
            acks = [b"PUB %s 4\r\n+ACK\r\n" % reply for reply in replies]
            if left == 0:
                acks[-1] = b"PUB %s answer 4\r\n+ACK\r\n" % replies[-1]
            link.socket.sendall(b"".join(acks))
        while b"MSG answer" not in rest or not rest.endswith(b"\r\n"):
            rest += link.read()
    consumed = perf_counter_ns()
    link.ask(f"$JS.API.STREAM.DELETE.{STREAM}", {})
    link.socket.close()
    return {"publish": (published - begun) / count, "consume": (consumed - published) / count}


def nats_subjects(port: int, load: Workload) -> float:
    """Nanoseconds a message, from the first that is sent to the last that has come."""
    subscriber, publisher = Nats(port), Nats(port)
    patterns = [pattern[:-1] + ">" if pattern.endswith(".#") else pattern for pattern in load.patterns]
    subscriber.socket.sendall(b"".join(b"SUB %s %d\r\n" % (pattern.encode(), item) for item, pattern in enumerate(patterns, 10))
                              + b"SUB end 5\r\nPING\r\n")
    while b"PONG" not in subscriber.read():
        pass
    sends = [b"".join(b"PUB %s 0\r\n\r\n" % address.encode() for address in load.messages[start:start + BATCH])
             for start in range(0, len(load.messages), BATCH)]
    came, rest = 0, b""
    started = perf_counter_ns()
    for number, batch in enumerate(sends, 1):
        publisher.socket.sendall(batch if number < len(sends) else batch + b"PUB end 0\r\n\r\n")
        while b"MSG end" not in rest:
            data = subscriber.read(wait=number == len(sends))
            if not data:
                break
            came += data.count(b"MSG ") + (rest[-3:] + data[:3]).count(b"MSG ")
            rest = rest[-20:] + data
    took = perf_counter_ns() - started
    for link in (subscriber, publisher):
        link.socket.close()
    assert came > len(load.messages) // 2
    return took / len(load.messages)
