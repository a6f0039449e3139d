"""Durable stores that fail, are full, deleted or damaged beside others that are well: a test for each thing that went wrong once.

The stores are logs in memory (`log_in_memory.py`); those of `failing_shelf.py` refuse to be written while a test says so.
"""

import threading
import time

import pytest

from tests.durability.log_in_memory import LOGS, Shelf, two_shelves
from tests.durability.failing_shelf import FailingShelf, emptied, opened
from tests.durability.one_store import bodies
from tests.patience import PATIENCE
from xump import (
    INFINITE, Closed, Engine, OutcomeFlag, QueueFull, QueueNotFound, StoreCorrupt, StoreFailed, always, copy_to, deliver, field,
    match, move_to, overflow,
)
from xump.durability import opening
from xump.store_types import register_store
from xump_ext.records import describe


class Cleaned(Shelf):
    """Gives all of its log to be carried, once, when it is told to."""

    on = False

    def oldest(self, demand):
        if self.name != "l" or not Cleaned.on:
            return None
        Cleaned.on = False
        return 0, self.end, b"".join(self.groups)

    def release(self, position):
        """Nothing is asked for its first part any more: a crash finds what was carried behind it."""


register_store("cleaned shelf", Cleaned)


@pytest.fixture(autouse=True)
def fresh():
    yield from emptied()
    Cleaned.on = False


def crash(engine, written=()):
    """What is synced stays, and all that was written to these stores."""
    left = {path: groups if path in written else groups[:synced] for path, (groups, synced) in LOGS.items()}
    for store in engine.stores.values():
        if store.committer is not None:
            store.committer.stop()
    for path, groups in left.items():
        LOGS[path] = [groups, len(groups)]


@pytest.mark.parametrize("credit", [5, INFINITE])
@pytest.mark.parametrize("deleted", [False, True])
def test_what_a_failed_store_never_got_is_still_where_it_came_from(credit, deleted):
    engine = opened("a l", "b r")
    engine.publish("a", body=b"precious")
    engine.sync()
    FailingShelf.unwritable.add("r")
    engine.create_selector("a", when=always, do=move_to("b"), credit=credit)
    with pytest.raises(StoreFailed):
        engine.sync()
    if deleted:
        assert engine.delete_store("r")
        engine.check()
    engine.stores["l"].committer.sync(None)
    engine.close()
    FailingShelf.unwritable.clear()
    with opened() as engine:
        assert bodies(engine)["a"] == [b"precious"]


@pytest.mark.parametrize("by_way_of_ram", [None, 5, INFINITE])
def test_a_dead_letter_for_a_failed_store_is_still_where_it_came_from(by_way_of_ram):
    """It is dropped and counted, as where there is no room; but its own store has it."""
    engine = opened("dead r")
    with engine.building():
        engine.create_queue("a", store="l", dead_letter="dead")
        engine.create_queue("ram", dead_letter="dead")
        engine.create_selector("ram", when=always, do=deliver("worker"))
        engine.create_selector("a", when=always, credit=by_way_of_ram or 1,
                               do=move_to("ram") if by_way_of_ram else deliver("worker"))
    engine.publish("a", body=b"precious")
    engine.sync()
    delivery, = engine.take(1)
    FailingShelf.unwritable.add("r")
    engine.publish("dead")
    with pytest.raises(StoreFailed):
        engine.sync()
    delivery.reject()
    where = engine.queues["ram" if by_way_of_ram else "a"]
    assert engine.stats()["queues"][where.name]["dropped"] == {"rejected": 1}
    assert (where.ready, where.outstanding, engine.queues["a"].outstanding) == (0, 0, 0)
    engine.check()
    engine.stores["l"].committer.sync(None)
    engine.close()
    FailingShelf.unwritable.clear()
    with opened() as engine:
        assert bodies(engine)["a"] == [b"precious"]
        engine.check()


