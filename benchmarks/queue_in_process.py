"""A queue in the process: publish, deliver, ack, beside the queues that Python has. `python -m benchmarks.queue_in_process`.

Messages are an address, a body of 100 bytes and a fresh `{"k": "v"}`; who takes one reads its body and its header. Ratios are of
rates, so more is better; bars are on them.

    a   one queue: publish 1,000,000, then deliver and ack all; the peer is a deque of tuples, the collector on
    b   at most 1,000 in the queue, call by call: publish, deliver, ack; from here on the peer is a SimpleQueue, put and get
    c   the same with `publish_many`, `take` and `ack(deliveries)`
    d   a Wolfpack of ten: publish, move, deliver, ack; 1,000 at a time
    e   a Parrot of ten: for each acked delivery, its part of the publish in it; 100 messages at a time

With INFINITE credit the taking settles, and `ack` has nothing to do; it is called all the same. A credit of 10 for each
selector leaves most messages waiting until an ack lets the next one go; with the wide one (as many as there are) none waits.

    python -m benchmarks.queue_in_process --case b --case d --rounds 9
    python -m benchmarks.queue_in_process --once "b, credit 10"      # one contestant, for profilers
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

from benchmarks.harness import BODY, Contestant, compare, describe, parser_of, speed_table, take_turns
from xump import INFINITE, Engine, Parrot, Wolfpack, always, deliver

ADDRESS = "orders.eu.new"
DEPTH = 1_000
PACK = 10
BARS = {"a": 2.0, "b": 0.5, "c": 0.7, "d": 0.4, "e": 1.0}
PEERS = {"a": "deque of tuples", "b": "SimpleQueue", "c": "SimpleQueue", "d": "SimpleQueue", "e": "SimpleQueue"}


def tuples(put: Callable[[Any], None], get: Callable[[], Any], depth: int, messages: int) -> float:
    """The peers."""
    address, body, size = ADDRESS, BODY, 0
    started = perf_counter_ns()
    for _ in range(messages // depth):
        for _ in range(depth):
            put((address, body, {"k": "v"}))
        for _ in range(depth):
            _, content, headers = get()
            size += len(content)
            headers["k"]
    took = perf_counter_ns() - started
    assert size == messages * len(body)
    return took / messages


def calls(engine: Engine, depth: int, messages: int, copies: int = 1) -> float:
    """Call by call: `publish`, an iterator over deliveries, `ack`. Nanoseconds a delivery."""
    address, body, size, publish = ADDRESS, BODY, 0, engine.publish
    started = perf_counter_ns()
    for _ in range(messages // depth):
        for _ in range(depth):
            publish("jobs", address, body, {"k": "v"})
        for delivery in engine.deliveries():
            message = delivery.message
            size += len(message.body)
            message.headers["k"]
            delivery.ack()
    took = perf_counter_ns() - started
    engine.close()
    assert size == messages * copies * len(body)
    return took / messages / copies


def blocks(engine: Engine, depth: int, messages: int) -> float:
    """As `calls`, each delivery in a `with` block, which acks it."""
    address, body, size, publish = ADDRESS, BODY, 0, engine.publish
    started = perf_counter_ns()
    for _ in range(messages // depth):
        for _ in range(depth):
            publish("jobs", address, body, {"k": "v"})
        for delivery in engine.deliveries():
            with delivery as message:
                size += len(message.body)
                message.headers["k"]
    took = perf_counter_ns() - started
    engine.close()
    assert size == messages * len(body)
    return took / messages


def batches(engine: Engine, depth: int, messages: int, copies: int = 1) -> float:
    """Many at once: `publish_many`, `take`, `ack(deliveries)`. Nanoseconds a delivery."""
    address, body, size = ADDRESS, BODY, 0
    started = perf_counter_ns()
    for _ in range(messages // depth):
        engine.publish_many("jobs", [(address, body, {"k": "v"}) for _ in range(depth)])
        while deliveries := engine.take(DEPTH):
            for delivery in deliveries:
                message = delivery.message
                size += len(message.body)
                message.headers["k"]
            engine.ack(deliveries)
    took = perf_counter_ns() - started
    engine.close()
    assert size == messages * copies * len(body)
    return took / messages / copies


def single(credit: Any) -> Engine:
    """One queue, one consumer."""
    engine = Engine()
    with engine.building():
        engine.create_queue("jobs")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=credit)
    return engine


def pack(credit: Any) -> Engine:
    """A Wolfpack of ten."""
    engine = Engine()
    with engine.building():
        wolves = Wolfpack(engine, "jobs")
        for number in range(PACK):
            wolves.join(f"wolf-{number}", credit=credit)
    return engine


def flock(credit: Any) -> Engine:
    """A Parrot of ten, all of whom want everything."""
    engine = Engine()
    with engine.building():
        parrots = Parrot(engine, "jobs")
        for number in range(PACK):
            parrots.join(f"polly-{number}", "orders.#", credit=credit)
    return engine


def contestants(quick: bool) -> dict[str, Contestant]:
    """By name, which starts with the case; the first one of each case is the peer."""
    deep = 100_000 if quick else 1_000_000
    shallow = 20_000 if quick else 200_000
    given: dict[str, Contestant] = {}

    def deque_of_tuples() -> float:
        waiting: deque[Any] = deque()
        return tuples(waiting.append, waiting.popleft, deep, deep)

    def simple_queue() -> float:
        waiting: SimpleQueue[Any] = SimpleQueue()
        return tuples(waiting.put, waiting.get, DEPTH, shallow)

    given["a, deque of tuples"] = deque_of_tuples
    for name, credit in {"INFINITE": INFINITE, "credit 10": 10, f"credit {deep:,}": deep}.items():
        given[f"a, {name}"] = lambda credit=credit: calls(single(credit), deep, deep)
    credits = {"INFINITE": INFINITE, "credit 10": 10, "credit 1,000": DEPTH}
    given["b, SimpleQueue"] = simple_queue
    for name, credit in credits.items():
        given[f"b, {name}"] = lambda credit=credit: calls(single(credit), DEPTH, shallow)
    given["b, credit 10, in a `with` block"] = lambda: blocks(single(10), DEPTH, shallow)
    given["c, SimpleQueue"] = simple_queue
    for name, credit in credits.items():
        given[f"c, {name}"] = lambda credit=credit: batches(single(credit), DEPTH, shallow)
    credits = {"INFINITE": INFINITE, "credit 10": 10, "credit 100": DEPTH // PACK}
    given["d, SimpleQueue"] = simple_queue
    for name, credit in credits.items():
        given[f"d, {name}"] = lambda credit=credit: calls(pack(credit), DEPTH, shallow)
        given[f"d, {name}, in batches"] = lambda credit=credit: batches(pack(credit), DEPTH, shallow)
    given["e, SimpleQueue"] = simple_queue
    for name, credit in credits.items():
        given[f"e, {name}"] = lambda credit=credit: calls(flock(credit), DEPTH // PACK, shallow // PACK, PACK)
        given[f"e, {name}, in batches"] = lambda credit=credit: batches(flock(credit), DEPTH // PACK, shallow // PACK, PACK)
    return given


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--case", action="append", choices=list(BARS), help="one of them; may be given several times")
    parser.add_argument("--once", metavar="NAME", help="one contestant, once, for profilers")
    options = parser.parse_args()
    given = contestants(options.quick)
    if options.once:
        print(f"{options.once}: {given[options.once]():.0f} ns")
        return
    describe()
    table = speed_table()
    for case in options.case or BARS:
        names = [name for name in given if name.startswith(case)]
        times = take_turns({name: given[name] for name in names}, options.rounds)
        compare(table, times, names[0], names[1:], BARS[case])


if __name__ == "__main__":
    main()
