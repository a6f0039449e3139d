"""Rows, which a listener publishes out of its buffer: the same becomes of them as of `publish_many(outcomes=True)`."""

import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.compiled import compiled
from tests.patience import PATIENCE
from xump import Engine, Message, OutcomeFlag, always, copy_to, default, deliver, discard, match, move_to, register_annex, where

HELD, DONE, LOGGED = 0, 1, 2
NO_QUEUE, UNROUTABLE, DROPPED = (OutcomeFlag[name] for name in ("NO_QUEUE", "UNROUTABLE", "DROPPED"))
ADDRESSES = ["a", "b", "a.b", "b.a", ""]


@pytest.fixture(scope="module")
def publish():
    return compiled(Path(__file__).with_name("rows.pyx")).publish


def graph(engine, limits, kinds):
    """Exchanges `x` and `y`, queues `q0` to `q2`, and what joins them."""
    with engine.building():
        for name in "xy":
            engine.create_queue(name, transit=True)
        engine.create_queue("dead")
        for number, (limit, dead) in enumerate(limits):
            engine.create_queue(f"q{number}", limit=limit, dead_letter="dead" if dead else None)
        for source, kind, pattern, target in kinds:
            action = discard if target is None else copy_to(target)
            if source.startswith("q"):
                action = move_to(target) if target is not None and not target.startswith(source) else discard
            when = {"default": default, "always": always}.get(kind) or match(kind, pattern)
            if when is not default or (source, default) not in [(one.source.name, one.when) for one in engine.selectors.values()]:
                engine.create_selector(source, when=when, do=action, credit=2)
    return engine


LIMITS = st.lists(st.tuples(st.sampled_from([None, 0, 1, 3]), st.booleans()), min_size=3, max_size=3)
KINDS = st.lists(st.tuples(
    st.sampled_from(["x", "x", "y", "q0", "q1"]), st.sampled_from(["eq", "topic", "always", "default"]),
    st.sampled_from(["a", "b", "a.#"]), st.sampled_from(["y", "q0", "q1", "q2", None])), max_size=6)
MESSAGES = st.tuples(st.sampled_from(ADDRESSES), st.integers(0, 3), st.sampled_from([None, 0, 10**9]))
CALLS = st.lists(st.tuples(st.sampled_from(["x", "y", "q0", "q2"]), st.lists(MESSAGES, max_size=5)), max_size=5)


@given(LIMITS, KINDS, CALLS)
def test_they_are_what_publish_many_makes_of_messages(publish, limits, kinds, calls):
    with Engine(clock=lambda: 5) as one, Engine(clock=lambda: 5) as other:
        for engine in (one, other):
            graph(engine, limits, kinds)
        for queue, messages in calls:
            done, found = publish(one, [
                (one.queues[queue], address, b"x" * size, {} if ttl is None else {"ttl": ttl})
                for address, size, ttl in messages])
            said = other.publish_many(queue, [
                Message(address, b"x" * size, expires=None if ttl is None else 5 + ttl) for address, size, ttl in messages],
                outcomes=True)
            assert (done, found) == (DONE, [(each.id, each.copies, each.refused, each.flags) for each in said])
            assert one.stats() == other.stats()
            one.check()
            for name in one.queues:
                seen = [[(message.id, message.address, message.body, message.hops, message.expires)
                         for message in engine.queues[name].browse()] for engine in (one, other)]
                assert seen[0] == seen[1]


def test_a_row_that_joins_is_one_message_with_one_trip(publish):
    with Engine() as engine:
        exchange, first, second = engine.create_queue("x", transit=True), engine.create_queue("a"), engine.create_queue("b")
        engine.create_selector("x", when=always, do=copy_to("a"))
        done, found = publish(engine, [(exchange, "key", b"body", {}), (second,), (first,), (first,), (exchange, "k", b"", {})])
        assert (done, found[0], found[4]) == (DONE, (1, 2, 0, 0), (0, 1, 0, 0))
        assert [[message.address for message in queue.browse()] for queue in (first, second)] == [["key", "k"], ["key"]]
        assert first.fetch(1).body == second.fetch(1).body == b"body"
        engine.check()


