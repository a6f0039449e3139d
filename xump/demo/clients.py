"""The clients of the demo with a broker: programs of their own, with RabbitMQ's libraries and nothing of Xump's broker.

    worker URL QUEUE            pika: shares a queue with others; parses a flight, tells of it, acks it
    subscriber URL PATTERN      aio-pika: has a queue of its own, bound to a pattern; counts

Each prints `ready`, then a line for each flight: its number, and whether it came again (`redelivered`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from xump.demo.flights import parse

EXCHANGE = "flights"
PREFETCH = 100


def tell(text: str) -> None:
    """A line at once: this process may be killed any moment."""
    os.write(1, f"{text}\n".encode())


def work(url: str, queue: str) -> None:
    """A wolf: one of several consumers of a queue."""
    import pika

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)

        def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            parse(body)
            tell(f"{properties.message_id} {int(method.redelivered)}")
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, handle)
        tell("ready")
        channel.start_consuming()


async def listen(url: str, pattern: str) -> None:
    """A subscriber: it hears of each flight that its pattern matches."""
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(EXCHANGE, pattern)
        async with queue.iterator() as messages:
            tell("ready")
            async for message in messages:
                tell(f"{message.message_id} {int(bool(message.redelivered))}")
                await message.ack()


def main(role: str, url: str, name: str) -> None:
    """Runs until it is ended."""
    if role == "worker":
        work(url, name)
    else:
        asyncio.run(listen(url, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
