"""No message is lost since a store has no room for its dead letter: a reject raises StoreFull, a nack returns the message once
more, and what expires waits, delayed. Small stores, full to the last byte.
"""

import random
import shutil
import time
from collections import Counter

import pytest

from tests.durability.unhurried import unhurried
from tests.model.full import SMALL
from tests.patience import PATIENCE
from xump import INFINITE, Engine, StoreFull, always, copy_to, deliver, move_to
from xump.durability import opening

MIXES = [("ring", "sync"), ("ring", "group"), ("lmdb", "sync"), ("lmdb", "group")]
SIZE = {"ring": 1_000, "lmdb": 3_000}


@pytest.fixture(params=MIXES, ids=" ".join)
def small(request, tmp_path, clock):
    """An engine, and the size of a message of which its store `s` takes some hundreds."""
    kind, durability = request.param
    with Engine(clock=clock) as engine:
        engine.create_store("s", kind, path=tmp_path / "s", durability=durability, **SMALL[kind])
        yield engine, SIZE[kind]


def filled(engine, queue, size, sent=0):
    """Publish until the store is full; how many were sent in all."""
    try:
        while True:
            engine.publish(queue, "x", b"%*d" % (size, sent))
            sent += 1
    except StoreFull:
        engine.sync()
        return sent


def graph(engine, through, **terms):
    """Queue `q`, whose dead letters come to `dead`: at once, or `through` a transit queue."""
    engine.create_queue("dead", store="s")
    if through:
        engine.create_queue("letters", transit=True)
        engine.create_selector("letters", when=always, do=copy_to("dead"))
    engine.create_selector("dead", when=always, do=deliver("dead"), credit=10**6)
    engine.create_queue("q", store="s", dead_letter="letters" if through else "dead", **terms)


def some(engine):
    """Take what there is. A store that stands still may first have to be cleaned by its thread."""
    until = time.monotonic() + PATIENCE
    while not (deliveries := engine.take(10**6)) and time.monotonic() < until:
        time.sleep(0.01)
    return deliveries


