"""No memory and no reference is lost: over messages, graphs and engines that come and go, and behind messages that starve.

What takes memory is measured in a process of its own, `python -m tests.memory.test_leaks NAME`, by the peak of its resident
memory:
once after a warm-up, in which tables, pools and the allocator find their size, and once after many times as much work.
"""

import gc
import json
import os
import resource
import subprocess
import sys
import weakref
from pathlib import Path

import pyarrow
import pytest

from xump import (
    INFINITE, Engine, Message, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, overflow, where,
)
from xump.errors import Conflict, InvalidFilter, QueueFull, QueueNotFound, StaleDelivery
from xump.operators import operator_names, register_operator

MIB = 2 << 20 if "ASAN_OPTIONS" in os.environ else 1 << 20     # its allocator keeps clear of each object, and rounds up more
STATUS = Path("/proc/self/status")
PROGRAMS = {}


def program(call):
    PROGRAMS[call.__name__] = call
    return call


def measured(name):
    """What a program returns, run in a process of its own, in which what is freed is free."""
    options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0"
    variables = os.environ | {"ASAN_OPTIONS": options}
    done = subprocess.run([sys.executable, "-m", "tests.memory.test_leaks", name], cwd=Path(__file__).parents[2], env=variables,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def peak():
    """Bytes. What `getrusage` says begins with what the parent had when this process started, so Linux is asked another way."""
    if STATUS.exists():
        [line] = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def new(text):
    """A str that nobody else has."""
    return text.encode().decode()


def growth(warm_up, work):
    """Bytes by which the peak rose, and objects that the collector sees more, from the end of the warm-up on."""
    warm_up()
    gc.collect()
    before, objects = peak(), len(gc.get_objects())
    work()
    gc.collect()
    return {"bytes": peak() - before, "objects": len(gc.get_objects()) - objects}


# ---- messages

def busy_graph(engine):
    """Every action and every end that a message can come to."""
    with engine.building():
        for name in ("in", "copies", "work", "dead", "bounced"):
            engine.create_queue(name, history_limit=10, dead_letter="dead" if name != "dead" else None)
        engine.create_queue("narrow", limit=0)
        engine.create_selector("in", when=where("n < 5"), do=copy_to("copies"))
        engine.create_selector("in", when=where(lambda message: message.headers["n"] == 7), do=copy_to("narrow"))
        engine.create_selector("in", when=match("topic", "a.*"), do=move_to("work"), credit=3)
        engine.create_selector("in", when=match("eq", "bounce"), do=bounce_to("bounced"), credit=INFINITE)
        engine.create_selector("in", when=match("prefix", "field"), do=move_to(field("reply_to")), credit=INFINITE)
        engine.create_selector("in", when=match("eq", "unheard"), do=discard)
        engine.create_selector("copies", when=always, do=deliver(field("headers.to")), credit=INFINITE)
        engine.create_selector("work", when=always, do=deliver("worker"), credit=2)
        engine.create_selector("work", when=where({"n": 3}), do=copy_to("narrow"))
        engine.create_selector("narrow", when=overflow, do=discard)
        engine.create_selector("bounced", when=always, do=deliver("worker"), credit=2)
        engine.create_selector("dead", when=default, do=deliver("undertaker"), credit=INFINITE)


def busy_rounds(engine, messages, rounds):
    """A round publishes the messages in all ways and settles them in all ways."""
    for round in range(rounds):
        engine.publish_many("in", messages)
        for message in messages:
            engine.publish("in", message.address, message.body, message.headers, reply_to=message.reply_to)
        with engine.transaction() as tx:
            for message in messages[:3]:
                tx.publish("in", message.address, message.body, message.headers)
        for at, delivery in enumerate(engine.deliveries("worker")):
            if at % 16 == 1:
                delivery.nack()
            elif at % 16 == 2:
                delivery.reject("for a reason")
            elif at % 16 == 3 and delivery.selector.outstanding:
                delivery.selector.pay(1)
            else:
                delivery.ack()
        while batch := engine.take_batch(100):
            batch.ack()
        if round % 64 == 0:
            for _ in range(3):
                engine.ack(engine.take(100))


def busy_messages():
    addresses = ["a.b", "a.c", "bounce", "field", "unheard", "no such address"]
    return [Message(addresses[n % 6], b"body" * 10, {"n": n % 10, "to": "worker"}, reply_to=("work", "back")[n % 2])
            for n in range(60)]


@program
def a_million_messages():
    engine, messages = Engine(), busy_messages()
    busy_graph(engine)
    grown = growth(lambda: busy_rounds(engine, messages, 200), lambda: busy_rounds(engine, messages, 4000))
    entered = sum(counts["entered"] for counts in engine.stats()["queues"].values())
    engine.check()
    return grown | {"entered": entered}


def test_a_million_messages_leave_nothing():
    grown = measured("a_million_messages")
    assert grown["entered"] > 1_000_000
    assert grown["bytes"] < 2 * MIB
    assert grown["objects"] <= 2


@program
def new_addresses():
    """Each address is seen once: what is remembered of addresses is bounded."""
    engine = Engine()
    engine.create_queue("q")
    engine.create_selector("q", when=match("topic", "#.7"), do=copy_to("q"))
    engine.create_selector("q", when=always, do=discard)
    engine.create_selector("q", when=match("topic", "*.8.#"), do=discard)

    def publish(first, last):
        for n in range(first, last):
            engine.publish("q", f"address.{n}")

    return growth(lambda: publish(0, 280_000), lambda: publish(280_000, 640_000))


def test_new_addresses_are_forgotten():
    grown = measured("new_addresses")
    assert grown["bytes"] < 2 * MIB and grown["objects"] <= 2


def test_no_reference_to_what_was_published_is_left():
    engine = Engine()
    busy_graph(engine)
    address, reply_to, text, destination, name = map(new, ["a.b", "work", "text", "destination", "name"])
    body = bytes(bytearray(9))
    queue = engine.create_queue(name)
    selector = engine.create_selector(name, when=always, do=deliver(destination), credit=2)
    headers = {"n": 3, text: text, "to": "worker"}
    message = Message(address, body, headers, reply_to=reply_to)
    kept = [address, body, reply_to, text, destination, name, queue, selector, headers, message, engine]

    def work(rounds):
        for _ in range(rounds):
            busy_rounds(engine, [message] * 10, 1)
            engine.publish(name, address, body, headers, reply_to=reply_to)
            engine.publish_many(queue, [(address, body, headers, reply_to)] * 3 + [message])
            for delivery in engine.deliveries(destination):
                with delivery as taken:
                    assert taken.address is address and taken.body is body and delivery.queue is queue
            list(queue.browse())
            queue.fetch(1)
            taken = delivery = None
        while engine.take(100):
            pass
        for other in engine.queues.values():
            other.purge()

    work(20)
    before = [sys.getrefcount(thing) for thing in kept]
    work(2000)
    assert [sys.getrefcount(thing) for thing in kept] == before
    engine.check()
    engine.close()


def test_an_engine_that_is_closed_lets_go_of_everything():
    address, body = new("address"), bytes(bytearray(9))
    before = sys.getrefcount(address), sys.getrefcount(body)
    engine = Engine()
    busy_graph(engine)
    engine.publish_many("in", [(address, body, {"n": 1}, address)] * 100)
    engine.queues["dead"].hold()
    engine.publish_many("dead", [(address, body, None, address, address)] * 100)
    held = engine.take(3)
    assert sys.getrefcount(address) > before[0] + 100
    engine.close()
    assert sys.getrefcount(address) <= before[0] + 2 * len(held) + 1        # the messages that the test has
    del held
    assert (sys.getrefcount(address), sys.getrefcount(body)) == before


def fails(error, call, *arguments):
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"{call} did not raise")