def test_what_no_queue_of_a_message_takes(publish):
    with Engine() as engine:
        exchange, full = engine.create_queue("x", transit=True), engine.create_queue("full", limit=0)
        gone = engine.create_queue("gone")
        engine.delete_queue("gone")
        _, found = publish(engine, [
            (gone, "a", b"", {}), (exchange, "a", b"", {}), (full, "a", b"", {}), (exchange, "a", b"", {}), (full,), (gone,)])
        assert [one[1:] for one in found[:4]] == [
            (0, 0, NO_QUEUE), (0, 0, UNROUTABLE | DROPPED), (0, 1, 0), (0, 1, UNROUTABLE | DROPPED | NO_QUEUE)]


def test_annex_priority_and_life_travel(publish):
    register_annex(301, "test rows", lambda data: {"size": len(data)})
    now = 10
    with Engine(clock=lambda: now) as engine:
        jobs = engine.create_queue("jobs", priority=9)
        publish(engine, [(jobs, "a", b"low", {"annex": (301, b"\x00abc"), "ttl": 5}), (jobs, "b", b"high", {"priority": 7})])
        first, second = jobs.browse()
        assert (first.annex, dict(first.headers), first.body, first.expires) == ((301, b"\x00abc"), {"size": 4}, b"low", 15)
        assert (second.annex, second.priority, second.expires) == (None, 7, None)
        assert engine.get("jobs").message.body == b"high"
        now = 15
        assert engine.get("jobs") is None


def test_building_elsewhere_is_waited_for(publish):
    with Engine() as engine:
        jobs = engine.create_queue("jobs")
        with engine.building():
            assert publish(engine, [(jobs, "a", b"", {})]) == (HELD, [(0, 0, 0, 0)])
        assert jobs.ready == 0 and publish(engine, [(jobs, "a", b"", {})])[0] == DONE


def test_it_says_whether_there_is_something_to_write(publish, tmp_path):
    with Engine() as engine:
        engine.create_store("disk", "ring", path=tmp_path / "store", group_ms=10_000)
        exchange, ram = engine.create_queue("x", transit=True), engine.create_queue("ram")
        kept = engine.create_queue("kept", store="disk")
        engine.create_selector("x", when=match("eq", "kept"), do=copy_to("kept"))
        engine.sync()
        assert publish(engine, [(ram, "a", b"", {}), (exchange, "none", b"", {})])[0] == DONE
        assert publish(engine, [(exchange, "kept", b"body", {"annex": (302, b"annex")})])[0] == DONE | LOGGED
        called = threading.Event()
        engine.when_durable(lambda error: called.set())
        assert called.wait(PATIENCE) and kept.durable_id == 1
    with Engine() as engine:
        engine.create_store("disk", "ring", path=tmp_path / "store")
        [message] = engine.queues["kept"].browse()
        assert (message.body, message.annex) == (b"body", (302, b"annex"))


def test_a_condition_that_is_interrupted_ends_the_call_and_loses_nothing(publish):
    def interrupted(message):
        if message.address == "stop":
            raise KeyboardInterrupt
        return True

    with Engine() as engine:
        exchange, jobs = engine.create_queue("x", transit=True), engine.create_queue("jobs")
        engine.create_selector("x", when=where(interrupted), do=copy_to("jobs"))
        with pytest.raises(KeyboardInterrupt):
            publish(engine, [(exchange, address, b"", {}) for address in ("a", "stop", "b")])
        assert engine.stats()["engine"]["held_messages"] == 3
        assert jobs.ready == 1 and exchange.ready == 2


def test_a_closed_engine(publish):
    engine = Engine()
    jobs = engine.create_queue("jobs")
    engine.close()
    with pytest.raises(Exception, match="the engine is closed"):
        publish(engine, [(jobs, "a", b"", {})])


def test_a_worker_takes_what_came_as_rows(publish):
    with Engine() as engine:
        jobs = engine.create_queue("jobs")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=2)
        assert publish(engine, [(jobs, str(n), b"", {}) for n in range(3)])[1] == [(n, 1, 0, 0) for n in (1, 2, 3)]
        assert [delivery.message.address for delivery in engine.take(9)] == ["0", "1"]