def buried(engine):
    """Take and ack the dead letters that are there; their bodies."""
    deliveries = engine.take(10**6, "dead")
    engine.ack(deliveries)
    engine.sync()
    engine.check()
    return [delivery.message.body for delivery in deliveries]


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("how", ["one by one", "transaction"])
def test_no_reject_loses_a_message(small, how, through):
    engine, size = small
    graph(engine, through)
    engine.create_selector("q", when=always, do=deliver("d"), credit=10**6)
    sent, refused, found = filled(engine, "q", size), 0, []
    hands, most = engine.take(10**6, "d"), 10**6
    while hands:
        some = hands[:1 if how == "one by one" else most]
        try:
            if how == "one by one":
                some[0].reject()
            else:
                with engine.transaction() as transaction:
                    for delivery in some:
                        transaction.reject(delivery)
            del hands[:len(some)]
        except StoreFull as error:
            assert "no room for the dead letters" in str(error)
            assert engine.queues["q"].outstanding == len(hands)
            refused, most = refused + 1, max(1, len(some) // 2)
            found += buried(engine)
    found += buried(engine)
    assert Counter(int(body) for body in found) == Counter(range(sent))
    assert sent > 50 and (refused or how == "one by one")


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("how", ["delivery", "batch", "timeout"])
def test_what_was_taken_too_often_returns_until_there_is_room(small, clock, how, through):
    engine, size = small
    graph(engine, through, delivery_limit=1)
    engine.create_selector("q", when=always, do=deliver("d"), credit=10**6, ack_timeout=60)
    sent, found = filled(engine, "q", size), []
    while len(found) < sent:
        if how == "batch":
            went = -1           # so many are in the dead letter queue
            while engine.queues["dead"].outstanding > went:
                went = engine.queues["dead"].outstanding
                engine.take_batch(3, "d").nack()
        elif how == "delivery":
            for delivery in engine.take(10**6, "d"):
                delivery.nack()
        else:
            engine.take(10**6, "d")
            clock.tick(61)
            engine.tick()
        engine.check()
        new = buried(engine)
        assert new, "nothing goes on"
        found += new
    assert Counter(int(body) for body in found) == Counter(range(sent))


@pytest.mark.parametrize("through", [False, True])
def test_what_expires_waits_for_room(small, clock, through):
    engine, size = small
    graph(engine, through, ttl=60)
    sent, found = filled(engine, "q", size), []
    engine.create_selector("q", when=always, do=deliver("late"), credit=1)
    clock.tick(61)
    engine.tick()
    engine.check()
    assert engine.take(1, "late") == [] and engine.queues["q"].ready == 0
    waited = engine.queues["q"].delayed
    assert waited + engine.queues["dead"].ready + engine.queues["dead"].outstanding == sent
    while len(found) < sent:
        new = buried(engine)
        assert new, "nothing goes on"
        found += new
    assert [int(body) for body in found] == list(range(sent))       # the oldest first
    assert engine.stats()["queues"]["q"]["dropped"] == {}


@pytest.mark.parametrize("histories", [(2, None), (None, 2)], ids=str)
def test_what_expires_again_is_dead_lettered_again(tmp_path, clock, histories):
    """Two queues are each other's dead letter queue, and the store fills with their history. A letter that found room in a run
    that the store began has waited when it expires, though no call brings a message meanwhile: it is not dropped."""
    with Engine(clock=clock) as engine:
        engine.create_store("s", "lmdb", path=tmp_path / "s", durability="sync", **SMALL["lmdb"])
        for name, to, history in zip(("a", "b"), ("b", "a"), histories, strict=True):
            engine.create_queue(name, store="s", ttl=60, dead_letter=to, history_limit=history)
        sizes = [40_000, 12_000, 12_000, 4_000, 70_000, 4_000, 40_000, 70_000, 4_000, 12_000, 70_000, 12_000]
        for size in sizes:
            engine.publish("a", "x", bytes(size))
        for _ in range(8):
            clock.tick(61)
            for _ in range(3):
                engine.tick()
                engine.check()
            queues = engine.queues.values()
            assert sum(queue.ready + queue.delayed for queue in queues) == len(sizes)
        assert any(queue.delayed for queue in queues), "all found room"


def test_a_deleted_store_is_not_asked_for_room(small, tmp_path, clock):
    """Its messages waited for room; another store has none either, for a transaction without dead letters."""
    engine, size = small
    graph(engine, False, ttl=60)
    filled(engine, "q", size)
    clock.tick(61)
    engine.tick()
    engine.delete_store("s")
    engine.create_store("t", "ring", path=tmp_path / "t", **SMALL["ring"])
    engine.create_queue("other", store="t")
    filled(engine, "other", 1_000)
    with pytest.raises(StoreFull), engine.transaction() as transaction:
        transaction.publish("other", "x", bytes(20_000))
    engine.check()


def test_what_waits_for_room_is_there_after_a_restart(tmp_path, clock):
    for kind in ("ring", "lmdb"):
        found = []
        with Engine(clock=clock) as engine:
            engine.create_store("s", kind, path=tmp_path / kind, **SMALL[kind])
            graph(engine, True, ttl=60)
            sent = filled(engine, "q", SIZE[kind])
            clock.tick(61)
            engine.tick()
            engine.sync()
            found += buried(engine)
        with Engine(clock=clock) as engine:
            engine.create_store("s", kind, path=tmp_path / kind)
            with engine.building():
                engine.create_queue("letters", transit=True)
                engine.create_selector("letters", when=always, do=copy_to("dead"))
                engine.create_selector("dead", when=always, do=deliver("dead"), credit=10**6)
            engine.sync()
            while new := buried(engine):
                found += new
            assert Counter(int(body) for body in found) == Counter(range(sent))


def test_a_delay_that_has_ended_does_not_come_back_after_a_crash(tmp_path, clock):
    """It ended while the store was closed, as did the time of the message, whose dead letter finds no room."""
    def opened(path):
        engine = Engine(clock=clock)
        unhurried(engine.create_store("s", "lmdb", path=path, **SMALL["lmdb"]))
        return engine

    with opened(tmp_path / "s") as engine:
        graph(engine, False, ttl=60)
        engine.publish("q", "delayed", delay=60)
        filled(engine, "q", 3_000)
    clock.tick(200)
    with opened(tmp_path / "s") as engine:
        with engine.building():
            engine.create_selector("q", when=always, do=deliver("d"))
        assert next(iter(engine.queues["q"].browse(1, state="delayed"))).address == "delayed"
        engine.sync()
        shutil.copytree(tmp_path / "s", tmp_path / "crashed")
    with opened(tmp_path / "crashed") as engine:
        assert engine.queues["q"].delayed == 0
        assert next(iter(engine.queues["q"].browse(1))).address == "delayed"
        engine.check()


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_lost_where_messages_expire_in_full_stores(tmp_path, clock, monkeypatch, seed):
    """Messages go through three queues in turn, expire there, are rejected, and come to the dead letter queue of the end."""
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    chance = random.Random(seed)
    kinds = chance.choice([["ring"], ["lmdb"], ["ring", "lmdb"]])
    stores = [*kinds, chance.choice([*kinds, "ram"]), *kinds]
    places = [chance.choice(stores) for _ in range(3)]
    terms = [{"ttl": chance.choice([None, 5, 20]), "delivery_limit": chance.choice([None, 1])} for _ in range(3)]
    end = chance.choice(kinds)

    def opened():
        engine = Engine(clock=clock)
        for kind in kinds:
            engine.create_store(kind, kind, path=tmp_path / kind, **SMALL[kind])
        with engine.building():
            engine.create_queue("end", store=end)
            for number, (place, term) in enumerate(zip(places, terms, strict=True)):
                engine.create_queue(f"q{number}", store=place, dead_letter="end", **term)
            for number, credit in ((0, chance.choice([INFINITE, 3])), (1, INFINITE)):
                engine.create_selector(f"q{number}", when=always, do=move_to(f"q{number + 1}"), credit=credit)
            engine.create_selector("q2", when=always, do=deliver("d"), credit=20)
            engine.create_selector("end", when=always, do=deliver("end"), credit=20)
        return engine

    engine, confirmed, found, sent = opened(), set(), Counter(), 0
    size = chance.choice([100, 2_000, 9_000])
    for _ in range(60):
        step = chance.choice(["fill"] * 3 + ["take"] * 3 + ["wait"] * 2 + ["end", "sync", "reopen"])
        if step == "fill":
            for _ in range(chance.randint(1, 200)):
                sent += 1
                try:
                    engine.publish("q0", "x", b"%*d" % (size, sent))
                except StoreFull:
                    break
                confirmed.add(sent)
        elif step == "wait":
            clock.tick(chance.choice([1, 6, 21]))
            engine.tick()
        elif step == "reopen" and "ram" not in places:
            engine.close()
            engine = opened()
        elif step == "sync":
            engine.sync()
        else:
            for delivery in engine.take(20, "end" if step == "end" else "d"):
                answer = "ack" if step == "end" else chance.choice(["ack", "nack", "reject"])
                try:
                    getattr(delivery, answer)()
                except StoreFull:
                    delivery.ack()
                    answer = "ack"
                found[int(delivery.message.body)] += answer == "ack"
        engine.check()
    while any(queue.ready or queue.delayed or queue.outstanding for queue in engine.queues.values()):
        clock.tick(30)
        engine.sync()
        left = some(engine)
        assert left, "nothing goes on"
        for delivery in left:
            delivery.ack()
            found[int(delivery.message.body)] += 1
    lost = confirmed - {number for number, count in found.items() if count}
    dropped = [queue["dropped"] for queue in engine.stats()["queues"].values()]
    assert not lost, f"{len(lost)} of {len(confirmed)} are lost: {dropped}"
    assert max(found.values(), default=0) <= 1
    assert all(queue.ready == queue.delayed == queue.outstanding == 0 for queue in engine.queues.values())
    engine.close()
