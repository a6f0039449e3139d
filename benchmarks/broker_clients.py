"""The broker beside RabbitMQ with the clients that people use: `python -m benchmarks.broker_clients [CLIENT ...]`.

- *pika*: messages of 100 bytes, each confirmed before the next is sent; then they are consumed and acked, one by one.
- *aio-pika*: the same, a hundred at a time awaited together.
- *kombu*: published as kombu does by itself, without confirms; consumed and acked.
- *celery*: tasks with results over `rpc://`, by a worker of one thread in a process of its own: all are sent, then all results
  are waited for.

Most of the time is the clients' own, in Python: what is compared is whether the broker makes them wait. Durable queues are not
used. RabbitMQ is Debian's, started here.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

from benchmarks.broker import xump
from benchmarks.harness import BODY, Contestant, compare, describe, parser_of, speed_table, take_turns

BAR = 1.0
NAME = "clients"
TOGETHER = 100
PREFETCH = 100
URL = "XUMP_BENCHMARK_URL"


def url(address: tuple[str, int]) -> str:
    return f"amqp://guest:guest@{address[0]}:{address[1]}/%2F"


def pika(address: tuple[str, int], count: int) -> dict[str, float]:
    import pika as client

    with client.BlockingConnection(client.URLParameters(url(address))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(NAME)
        begun = perf_counter_ns()
        for _number in range(count):
            channel.basic_publish("", NAME, BODY)
        published = perf_counter_ns()
        channel.basic_qos(prefetch_count=PREFETCH)
        left = count
        for method, _properties, _body in channel.consume(NAME):
            channel.basic_ack(method.delivery_tag)
            left -= 1
            if not left:
                break
        consumed = perf_counter_ns()
        channel.cancel()
        channel.queue_delete(NAME)
    return {"publish": (published - begun) / count, "consume": (consumed - published) / count}


def aio_pika(address: tuple[str, int], count: int) -> dict[str, float]:
    import aio_pika as client

    async def turn() -> dict[str, float]:
        async with await client.connect(url(address)) as connection:
            channel = await connection.channel()
            await channel.set_qos(PREFETCH)
            queue = await channel.declare_queue(NAME)
            exchange = channel.default_exchange
            begun = perf_counter_ns()
            for _batch in range(count // TOGETHER):
                await asyncio.gather(*(exchange.publish(client.Message(BODY), NAME) for _number in range(TOGETHER)))
            published = perf_counter_ns()
            left = count
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    left -= 1
                    if not left:
                        break
                consumed = perf_counter_ns()
            await queue.delete(if_unused=False, if_empty=False)
        return {"publish": (published - begun) / count, "consume": (consumed - published) / count}

    return asyncio.run(turn())


def kombu(address: tuple[str, int], count: int) -> dict[str, float]:
    client: Any = importlib.import_module("kombu")      # it does not say which names it exports

    left = count

    def handle(_body: object, message: Any) -> None:
        nonlocal left
        message.ack()
        left -= 1

    with client.Connection(url(address)) as connection:
        queue = client.Queue(NAME, durable=False)(connection.default_channel)
        queue.declare()
        producer = connection.Producer()
        begun = perf_counter_ns()
        for _number in range(count):
            producer.publish(BODY, routing_key=NAME, exchange="", content_type="application/data", content_encoding="binary",
                             delivery_mode=1)
        published = perf_counter_ns()
        consumer = connection.Consumer(queue, callbacks=[handle], accept=["application/data"], prefetch_count=PREFETCH)
        with consumer:
            while left:
                connection.drain_events(timeout=60)
        consumed = perf_counter_ns()
        queue.delete()
    return {"publish": (published - begun) / count, "consume": (consumed - published) / count}


def application(broker: str) -> Any:
    """What the worker runs."""
    import celery

    app = celery.Celery("benchmarks.broker_clients", broker=broker, backend="rpc://", set_as_current=False)
    app.conf.update(task_default_queue="celery", result_expires=600)

    def add(one: int, two: int) -> int:
        return one + two

    app.task(name="add", shared=False)(add)

    return app


if os.environ.get(URL):
    app = application(os.environ[URL])


@contextmanager
def worker(address: tuple[str, int]) -> Iterator[Any]:
    """A worker, ready; gives the application."""
    given = application(url(address))
    command = ["-m", "celery", "-A", "benchmarks.broker_clients", "worker", "--pool", "solo", "--loglevel", "ERROR"]
    process = subprocess.Popen([sys.executable, *command, "--without-gossip", "--without-mingle"],
                               env={**os.environ, URL: url(address), "PYTHONWARNINGS": "ignore"},
                               stdout=subprocess.DEVNULL)
    try:
        given.tasks["add"].delay(1, 1).get(timeout=60)
        yield given
    finally:
        process.terminate()
        process.wait(60)


def celery(given: Any, count: int) -> float:
    begun = perf_counter_ns()
    results = [given.tasks["add"].delay(number, 1) for number in range(count)]
    for number, result in enumerate(results):
        if result.get(timeout=60) != number + 1:
            raise RuntimeError(f"the result of task {number} is {result.get()}")
    return (perf_counter_ns() - begun) / count


CLIENTS: dict[str, tuple[Callable[[tuple[str, int], int], dict[str, float]], int]] = {
    "pika": (pika, 2_000), "aio-pika": (aio_pika, 2_000), "kombu": (kombu, 2_000)}
TASKS = 1_000


def main(arguments: list[str] | None = None) -> None:
    from tests.broker import rabbitmq

    parser = parser_of(__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"{', '.join(CLIENTS)}, celery; default: all")
    options = parser.parse_args(arguments)
    names = options.clients or [*CLIENTS, "celery"]
    for name in names:
        if name != "celery" and name not in CLIENTS:
            parser.error(f"there is no client {name!r}; there are {', '.join(CLIENTS)}, celery")
    if not rabbitmq.is_installed():
        parser.error("RabbitMQ is not installed: apt-get install rabbitmq-server")
    describe(*names)
    with ExitStack() as stack:
        servers = {"xump": stack.enter_context(xump("ram")), "rabbitmq": stack.enter_context(rabbitmq.running())}
        contestants: dict[str, Contestant] = {}
        for name in names:
            for server, address in servers.items():
                if name == "celery":
                    contestants[f"{server}, celery"] = partial(
                        celery, stack.enter_context(worker(address)), TASKS // 10 if options.quick else TASKS)
                else:
                    client, count = CLIENTS[name]
                    contestants[f"{server}, {name}"] = partial(client, address, count // 10 if options.quick else count)
        times = take_turns(contestants, options.rounds)
    table = speed_table()
    for row in [row for row in times if row.startswith("rabbitmq, ")]:
        compare(table, times, row, [row.replace("rabbitmq", "xump", 1)], BAR)


if __name__ == "__main__":
    main()
