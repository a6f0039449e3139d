"""A message whose end waits for another store may be back after a crash, beside what it became in its own store: then that is
marked as redelivered, and the copies that did not get to the other store are made again."""

import pytest

from tests.durability.two_stores import commit, crashed, make_stores
from xump import INFINITE, Engine, always, copy_to, deliver, match, move_to


def make(engine, kind, folder, *, here, there, **options):
    """Stores a and b, and queues in them, which are durable. `options`: of queues, by name."""
    make_stores(engine, kind, folder)
    for store, names in (("a", here), ("b", there)):
        for name in names:
            engine.create_queue(name, store=store, **options.get(name, {}))
    engine.sync()


def emptied(engine):
    """The queues of which something is delivered, each with whether it comes again, in order."""
    with engine.building():
        for name in list(engine.queues):
            engine.create_selector(name, when=always, do=deliver(name), credit=INFINITE)
    return sorted((delivery.queue.name, delivery.redelivered) for delivery in engine.take(99))


def copy_and_move(engine, credit):
    with engine.building():
        engine.create_selector("source", when=always, do=copy_to("copies"))
        engine.create_selector("source", when=always, do=move_to("work"), credit=credit)


@pytest.mark.parametrize("credit", [3, INFINITE])
def test_what_was_moved_is_moved_again_for_its_copy(kind, folder, tmp_path, credit):
    with Engine() as engine:
        make(engine, kind, folder, here=["source", "work"], there=["copies"])
        copy_and_move(engine, credit)
        engine.publish("source", "m")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert emptied(after) == [("source", False), ("work", True)]
        with crashed(kind, folder, tmp_path) as after:
            copy_and_move(after, credit)
            assert {name: queue.ready for name, queue in after.queues.items()} == {"source": 0, "work": 2, "copies": 1}
        commit(engine, "b")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:      # nothing is left to be done
            copy_and_move(after, credit)
            assert {name: queue.ready for name, queue in after.queues.items()} == {"source": 0, "work": 1, "copies": 1}


def test_what_was_moved_by_way_of_ram(kind, folder, tmp_path):
    """The durable message upstream is the one that comes back."""
    with Engine() as engine:
        make(engine, kind, folder, here=["source", "work"], there=["copies"])
        engine.create_queue("between")
        engine.create_selector("between", when=always, do=move_to("work"), credit=3)
        engine.create_selector("source", when=always, do=copy_to("copies"))
        engine.create_selector("source", when=always, do=move_to("between"), credit=3)
        engine.publish("source", "m")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert emptied(after) == [("source", False), ("work", True)]


@pytest.mark.parametrize("order", [["copies", "near"], ["near", "copies"]])
def test_a_copy_in_the_same_store_is_made_again(kind, folder, tmp_path, order):
    """Whichever copy comes first."""
    def copy(engine):
        with engine.building():
            for target in order:
                engine.create_selector("source", when=always, do=copy_to(target))

    with Engine() as engine:
        make(engine, kind, folder, here=["source", "near"], there=["copies"])
        copy(engine)
        engine.publish("source", "m")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert emptied(after) == [("near", True), ("source", False)]
        with crashed(kind, folder, tmp_path) as after:
            copy(after)
            assert {name: queue.ready for name, queue in after.queues.items()} == {"source": 0, "near": 2, "copies": 1}


def test_a_copy_that_became_a_dead_letter_at_home(kind, folder, tmp_path):
    """One target is full, and its dead letters go to the first store; the other one takes its copy."""
    with Engine() as engine:
        make(engine, kind, folder, here=["source", "dead"], there=["full", "copies"], full={"limit": 1, "dead_letter": "dead"})
        engine.publish("full", "other")
        engine.create_selector("source", when=always, do=copy_to("full"))
        engine.create_selector("source", when=always, do=copy_to("copies"))
        engine.sync()
        engine.publish("source", "m")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert emptied(after) == [("dead", True), ("full", False), ("source", False)]


def test_a_copy_that_becomes_a_dead_letter_elsewhere_counts_too(kind, folder, tmp_path):
    with Engine() as engine:
        make(engine, kind, folder, here=["source", "near", "full"], there=["dead"], full={"limit": 1, "dead_letter": "dead"})
        engine.publish("full", "other")
        engine.create_selector("source", when=always, do=copy_to("near"))
        engine.create_selector("source", when=always, do=copy_to("full"))
        engine.sync()
        engine.publish("source", "m")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert emptied(after) == [("full", False), ("near", True), ("source", False)]


def test_a_dead_letter_at_home_of_what_was_copied_elsewhere(kind, folder, tmp_path):
    with Engine() as engine:
        make(engine, kind, folder, here=["dead", "source"], there=["copies"], source={"dead_letter": "dead"})
        engine.create_selector("source", when=always, do=copy_to("copies"))
        engine.create_selector("source", when=always, do=deliver("worker"))
        engine.publish("source", "m")
        engine.take(1, "worker")[0].reject()
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert ("dead", True) in emptied(after)


def test_what_was_taken_back_from_the_other_store(kind, folder, tmp_path):
    """p moved it to source, and source for good to the other store, whose queue was deleted: it is with p again, and goes on."""
    with Engine() as engine:
        make(engine, kind, folder, here=["p", "source", "work"], there=["far"])
        engine.create_selector("p", when=always, do=move_to("source"), credit=1)
        engine.create_selector("source", when=always, do=move_to("far"), credit=INFINITE)
        engine.publish("p", "m")
        engine.selectors[1].disable()
        engine.delete_queue("far")
        assert engine.queues["p"].ready == 1
        engine.create_selector("p", when=always, do=move_to("work"), credit=INFINITE)
        assert engine.queues["work"].ready == 1
        engine.check()
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            found = emptied(after)
            assert ("work", True) in found and ("source", False) in found


def test_what_stays_in_its_store_is_not_doubtful(kind, folder, tmp_path):
    """Though others go to the other store."""
    with Engine() as engine:
        make(engine, kind, folder, here=["source", "near", "work"], there=["copies"])
        engine.create_selector("source", when=match("eq", "far"), do=copy_to("copies"))
        engine.create_selector("source", when=match("eq", "near"), do=copy_to("near"))
        engine.create_selector("source", when=always, do=move_to("work"), credit=INFINITE)
        engine.publish("source", "near")
        engine.publish("source", "far")
        engine.sync()
        engine.publish("source", "near")
        commit(engine, "a")
        with crashed(kind, folder, tmp_path) as after:
            assert emptied(after) == [("copies", True), ("near", False), ("near", False), ("work", False), ("work", False),
                                      ("work", True)]


def test_nothing_is_doubtful_after_an_orderly_end(kind, folder):
    with Engine() as engine:
        make(engine, kind, folder, here=["source", "near", "work"], there=["copies"])
        engine.create_selector("source", when=always, do=copy_to("near"))
        copy_and_move(engine, INFINITE)
        engine.publish("source", "m")
    with Engine() as engine:
        make_stores(engine, kind, folder)
        assert emptied(engine) == [("copies", False), ("near", False), ("work", False)]
