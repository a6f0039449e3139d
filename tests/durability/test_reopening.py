"""Durable stores are opened again: what had gone wrong there, one by one. The programs at random are in
`tests/model/test_store_programs.py`."""

import datetime
import os
import shutil
import signal

import pytest

from tests.durability.log_in_memory import LOGS
from tests.durability.one_store import KINDS, bodies
from tests.durability.log_in_memory import two_shelves
from tests.durability.unhurried import unhurried
from xump import (
    INFINITE, Conflict, Engine, Housecat, StoreFull, Wolfpack, always, copy_to, default, deliver, discard, match, move_to,
)
from xump.durability import opening
from xump.stores.ring import RingStore

pytestmark = pytest.mark.usefixtures("empty_shelves")


def killed(path):
    """The files as a crash leaves them."""
    copy = path.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    if path.is_dir():
        shutil.copytree(path, copy)
    else:
        shutil.copy(path, copy)
    return "copy"


# ---- numbers and ids

def test_a_new_queue_takes_nobody_s_place(opened):
    with opened() as engine:
        engine.create_queue("a", store="d").publish(body=b"of a")
    with opened() as engine:
        engine.create_queue("b", store="d").publish(body=b"of b")
    with opened() as engine:
        assert bodies(engine) == {"a": [b"of a"], "b": [b"of b"]}


def test_an_incarnation_is_a_queue_s_own_and_lasts(opened):
    """An id that was not durable is issued again: a reader keeps ids up to `durable_id`, with the incarnation beside them."""
    with opened() as engine:
        first, other = engine.create_queue("q", store="d"), engine.create_queue("other", store="d")
        engine.publish("q")
        number = first.incarnation
        assert 0 < number < 1 << 63 and number != other.incarnation and isinstance(number, int)
    with opened() as engine:
        assert engine.queues["q"].incarnation == number
        engine.delete_queue("q")
        again = engine.create_queue("q", store="d").incarnation
        assert again != number
    with opened() as engine:
        assert engine.queues["q"].incarnation == again


@pytest.mark.parametrize("held", ["in the block", "before it", "after it was released"])
def test_a_hold_of_your_program_ends_by_release_alone(opened, held):
    """Decision 35: the hold since the store was opened ends with a building block; `Queue.hold()` does not."""
    with opened() as engine:
        engine.create_queue("q", store="d").publish()
        engine.create_queue("other", store="d").publish()
    with opened() as engine:
        queue, other = engine.queues["q"], engine.queues["other"]
        if held == "before it":
            queue.hold()
        elif held == "after it was released":
            queue.release()
            queue.hold()
        with engine.building():
            if held == "in the block":
                queue.hold()
            for name in ("q", "other"):
                engine.create_selector(name, when=always, do=deliver(name))
        assert (queue.held, queue.ready, queue.outstanding) == (True, 1, 0)
        assert not other.held and len(engine.take(1, "other")) == 1
        engine.check()
        queue.release()
        assert len(engine.take(1, "q")) == 1


def test_a_refused_apply_lets_nothing_go_on(opened, monkeypatch):
    """It is undone, and the messages that wait for the whole graph do not meet half of it."""
    with opened() as engine:
        engine.create_queue("news", store="d").publish("polly")
    with opened() as engine:
        engine.create_selector("news", when=always, do=deliver("polly"))
        create = engine.create_queue

        def refuses(name, **properties):
            if name == "second":
                raise StoreFull("no room")
            return create(name, **properties)

        with monkeypatch.context() as refusing, pytest.raises(StoreFull):
            refusing.setattr(engine, "create_queue", refuses)
            engine.apply({"version": 1, "queues": {"first": {}, "second": {}}})
        news = engine.queues["news"]
        assert list(engine.queues) == ["news"] and (news.held, news.ready, news.outstanding) == (True, 1, 0)
        engine.apply({"version": 1, "queues": {"first": {}, "second": {}}})
        assert [delivery.address for delivery in engine.take(9, "polly")] == ["polly"]


