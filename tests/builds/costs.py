"""What calls cost, counted in basic blocks, by a copy of the core that is compiled for it: so a number is the same each time.
`python -m tests.builds.costs` prints, for each case, the blocks of one call where there is little and where there is much.

The compiler calls `__sanitizer_cov_trace_pc` in every block of the modules that do the walking (`variants.COUNTED`).
"""

import ctypes
import datetime
import functools
import json
import os
import random
import subprocess
import sys
from functools import partial

import xump
from tests.builds.variants import COUNTED, alone, build
from xump import INFINITE, always, deliver, discard, field, match, move_to, overflow

LITTLE, MUCH = 250, 4_000
SECOND = 1_000_000_000
NOW = [1]       # what the clock of the engine says
COUNTER = "unsigned long long blocks;\nvoid __sanitizer_cov_trace_pc(void) { blocks++; }\n"


def costs():
    """{case: (blocks where there is little, where there is much)}"""
    run = counted("tests.builds.costs", "--count")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def counted(module, *arguments):
    """Run a module over the core that counts."""
    with alone("count"):
        copy = current_copy()
        variables = os.environ | {"LD_PRELOAD": str(copy / "counter.so"), "PYTHONHASHSEED": "0"}       # tables of texts
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, check=False, cwd=copy, env=variables, capture_output=True, text=True)


@functools.cache
def current_copy():
    copy = build("count", COUNTED)
    (copy / "counter.c").write_text(COUNTER)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", "counter.so", "counter.c"], check=True, cwd=copy)
    return copy


def counter():
    """The number of blocks so far, as `.value`."""
    return ctypes.c_ulonglong.in_dll(ctypes.CDLL(None), "blocks")


def count():
    blocks = counter()
    found = {}
    for name, case in CASES.items():
        found[name] = []
        for much in (LITTLE, MUCH):
            NOW[0] = 1
            engine = xump.Engine(clock=lambda: NOW[0])
            calls = case(engine, much)
            before, done = blocks.value, 0
            for call in calls:
                call()
                done += 1
            found[name].append((blocks.value - before) / done)
            engine.close()
    return found


# ---- cases: each makes `n` of something and gives the calls that should not mind

def take_and_nack(engine):
    def call():
        for delivery in engine.take(1, "w"):
            delivery.nack()
    return call


def nack_beside_parked_messages(engine, n):
    engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "parked"), do=deliver("p"), enabled=False)
    engine.create_selector("q", when=match("eq", "work"), do=deliver("w"))
    engine.publish_many("q", [("parked",)] * n)
    engine.publish("q", "work")
    return [take_and_nack(engine)] * 10


def nack_beside_parked_groups(engine, n):
    parked_in_groups(engine, n)
    return [take_and_nack(engine)] * 10


def enable_beside_parked_groups(engine, n):
    parked_in_groups(engine, n)
    return [call for id in range(1, 6) for call in (engine.selectors[id].enable, engine.selectors[id].disable)]


def join_beside_parked_groups(engine, n):
    parked_in_groups(engine, n)
    return [lambda: engine.create_selector("q", when=match("eq", "work"), do=deliver("w")).delete()] * 5


