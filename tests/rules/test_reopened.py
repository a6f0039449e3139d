"""What durable stores know of time, order and duplicates when they are opened again (decision 159), on the model
and on stores."""

import shutil

import pytest

import xump
from tests.model.engine import ModelEngine
from tests.model.stores import reopened
from tests.rules.seen import SECOND, addresses, stats, taken, worker
from xump import INFINITE, always, copy_to, default, deliver, field, match, move_to, overflow

ENDS = pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
OPTIONS = {"lmdb": {}, "ring": {"segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 20}}


class OnModel:
    """The model, with a durable store `d`."""

    def __init__(self, clock, _):
        self.engine = ModelEngine(clock=clock)
        self.engine.stores.append("d")

    def opened_again(self, crashed):
        self.engine.sync()
        self.engine.check()
        self.engine = reopened(self.engine, crashed)
        self.engine.check()
        return self.engine

    def close(self):
        self.engine.check()


class OnStore:
    """An engine with a store of one type, whose files are opened again as they were left, or as a crash leaves them."""

    def __init__(self, clock, path, kind):
        self.clock, self.path, self.kind = clock, path, kind
        self.open(path / "0")

    def open(self, path):
        self.at = path
        self.engine = xump.Engine(clock=self.clock)
        self.engine.create_store("d", self.kind, path=str(path), **OPTIONS[self.kind])

    def opened_again(self, crashed):
        self.engine.sync()
        self.engine.check()
        if crashed:
            copied = self.path / str(int(self.at.name) + 1)
            (shutil.copytree if self.at.is_dir() else shutil.copy)(self.at, copied)
            self.engine.close()
        else:
            self.engine.close()
            copied = self.at
        self.open(copied)
        self.engine.check()
        return self.engine

    def close(self):
        self.engine.check()
        self.engine.close()


@pytest.fixture(params=["model", *OPTIONS])
def house(request, clock, tmp_path):
    house = OnModel(clock, None) if request.param == "model" else OnStore(clock, tmp_path, request.param)
    yield house
    house.close()


@pytest.fixture
def engine(house):
    return house.engine


@ENDS
def test_159_a_delay_ends_at_its_time_but_not_before_the_release(house, engine, clock, crashed):
    engine.create_queue("q", store="d", ttl=4)
    engine.publish("q", "past", delay=5, priority=7, correlation_id="c")
    engine.publish("q", "to come", delay=50)
    engine = house.opened_again(crashed)
    clock.tick(6)
    engine.tick()
    assert engine.queues["q"].delayed == 2 and engine.next_due is None
    worker(engine, "q")
    engine.queues["q"].release()
    assert taken(engine) == ["past"] and engine.queues["q"].delayed == 1
    assert (engine.queues["q"].fetch(1).priority, engine.queues["q"].fetch(1).correlation_id) == (7, "c")


@ENDS
def test_159_what_expired_meanwhile_does_so_at_the_release_in_order_of_time(house, engine, clock, crashed):
    engine.create_queue("q", store="d", dead_letter="dead")
    engine.create_queue("dead", store="d")
    for seconds in (9, 3, 6):
        engine.publish("q", str(seconds), ttl=seconds)
    engine = house.opened_again(crashed)
    clock.tick(60)
    engine.tick()
    assert engine.queues["q"].ready == 3
    engine.create_queue("out")
    with engine.building():
        engine.create_selector("q", when=always, do=move_to("out"), credit=INFINITE)
    assert addresses(engine, "dead") == ["3", "6", "9"] and stats(engine, "out")["entered"] == 0
    assert {message.timestamp for message in engine.queues["dead"].browse()} == {clock.now}


def test_159_a_retry_keeps_its_time_when_the_store_was_closed_in_order(house, engine, clock):
    engine.create_queue("q", store="d")
    engine.publish("q", "a")
    engine.get("q").nack(delay=5)
    engine = house.opened_again(crashed=False)
    engine.queues["q"].release()
    assert engine.next_due == clock.now + 5 * SECOND


def test_159_after_a_crash_it_is_due_at_once(house, engine):
    engine.create_queue("q", store="d")
    engine.publish("q", "a")
    engine.get("q").nack(delay=5)
    engine = house.opened_again(crashed=True)
    assert engine.queues["q"].ready == 1
    assert engine.get("q").redelivered


@ENDS
def test_159_deadlines_end_and_what_was_taken_is_ready(house, engine, clock, crashed):
    engine.create_queue("q", store="d")
    worker(engine, "q", ack_timeout=5)
    engine.publish("q", "a")
    engine.take(1)
    engine = house.opened_again(crashed)
    assert engine.queues["q"].ready == 1 and engine.next_due is None
    worker(engine, "q")
    engine.queues["q"].release()
    delivery, = engine.take(1)
    assert delivery.redelivered
    clock.tick(60)
    delivery.ack()


@ENDS
def test_159_the_order_per_key_and_priorities_go_on(house, engine, crashed):
    engine.create_queue("q", store="d", group=field("headers.key"), priority=9)
    for address, priority in (("a1", 0), ("a2", 9), ("b1", 5)):
        engine.publish("q", address, headers={"key": address[0]}, priority=priority)
    engine.get("q")
    engine = house.opened_again(crashed)
    worker(engine, "q")
    engine.queues["q"].release()
    assert taken(engine) == ["b1", "a1"]


@ENDS
def test_159_what_was_taken_by_hand_before_it_was_routed_is_unrouted(house, engine, crashed):
    for name in ("q", "copies"):
        engine.create_queue(name, store="d")
    engine.publish_many("q", [("a",), ("b",)])
    engine.get("q")
    engine = house.opened_again(crashed)
    with engine.building():
        engine.create_selector("q", when=always, do=copy_to("copies"))
    assert addresses(engine, "copies") == ["a", "b"]


@ENDS
def test_159_duplicates_are_known_and_counted_anew(house, engine, clock, crashed):
    engine.create_queue("q", store="d", dedup=10)
    for _ in range(2):
        engine.publish("q", message_id="x")
    engine = house.opened_again(crashed)
    assert engine.publish("q", message_id="x") == 1 and stats(engine, "q")["duplicates"] == 1
    clock.tick(10)
    assert engine.publish("q", message_id="x") == 2


@ENDS
def test_159_what_was_kept_and_what_was_routed_stays_so(house, engine, crashed):
    engine.create_queue("q", store="d", unmatched="keep")
    engine.create_queue("copies", store="d")
    engine.create_selector("q", when=match("eq", "b"), do=deliver("d"), credit=0)
    engine.publish_many("q", [("a",), ("b",)])
    engine = house.opened_again(crashed)
    with engine.building():
        engine.create_selector("q", when=match("prefix", ""), do=copy_to("copies"))
    assert addresses(engine, "copies") == ["a"]


@pytest.mark.parametrize("house", OPTIONS, indirect=True)
@ENDS
def test_records_that_were_copied_forward_say_the_same(house, engine, clock, crashed):
    """So much goes through the queue `rush` that a ring cleans its log several times."""
    engine.create_queue("q", store="d", dedup=10_000, group=field("headers.key"), priority=9, unmatched="keep", retry_delay=90)
    engine.create_queue("copies", store="d")
    engine.create_queue("rush", store="d")
    engine.create_selector("q", when=match("eq", "copied"), do=copy_to("copies"))
    engine.publish("q", "copied", delay=5, message_id="1", headers={"key": "a"})
    engine.publish("q", "kept", priority=3, message_id="2")
    engine.publish("q", "delayed", delay=5_000, message_id="3", correlation_id="c")
    engine.publish("q", "expires", ttl=4_000, message_id="4")
    clock.tick(5)
    engine.tick()
    for _ in range(300):
        engine.publish("rush", body=bytes(8_000))
        engine.get("rush").ack()
        engine.sync()
    engine = house.opened_again(crashed)
    assert addresses(engine, "copies") == ["copied"] and stats(engine, "q")["ready"] == 2 and engine.queues["q"].delayed == 1
    assert [engine.publish("q", message_id=str(n)) for n in range(1, 5)] == [1, 2, 3, 4]
    engine.create_selector("q", when=always, do=copy_to("copies"))
    engine.queues["q"].release()
    assert addresses(engine, "copies") == ["copied", "kept", "expires"]
    clock.tick(10_000)
    engine.tick()
    assert addresses(engine, "copies")[-1] == "delayed"
    assert {message.address: message.priority for message in engine.queues["copies"].browse()} == {
        "copied": 0, "kept": 3, "expires": 0, "delayed": 0}
    assert engine.publish("q", message_id="1") == 5


def test_159_what_a_retry_delayed_expires_in_its_turn(house, engine, clock):
    """`a` was to be tried again before `b` expired, and expires itself after that: `b` goes first."""
    engine.create_queue("q", store="d", dead_letter="dead")
    engine.create_queue("dead", store="d")
    engine.publish("q", "a", ttl=20)
    engine.publish("q", "b", ttl=10)
    engine.get("q").nack(delay=5)
    engine = house.opened_again(crashed=False)
    clock.tick(30)
    with engine.building():
        pass
    assert addresses(engine, "dead") == ["b", "a"]


@ENDS
def test_149_what_came_after_the_clock_was_set_back_is_not_forgotten_before_what_came_earlier(house, engine, clock, crashed):
    engine.create_queue("q", store="d", dedup=10)
    engine.publish("q", message_id="before")
    clock.tick(-5)
    engine = house.opened_again(crashed)
    second = engine.publish("q", message_id="behind")
    clock.tick(14)              # 9 after the first one by the clock, and 14 after the second
    assert engine.publish("q", message_id="before") == 1
    assert engine.publish("q", message_id="behind") == second
    clock.tick(1)
    assert engine.publish("q", message_id="behind") not in (1, second)


@ENDS
def test_159_a_replay_leaves_out_what_is_late_and_has_what_a_retry_delays(house, engine, clock, crashed):
    engine.create_queue("q", store="d", history_limit=None, retry_delay=50)
    engine.create_queue("copies", store="d")
    engine.publish("q", "late", expires=clock.now + SECOND)
    engine.publish("q", "retried")
    engine.publish("q", "to come", delay=50)
    engine.get("q").ack()
    engine.get("q").nack()
    engine = house.opened_again(crashed)
    clock.tick(2)
    engine.create_selector("q", when=always, do=copy_to("copies"), start="head")
    engine.queues["q"].release()
    assert addresses(engine, "copies") == ["retried"]


@ENDS
def test_159_a_dead_letter_that_was_lost_in_ram_before_its_routing_is_unrouted(house, engine, crashed):
    """Though the frontier has passed it meanwhile: no copy of it was made."""
    engine.create_queue("q", store="d", limit=1, when_full="drop_oldest", dead_letter="letters")
    engine.create_queue("copies", store="d")
    engine.create_queue("letters")
    engine.publish("q", "lost")
    engine.publish("q", "kept")
    assert addresses(engine, "letters") == ["lost"]
    engine.create_selector("q", when=always, do=copy_to("copies"))
    engine = house.opened_again(crashed)
    engine.create_selector("q", when=always, do=copy_to("copies"))
    engine.queues["q"].release()
    assert addresses(engine, "copies") == ["kept", "lost"]


@ENDS
def test_159_an_unroutable_message_that_was_lost_in_ram_counts_as_routed(house, engine, clock, crashed):
    engine.create_queue("q", store="d", dead_letter="letters")
    engine.create_queue("copies")
    engine.create_queue("letters")
    engine.create_selector("q", when=match("eq", "x"), do=deliver("out"))
    engine.publish("q", "lost", delay=5)
    clock.tick(6)
    engine.tick()
    assert addresses(engine, "letters") == ["lost"]
    engine = house.opened_again(crashed)
    with engine.building():
        engine.create_queue("copies")
        engine.create_selector("q", when=always, do=copy_to("copies"))
    assert (addresses(engine, "copies"), addresses(engine, "q", "ready")) == ([], ["lost"])


@ENDS
def test_159_the_default_selector_takes_what_a_retry_brings_back(house, engine, clock, crashed):
    engine.create_queue("q", store="d")
    engine.create_selector("q", when=default, do=deliver("out"))
    engine.publish("q", "again")
    engine.take(1)[0].nack(delay=20)
    engine = house.opened_again(crashed)
    with engine.building():
        engine.create_selector("q", when=default, do=deliver("out"))
    clock.tick(30)
    assert taken(engine) == ["again"]


@ENDS
def test_152_a_queue_drops_to_fit_after_it_was_opened_again(house, engine, crashed):
    engine.create_queue("q", store="d", limit=2, limit_bytes=5, when_full="drop_to_fit")
    engine.publish_many("q", [(letter, b"xx") for letter in "abc"])
    engine = house.opened_again(crashed)
    assert engine.queues["q"].when_full == "drop_to_fit"
    engine.queues["q"].release()
    assert addresses(engine, "q") == ["b", "c"]
    engine.publish("q", "d", b"xxxx")
    assert addresses(engine, "q") == ["d"]
    engine.publish("q", "e", b"x" * 6)
    assert addresses(engine, "q") == []


@ENDS
@pytest.mark.parametrize("credit", [1, INFINITE])
def test_159_what_an_overflow_selector_took_while_the_queue_was_held_expires(house, engine, clock, crashed, credit):
    engine.create_queue("q", store="d", limit=1, ttl=10)
    engine = house.opened_again(crashed)
    engine.create_selector("q", when=overflow, do=deliver("w"), credit=credit)
    engine.publish("q", "a")
    engine.publish("q", "b")
    clock.now += 5 * SECOND
    with engine.building():
        pass
    engine.check()
    clock.now += 6 * SECOND
    engine.tick()
    engine.check()
    assert engine.stats()["queues"]["q"]["dropped"] == {"expired": 2}
