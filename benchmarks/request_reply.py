"""A request that another thread answers, there and back. `python -m benchmarks.request_reply`.

`engine.request` publishes, and waits for what `delivery.reply` sends; the thread that answers waits for deliveries, and acks
each. It takes them by `engine.deliveries`, or by `engine.take`. There is one request at a time, with a body of 100 bytes, so each
is two changes of threads; the peer is the least that these cost: two `queue.SimpleQueue`, a `put` and a `get` of each.

What a change of threads costs is up to the system, and varies: on another core, which sleeps, a thread needs several times as
long to wake as on the same one, and then the peer differs little from ours. `--core` binds all to one core, where it shows the
most. The bar is on the ratio of rates: ours may take three times as long.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY, Contestant, compare, describe, parser_of, speed_table, take_turns
from xump import Engine, always, deliver

BAR = 1 / 3
LAST = b"the last one"
WARM = 200


def timed(request: Callable[[bytes], object], count: int) -> float:
    """Nanoseconds a request."""
    for _ in range(WARM):
        request(BODY)
    started = perf_counter_ns()
    for _ in range(count):
        request(BODY)
    took = perf_counter_ns() - started
    request(LAST)
    return took / count


def by_queues(count: int) -> float:
    """The peer."""
    there: SimpleQueue[Any] = SimpleQueue()
    back: SimpleQueue[Any] = SimpleQueue()

    def answer() -> None:
        body = None
        while body != LAST:
            body = there.get()
            back.put(body)

    def request(body: bytes) -> object:
        there.put(body)
        return back.get()

    return with_thread(answer, request, count)


def by_engine(answer: Callable[[Engine], None], count: int) -> float:
    with Engine() as engine:
        engine.create_queue("jobs")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        return with_thread(partial(answer, engine), lambda body: engine.request("jobs", "resize", body), count)


def with_thread(answer: Callable[[], None], request: Callable[[bytes], object], count: int) -> float:
    thread = threading.Thread(target=answer)
    thread.start()
    took = timed(request, count)
    thread.join()
    return took


def by_deliveries(engine: Engine) -> None:
    for delivery in engine.deliveries("worker", timeout=None):
        with delivery as message:
            delivery.reply(message.body)
            if message.body == LAST:
                return


def by_take(engine: Engine) -> None:
    body = None
    while body != LAST:
        for delivery in engine.take(10, "worker", timeout=None):
            body = delivery.message.body
            delivery.reply(body)
            delivery.ack()


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--core", type=int, help="only on this core")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    count = 1_000 if options.quick else 5_000
    contestants: dict[str, Contestant] = {
        "SimpleQueue": partial(by_queues, count),
        "answered by deliveries": partial(by_engine, by_deliveries, count),
        "answered by take": partial(by_engine, by_take, count),
    }
    times = take_turns(contestants, options.rounds)
    describe()
    compare(speed_table(), times, "SimpleQueue", [name for name in times if name != "SimpleQueue"], BAR)


if __name__ == "__main__":
    main()