def test_a_refused_join_lets_nothing_go_on(opened):
    with opened() as engine:
        engine.create_queue("news", store="d").publish("polly")
        engine.create_queue("taken", store="d")
    with opened() as engine:
        engine.create_queue("through", transit=True)
        with pytest.raises(ValueError, match="transit"):
            Wolfpack(engine, "through").join("wolf")
        assert engine.queues["news"].held and "wolf" not in engine.queues
        mail = Housecat(engine, "news")
        for name, credit, error in (("taken", 1, Conflict), ("polly", -1, ValueError), ("", 1, ValueError)):
            with pytest.raises(error):
                mail.join(name, credit=credit)
            assert engine.queues["news"].held and engine.queues["taken"].held
        assert [delivery.address for delivery in mail.join("polly").deliveries()] == ["polly"]


def test_an_option_that_is_the_default_is_the_same_property(opened):
    with opened() as engine:
        store = engine.stores["d"]
        usual = {"durability": "group", "group_ms": 2, "path": store.path}
        options = {name: value for name, value in store.options.items() if name != "path"}
        assert engine.create_store("d", store.type, **{**usual, **options}) is store
        with pytest.raises(Conflict, match="group_ms"):
            engine.create_store("d", store.type, **{**usual, **options, "group_ms": 3})


def test_what_a_deleted_queue_left_in_the_log_is_not_another_one_s(opened):
    with opened() as engine:
        engine.create_queue("old", store="d")
        engine.publish_many("old", [("", b"OLD" * 100)] * 20)
        engine.delete_queue("old")
    with opened() as engine:
        engine.create_queue("new", store="d")
        engine.publish_many("new", [("", b"new" * 100)] * 20)
        churn = engine.create_queue("churn", store="d")
        for n in range(1200):
            churn.publish(body=bytes(1000))
            churn.purge()
            if n % 40 == 0:
                with opened(killed(opened.path)) as other:
                    assert {message.body[:3] for message in other.queues["new"].browse()} == {b"new"}


def test_a_message_is_not_hidden_by_one_of_a_deleted_queue_s_number(opened):
    with opened() as engine:
        for name in ("down", "up"):
            engine.create_queue(name, store="d")
        engine.create_selector("up", when=always, do=move_to("down"), credit=5)
        engine.publish("up", body=b"1")
    with opened() as engine:
        engine.delete_queue("up")
    if opened.kind == "ring":
        RingStore.compact(str(opened.path))
    with opened() as engine:
        engine.create_queue("new", store="d").publish(body=b"2")
    with opened() as engine:
        assert bodies(engine) == {"down": [b"1"], "new": [b"2"]}


@pytest.mark.parametrize("churn", [0, 1200])
@pytest.mark.parametrize("how", ["purge", "ack", "delete"])
def test_ids_are_never_used_again(opened, how, churn):
    with opened() as engine:
        queue = engine.create_queue("q", store="d")
        engine.publish_many("q", [("", b"x")] * 5)
        if how == "purge":
            queue.purge()
        elif how == "delete":
            assert all(queue.delete(id) for id in range(1, 6))
        else:
            engine.create_selector("q", when=always, do=deliver("d"), credit=5)
            engine.ack(engine.take(5))
        other = engine.create_queue("churn", store="d")
        for _ in range(churn):
            other.publish(body=bytes(1500))
            other.purge()
        with opened(killed(opened.path)) as crashed:
            assert crashed.queues["q"].publish() == 6 and crashed.queues["churn"].publish() == churn + 1
    with opened() as engine:
        assert engine.queues["q"].publish() == 6 and engine.queues["churn"].publish() == churn + 1


# ---- groups

def test_a_queue_that_is_gone_settles_nothing_early():
    with two_shelves() as engine:
        for name in ("q", "gone"):
            engine.create_queue(name, store="left")
        queue = engine.queues["q"]
        queue.publish()
        queue.delete(1)
        engine.delete_queue("gone")
        queue.publish()
        queue.delete(2)
    with two_shelves() as engine:
        assert bodies(engine) == {"q": []}
        engine.check()


def crash_of(engine, *synced):
    """The stores named are synced, then all that is not synced is lost."""
    for name in synced:
        engine.stores[name].committer.sync(None)
    left = {path: groups[:count] for path, (groups, count) in LOGS.items()}
    for store in engine.stores.values():
        if store.committer is not None:
            store.committer.stop()
    LOGS.update((path, [groups, len(groups)]) for path, groups in left.items())


