"""The calls that `benchmarks.instructions --features` counts: each use of time, priority, keys and windows, and the same without.

The bars are on ratios of instructions. They know nothing of caches: `benchmarks.time_and_order` has the times of the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import BODY
from benchmarks.schedule import HOUR
from benchmarks.time_and_order import LEVELS, Clock, keys, message_ids, priorities, spans
from xump import INFINITE, Engine, always, deliver, field

COUNT = 10_000
DUE = 30_000

Made = tuple[Iterable[Callable[[], Any]], int]
Program = Callable[[], Made]
"""Makes what is there before; the calls that are counted, of which the first two are not, and for how many each counts."""
PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True)
class Feature:
    """The program that is counted, and the one beside it, less a third one if there is one."""

    name: str
    bar: float
    program: str
    beside: str
    less: str | None = None


FEATURES = (
    Feature("publish with a delay, not routed", 1.5, "delayed", "published"),
    Feature("fall due, beside a routing", 1.5, "due", "routed", "published"),
    Feature("take and ack, 256 priorities", 1.3, "priorities, taken", "taken"),
    Feature("take and ack, 100,000 keys", 1.3, "keys, taken", "taken"),
    Feature("publish with an id, the window full", 2.0, "ids, window", "ids"),
)


def program(name: str) -> Callable[[Program], Program]:
    def keep(made: Program) -> Program:
        PROGRAMS[name] = made
        return made

    return keep


def once(act: Callable[[], Any], warm: Callable[[], Any], count: int = COUNT) -> Made:
    """One call that is counted, of so many steps, after two of another."""
    return [warm, warm, act], count


def queue(routed: bool = False, **properties: Any) -> Engine:
    engine = Engine()
    engine.create_queue("q", **properties)
    if routed:
        engine.create_selector("q", when=always, do=deliver("worker"), credit=INFINITE)
    return engine


def publishing(engine: Engine) -> Made:
    def act() -> None:
        publish = engine.publish
        for _ in range(COUNT):
            publish("q", "resize", BODY)

    return once(act, lambda: engine.publish("q", "resize", BODY))


@program("published")
def published() -> Made:
    return publishing(queue())


@program("routed")
def routed() -> Made:
    return publishing(queue(routed=True))


@program("delayed")
def delayed() -> Made:
    engine = queue()

    def act() -> None:
        publish = engine.publish
        for delay in spans(COUNT):
            publish("q", "resize", BODY, delay=delay)

    spans(COUNT)
    return once(act, lambda: engine.publish("q", "resize", BODY, delay=1.0))


@program("due")
def due() -> Made:
    clock = Clock()
    engine = Engine(clock=clock)
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("worker"), credit=INFINITE)
    for delay in spans(DUE):
        engine.publish("q", "resize", BODY, delay=delay)

    def act() -> None:
        clock.now += HOUR
        engine.tick()

    return once(act, engine.tick, DUE)


def taking(publish_all: Callable[[Engine], None], **properties: Any) -> Made:
    """Half of what is there is taken and acked, one by one."""
    engine = Engine()
    engine.create_queue("q", **properties)
    engine.create_selector("q", when=always, do=deliver("worker"), credit=10)
    publish_all(engine)

    def one() -> None:
        engine.take(1)[0].ack()

    def act() -> None:
        take = engine.take
        for _ in range(COUNT):
            take(1)[0].ack()

    return once(act, one)


def with_priorities(engine: Engine) -> None:
    for priority in priorities(2 * COUNT):
        engine.publish("q", "resize", BODY, priority=priority)


@program("taken")
def taken() -> Made:
    return taking(with_priorities)


@program("priorities, taken")
def taken_by_priority() -> Made:
    return taking(with_priorities, priority=LEVELS - 1)


@program("keys, taken")
def taken_by_key() -> Made:
    def publish_all(engine: Engine) -> None:
        for headers in keys(2 * COUNT):
            engine.publish("q", "resize", BODY, headers)

    return taking(publish_all, group=field("headers.customer"))


def with_ids(**properties: Any) -> Made:
    engine = queue(**properties)
    ids = message_ids(2 * COUNT)
    for message_id in ids[:COUNT]:
        engine.publish("q", "resize", BODY, message_id=message_id)
    engine.queues["q"].purge()

    def act() -> None:
        publish = engine.publish
        for message_id in ids[COUNT:]:
            publish("q", "resize", BODY, message_id=message_id)

    return once(act, lambda: engine.publish("q", "resize", BODY))


@program("ids")
def published_with_id() -> Made:
    return with_ids()


@program("ids, window")
def published_into_a_window() -> Made:
    return with_ids(dedup=3_600.0, dedup_limit=COUNT)
