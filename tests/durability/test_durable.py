"""Durable queues under an engine: nothing that was made durable is lost and nothing that was durably settled comes back, whatever
mix of stores a message went through, wherever it was cut off.

The stores here are logs in memory (`log_in_memory.py`). A test decides when each of them commits; a crash leaves what was synced,
and any number of the groups that were written since.
"""

import random
import threading
import warnings

import pytest

from tests.durability.log_in_memory import LOGS, Shelf, two_shelves
from tests.durability.unhurried import unhurried
from tests.patience import PATIENCE
from xump import (
    INFINITE, Conflict, Engine, StoreFailed, StoreFull, SyncTimeout, TransactionError, always, copy_to, deliver, discard, match,
    move_to, where,
)
from xump.durability import opening


@pytest.fixture(autouse=True)
def empty_shelves():
    LOGS.clear()


def crash(engine, chance):
    """Leaves of every store what is synced, and any number of the groups that were written since. The threads that are ended here
    would write once more what was gathered: that is not in what is left."""
    left = {path: groups[: chance.randint(synced, len(groups))] for path, (groups, synced) in LOGS.items()}
    for store in engine.stores.values():
        if store.committer is not None:
            store.committer.stop()
    for path, groups in left.items():
        LOGS[path] = [groups, len(groups)]


class World:
    """An engine whose queues are in several stores, and what its application knows."""

    STORES = ("ram", "left", "right")

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.published = set()  # bodies
        self.confirmed = set()  # bodies whose publish is durable
        self.acked = set()      # bodies that were acked
        self.gone = set()       # acked, and all stores were synced since
        self.doubled = set()    # bodies that a crash between two stores left in both
        self.number = 0
        count = self.chance.randint(2, 5)
        self.places = [self.chance.choice(self.STORES) for _ in range(count)]
        self.places[0] = self.chance.choice(self.STORES[1:])
        self.credits = [self.chance.choice([INFINITE, 1, 3, 100]) for _ in range(count)]
        self.history = [self.chance.choice([0, 0, 2]) for _ in range(count)]
        self.open()

    def open(self):
        self.engine = Engine()
        for name in self.STORES[1:]:
            self.engine.create_store(name, "log shelf", path=name)
        self.engine.check()
        self.in_hands = []

    def build(self):
        """A chain of MOVEs, a dead letter queue, and a copy on the way."""
        engine = self.engine
        with engine.building():
            engine.create_queue("dead", store=self.places[-1])
            engine.create_queue("copies", store=self.places[1])
            for number, place in enumerate(self.places):
                engine.create_queue(f"q{number}", store=place, history_limit=self.history[number], dead_letter="dead")
            for number, credit in enumerate(self.credits[:-1]):
                engine.create_selector(f"q{number}", when=always, do=move_to(f"q{number + 1}"), credit=credit)
            engine.create_selector("q0", when=match("eq", "copy"), do=copy_to("copies"))
            engine.create_selector(f"q{len(self.places) - 1}", when=always, do=deliver("d"), credit=self.chance.choice([2, 50]))
        engine.check()

    def step(self):
        what = self.chance.choice(["publish"] * 4 + ["take"] * 3 + ["ack"] * 4 + ["nack", "commit", "commit", "sync", "reject"])
        getattr(self, what)()
        self.engine.check()

    def publish(self):
        self.number += 1
        body = b"%d" % self.number
        self.engine.publish("q0", self.chance.choice(["copy", "plain"]), body, {"n": self.number})
        self.published.add(body)

    def take(self):
        self.in_hands += self.engine.take(self.chance.randint(1, 4))

    def pick(self):
        return self.in_hands.pop(self.chance.randrange(len(self.in_hands))) if self.in_hands else None

    def ack(self):
        delivery = self.pick()
        if delivery is not None:
            body = delivery.message.body
            assert body not in self.gone - self.doubled, f"message {body} was durably acked, and delivered again"
            delivery.ack()
            self.acked.add(body)

    def nack(self):
        delivery = self.pick()
        if delivery is not None:
            delivery.nack()

    def reject(self):
        delivery = self.pick()
        if delivery is not None:
            delivery.reject("no")

    def commit(self):
        """One store alone."""
        self.engine.stores[self.chance.choice(self.STORES[1:])].committer.sync(None)

    def sync(self):
        self.engine.sync()
        self.confirmed |= self.published
        self.gone |= self.acked

    def found(self):
        """Bodies by queue. What is in the history is not there any more."""
        return {name: [message.body for message in queue.browse(state="ready")] for name, queue in self.engine.queues.items()}

    def end(self, close):
        """A crash, or an orderly end; what is there afterwards."""
        if close:
            self.engine.close()
            self.confirmed |= self.published
            self.gone |= self.acked
        else:
            crash(self.engine, self.chance)
        self.open()

    def verify(self):
        chain = {name: bodies for name, bodies in self.found().items() if name != "copies"}
        held = [body for bodies in chain.values() for body in bodies]
        lost = self.confirmed - self.acked - set(held)
        assert not lost, f"confirmed, not acked, and in no queue: {sorted(lost)}"
        live = [message.body for name, queue in self.engine.queues.items() if name not in ("copies", "dead")
                for message in queue.browse(state="ready")]
        self.doubled |= {body for body in live if live.count(body) > 1}
        back = set(live) & (self.gone - self.doubled)
        assert not back, f"durably acked, and ready again: {sorted(back)}"
        self.acked -= set(live) - self.gone             # what was not durable was lost with the process
        self.published &= set(held) | self.acked
        if len({place for place in self.places if place != "ram"}) == 1:
            assert len(live) == len(set(live)), f"in two places of one store: {sorted(live)}"


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_lost_wherever_it_is_cut(seed):
    world = World(seed)
    for _ in range(world.chance.randint(1, 4)):
        world.build()
        for _ in range(world.chance.randint(0, 40)):
            world.step()
        world.end(close=world.chance.random() < 0.3)
        world.verify()
    world.engine.close()