def failing_rounds(engine, held, address, body, rounds):
    """All kinds of calls that raise when half of their work is done."""
    good = (address, body, {"n": 1}, address, address)

    def commit(*operations):
        with engine.transaction() as tx:
            for operation, *arguments in operations:
                getattr(tx, operation)(*arguments)

    def interrupted():
        yield good
        raise LookupError

    table = pyarrow.table({"address": [address] * 5, "body": [body] * 5})
    for _ in range(rounds):
        fails(QueueFull, engine.publish, "full", *good[:3])
        fails(QueueNotFound, engine.publish, "nowhere", *good[:3])
        fails(TypeError, engine.publish, 5, *good[:3])
        fails(TypeError, engine.publish, "full", address, body, {address: 1, "n": [address]})
        fails(ValueError, engine.publish, "full", address, body, {address: 1, "n": 2**63})
        fails(TypeError, engine.publish_many, "full", [good, good, (address, body, {"n": []})])
        fails(QueueFull, engine.publish_many, "full", [good] * 3)
        fails(LookupError, engine.publish_many, "full", interrupted())
        fails(QueueFull, engine.publish_batch, "full", table)
        fails(ValueError, engine.publish_batch, "full", pyarrow.table({"address": [address, "x" * 65536]}))
        fails(QueueFull, commit, ("publish", "q", *good[:3]), ("ack", held[0]), ("publish", "full", *good[:3]))
        fails(StaleDelivery, commit, ("publish", "q", *good[:3]), ("ack", held[0]), ("ack", held[0]))
        fails(StaleDelivery, engine.ack, [*held, held[0]])
        fails(QueueNotFound, lambda: engine.create_selector("q", when=match("eq", address), do=move_to(address)))
        fails(QueueFull, lambda: engine.create_selector(
            "q", when=match("eq", address), do=copy_to("full"), start="head", name=address))
        fails(Conflict, lambda: engine.create_queue("full", dead_letter=address))
        fails(InvalidFilter, where, address + " >")