def test_the_end_of_a_queue_does_not_overtake_what_left_it():
    engine = two_shelves()
    engine.create_queue("l", store="left").publish(body=b"1")
    engine.create_queue("r", store="right")
    engine.sync()
    engine.create_selector("l", when=always, do=move_to("r"), credit=INFINITE)
    engine.delete_queue("l")
    crash_of(engine, "left")
    with two_shelves() as engine:
        assert bodies(engine) == {"l": [b"1"], "r": []}


@pytest.mark.parametrize("how", ["limit", "delete", "queue"])
def test_what_drops_off_the_history_does_not_overtake_what_it_went_to(how):
    engine = two_shelves()
    queue = engine.create_queue("l", store="left", history_limit=1)
    engine.create_queue("r", store="right")
    queue.publish("x", b"1")
    engine.sync()
    with engine.building():
        engine.create_selector("l", when=match("eq", "x"), do=move_to("r"), credit=INFINITE)
        engine.create_selector("l", when=match("eq", "y"), do=discard)
    if how == "limit":
        queue.publish("y")
    elif how == "delete":
        queue.delete(1)
    else:
        engine.delete_queue("l")
    engine.check()
    crash_of(engine, "left")
    with two_shelves() as engine:
        assert b"1" in bodies(engine)["l"]


def three_stores():
    engine = Engine()
    for name in ("left", "right", "third"):
        engine.create_store(name, "log shelf", path=name)
    return engine


@pytest.mark.parametrize("synced", [("right", "left"), ("third", "left"), ("left", "right", "left")])
def test_a_message_that_was_copied_into_two_stores_is_routed_again_if_one_of_them_lost_it(synced):
    engine = three_stores()
    for name, store in (("l", "left"), ("r", "right"), ("t", "third")):
        engine.create_queue(name, store=store, history_limit=None)
    selectors = [engine.create_selector("l", when=always, do=copy_to(name)) for name in ("r", "t")]
    selectors.append(engine.create_selector("l", when=match("eq", "kept"), do=deliver("worker"), credit=9))
    for number in range(3):
        engine.publish("l", "kept", b"%d" % number)
    engine.sync()
    engine.publish("l", "kept", b"3")
    engine.check()
    crash_of(engine, *synced)
    with three_stores() as engine:
        with engine.building():
            for name in ("r", "t"):
                engine.create_selector("l", when=always, do=copy_to(name))
        there = {name: {message.body for message in engine.queues[name].browse()} for name in "lrt"}
        if b"3" in there["l"]:
            assert there["r"] == there["t"] == there["l"]


@pytest.mark.parametrize("how", ["replay", "enable"])
def test_a_replay_beside_a_copy_that_is_not_durable_yet(how):
    """The frontier in the log waits for the copy; what was routed before does not move it back."""
    engine = two_shelves()
    engine.create_queue("l", store="left", history_limit=None)
    engine.create_queue("r", store="right")
    engine.create_selector("l", when=match("eq", "x"), do=copy_to("r"))
    parked = engine.create_selector("l", when=match("eq", "y"), do=copy_to("r"), enabled=False)
    engine.publish("l", "y")
    for _ in range(4):
        engine.publish("l", "x")
    engine.sync()
    engine.publish("l", "x")
    if how == "replay":
        engine.create_selector("l", when=always, do=copy_to("r"), start="head")
    else:
        parked.enable()
    engine.check()
    before = engine.queues["r"].ready
    engine.sync()
    engine.check()
    crash_of(engine)
    with two_shelves() as engine:
        with engine.building():
            engine.create_selector("l", when=match("eq", "x"), do=copy_to("r"))
        assert engine.queues["r"].ready == before       # none is lost, none is copied again


def test_no_mark_is_left_of_what_is_gone(tmp_path):
    def opened():
        engine = Engine()
        for kind in ("lmdb", "ring"):
            unhurried(engine.create_store(kind, kind, path=str(tmp_path / kind)))
        return engine

    with opened() as engine:
        queue = engine.create_queue("q", store="lmdb", history_limit=1)
        engine.create_queue("other", store="ring")
        engine.create_selector("q", when=match("eq", "x"), do=move_to("other"), credit=INFINITE)
        engine.create_selector("q", when=match("eq", "y"), do=discard)
        queue.publish("x")
        queue.publish("y")
        engine.sync()
        engine.delete_queue("q")
    with opened() as engine:
        assert list(engine.queues) == ["other"]


