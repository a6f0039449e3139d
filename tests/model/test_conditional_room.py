"""Graphs in which room depends on the message: overflow by field, queues that move into themselves or overflow into where one
comes from. A selector in the waiting list for such room may find it whenever another message comes to wait, or leaves.
"""

import os

from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.model.lockstep import World
from tests.model.steps import STEPS
from xump import INFINITE, always, bounce_to, copy_to, deliver, discard, field, match, move_to, overflow

STEPS_PER_RUN = 25


def waiting(engine, *names):
    return [[message.address for message in engine.queues[name].browse(state="ready")] for name in names]


def test_a_message_that_finds_room_by_its_own_field_goes_there_when_it_comes_to_wait(engine):
    engine.create_queue("full", limit=0)
    for name in ("x", "src"):
        engine.create_queue(name)
    with engine.building():
        engine.create_selector("full", when=overflow, do=move_to(field("address")), credit=5)
        mover = engine.create_selector("src", when=always, do=move_to("full"), credit=5)
        engine.create_selector("src", when=always, do=deliver("z"), credit=1)
    engine.publish_many("src", [("nowhere",), ("x",), ("x",)])
    assert waiting(engine, "src", "x") == [[], ["x", "x"]]
    assert (mover.available, mover.blocked) == (3, False)


def test_who_stands_first_in_such_a_line_is_in_the_rotation_for_a_message_that_is_routed(engine):
    engine.create_queue("a", limit=0)
    for name in ("b", "d"):
        engine.create_queue(name)
    engine.create_selector("a", when=overflow, do=move_to(field("address")), credit=1)
    mover = engine.create_selector("d", when=always, do=move_to("a"), credit=2)
    engine.create_selector("d", when=always, do=deliver("z"), credit=2)
    engine.publish_many("d", [("a",), ("b",)])
    assert waiting(engine, "b") == [["b"]] and mover.outstanding == 1


def test_who_was_never_served_and_stands_first_takes_what_the_overflow_has_room_for(engine):
    engine.create_queue("b")
    engine.create_queue("d", limit=1)
    discarder = engine.create_selector("b", when=always, do=discard)
    engine.create_selector("b", when=always, do=move_to(field("address")), credit=9)
    engine.create_selector("d", when=overflow, do=move_to(field("address")), credit=9)
    engine.publish("b", "b")
    mover = engine.create_selector("b", when=always, do=move_to("d"), credit=9)
    engine.publish("d", "")
    engine.publish("b", "")
    assert (served(engine, discarder), served(engine, mover)) == (2, 0)
    engine.publish("b", "b")
    assert served(engine, mover) == 1


def served(engine, selector):
    return engine.stats()["selectors"][selector.id]["served"]


def test_what_a_full_queue_moves_into_itself_makes_its_own_room(make):
    engine = make(hop_limit=3)
    engine.create_queue("a", limit=1)
    engine.create_queue("b")
    with engine.building():
        engine.create_selector("a", when=always, do=move_to("a"), credit=INFINITE)
        engine.create_selector("a", when=always, do=move_to("b"), credit=1)
        engine.create_selector("b", when=always, do=move_to("a"), credit=2)
    engine.publish_many("b", [("1",), ("2",)])
    assert waiting(engine, "a", "b") == [[], []]    # past the hop limit, both


def test_a_queue_that_overflows_into_the_source_takes_what_leaves_it(make):
    engine = make(hop_limit=3)
    for name, limit in (("a", 3), ("b", 2), ("c", 3), ("d", None)):
        engine.create_queue(name, limit=limit)
    engine.create_selector("a", when=overflow, do=move_to("b"), credit=INFINITE)
    back = engine.create_selector("b", when=match("eq", "a"), do=bounce_to("a"), credit=1)
    engine.create_selector("c", when=always, do=bounce_to("a"), credit=INFINITE)
    engine.create_selector("b", when=always, do=move_to("d"), credit=2)
    for queue, addresses in (("c", "abd"), ("b", "c"), ("c", "aaz")):
        engine.publish_many(queue, [(address,) for address in addresses])
    assert [len(found) for found in waiting(engine, "a", "b", "c", "d")] == [3, 1, 0, 2] and not back.blocked