def test_a_failed_store_does_not_stop_another_one():
    engine = opened("a l", "b r", "ram")
    engine.create_selector("a", when=always, do=copy_to("b"))
    engine.create_selector("ram", when=always, do=copy_to("b"))
    engine.sync()
    FailingShelf.unwritable.add("r")
    engine.publish("b")
    with pytest.raises(StoreFailed):
        engine.sync()
    assert engine.publish("a") == 1 and engine.publish("ram") == 1      # their copies are dropped
    engine.stores["l"].committer.sync(None)
    assert engine.queues["a"].durable_id == 1
    engine.check()
    engine.close()


def test_a_failed_store_gets_no_queue():
    with opened("q l") as engine:
        FailingShelf.unwritable.add("l")
        engine.publish("q")
        with pytest.raises(StoreFailed):
            engine.sync()
        description = {"version": 1, "queues": {"one": {}, "two": {"store": "l"}}}
        for call in (lambda: engine.create_queue("two", store="l"), lambda: engine.apply(description)):
            with pytest.raises(StoreFailed):
                call()
            assert list(engine.queues) == ["q"]


def test_an_outcome_says_that_a_store_has_failed():
    engine = opened("b r")
    FailingShelf.unwritable.add("r")
    engine.publish("b")
    with pytest.raises(StoreFailed):
        engine.sync()
    assert engine.publish_many("b", [("m",), ("n",)], outcomes=True) == [(0, 0, 0, OutcomeFlag.STORE_FAILED)] * 2
    engine.check()
    engine.close()


def test_who_was_not_told_of_a_failure_hears_of_it_at_the_end(monkeypatch):
    engine = Engine()
    engine.create_store("l", "failing shelf", path="l")
    engine.stores["l"].backend.group_ms = 1
    engine.create_queue("q", store="l")
    engine.sync()
    FailingShelf.unwritable.add("l")
    engine.publish("q")
    while engine.stores["l"].committer.error is None:
        time.sleep(0.001)
    with pytest.raises(StoreFailed, match="'l' has failed"):
        engine.close()
    assert engine.closed


def test_what_stands_behind_a_fence_is_not_told_by_cleaning():
    """A message that went on into another store, which has nothing of it yet, is in the history here; the log may not say so."""
    engine = opened("b r", type="cleaned shelf")
    engine.create_queue("a", store="l", history_limit=10)
    engine.publish("a", body=b"precious")
    engine.sync()
    engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    Cleaned.on = True
    engine.stores["l"].committer.sync(None)
    crash(engine)
    with opened(type="cleaned shelf") as engine:
        assert bodies(engine)["a"] == [b"precious"]


def test_contents_are_not_found_under_the_address_of_a_deleted_queue(monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 0)
    for name, body in (("l", b"LEFT"), ("r", b"RGHT")):
        with Engine(clock=lambda: 1) as engine:
            engine.create_store(name, "log shelf", path=name)
            engine.create_queue(f"q-{name}", store=name)
            engine.publish(f"q-{name}", "a", body)
    with Engine() as engine:
        engine.create_store("l", "log shelf", path="l")
        assert engine.queues["q-l"].fetch(1).body == b"LEFT"
        engine.delete_queue("q-l")
        engine.create_store("r", "log shelf", path="r")
        assert engine.queues["q-r"].fetch(1).body == b"RGHT"