# ---- corners

def test_a_transaction_lies_in_one_store():
    with two_shelves(durability="sync") as engine:
        for name, store in (("l", "left"), ("l2", "left"), ("r", "right"), ("m", "ram")):
            engine.create_queue(name, store=store)
        engine.create_selector("r", when=always, do=deliver("d"), credit=5)
        with engine.transaction() as tx:
            tx.publish("l", body=b"1")
            tx.publish("m", body=b"2")
            tx.publish("l2", body=b"3")
        engine.publish("r", body=b"4")
        [delivery] = engine.take(1)
        groups = len(LOGS["left"][0]), len(LOGS["right"][0])
        with pytest.raises(TransactionError, match="one store: queue 'r' is in 'right', others are in 'left'"):
            with engine.transaction() as tx:
                tx.publish("l", body=b"5")
                tx.ack(delivery)
        assert (len(LOGS["left"][0]), len(LOGS["right"][0])) == groups
        assert [engine.queues[name].ready for name in ("l", "l2", "m")] == [1, 1, 1]
        assert engine.queues["r"].outstanding == 1
        engine.check()


def test_a_full_store_raises_and_settles_all_the_same():
    with Engine() as engine:
        engine.create_store("small", "log shelf", path="small", durability="sync", bytes_max=20_000)
        queue = engine.create_queue("q", store="small")
        engine.create_queue("in")
        engine.create_selector("in", when=always, do=move_to("q"), credit=INFINITE)
        with pytest.raises(StoreFull, match="store of queue 'q' is full"):
            for _ in range(1000):
                queue.publish(body=bytes(500))
        held = queue.ready
        assert 5 < held < 40
        with pytest.raises(StoreFull):
            engine.publish_many("q", [("", bytes(5000))] * 3)
        assert engine.publish("in", body=bytes(5000)) and engine.queues["in"].ready == 1 and queue.ready == held
        engine.check()
        assert queue.purge() == held
        engine.check()


def test_a_failed_store_is_given_up(monkeypatch):
    engine = two_shelves(durability="sync")
    engine.create_queue("l", store="left")
    engine.create_queue("r", store="right")
    engine.publish("l", body=b"1")
    calls = []

    def failing(shelf):
        calls.append(shelf.name)
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(engine.stores["left"].backend, "sync", failing.__get__(engine.stores["left"].backend), raising=False)
    with pytest.raises(StoreFailed, match="'left' has failed"):
        engine.publish("l", body=b"2")
    with pytest.raises(StoreFailed):
        engine.publish("l", body=b"3")
    with pytest.raises(StoreFailed):
        engine.queues["l"].purge()
    assert calls == ["left"]            # no fsync is tried again
    assert engine.publish("r", body=b"4") == 1 and engine.queues["r"].durable_id == 1
    with pytest.raises(StoreFailed):
        engine.sync()
    engine.close()


@pytest.mark.parametrize("take", [Engine.take, Engine.take_batch])
def test_a_warning_of_held_queues_that_is_an_error_takes_nothing(take):
    with two_shelves() as engine:
        engine.create_queue("held", store="left")
    with two_shelves() as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.create_selector("held", when=always, do=discard)
        engine.create_queue("q").publish(body=b"precious")
        engine.create_selector("q", when=always, do=deliver("d"), credit=INFINITE)
        with pytest.raises(UserWarning, match="'held'"):
            take(engine, 1)
        assert engine.queues["q"].ready == 1
        assert len(take(engine, 1)) == 1