def test_the_room_that_a_message_is_about_to_take_is_nobody_s_reason_to_leave_the_line(make):
    engine = make(hop_limit=3)
    for name, limit, letters in (("a", None, None), ("b", 1, "b"), ("c", 1, "d"), ("d", 2, "c")):
        engine.create_queue(name, limit=limit, dead_letter=letters)
    engine.create_selector("c", when=overflow, do=bounce_to("a"), credit=INFINITE)
    engine.create_selector("d", when=overflow, do=move_to("b"), credit=2)
    home = engine.create_selector("b", when=always, do=bounce_to("a"), credit=1)
    back = engine.create_selector("b", when=always, do=bounce_to("d"), credit=INFINITE)
    engine.create_selector("a", when=always, do=move_to("d"), credit=2)
    for queue, addresses in (("d", ["a", "zz"]), ("d", "b"), ("c", "dbc"), ("d", "c")):
        engine.publish_many(queue, [(address,) for address in addresses])
    served = engine.stats()["selectors"]
    assert (served[home.id]["served"], served[back.id]["served"]) == (4, 2)     # by turns, but where the one stands in the line


# ---- any such graph: the engine and the model

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
targets = st.sampled_from([*NAMES, *NAMES, field("address")])
credits = st.sampled_from([1, 2, INFINITE])
limits = st.sampled_from([0, 1, 1, 2, None])
addresses = st.lists(st.sampled_from([*NAMES, "zz"]), min_size=1, max_size=4)
conditions = st.sampled_from([always, always, match("eq", "a"), match("eq", "b")])
calls = st.one_of(
    st.tuples(st.just("publish_many"), names, addresses.map(lambda found: [(address, b"", {}, None) for address in found])),
    st.tuples(st.just("take"), st.integers(1, 3), st.none()),
    st.tuples(st.just("conclude"), st.integers(0, 9), st.sampled_from(["ack", "nack", "reject"])),
    st.tuples(st.just("on_selector"), st.integers(1, 8), st.sampled_from(["enable", "disable"])),
    st.tuples(st.just("on_queue"), names, st.sampled_from(["hold", "release", "purge"])),
    st.tuples(st.just("delete_selector"), st.integers(1, 8)),
)


def overflow_of(name):
    """An overflow selector may not name its own queue."""
    return st.tuples(targets.filter(lambda target: target != name), credits)


def movers(name):
    return st.tuples(st.just(name), conditions, st.one_of(
        targets.map(move_to), targets.map(bounce_to), targets.map(copy_to), st.just(deliver("z"))), credits)


@settings(max_examples=max(1, STEPS // STEPS_PER_RUN), deadline=None, suppress_health_check=list(HealthCheck),
          phases=[Phase.generate, Phase.shrink], derandomize="XUMP_STEPS" not in os.environ, database=None)
@given(st.data(), st.sampled_from([3, 5]), st.lists(st.tuples(limits, st.sampled_from([None, *NAMES])), min_size=3, max_size=3))
def test_the_engine_does_what_the_model_does_where_room_is_scarce(data, hop_limit, properties):
    world = World(hop_limit, None)
    try:
        for name, (limit, letters) in zip(NAMES, properties, strict=True):
            world.create_queue(name, limit, 0, False, letters, None)
        for name in data.draw(st.sets(names)):
            target, credit = data.draw(overflow_of(name))
            world.create_selector(name, overflow, move_to(target), credit, True, "current", None)
        for source, when, do, credit in data.draw(st.lists(names.flatmap(movers), min_size=2, max_size=5)):
            world.create_selector(source, when, do, credit, True, "current", None)
        for call, *arguments in data.draw(st.lists(calls, max_size=STEPS_PER_RUN - 8)):
            getattr(world, call)(*arguments)
            world.compare()
    finally:
        world.close()