def failing_engine():
    engine = Engine()
    engine.create_queue("full", limit=0)
    engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "taken"), do=deliver("d"), credit=2)
    engine.create_selector("q", when=always, do=deliver("never"), credit=0)
    return engine


@program
def calls_that_fail():
    engine, address, body = failing_engine(), new("address"), bytes(1000)
    engine.publish_many("q", [("taken",), ("taken",), (address, body)])
    held = engine.take(2)
    before = sys.getrefcount(address), sys.getrefcount(body), sys.getrefcount(held[0])
    grown = growth(
        lambda: failing_rounds(engine, held, address, body, 100), lambda: failing_rounds(engine, held, address, body, 2000))
    engine.check()
    return grown | {"references": before == (sys.getrefcount(address), sys.getrefcount(body), sys.getrefcount(held[0]))}


def test_calls_that_fail_leave_nothing():
    grown = measured("calls_that_fail")
    assert grown["references"]
    assert grown["bytes"] < 1 * MIB and grown["objects"] <= 2


# ---- what the collector sees

def test_messages_deliveries_and_headers_are_not_tracked():
    with Engine() as engine:
        engine.create_queue("q")
        engine.create_selector("q", when=always, do=deliver("d"), credit=2)
        message = Message("a", b"b", {"n": 1})
        engine.publish_many("q", [message, message])
        delivery, other = engine.take(2)
        for thing in (message, message.headers, delivery, delivery.message, delivery.message.headers, other):
            assert not gc.is_tracked(thing), thing


@pytest.mark.parametrize("given", ["clock", "watch", "outlet"])
def test_a_closed_engine_is_freed_whatever_its_program_gave_it(given):
    """What was given holds a delivery, which holds the engine, and the collector sees no deliveries."""
    class Program:
        now = 1

        def clock(self):
            return self.now

        def told(self, *changes):
            self.now += 1

    program = Program()
    engine = Engine(clock=program.clock) if given == "clock" else Engine()
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=2)
    if given == "watch":
        engine.watch(program.told)
    outlet = engine.outlet(program.told, ["d"]) if given == "outlet" else None
    engine.publish_many("q", [("a",), ("b",)])
    program.deliveries = engine.take(2)
    assert len(program.deliveries) == 2
    engine.close()
    left = [weakref.ref(engine), weakref.ref(program)]
    del engine, program, outlet
    gc.collect()
    assert [ref() for ref in left] == [None, None]