def test_queues_of_a_reopened_store_are_held_and_say_so():
    with two_shelves() as engine:
        engine.create_queue("q", store="left", limit=5, history_limit=3, dead_letter="dead", delivery_limit=7, auto_delete=True)
        engine.publish("q", "a", b"1", {"n": 1}, reply_to="r", message_id="m")
    with two_shelves() as engine:
        queue = engine.queues["q"]
        assert (queue.held, queue.limit, queue.history_limit, queue.dead_letter, queue.delivery_limit, queue.auto_delete) == (
            True, 5, 3, "dead", 7, True)
        assert engine.create_queue("q", store="left", limit=5, history_limit=3, dead_letter="dead", delivery_limit=7,
                                   auto_delete=True) is queue
        with pytest.raises(Conflict, match="limit=5"):
            engine.create_queue("q", store="left", limit=6, history_limit=3, dead_letter="dead", delivery_limit=7,
                                auto_delete=True)
        engine.create_selector("q", when=always, do=deliver("d"))
        with pytest.warns(UserWarning, match="held since their store was opened: 'q'"):
            assert engine.take(1) == []
        assert engine.take(1) == []
        queue.release()
        [delivery] = engine.take(1)
        message = delivery.message
        assert (message.address, message.body, dict(message.headers), message.reply_to, message.message_id) == (
            "a", b"1", {"n": 1}, "r", "m")
        assert not delivery.redelivered and delivery.delivery_count == 1


def test_a_name_that_is_taken_is_a_conflict():
    with two_shelves() as engine:
        engine.create_queue("q", store="left")
    with Engine() as engine:
        engine.create_queue("q")
        with pytest.raises(Conflict, match="store 'left' has a queue 'q', and so has the engine, in store 'ram'"):
            engine.create_store("left", "log shelf", path="left")
        assert list(engine.stores) == ["ram"] and list(engine.queues) == ["q"]
        engine.check()


def test_a_backlog_beyond_memory_is_read_from_the_store(monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 20_000)
    with Engine() as engine:
        engine.create_store("d", "log shelf", path="d", durability="sync")
        queue = engine.create_queue("q", store="d")
        for number in range(100):
            queue.publish(f"a.{number % 7}", b"%d" % number * 200, {"n": number})
        assert [message.headers["n"] for message in queue.browse(where="n >= 50")] == list(range(50, 100))
        engine.check()
        engine.create_queue("ram")
        with engine.building():
            engine.create_selector("q", when=match("eq", "a.3"), do=move_to("ram"), credit=100)
            engine.create_selector("q", when=where("n < 90"), do=deliver("d"), credit=1000)
        engine.check()
        numbers = [message.headers["n"] for message in engine.queues["ram"].browse()]
        for delivery in engine.deliveries("d"):
            numbers.append(delivery.message.headers["n"])
            assert delivery.message.body == b"%d" % numbers[-1] * 200 and delivery.message.address == f"a.{numbers[-1] % 7}"
            delivery.ack()
        assert sorted(numbers) == [*range(90), *(n for n in range(90, 100) if n % 7 == 3)]
        engine.check()


def test_a_number_is_not_issued_twice():
    """The records of a queue name it by its number: one that is made later has another one."""
    with two_shelves() as engine:
        for name in ("a", "b", "gone"):
            engine.create_queue(name, store="left")
            engine.publish(name, body=name.encode())
        engine.delete_queue("gone")
    with two_shelves() as engine:
        engine.create_queue("new", store="left")
        engine.publish("new", body=b"new")
        engine.queues["a"].purge()
        engine.check()
    with two_shelves() as engine:
        assert {name: [message.body for message in queue.browse()] for name, queue in engine.queues.items()} == {
            "a": [], "b": [b"b"], "new": [b"new"]}
        assert engine.publish("a") == 2         # ids go on, too
        engine.check()


def test_a_store_that_is_deleted_leaves_nobody_waiting():
    """Fences for it are open, messages that it owned are nobody's, what came from it is recalled."""
    with two_shelves() as engine:
        for name, store in (("l", "left"), ("r", "right"), ("m", "ram"), ("n", "ram")):
            engine.create_queue(name, store=store)
        engine.create_selector("r", when=match("eq", "x"), do=move_to("l"), credit=INFINITE)
        engine.create_selector("l", when=match("eq", "m"), do=move_to("m"), credit=INFINITE)
        engine.create_selector("l", when=match("eq", "n"), do=move_to("n"), credit=5)
        engine.create_selector("l", when=match("eq", "x"), do=deliver("d"))
        engine.publish("r", "x")            # its end in `right` waits for `left`
        for address in "mnm":
            engine.publish("l", address)
        assert [engine.queues[name].ready for name in "lrmn"] == [0, 0, 2, 1]
        assert engine.delete_store("left") and not engine.delete_store("left")      # which takes its messages along
        assert list(engine.queues) == ["r", "m", "n"] and [queue.ready for queue in engine.queues.values()] == [0, 0, 0]
        engine.check()
        engine.publish("r", "y")
        engine.sync()
        engine.check()
        engine.create_store("left", "log shelf", path="left")
        assert [message.address for message in engine.queues["l"].browse()] == ["x", "m", "n", "m"]