def test_overflow_dead_letters_and_replays_ask_for_room_in_stores():
    with Engine() as engine:
        engine.create_store("s", "log shelf", path="s", bytes_max=60_000)
        engine.create_queue("spill", store="s")
        engine.create_queue("full", limit=0)
        engine.create_queue("lettered", limit=0, dead_letter="spill")
        engine.create_queue("jobs")
        engine.create_selector("full", when=overflow, do=move_to("spill"), credit=INFINITE)
        engine.create_selector("jobs", when=always, do=deliver("d"))
        many = [("a", bytes(5000))] * 30
        for queue in ("full", "lettered"):
            with pytest.raises(QueueFull):
                engine.publish_many(queue, many)
            assert engine.queues["spill"].ready == 0
        engine.publish("jobs")
        [delivery] = engine.take(1)
        with pytest.raises(QueueFull), engine.transaction() as tx:
            tx.ack(delivery)
            for address, body in many:
                tx.publish("lettered", address, body)
        assert engine.queues["jobs"].outstanding == 1 and engine.queues["spill"].ready == 0
        engine.create_queue("source")
        engine.publish_many("source", many)
        with pytest.raises(QueueFull, match="a full store: no room for a replay of 30"):
            engine.create_selector("source", when=always, do=copy_to("spill"), start="head")
        assert engine.queues["spill"].ready == 0
        engine.check()


def test_a_transaction_of_many_acks_is_one_group():
    with Engine() as engine:
        engine.create_store("s", "log shelf", path="s")
        engine.create_queue("q", store="s", history_limit=3)
        engine.create_selector("q", when=always, do=deliver("d"), credit=50_000)
        engine.publish_many("q", [("a", b"x")] * 50_000)
        engine.sync()
        before = len(LOGS["s"][0])
        with engine.transaction() as tx:
            for delivery in engine.take(50_000)[::2]:
                tx.ack(delivery)
        engine.sync()
        assert len(LOGS["s"][0]) == before + 1


def test_what_comes_from_another_store_names_its_origin():
    for do, credit in ((move_to("b"), 1), (move_to("b"), INFINITE), (copy_to("b"), 1)):
        LOGS.clear()
        engine = opened("a l", "b r")
        engine.publish("a", body=b"precious")
        engine.sync()
        engine.create_selector("a", when=always, do=do, credit=credit)
        engine.stores["r"].committer.sync(None)
        crash(engine)
        log, at, origins = b"".join(LOGS["r"][0]), 0, []
        while at < len(log):
            record = describe(log, at)
            at += record["length"]
            if record["kind"] == "ENTER":
                origins.append(record["origin"])
        assert origins == [(7, 1, 1)]
        with opened() as engine:
            with engine.building():
                for name in "ab":
                    engine.create_selector(name, when=always, do=deliver(name))
            found = [(d.queue.name, d.redelivered) for d in engine.take(9)]
            assert found == [("a", False), ("b", True)] or (do, credit) == (move_to("b"), 1)


def test_a_message_lettered_where_another_one_comes_back_is_routed_once():
    with Engine() as engine:
        with engine.building():
            engine.create_queue("q", delivery_limit=1, dead_letter="dead")
            engine.create_queue("dead")
            engine.create_queue("sink")
            engine.create_selector("q", when=always, do=deliver("d"), credit=10)
            engine.create_selector("dead", when=match("eq", "hold"), do=deliver("d"), credit=10)
            engine.create_selector("dead", when=match("eq", "x"), do=copy_to("sink"))
        engine.publish("dead", "hold")
        engine.publish("q", "x")
        engine.take_batch(10).nack([("q", 1), ("dead", 1)])
        engine.check()
        assert engine.queues["sink"].ready == 1


def test_records_that_are_none_are_refused():
    class Wrong(Shelf):
        def scan(self):
            yield 0, bytes(6) + b"\x63" + bytes(57)

    register_store("wrong shelf", Wrong)
    with Engine() as engine:
        with pytest.raises(StoreCorrupt, match="byte 0 of a group begins no record"):
            engine.create_store("s", "wrong shelf", path="s")