@pytest.mark.parametrize("history_limit", [0, None])
def test_no_mark_is_left_of_a_deleted_queue_s_message_that_went_on_in_ram(opened, history_limit):
    """It was taken twice there, which its queue's store heard of."""
    with opened() as engine:
        engine.create_queue("q", store="d", history_limit=history_limit)
        engine.create_queue("ram")
        engine.create_selector("q", when=always, do=move_to("ram"), credit=INFINITE)
        engine.create_selector("ram", when=always, do=deliver("worker"))
        engine.publish("q", "x")
        engine.take(1)[0].nack()
        [delivery] = engine.take(1)
        engine.delete_queue("q")
        engine.check()
        delivery.ack()
    with opened() as engine:
        assert list(engine.queues) == []


def test_an_owner_in_another_store_is_waited_for():
    engine = two_shelves()
    for name, store in (("l", "left"), ("r", "right"), ("ram", "ram"), ("dead", "ram")):
        engine.create_queue(name, store=store, dead_letter="dead")
    engine.publish("l", body=b"1")
    engine.sync()
    for source, target in (("l", "r"), ("r", "ram")):
        engine.create_selector(source, when=always, do=move_to(target), credit=1)
    engine.create_selector("ram", when=always, do=deliver("d"), credit=1)
    engine.take(1)[0].reject("no")
    crash_of(engine, "left")
    with two_shelves() as engine:
        assert bodies(engine)["l"] == [b"1"]


# ---- what comes back

def test_the_default_selector_takes_what_was_routed_to_it(opened):
    def build():
        engine = opened()
        with engine.building():
            engine.create_queue("q", store="d")
            engine.create_selector("q", when=match("eq", "a"), do=deliver("a"), credit=10)
            engine.create_selector("q", when=default, do=deliver("rest"), credit=1)
        return engine

    with build() as engine:
        engine.publish_many("q", [("b", b"1"), ("b", b"2")])
        assert len(engine.take(10)) == 1
    with build() as engine:
        found = []
        for delivery in engine.deliveries():
            found.append(delivery.message.body)
            delivery.ack()
        assert found == [b"1", b"2"]


@pytest.mark.parametrize("credit", [INFINITE, 5], ids=["INFINITE", "finite"])
@pytest.mark.parametrize("crash", [False, True])
def test_what_was_handed_out_from_ram_says_so(opened, credit, crash):
    with opened() as engine:
        engine.create_queue("q", store="d")
        engine.create_queue("ram")
        engine.create_selector("q", when=always, do=move_to("ram"), credit=credit)
        engine.create_selector("ram", when=always, do=deliver("d"), credit=1)
        engine.publish("q")
        for _ in range(3):
            engine.take(1)[0].nack()
        engine.take(1)
        path = killed(opened.path) if crash else "store"
        if crash:
            path = shutil.move(opened.path.with_name("copy"), opened.path.with_name("crashed")).name
    with opened(path) as engine:
        with engine.building():
            engine.create_selector("q", when=always, do=deliver("d"), credit=1)
        [delivery] = engine.take(1)
        assert delivery.redelivered and delivery.delivery_count == 5


def test_the_history_keeps_what_went_through_ram(opened):
    """What it became is not acked yet: an orderly end finds it in the durable queue behind, and the history as it was."""
    with opened() as engine:
        engine.create_queue("first", store="d", history_limit=None)
        engine.create_queue("behind", store="d")
        engine.create_queue("ram")
        engine.create_selector("first", when=always, do=move_to("ram"), credit=INFINITE)
        engine.create_selector("ram", when=always, do=move_to("behind"))
        engine.publish("first", body=b"1")
        before = bodies(engine, "history")["first"]
    with opened() as engine:
        assert before == bodies(engine, "history")["first"] == [b"1"]
        assert bodies(engine)["behind"] == [b"1"]