def test_a_failed_store_can_be_deleted_and_opened_anew(monkeypatch):
    engine = two_shelves(durability="sync")
    engine.create_queue("l", store="left")
    engine.publish("l", body=b"1")
    with monkeypatch.context() as patch:
        patch.setattr(Shelf, "sync", lambda shelf: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.publish("l", body=b"2")
    assert engine.delete_store("left")
    engine.create_store("left", "log shelf", path="left")
    assert engine.publish("l", body=b"3") in (2, 3)     # the second one may have been written
    engine.close()


def test_a_process_that_waits_for_no_disk_has_no_fences():
    """What went to a store without fsync is as safe there as it will ever be, once it is written."""
    with two_shelves(durability="process") as engine:
        engine.create_queue("l", store="left")
        engine.create_queue("r", store="right")
        engine.create_selector("l", when=always, do=move_to("r"), credit=INFINITE)
        for _ in range(100):
            engine.publish("l")
        assert engine.stores["left"].journal.fenced == 0
        assert engine.queues["r"].durable_id == 0
        engine.sync()
        assert engine.queues["r"].durable_id == 100


def test_a_sync_that_takes_too_long(monkeypatch):
    stuck = threading.Event()
    with two_shelves() as engine:
        engine.create_queue("l", store="left")
        engine.publish("l")
        with monkeypatch.context() as patch:
            patch.setattr(Shelf, "sync", lambda shelf: stuck.wait(PATIENCE))
            with pytest.raises(SyncTimeout, match="'left' is busy"):
                engine.sync(timeout=0.05)
            assert engine.queues["l"].durable_id == 0
            stuck.set()
            engine.sync(timeout=PATIENCE)
        assert engine.queues["l"].durable_id == 1


def test_a_call_that_lacks_room_waits_for_the_log_to_be_cleaned(tmp_path):
    """A store that was full of what is gone takes messages at once, after opening and while nothing else is written."""
    options = {"path": tmp_path / "ring", "segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 20}
    with Engine() as engine:
        unhurried(engine.create_store("d", "ring", **options))
        queue = engine.create_queue("q", store="d")
        for _ in range(200):        # ten times what it holds, and no commit in between but those that calls ask for
            ids = engine.publish_many("q", [("", bytes(1000))] * 50)
            assert len(ids) == 50 and queue.purge() == 50
        with engine.transaction() as tx:
            for _ in range(50):
                tx.publish("q", body=bytes(1000))
        for _ in range(2000):
            queue.publish(body=bytes(1000))
            queue.delete(queue.last_id)
        engine.check()
        with pytest.raises(StoreFull):
            for _ in range(1000):
                queue.publish(body=bytes(1000))
        assert queue.ready > 60
        engine.check()


def test_ends_in_any_order_are_runs(tmp_path):
    """A store that is nearly full can settle what it holds in one call, in whatever order."""
    options = {"path": tmp_path / "ring", "segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 20}
    chance = random.Random(1)
    with Engine() as engine:
        unhurried(engine.create_store("d", "ring", **options))
        queue = engine.create_queue("q", store="d")
        engine.create_selector("q", when=always, do=deliver("d"), credit=100_000)
        with pytest.raises(StoreFull):
            while True:
                queue.publish(body=b"x")
        deliveries = engine.take(100_000)
        assert len(deliveries) > 1000
        engine.sync()
        kept = {delivery.id for delivery in deliveries[::7]}
        rest = [delivery for delivery in deliveries if delivery.id not in kept]
        chance.shuffle(rest)
        engine.ack(rest)
        engine.check()
        before = engine.stores["d"].backend.end
        engine.sync()
        engine.check()
        assert engine.stores["d"].backend.end - before < 20 * len(rest)     # one record each would take 40
    with Engine() as engine:
        unhurried(engine.create_store("d", "ring", **options))
        assert {message.id for message in engine.queues["q"].browse()} == kept


def test_much_that_comes_in_is_written_before_its_time():
    """A group does not grow without bounds while its time is not up."""
    with two_shelves() as engine:
        engine.create_queue("l", store="left")
        for _ in range(100):
            engine.publish("l", body=bytes(100_000))
        engine.sync()
        groups = LOGS["left"][0]
        assert len(groups) >= 2 and max(map(len, groups)) < 6 << 20