def delete_a_selector_beside_waiting_groups(engine, n):
    engine.create_queue("q")
    with engine.building():
        selectors = [engine.create_selector("q", when=match("eq", f"waits {i}"), do=deliver("w"), credit=0) for i in range(n)]
    engine.publish_many("q", [(f"waits {i}",) for i in range(n)])
    return [selector.delete for selector in selectors[:: n // 10]]


def parked_in_groups(engine, n):
    engine.create_queue("q")
    with engine.building():
        for i in range(n):
            engine.create_selector("q", when=match("eq", f"parked {i}"), do=deliver("p"), enabled=False)
        engine.create_selector("q", when=match("eq", "work"), do=deliver("w"))
    engine.publish_many("q", [(f"parked {i}",) for i in range(n)])
    engine.publish("q", "work")


def parked_messages_taken_first(engine, n):
    engine.create_queue("q")
    engine.create_queue("b")
    engine.create_queue("full", limit=1)
    engine.publish("full")
    parked = engine.create_selector("q", when=always, do=move_to("full"), enabled=False)
    engine.publish_many("q", [("m",)] * n)
    mover = engine.create_selector("q", when=always, do=move_to("b"), credit=0)

    def call():
        with engine.building():
            parked.enable()
            mover.grant(n)
    return each(n, call)


def publish_while_many_queues_are_built(engine, n):
    return built(engine, n, lambda: engine.publish("q0"))


def nack_while_many_queues_are_built(engine, n):
    engine.create_queue("back")
    back = engine.create_selector("back", when=always, do=deliver("back"), credit=10)
    engine.publish_many("back", [("m",)] * 10)
    taken = engine.take(10, "back")
    back.disable()
    return built(engine, n, lambda: taken.pop().nack())


def delete_while_many_queues_are_built(engine, n):
    names = [f"q{i}" for i in range(0, n, n // 10)][:10]
    return built(engine, n, lambda: engine.delete_queue(names.pop()))


def built(engine, n, call):

    engine.building().__enter__()
    for i in range(n):
        engine.create_queue(f"q{i}")
        engine.create_selector(f"q{i}", when=always, do=deliver("x"))
    return [call] * 10


def discard_beside_an_overflow_by_field(engine, n):
    for i in range(n):
        engine.create_queue(f"q{i}")
    engine.create_queue("overflows", limit=1)
    engine.create_selector("overflows", when=overflow, do=move_to(field("address")))
    engine.create_queue("hot")
    engine.create_selector("hot", when=always, do=discard)
    return [lambda: engine.publish("hot")] * 10


def nacks_in_any_order(engine, n):
    engine.create_queue("q")
    selector = engine.create_selector("q", when=always, do=deliver("d"), credit=n)
    engine.publish_many("q", [("m",)] * n)
    taken = engine.take(n)
    selector.disable()
    random.Random(n).shuffle(taken)
    return [delivery.nack for delivery in taken]


def taking_what_was_nacked_in_any_order(engine, n):
    for call in nacks_in_any_order(engine, n):
        call()
    return each(n, engine.selectors[1].enable)


def sparse(engine, n):
    """One message in every third page, and nothing after them."""
    queue = engine.create_queue("q")
    engine.create_selector("q", when=match("eq", "gone"), do=discard)
    engine.create_selector("q", when=match("eq", "kept"), do=deliver("d"), credit=0)
    engine.publish_many("q", [("gone" if i % 96 else "kept",) for i in range(24 * n)])
    return queue


def frontier_of_a_sparse_queue(engine, n):
    queue = sparse(engine, n)
    queue.hold()
    for id in engine.publish_many("q", [("gone",)] * 200)[:-1]:
        queue.delete(id)
    return [lambda: queue.frontier] * 10


def frontier_behind_what_overflowed(engine, n):
    queue = engine.create_queue("q", limit=1)
    engine.create_selector("q", when=always, do=discard)
    engine.create_queue("out")
    engine.create_selector("q", when=overflow, do=move_to("out"), credit=2 * n)
    queue.hold()
    for _ in range(n):
        engine.publish("q")
    queue.delete(1)
    engine.publish("q")
    assert queue.frontier == n + 1      # looks once
    return [lambda: queue.frontier] * 10


def browse_a_sparse_queue_from_a_gap(engine, n):
    queue = sparse(engine, n)
    last = (24 * n - 1) // 96 * 96 + 1
    return [lambda: next(queue.browse(last - 50))] * 5 + [lambda: next(queue.browse(50, reverse=True))] * 5


def browse_from_a_time(engine, n):
    queue = sparse(engine, n)
    return [lambda: next(queue.browse(datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)), None)] * 10


def walk_over_a_sparse_queue(engine, n):
    queue = sparse(engine, n)
    return each(queue.ready, lambda: list(queue.browse(reverse=False)))


def delete_a_sparse_queue(engine, n):
    queue = sparse(engine, n)
    return each(queue.ready, lambda: engine.delete_queue("q"))


def publish_beside_those_who_wait_for_others(engine, n):
    many_wait(engine, n)
    return [lambda: engine.publish("q", "mine")] * 10


def publish_to_one_of_many_who_wait(engine, n):
    many_wait(engine, n)
    return [partial(engine.publish, "q", f"destination {i}") for i in range(0, n, n // 10)]


def leave_many_who_wait(engine, n):
    return [partial(engine._withdraw, waiter) for waiter in many_wait(engine, n)[:: n // 10]]


def many_wait(engine, n):
    """Each for a destination of its own, behind a backlog of which nobody takes anything."""
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver(field("address")), credit=INFINITE)
    engine.publish_many("q", [("backlog",)] * n)
    return [engine._await(f"destination {i}", lambda: None) for i in range(n)]


def named(engine, n, **properties):
    """One selector for as many targets, whose names the messages say."""
    queue = engine.create_queue("q")
    for i in range(n):
        engine.create_queue(f"t{i}", **properties)
    return queue, engine.create_selector("q", when=always, do=move_to(field("address")), credit=xump.INFINITE)


def freeing_a_place_beside_targets_at_their_limits(engine, n):
    named(engine, n, limit=1)
    engine.publish_many("q", [(f"t{i}",) for i in range(n)] * 2)
    return [engine.queues[f"t{i}"].purge for i in range(0, n, n // 10)]


def take_and_ack_beside_names_that_wait(engine, n):
    engine.create_queue("q")
    for i in range(n):
        engine.create_queue(f"t{i}")
    engine.create_selector("q", when=always, do=move_to(field("address")), credit=1)
    engine.create_selector("t0", when=always, do=deliver("d"), credit=1)
    engine.publish_many("q", [("t0",)] * 20 + [(f"t{i}",) for i in range(n)])

    def call():
        for delivery in engine.take(1):
            delivery.ack()
    return [call] * 10


def publishing_to_targets_that_deliver(engine, n):
    named(engine, n, limit=1)
    for i in range(n):
        engine.create_selector(f"t{i}", when=always, do=deliver("d"), credit=1)
    messages = [(f"t{i % n}",) for i in range(4 * n)]
    return each(4 * n, lambda: engine.publish_many("q", messages))


def taking_and_acking_all_that_is_named(engine, n):
    publishing_to_targets_that_deliver(engine, n)[0]()

    def call():
        while taken := engine.take(100):
            engine.ack(taken)
    return each(4 * n, call)


def releasing_what_names_full_targets(engine, n):
    queue, _ = named(engine, n, limit=1)
    engine.publish_many("q", [(f"t{i}",) for i in range(n)] * 2)
    queue.hold()
    return each(n, queue.release)


def enabling_one_of_those_who_stand_in_all_lines(engine, n):
    """One of two takes what there is room for; the other one joined the lines once, when it was first able."""
    named(engine, n, limit=1)
    other = engine.create_selector("q", when=always, do=move_to(field("address")), credit=xump.INFINITE)
    engine.publish_many("q", [(f"t{i}",) for i in range(n)] * 2)
    return [call for _ in range(5) for call in (other.disable, other.enable)]


def scheduled(engine, n):
    """So many are delayed, by up to an hour, in any order."""
    queue = engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=INFINITE)
    draw = random.Random(n)
    for _ in range(n):
        engine.publish("q", delay=60 + 3_600 * draw.random())
    return queue, draw


def delaying_beside_others(engine, n):
    _, draw = scheduled(engine, n)
    return [partial(engine.publish, "q", delay=60 + 3_600 * draw.random()) for _ in range(100)]


def deleting_one_that_is_delayed(engine, n):
    queue, draw = scheduled(engine, n)
    return [partial(queue.delete, id) for id in draw.sample(range(1, n + 1), 100)]


def purging_what_is_delayed(engine, n):
    queue, _ = scheduled(engine, n)
    return each(n, queue.purge)


def falling_due_beside_others(engine, n):
    _, draw = scheduled(engine, n)
    for _ in range(100):
        engine.publish("q", delay=50 * draw.random())

    def call():
        NOW[0] += SECOND // 2
        engine.tick()
    return [call] * 100


def all_falling_due_one_by_one(engine, n):
    scheduled(engine, n)

    def call():
        while (due := engine.next_due) is not None:
            NOW[0] = due
            engine.tick()
    return each(n, call)


def all_falling_due_in_one_call(engine, n):
    scheduled(engine, n)

    def call():
        NOW[0] += 2 * 3_600 * SECOND
        engine.tick()
    return each(n, call)


def falling_due_where_most_was_deleted(engine, n):
    queue, draw = scheduled(engine, n)

    def call():
        for id in draw.sample(range(1, n + 1), n * 9 // 10):
            queue.delete(id)
        NOW[0] += 2 * 3_600 * SECOND
        engine.tick()
    return each(n, call)


def publish_take_and_ack_by_key(engine, n):
    """Half of all messages have one key, the others one each."""
    engine.create_queue("q", group=field("address"))
    engine.create_selector("q", when=always, do=deliver("d"), credit=1)
    engine.publish_many("q", [("big",) if i % 2 else (f"key {i}",) for i in range(2 * n)])

    def call():
        engine.publish("q", "big")
        for delivery in engine.take(1):
            delivery.ack()
    return [call] * 50


def publishing_into_a_full_window(engine, n):
    engine.create_queue("q", dedup=3_600, dedup_limit=n)
    engine.publish_many("q", [("m", b"", None, None, f"id {i}") for i in range(2 * n)])
    return [partial(engine.publish, "q", message_id=f"new {i}") for i in range(100)]


def staged(engine, n):
    """Five queues, and for each a staged one with n messages."""
    for i in range(5):
        engine.create_queue(f"t{i}")
        engine.create_queue(f"s{i}", staged=True)
        engine.publish_many(f"s{i}", [("m",)] * n)
    return [partial(engine.adopt, f"t{i}", [(f"s{i}", n)], meta={"m": b"1"}) for i in range(5)]


def adopting_many_messages(engine, n):
    return staged(engine, n)


def entering_one_of_many(engine, n):
    for adopt in staged(engine, n):
        adopt()
    return [partial(engine.enter, f"t{i}", 1) for i in range(5)] * 4


def each(n, call):
    """One call that is to be counted as n."""
    return [call] + [lambda: None] * (n - 1)


CASES = {case.__name__.replace("_", " "): case for case in (
    nack_beside_parked_messages, nack_beside_parked_groups, enable_beside_parked_groups, join_beside_parked_groups,
    delete_a_selector_beside_waiting_groups, parked_messages_taken_first, publish_while_many_queues_are_built,
    nack_while_many_queues_are_built, delete_while_many_queues_are_built, discard_beside_an_overflow_by_field, nacks_in_any_order,
    taking_what_was_nacked_in_any_order, frontier_of_a_sparse_queue, frontier_behind_what_overflowed,
    browse_a_sparse_queue_from_a_gap, browse_from_a_time, walk_over_a_sparse_queue, delete_a_sparse_queue,
    publish_beside_those_who_wait_for_others, publish_to_one_of_many_who_wait, leave_many_who_wait,
    freeing_a_place_beside_targets_at_their_limits, take_and_ack_beside_names_that_wait, publishing_to_targets_that_deliver,
    taking_and_acking_all_that_is_named, releasing_what_names_full_targets, enabling_one_of_those_who_stand_in_all_lines,
    delaying_beside_others, deleting_one_that_is_delayed, purging_what_is_delayed, falling_due_beside_others,
    all_falling_due_one_by_one, all_falling_due_in_one_call, falling_due_where_most_was_deleted, publish_take_and_ack_by_key,
    publishing_into_a_full_window,
    adopting_many_messages, entering_one_of_many,
)}


if __name__ == "__main__":
    if sys.argv[1:] == ["--count"]:
        print(json.dumps(count()))
    else:
        for name, (little, much) in costs().items():
            print(f"{name}: {little:.0f} beside {LITTLE:,}, {much:.0f} beside {MUCH:,}")
