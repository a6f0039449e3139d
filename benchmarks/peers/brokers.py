"""A durable queue in a broker (`servers.py` starts it): messages sent in groups, each confirmed before the next, then taken and
acked in groups. They get the body alone. Connections are made before the clock is started.

    redis       a stream and a consumer group: a transaction of XADDs for each group; it is read at once, and a transaction of
                XACK and XDEL settles it. On the disk before each answer.
    rabbitmq    a quorum queue, publisher confirms: on the disk before they come. An ack for a whole group; nobody confirms it.
    nats        JetStream, a work queue in files; the server makes no fsync. A group is confirmed message by message; of its acks
                the last one is answered.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

HOST = "127.0.0.1"
STREAM = "jobs"


def redis(port: int, body: bytes, messages: int, group: int) -> tuple[int, int]:
    """Nanoseconds that all messages took to be published, and to be taken and acked."""
    from redis import Redis

    read = 0
    with Redis(host=HOST, port=port) as client:
        client.flushall()
        client.xgroup_create(STREAM, "workers", id="0", mkstream=True)
        started = perf_counter_ns()
        for _ in range(messages // group):
            pipeline = client.pipeline(transaction=True)
            for _ in range(group):
                pipeline.xadd(STREAM, {"body": body})
            pipeline.execute()
        between = perf_counter_ns()
        for _ in range(messages // group):
            taken = client.xreadgroup("workers", "worker", {STREAM: ">"}, count=group)[0][1]
            read += sum(len(fields[b"body"]) for _, fields in taken)
            pipeline = client.pipeline(transaction=True)
            pipeline.xack(STREAM, "workers", *(id for id, _ in taken))
            pipeline.xdel(STREAM, *(id for id, _ in taken))
            pipeline.execute()
        ended = perf_counter_ns()
        assert client.xlen(STREAM) == 0
    assert read == messages * len(body)
    return between - started, ended - between


class _Publisher:
    """Sends a group, and the next one when all of it is confirmed."""

    def __init__(self, port: int, body: bytes, messages: int, group: int) -> None:
        import pika

        self.body, self.messages, self.group = body, messages, group
        self.sent = self.confirmed = self.took = 0
        self.above: set[int] = set()    # confirmed one by one, ahead of `confirmed`
        self.properties = pika.BasicProperties(delivery_mode=2)
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(HOST, port, heartbeat=0), on_open_callback=self.opened,
            on_close_callback=lambda connection, _: connection.ioloop.stop())
        self.connection.ioloop.start()

    def opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self.ready)

    def ready(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self.confirm, callback=lambda _: self.begin())

    def begin(self) -> None:
        self.started = perf_counter_ns()
        self.send()

    def send(self) -> None:
        for _ in range(self.group):
            self.channel.basic_publish("", STREAM, self.body, self.properties)
        self.sent += self.group

    def confirm(self, frame: Any) -> None:
        if frame.method.NAME != "Basic.Ack":
            raise RuntimeError(f"the server confirmed with {frame.method!r}")
        if frame.method.multiple:
            self.confirmed = max(self.confirmed, frame.method.delivery_tag)
        else:
            self.above.add(frame.method.delivery_tag)
        while self.confirmed + 1 in self.above:
            self.confirmed += 1
            self.above.discard(self.confirmed)
        if self.confirmed < self.sent:
            return
        if self.sent < self.messages:
            self.send()
        else:
            self.took = perf_counter_ns() - self.started
            self.connection.close()


def rabbitmq(port: int, body: bytes, messages: int, group: int) -> tuple[int, int]:
    """As above."""
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port, heartbeat=0))
    channel = connection.channel()
    channel.queue_delete(STREAM)
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "quorum"})
    publisher = _Publisher(port, body, messages, group)
    assert publisher.took
    channel.basic_qos(prefetch_count=min(2 * group, 2000))
    taken = read = 0
    started = perf_counter_ns()
    for method, _, content in channel.consume(STREAM, inactivity_timeout=30):
        if method is None:
            raise TimeoutError(f"RabbitMQ delivered {taken} of {messages} messages")
        taken, read = taken + 1, read + len(content)
        if taken % group == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if taken == messages:
            break
    channel.queue_declare(STREAM, passive=True)     # answered when the acks were looked at
    took = perf_counter_ns() - started
    connection.close()
    assert read == messages * len(body)
    return publisher.took, took


def nats(port: int, body: bytes, messages: int, group: int) -> tuple[int, int]:
    """As above."""
    return asyncio.run(_nats(port, body, messages, group))


async def _nats(port: int, body: bytes, messages: int, group: int) -> tuple[int, int]:
    from nats import connect
    from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
    from nats.js.errors import NotFoundError

    connection = await connect(f"nats://{HOST}:{port}")
    stream = connection.jetstream(timeout=30)
    with suppress(NotFoundError):       # the first time
        await stream.delete_stream(STREAM)
    await stream.add_stream(StreamConfig(
        name=STREAM, subjects=[STREAM], retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE))
    started = perf_counter_ns()
    for _ in range(messages // group):
        await asyncio.gather(*(stream.publish(STREAM, body) for _ in range(group)))
    between = perf_counter_ns()
    workers = await stream.pull_subscribe(
        STREAM, "workers", config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=5 * group))
    taken = read = 0
    while taken < messages:
        some = await workers.fetch(min(group, messages - taken), timeout=10)
        taken, read = taken + len(some), read + sum(len(message.data) for message in some)
        for message in some[:-1]:
            await message.ack()
        await some[-1].ack_sync(timeout=10)
    ended = perf_counter_ns()
    await stream.delete_stream(STREAM)
    await connection.close()
    assert read == messages * len(body)
    return between - started, ended - between