@pytest.mark.parametrize("way", ["direct", "through ram, INFINITE", "through ram", "through another queue"])
def test_each_take_counts_whatever_comes_between(opened, way):
    """A message that ends its consumer each time is not for ever as if it had been taken twice."""
    path, counts = "store", []
    for turn in range(5):
        with opened(path) as engine:
            with engine.building():
                engine.create_queue("q", store="d")
                engine.create_queue("w", store="d" if way == "through another queue" else "ram")
                if way != "direct":
                    engine.create_selector("q", when=always, do=move_to("w"), credit=INFINITE if "INF" in way else 1)
                engine.create_selector("q" if way == "direct" else "w", when=always, do=deliver("d"), credit=1)
            if turn == 0:
                engine.publish("q")
            for nacks in range(turn + 1):
                [delivery] = engine.take(1)
                counts.append(delivery.delivery_count)
                if nacks < turn:
                    delivery.nack()
            path = shutil.move(opened.path.with_name(killed(opened.path.with_name(path))), opened.path.with_name(f"{turn}")).name
    assert counts == list(range(1, 16))


def test_an_orderly_end_leaves_a_message_in_one_place():
    engine = two_shelves()
    for name, store in (("a", "left"), ("a2", "left"), ("r", "right"), ("a3", "left")):
        engine.create_queue(name, store=store)
    for source, target in (("a", "a2"), ("a2", "r"), ("r", "a3")):
        engine.create_selector(source, when=always, do=move_to(target), credit=1)
    engine.publish("a", body=b"1")
    engine.close()
    with two_shelves() as engine:
        assert bodies(engine) == {"a": [], "a2": [], "r": [], "a3": [b"1"]}


# ---- times

def test_a_time_is_found_without_reading_what_was_before(opened, monkeypatch):
    """Of 4,000 messages, in the history and ready, none is in memory."""
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 0)
    now = [10**18]
    with Engine(clock=lambda: now[0]) as engine:
        engine.create_store("d", opened.kind, path=str(opened.path), **KINDS[opened.kind] | {"max_bytes": 1 << 24})
        queue = engine.create_queue("q", store="d", history_limit=None)
        for _ in range(40):
            now[0] += 10**9
            engine.publish_many("q", [("a", bytes(200))] * 100)
        engine.sync()
        engine.create_selector("q", when=always, do=deliver("d"), credit=2000)
        engine.ack(engine.take(2000))
        engine.sync()
        backend, asked = engine.stores["d"].backend, []
        fetch = backend.fetch
        backend.fetch = lambda *which: asked.append(which) or fetch(*which)
        since = datetime.datetime.fromtimestamp(10**9 + 39, datetime.UTC)
        assert [message.id for message in queue.browse(since, limit=3)] == [3801, 3802, 3803]
        assert [m.id for m in queue.browse(since, reverse=True, limit=1, state="history")] == [2000]
        assert len(asked) <= 2 * 256        # a page for each
        assert {id for _, id, _ in asked} <= {*range(2001 - 256, 2001), *range(3801, 4001)}


# ---- Ctrl-C

@pytest.mark.parametrize("during", ["sync", "close"])
def test_an_interrupt_loses_nothing(opened, during):
    engine = opened()
    engine.create_queue("q", store="d").publish(body=b"1")
    backend = engine.stores["d"].backend
    sync = backend.sync

    def interrupted():
        del backend.sync
        os.kill(os.getpid(), signal.SIGINT)
        sync()

    backend.sync = interrupted
    before = signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell starts programs in the background without it
    try:
        with pytest.raises(KeyboardInterrupt):
            getattr(engine, during)()
    finally:
        signal.signal(signal.SIGINT, before)
    if during == "sync":
        engine.publish("q", body=b"2")
        engine.close()
    with opened() as engine:
        assert bodies(engine)["q"] == [b"1", b"2"][: 2 if during == "sync" else 1]


@pytest.mark.parametrize("before", [False, True], ids=["new", "reopened before"])
def test_a_dead_letter_in_ram_that_comes_back_is_no_new_message(opened, before):
    """Decision 125: your program had it."""
    with opened() as engine:
        engine.create_queue("jobs", store="d", dead_letter="dead").publish(body=b"x")
    if before:
        opened().close()
    with opened() as engine:
        with engine.building():
            engine.create_queue("dead")
            engine.create_selector("jobs", when=always, do=deliver("worker"))
        [delivery] = engine.take(1)
        delivery.reject("spoiled")
        assert bodies(engine) == {"jobs": [], "dead": [b"x"]}
        engine.check()
    with opened() as engine:
        with engine.building():
            engine.create_selector("jobs", when=always, do=deliver("worker"))
        [delivery] = engine.take(1)
        assert (delivery.message.body, delivery.delivery_count, delivery.redelivered) == (b"x", 2, True)
        delivery.ack()