def resident():
    """Bytes of memory that the process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@program
def what_is_freed():
    """A backlog that goes out of order, so that chunks and regions empty in any order; the books are checked on the way."""
    engine, prime = Engine(), 300_007
    queue = engine.create_queue("q")
    engine.publish("q")
    before = resident()
    engine.publish_many("q", (("address", b"body", {"n": 1}) for _ in range(prime)))
    full = resident()
    for number in range(1, prime):
        queue.delete(number * 123_457 % prime)      # every id once
        if number % 60_000 == 0:
            engine.check()
            engine.publish_many("q", (("address", b"body", {"n": 1}) for _ in range(20_000)))
            engine.check()
    queue.purge()
    engine.check()
    return {"full": full - before, "empty": resident() - before}


@program
def what_is_freed_of_many_sizes():
    """Each size fills regions of its own: none of them is kept for the next message of that size."""
    engine = Engine()
    queue = engine.create_queue("q")
    engine.publish("q")
    before = resident()
    for size in range(0, 900, 15):
        engine.publish_many("q", (("address", b"", {"text": b"x" * size}) for _ in range(4_000)))
    full = resident()
    queue.purge()
    engine.check()
    return {"full": full - before, "empty": resident() - before}


def test_what_is_freed_goes_back_to_the_system():
    held = measured("what_is_freed")
    assert held["full"] > 40 * MIB
    assert held["empty"] < 16 * MIB         # what malloc keeps of large tables is most of it


def test_what_is_freed_of_many_sizes_goes_back_to_the_system():
    held = measured("what_is_freed_of_many_sizes")
    assert held["full"] > 120 * MIB
    assert held["empty"] < 24 * MIB


AT_EXIT = """
import operator
from xump import *
def holder(): pass
holder.engine = engine = Engine()
register_operator("same", operator.eq)
for name in "qrt":
    engine.create_queue(name)
for when in (always, default, overflow, match("eq", "a"), match("topic", "a.#"), match("prefix", "a"), match("same", "a"),
             match("same", "b"), match("eq", "1", "headers.s"), where({"n": 1}), where({"n": 1.5}), where("n > 3")):
    for do in (copy_to("t"), move_to("r"), deliver("d")):
        try:
            engine.create_selector("q", when=when, do=do, credit=500)
        except (Conflict, ValueError):
            pass
engine.create_selector("r", when=always, do=move_to("t"), credit=300)
for number in range(2000):
    engine.publish("q", "a", b"", {"n": number % 5, "s": "1"})
