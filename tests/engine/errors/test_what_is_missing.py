"""Names that are not there, and the tree of errors."""

import queue as standard_queue

import pyarrow
import pytest

import xump
from xump import (
    Engine, always, discard, move_to,
    where,
)
from xump.actions import Action
from xump.errors import (
    Closed, Conflict, ForkedError, InvalidFilter, InvalidPattern, InvariantError, NotFound, QueueFull, QueueNotFound, Reentrant,
    SelectorNotFound, StaleDelivery, StoreCorrupt, StoreFailed, StoreFull, StoreLocked, StoreNotFound, TransactionError,
    XumpError,
)


def test_deleting_what_is_not_there_is_never_an_error(w):
    newer = w.engine.create_queue("gone")
    other_store = w.other.create_store("disk")
    w.engine.create_store("disk")
    for call in (
        lambda: w.engine.delete_queue("nowhere"), lambda: w.engine.delete_queue(w.foreign), lambda: w.engine.delete_queue(w.gone),
        lambda: w.engine.delete_selector(99), lambda: w.engine.delete_selector(-1), lambda: w.engine.delete_selector(10**30),
        lambda: w.engine.delete_selector(w.foreign_selector), lambda: w.engine.delete_selector(w.gone_selector),
        w.gone_selector.delete, lambda: w.engine.delete_store("nowhere"), lambda: w.engine.delete_store(other_store),
        lambda: w.engine.delete_store(w.other.stores["ram"]),
    ):
        assert call() is False
    assert w.engine.queues["gone"] is newer and "disk" in w.engine.stores
    assert w.engine.delete_store(w.engine.stores["disk"]) is True


def test_publishing_to_a_queue_that_was_deleted_goes_by_the_name(w):
    """By every verb that publishes; what else is asked of the object is asked of what is not there any more."""
    table = pyarrow.table({"address": ["a"]})

    def transact():
        with w.engine.transaction() as tx:
            tx.publish(w.gone)
        return tx.ids[0]

    verbs = [w.gone.publish, lambda: w.engine.publish(w.gone), lambda: w.engine.publish_many(w.gone, [("a",)]), transact,
             lambda: w.engine.publish_batch(w.gone, table)]
    dead = w.engine.create_queue("dead")
    assert [bool(verb()) for verb in verbs] == [False] * 5      # into the engine's dead letter
    assert [message.headers["xump_bounced_from"] for message in dead.browse()] == ["gone"] * 5
    newer = w.engine.create_queue("gone")
    ids = [verb() for verb in verbs]
    assert ids == [1, 2, range(3, 4), 4, range(5, 6)] and newer.ready == 5
    for call in (w.gone.hold, w.gone.purge, lambda: w.gone.fetch(1), lambda: w.gone.ready,
                 lambda: w.engine.create_selector(w.gone, when=always, do=discard)):
        with pytest.raises(QueueNotFound, match="'gone'"):
            call()


@pytest.mark.parametrize("error, base", [
    (QueueNotFound, KeyError), (StoreNotFound, KeyError), (SelectorNotFound, KeyError), (QueueFull, standard_queue.Full),
    (StoreFull, OSError), (Conflict, ValueError), (InvalidPattern, ValueError), (InvalidFilter, ValueError),
    (StaleDelivery, ValueError), (TransactionError, RuntimeError), (Closed, RuntimeError), (Reentrant, RuntimeError),
    (StoreLocked, OSError), (StoreFailed, OSError), (StoreCorrupt, OSError), (ForkedError, RuntimeError),
    (InvariantError, AssertionError),
])
def test_errors_are_what_a_python_programmer_expects(error, base):
    assert issubclass(error, XumpError) and issubclass(error, base)
    assert str(error("the message")) == "the message"
    assert getattr(xump, error.__name__) is error


def test_not_found_is_a_key_error_that_can_be_read():
    with Engine() as engine, pytest.raises(KeyError) as raised:
        engine.publish("jobs")
    assert isinstance(raised.value, NotFound)
    assert str(raised.value).startswith("no queue 'jobs': create it, or ")
    assert "Engine(dead_letter=NAME)" in str(raised.value)


@pytest.mark.parametrize(("name", "key", "error"), [
    ("queues", "nope", QueueNotFound), ("stores", "nope", StoreNotFound), ("selectors", 7, SelectorNotFound),
])
def test_what_an_engine_has_is_a_mapping_that_names_what_it_has_not(name, key, error):
    with Engine() as engine:
        engine.create_queue("a")
        engine.create_selector("a", when=always, do=discard)
        things = getattr(engine, name)
        with pytest.raises(error) as raised:
            things[key]
        there = repr(next(iter(things)))
        assert str(raised.value) == f"no {name[:-1]} {key!r} in this engine; there is {there}"
        assert things.get(key) is None and things.get(key, 5) == 5 and key not in things
        [(known, thing)] = things.items()
        assert things[known] is things.get(known) is thing and known in things
        assert list(things) == list(things.keys()) == list(reversed(things)) == [known] and list(things.values()) == [thing]
        assert len(things) == 1 and things == {known: thing} == dict(things) and repr(things) == repr({known: thing})
        with pytest.raises(TypeError):
            things[known] = thing
        with pytest.raises(TypeError):
            del things[known]


@pytest.mark.parametrize("filter", ["n = 'a", "x" * 300 + " = ", "a = 1 2" + " " * 300, " " * 200 + "?" + " " * 200])
def test_the_error_of_a_long_filter_shows_where_it_is(filter):
    with pytest.raises(InvalidFilter) as raised:
        where(filter)
    shown = str(raised.value).split(", in the filter ")[1]
    assert len(shown) <= 80 + 4
    at = raised.value.position
    assert filter[max(0, at - 5):at + 5] in shown


def test_an_action_of_one_s_own_is_a_value_like_any_other():
    assert Action("move", "q") == move_to("q")
