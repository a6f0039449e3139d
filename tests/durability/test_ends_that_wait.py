"""The end of a message in one store waits for what became of it in another one, whatever way that took; and a crash between the
two loses neither. Each test is one way by which an end once came too early.
"""

import pytest

from tests.durability.two_stores import commit, crashed, make_stores
from xump import INFINITE, Message, always, copy_to, deliver, move_to
from xump.engine import Engine


class Ways:
    """Two durable stores, `s1` and `s2`, a graph, and a crash after some of them were synced."""

    def __init__(self, tmp_path, graph):
        self.tmp_path, self.folder, self.graph = tmp_path, tmp_path / "stores", graph
        self.folder.mkdir()
        self.engine = Engine()
        make_stores(self.engine, "ring", self.folder, ("s1", "s2"))
        self.build(self.engine)
        self.engine.sync()

    def build(self, engine):
        with engine.building():
            self.graph(engine)

    def after_crash(self, *synced):
        """The addresses in each queue of an engine that opens what was left; all other changes since the start are lost."""
        for name in synced:
            commit(self.engine, name)
        self.engine.check()
        engine = crashed("ring", self.folder, self.tmp_path, ("s1", "s2"))
        self.build(engine)
        engine.check()
        found = {name: [message.address for message in queue.browse()] for name, queue in engine.queues.items()}
        engine.close()
        self.engine.close()
        return found


def test_an_end_that_stays_in_a_history_waits_for_the_copy(tmp_path):
    def graph(engine):
        engine.create_queue("a", store="s1", history_limit=5)
        engine.create_queue("b", store="s2")
        engine.create_selector("a", when=always, do=copy_to("b"))
        engine.create_selector("a", when=always, do=deliver("x"), credit=5)

    ways = Ways(tmp_path, graph)
    ways.engine.publish("a", "m")
    ways.engine.ack(ways.engine.take(1))
    assert ways.after_crash("s1") == {"a": ["m"], "b": ["m"]}


@pytest.mark.parametrize("through", [None, 3, INFINITE])
def test_an_end_upstream_waits_for_copies_made_downstream(tmp_path, through):
    """`through`: the message comes to q1 by a queue in RAM, which takes it with this credit."""
    def graph(engine):
        engine.create_queue("q0", store="s1")
        engine.create_queue("ram")
        engine.create_queue("q1", store="s2")
        engine.create_queue("q2", store="s2")
        engine.create_selector("q0", when=always, do=move_to("ram" if through else "q1"), credit=through or 1)
        engine.create_selector("ram", when=always, do=move_to("q1"), credit=3)
        engine.create_selector("q1", when=always, do=copy_to("q2"))
        engine.create_selector("q1", when=always, do=deliver("x"), credit=5)

    ways = Ways(tmp_path, graph)
    ways.engine.publish("q0", "m")
    ways.engine.ack(ways.engine.take(1))
    assert ways.after_crash("s1")["q2"] == ["m"]


@pytest.mark.parametrize("owned", [False, True])
def test_an_end_upstream_waits_for_a_store_on_the_way(tmp_path, owned):
    """From q1 the message goes on for good: q1 is upstream of nothing any more, and has copied it. `owned`: it goes on in RAM."""
    def graph(engine):
        for number, store in enumerate(("s1", "s2", "s1")):
            engine.create_queue(f"q{number}", store=store)
        engine.create_queue("copy", store="s2")
        engine.create_queue("ram")
        engine.create_selector("q0", when=always, do=move_to("q1"), credit=3)
        engine.create_selector("q1", when=always, do=copy_to("copy"))
        engine.create_selector("q1", when=always, do=move_to("ram" if owned else "q2"), credit=INFINITE)
        engine.create_selector("ram", when=always, do=move_to("q2"), credit=3)
        engine.create_selector("q2", when=always, do=deliver("x"), credit=3)

    ways = Ways(tmp_path, graph)
    ways.engine.publish("q0", "m")
    ways.engine.ack(ways.engine.take(1))
    assert ways.after_crash("s1")["copy"] == ["m"]


def test_what_is_routed_by_priority_is_copied_again(tmp_path):
    def graph(engine):
        engine.create_queue("a", store="s1", priority=9)
        engine.create_queue("b", store="s2")
        engine.create_selector("a", when=always, do=copy_to("b"))

    ways = Ways(tmp_path, graph)
    ways.engine.publish_many("a", [Message("low"), Message("high", priority=9)])
    assert ways.after_crash("s1") == {"a": [], "b": ["high", "low"]}


@pytest.mark.parametrize("second", [1, INFINITE])
@pytest.mark.parametrize("first", [1, INFINITE])
def test_a_message_back_in_its_store_does_not_hide_its_origin_from_late_copies(tmp_path, first, second):
    def graph(engine):
        engine.create_queue("q0", store="s1")
        engine.create_queue("ram")
        engine.create_queue("copy", store="s2")
        engine.create_queue("q1", store="s1")
        engine.create_selector("q0", when=always, do=move_to("ram"), credit=first)
        engine.create_selector("ram", when=always, do=copy_to("copy"))
        engine.create_selector("ram", when=always, do=move_to("q1"), credit=second)

    (tmp_path / "lost").mkdir()
    (tmp_path / "there").mkdir()
    ways = Ways(tmp_path / "lost", graph)
    ways.engine.publish("q0", "m")
    assert ways.after_crash("s1")["copy"] == ["m"]
    ways = Ways(tmp_path / "there", graph)
    ways.engine.publish("q0", "m")
    found = ways.after_crash("s1", "s2", "s1")      # now it is there, so nothing comes twice
    assert (found["copy"], found["q1"]) == (["m"], ["m"])


def test_a_frontier_that_was_held_back_stays_there(tmp_path):
    """The fence that holds it is found by its number, when those before it have passed."""
    def graph(engine):
        for name, store in (("a", "s1"), ("b", "s2"), ("a0", "s1"), ("b0", "s2")):
            engine.create_queue(name, store=store)
        engine.create_selector("a0", when=always, do=move_to("b0"), credit=INFINITE)
        engine.create_selector("a", when=always, do=copy_to("b"))
        engine.create_selector("a", when=always, do=deliver("x"), credit=5)

    ways = Ways(tmp_path, graph)
    engine = ways.engine
    make_stores(engine, "ring", ways.folder, ("s3",))
    engine.create_queue("c", store="s3")
    engine.publish("a0", "x")
    commit(engine, "s2")
    engine.publish("a", "m")
    commit(engine, "s1")
    engine.create_selector("a", when=always, do=copy_to("c"), start="head")
    commit(engine, "s2")
    commit(engine, "s1")
    engine.ack(engine.take(1))
    assert ways.after_crash("s1")["a"] == ["m"]


def test_a_message_that_goes_on_stays_in_its_history_at_an_orderly_end(tmp_path):
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")
        with engine.building():
            engine.create_queue("a", store="s", history_limit=5)
            engine.create_queue("ram")
            engine.create_queue("c", store="s")
            engine.create_selector("a", when=always, do=move_to("ram"), credit=INFINITE)
            engine.create_selector("ram", when=always, do=move_to("c"), credit=3)
        engine.publish("a", "m")
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")
        assert (engine.queues["a"].history, engine.queues["a"].ready, engine.queues["c"].ready) == (1, 0, 1)


def test_a_clock_at_its_end_does_not_hold_up_what_is_built():
    with Engine(clock=lambda: (1 << 63) - 1) as engine, engine.building():
        engine.create_queue("q")
        engine.create_selector("q", when=always, do=deliver("d"))
        engine.publish("q")
    assert engine.closed