holder.deliveries = engine.take(2)
"""


def test_an_engine_that_ends_with_the_interpreter_is_silent():
    """Deliveries, which the collector does not look at, hold it until the names of all modules are None."""
    done = subprocess.run([sys.executable, "-c", AT_EXIT], cwd=Path(__file__).parents[2], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (0, "")


@program
def a_million_waiting():
    engine = Engine()
    queue = engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "b"), do=deliver("d"), credit=1000)
    engine.create_selector("q", when=always, do=deliver("never"), credit=0)
    return growth(
        lambda: engine.publish_many("q", [("a",), ("b",)]),
        lambda: [engine.publish_many("q", [("a", b"x", {"n": 1}), ("b", b"y")] * 1000) for _ in range(500)],
    ) | {"waiting": queue.ready + queue.outstanding}


def test_the_collector_does_not_see_a_million_waiting_messages():
    grown = measured("a_million_waiting")
    assert grown["waiting"] == 1_000_002
    assert grown["objects"] <= 2
    assert grown["bytes"] < 1_000_000 * 400


# ---- graphs

def suffix(pattern, value):
    return value.endswith(pattern)


def graphs(engine, first, last):
    """Queues, selectors of every kind, names and destinations that are not seen again, with messages in all states."""
    for n in range(first, last):
        queue = engine.create_queue(f"queue of number {n}", auto_delete=n % 2 == 0, limit=50, dead_letter=f"letters of {n}")
        conditions = [
            always, match("eq", f"address {n}"), match("topic", f"words.{n}.*"), match("prefix", f"prefix {n}"),
            where(f"n = {n}"), where({"n": n, "m": [1, n]}), match("eq", f"value {n}", "headers.k"),
            match("leaks_suffix", str(n)),
            where(lambda message, n=n: message.headers.get("n") == n), default, overflow,
        ]
        do = [deliver(f"destination {n}"), move_to("keep"), deliver("d", queue=field("reply_to")), discard][n % 4]
        selectors = [
            engine.create_selector(queue, when=conditions[n % 11], do=do, credit=n % 3, name=f"selector {n}"),
            engine.create_selector(queue, when=conditions[(n // 11) % 9], do=copy_to("keep")),
        ]
        engine.publish_many(queue, [(f"address {n}", b"", {"n": n}, "keep"), (f"words.{n}.x", b"", None, f"nobody {n}")])
        engine.take(1, f"destination {n}")
        if n % 3 == 0:
            engine.delete_queue(queue)
        else:
            for selector in selectors:
                selector.delete()
            engine.delete_queue(queue)
        if n % 100 == 0:
            engine.queues["keep"].purge()


@program
def twenty_thousand_graphs():
    if "leaks_suffix" not in operator_names():
        register_operator("leaks_suffix", suffix)
    engine = Engine()
    engine.create_queue("keep")
    grown = growth(lambda: graphs(engine, 0, 3000), lambda: graphs(engine, 3000, 20_000))
    engine.check()
    return grown | {"left": [len(engine.queues), len(engine.selectors)]}


def test_queues_and_selectors_that_are_deleted_leave_nothing():
    grown = measured("twenty_thousand_graphs")
    assert grown["left"] == [1, 0]
    assert grown["bytes"] < 1 * MIB
    assert grown["objects"] <= 5


def engines(count, close):
    for _ in range(count):
        engine = Engine(dead_letter="dead")
        busy_graph(engine)
        engine.publish_many("in", [("a.b", b"x" * 100, {"n": n % 10, "to": "d"}) for n in range(20)])
        held = engine.take(3)
        iterator = engine.deliveries()
        with engine.building():
            engine.publish("nowhere")
        if close:
            engine.close()
        del held, iterator, engine


@program
def engines_closed():
    return growth(lambda: engines(200, True), lambda: engines(2000, True))


@program
def engines_dropped():
    return growth(lambda: engines(200, False), lambda: engines(2000, False))


@program
def engines_dropped_without_collector():
    """Nothing but the references ends them: an engine and its queues know each other, so only the collector finds them."""
    gc.disable()
    return growth(
        lambda: [engines(10, False) or gc.collect() for _ in range(10)],
        lambda: [engines(10, False) or gc.collect() for _ in range(50)])


@pytest.mark.parametrize("name", ["engines_closed", "engines_dropped", "engines_dropped_without_collector"])
def test_engines_that_come_and_go_leave_nothing(name):
    grown = measured(name)
    assert grown["bytes"] < 3 * MIB
    assert grown["objects"] <= 5


# ---- starved messages

def starving_engine():
    """The credit for red is spent; green goes past."""
    engine = Engine()
    engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "red"), do=deliver("red"), credit=0)
    engine.create_selector("q", when=match("eq", "green"), do=discard)
    return engine


def pass_by(engine, messages, batches):
    for _ in range(batches):
        engine.publish_many("q", messages)


@program
def one_starved():
    engine = starving_engine()
    engine.publish("q", "red")
    green = [("green",)] * 10_000
    grown = growth(lambda: pass_by(engine, green, 10), lambda: pass_by(engine, green, 300))
    return grown | {"ready": engine.queues["q"].ready, "passed": engine.queues["q"].last_id}


def test_memory_is_flat_behind_one_starved_message():
    grown = measured("one_starved")
    assert grown["ready"] == 1 and grown["passed"] > 3_000_000
    assert grown["bytes"] < 1 * MIB and grown["objects"] <= 2


@program
def every_hundredth_starved():
    engine = starving_engine()
    queue = engine.queues["q"]
    mixed = ([("green",)] * 99 + [("red",)]) * 100
    first = growth(lambda: pass_by(engine, mixed, 10), lambda: pass_by(engine, mixed, 290))
    live = queue.ready
    queue.purge()
    again = growth(lambda: None, lambda: pass_by(engine, mixed, 290))
    return {"live": live, "bytes": first["bytes"], "objects": first["objects"], "again": again["bytes"]}


def test_memory_follows_the_starved_messages_not_the_ids():
    grown = measured("every_hundredth_starved")
    assert grown["live"] == 30_000
    assert grown["bytes"] < 30_000 * 800 and grown["objects"] <= 2
    assert grown["again"] < 1 * MIB         # what was purged is used again


@program
def the_oldest_starved_for_ever():
    """A window of live messages that moves on: the oldest of ten thousand is settled, a new one comes."""
    engine = Engine()
    queue = engine.create_queue("q", history_limit=100)
    engine.create_selector("q", when=always, do=deliver("d"), credit=10_000)

    def turn(count):
        for _ in range(count):
            engine.publish_many("q", [("a", b"x" * 20)] * 100)
            engine.ack(engine.take(100))

    engine.publish_many("q", [("a", b"x" * 20)] * 10_000)
    grown = growth(lambda: turn(200), lambda: turn(5000))
    return grown | {"outstanding": queue.outstanding}


def test_a_window_that_moves_on_takes_no_more():
    grown = measured("the_oldest_starved_for_ever")
    assert grown["outstanding"] == 10_000
    assert grown["bytes"] < 1 * MIB and grown["objects"] <= 2


if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]]()))