def test_texts_are_as_long_as_records_can_say(tmp_path):
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")
        queue = engine.create_queue("q" * 65534, store="s", dead_letter="d" * 65534)
        assert queue.publish("a" * 65534, reply_to="r" * 65534, message_id="m" * 65534) == 1
        for wrong in ({"name": "q" * 65535}, {"name": "q", "dead_letter": "ä" * 32768}):
            with pytest.raises(ValueError, match="allowed are 65534"):
                engine.create_queue(**wrong, store="s")
        with pytest.raises(ValueError, match="allowed are 65534"):
            queue.publish(reply_to="r" * 65535)
        engine.create_queue("stamps", limit=9)
        engine.create_selector("stamps", when=always, do=deliver(field("headers.to"), queue), credit=9)
        for length in (65534, 65535, 70000):
            engine.publish("stamps", headers={"to": "t" * length})
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")
        message = engine.queues["q" * 65534].fetch(1)
        assert [len(text) for text in (message.address, message.reply_to, message.message_id)] == [65534] * 3
        assert [len(message.destination) for message in engine.queues["q" * 65534].browse(2)] == [65534]


def test_a_store_too_many_is_closed_again(tmp_path):
    with Engine() as engine:
        for number in range(64):
            engine.create_store(f"s{number}", "log shelf", path=f"s{number}")
        with pytest.raises(ValueError, match="at most 64"):
            engine.create_store("ring", "ring", path=tmp_path / "ring")
    with Engine() as engine:
        engine.create_store("ring", "ring", path=tmp_path / "ring")


def test_an_engine_that_is_closed_while_it_opens_a_store(tmp_path, monkeypatch):
    from xump.stores.ring import RingStore

    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")
    engine = Engine()
    with monkeypatch.context() as patch:
        real = RingStore.scan

        def scan(store):
            yield from real(store)
            engine.close()

        patch.setattr(RingStore, "scan", scan)
        with pytest.raises(Closed):
            engine.create_store("s", "ring", path=tmp_path / "s")
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s")


def test_a_thread_that_waited_for_a_store_that_is_deleted(monkeypatch):
    closing, go_on = threading.Event(), threading.Event()
    engine = opened(*(f"q{number} l" for number in range(20)), durability="sync")
    answers = []

    def publish(number):
        try:
            answers.append(engine.publish(f"q{number}"))
        except (StoreFailed, QueueNotFound):        # it waited, or came after all that
            answers.append("failed")

    with monkeypatch.context() as patch:
        patch.setattr(Shelf, "sync", lambda shelf: (closing.set(), go_on.wait(PATIENCE)))
        engine.queues["q0"].hold()
        first = threading.Thread(target=publish, args=(1,))
        first.start()
        assert closing.wait(PATIENCE)
        deleting = threading.Thread(target=engine.delete_store, args=("l",))
        deleting.start()
        others = [threading.Thread(target=publish, args=(number,)) for number in range(2, 20)]
        for thread in others:
            thread.start()
        go_on.set()
        for thread in (first, deleting, *others):
            thread.join()
    assert len(answers) == 19
    engine.check()
    engine.close()


def test_a_queue_that_comes_is_room_for_those_in_a_line():
    with Engine() as engine:
        with engine.building():
            engine.create_queue("a")
            engine.create_queue("t", limit=1)
            engine.create_selector("t", when=overflow, do=move_to(field("address")), credit=100)
            engine.create_selector("a", when=always, do=move_to("t"), credit=100)
        for _ in range(4):
            engine.publish("a", "other")
        engine.check()
        engine.create_queue("other")
        engine.check()
        assert [engine.queues[name].ready for name in ("a", "t", "other")] == [0, 1, 3]


def no_disk(*_):
    raise OSError(5, "the disk is gone")


def test_a_failed_store_takes_no_other_one_with_it():
    engine = two_shelves(durability="sync")
    for name, store in (("l", "left"), ("l2", "left"), ("r", "right")):
        engine.create_queue(name, store=store)
    engine.create_selector("r", when=always, do=move_to("l"), credit=INFINITE)
    engine.stores["right"].backend.sync = no_disk
    with pytest.raises(StoreFailed):
        engine.publish("r")
    for id in (1, 2, 3):
        assert engine.publish("l2") == id and engine.queues["l2"].durable_id == id
    engine.check()
    assert engine.delete_store("left") and engine.delete_store("right")
    engine.check()
    engine.close()
