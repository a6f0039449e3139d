"""A late copy, of a message that the frontier has passed, is durable before the end of that message: after any crash it is in one
of the two stores."""

import shutil

import lmdb
import pytest

from tests.durability.two_stores import commit, crashed, make_stores
from xump import INFINITE, Engine, always, copy_to, deliver, move_to
from xump.stores.lmdb import LmdbStore
from xump_ext.records import kinds


def make(engine, kind, folder):
    """Queue a in the one store, and b in the other."""
    make_stores(engine, kind, folder)
    for name in ("a", "b"):
        engine.create_queue(name, store=name)


def after_crash(kind, folder, tmp_path, queues=("a", "b")):
    """The addresses of the messages that are in each queue after a crash."""
    with crashed(kind, folder, tmp_path) as engine:
        return {name: [message.address for message in engine.queues[name].browse()] if name in engine.queues else []
                for name in queues}


def consume(engine, queue):
    engine.create_selector(queue, when=always, do=deliver("worker"), credit=1000)


def replay(engine):
    engine.create_selector("a", when=always, do=copy_to("b"), start="head", credit=INFINITE)


@pytest.fixture
def routed(kind, folder):
    """An engine in whose queue a there is a message that was routed, and is durable."""
    with Engine() as engine:
        make(engine, kind, folder)
        engine.create_queue("other")
        engine.create_selector("a", when=always, do=copy_to("other"), credit=INFINITE)
        consume(engine, "a")
        engine.publish("a", "one")
        engine.sync()
        yield engine, folder


def test_the_end_of_a_replayed_message_waits_for_its_copy(routed, kind, tmp_path):
    engine, folder = routed
    replay(engine)
    engine.ack(engine.take(1))
    engine.check()
    commit(engine, "a")
    engine.check()
    assert after_crash(kind, folder, tmp_path) == {"a": ["one"], "b": []}
    commit(engine, "b")
    commit(engine, "a")
    engine.check()
    assert after_crash(kind, folder, tmp_path) == {"a": [], "b": ["one"]}


def test_so_does_the_end_of_its_queue(routed, kind, tmp_path):
    engine, folder = routed
    replay(engine)
    engine.delete_queue("a")
    engine.check()
    commit(engine, "a")
    assert after_crash(kind, folder, tmp_path) == {"a": ["one"], "b": []}
    commit(engine, "b")
    commit(engine, "a")
    engine.check()
    assert after_crash(kind, folder, tmp_path) == {"a": [], "b": ["one"]}


def test_a_message_that_is_not_copied_again_does_not_wait_longer_than_needed(routed, kind, tmp_path):
    engine, folder = routed
    replay(engine)
    commit(engine, "b")
    commit(engine, "a")
    engine.ack(engine.take(1))
    commit(engine, "a")
    engine.check()
    assert after_crash(kind, folder, tmp_path) == {"a": [], "b": ["one"]}


def test_many_late_copies_wait_behind_one_fence(kind, folder, tmp_path):
    with Engine() as engine:
        make(engine, kind, folder)
        consume(engine, "a")
        engine.publish_many("a", [(str(n), b"") for n in range(100)])
        engine.sync()
        replay(engine)
        engine.check()
        engine.ack(engine.take(1000))
        engine.check()
        commit(engine, "a")
        assert len(after_crash(kind, folder, tmp_path)["a"]) == 100
        commit(engine, "b")
        commit(engine, "a")
        engine.check()
        assert [len(each) for each in after_crash(kind, folder, tmp_path).values()] == [0, 100]


@pytest.mark.parametrize("credit", [5, INFINITE])
def test_a_copy_of_what_went_on_in_ram_counts_for_the_durable_message(kind, credit, folder, tmp_path):
    """a, durable, is moved to a queue in RAM, which is copied to b, durable elsewhere."""
    with Engine() as engine:
        make(engine, kind, folder)
        engine.create_queue("ram")
        engine.create_selector("ram", when=always, do=copy_to("b"), credit=INFINITE)
        engine.create_selector("a", when=always, do=move_to("ram"), credit=credit)
        consume(engine, "ram")
        engine.publish("a", "one")
        engine.ack(engine.take(1))
        engine.check()
        commit(engine, "a")
        assert after_crash(kind, folder, tmp_path) == {"a": ["one"], "b": []}
        commit(engine, "b")
        commit(engine, "a")
        engine.check()
        assert after_crash(kind, folder, tmp_path) == {"a": [], "b": ["one"]}


def test_a_message_of_the_history_stays_there_while_its_copy_is_late(kind, folder, tmp_path):
    with Engine() as engine:
        make(engine, kind, folder)
        engine.create_queue("kept", store="a", history_limit=10)
        consume(engine, "kept")
        engine.publish("kept", "one")
        engine.ack(engine.take(1))
        engine.sync()
        engine.create_selector("kept", when=always, do=copy_to("b"), start="head", credit=INFINITE)
        commit(engine, "a")
        engine.check()
        copy = after_crash(kind, folder, tmp_path, ("kept", "b"))
        assert copy == {"kept": ["one"], "b": []}
        commit(engine, "b")
        commit(engine, "a")
        engine.check()
        assert after_crash(kind, folder, tmp_path, ("kept", "b")) == {"kept": ["one"], "b": ["one"]}


@pytest.fixture
def expiring(kind, folder):
    """An engine in which messages that expire in queue a go on, by way of RAM, to another queue of the same store."""
    with Engine() as engine:
        make_stores(engine, kind, folder)
        engine.create_queue("a", store="a", dead_letter="expired")
        engine.create_queue("b", store="b")
        engine.create_queue("later", store="a")
        engine.create_queue("expired")
        yield engine, folder


def publish_expiring(engine):
    """A message that expires before it is routed."""
    with engine.building():
        engine.publish("a", "two", ttl=0)


def test_what_expired_unrouted_is_gone_when_all_before_it_is_durable(expiring, kind, tmp_path):
    """The end of the one before it waits for another store, and so does its own."""
    engine, folder = expiring
    engine.create_selector("a", when=always, do=copy_to("b"), credit=INFINITE)
    engine.create_selector("expired", when=always, do=move_to("later"), credit=1)
    engine.publish("a", "one")
    publish_expiring(engine)
    commit(engine, "a")
    engine.check()
    after = after_crash(kind, folder, tmp_path, ("a", "b", "later"))
    assert (after["b"], after["later"]) == ([], ["two"]) and "one" in after["a"]
    engine.sync()
    engine.check()
    assert after_crash(kind, folder, tmp_path, ("a", "b", "later")) == {"a": [], "b": ["one"], "later": ["two"]}


def test_what_expired_unrouted_is_gone_when_its_copies_are_durable(expiring, kind, tmp_path):
    engine, folder = expiring
    engine.create_selector("expired", when=always, do=copy_to("b"), credit=INFINITE)
    engine.create_selector("expired", when=always, do=move_to("later"), credit=1)
    publish_expiring(engine)
    commit(engine, "a")
    engine.check()
    assert after_crash(kind, folder, tmp_path, ("a", "b", "later")) == {"a": ["two"], "b": [], "later": ["two"]}
    engine.sync()
    engine.check()
    assert after_crash(kind, folder, tmp_path, ("a", "b", "later")) == {"a": [], "b": ["two"], "later": ["two"]}


def test_a_second_replay_is_awaited_as_the_first_was(kind, folder, tmp_path):
    """The message went on within its store after the first one, and was taken back; it does so again after the second."""
    with Engine() as engine:
        make(engine, kind, folder)
        engine.create_queue("later", store="a")
        engine.create_selector("a", when=always, do=deliver("worker"), credit=1)
        engine.publish_many("a", [("held", b""), ("one", b"")])
        engine.sync()

        def replay_and_move():
            copies = engine.create_selector("a", when=always, do=copy_to("b"), start="head", credit=INFINITE)
            return copies, engine.create_selector("a", when=always, do=move_to("later"), credit=1)

        for selector in replay_and_move():
            engine.sync()
            selector.delete()
        engine.sync()
        replay_and_move()
        engine.check()
        commit(engine, "a")
        engine.check()
        assert engine.queues["b"].ready == 4
        assert after_crash(kind, folder, tmp_path, ("a", "b", "later")) == {
            "a": ["held", "one"], "b": ["held", "one"], "later": ["one"]}
        engine.sync()
        assert after_crash(kind, folder, tmp_path, ("a", "b", "later")) == {
            "a": ["held"], "b": ["held", "one"] * 2, "later": ["one"]}


@pytest.mark.parametrize("kind", ["lmdb"])
def test_a_repair_says_again_what_hides_an_origin(expiring, kind, tmp_path):
    """It marks the messages of a queue whose STATE is damaged, and a new MARK takes the place of the one before."""
    engine, folder = expiring
    engine.create_selector("expired", when=always, do=copy_to("b"), credit=INFINITE)
    engine.create_selector("expired", when=always, do=move_to("later"), credit=1)
    publish_expiring(engine)
    engine.sync()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with lmdb.open(str(copy / "a"), readonly=True, lock=False) as environment, environment.begin() as transaction:
        _, state = [(key, value) for key, value in transaction.cursor() if key[0] == kinds.KEY_OF_KIND[kinds.STATE]][-1]
    file = copy / "a" / "data.mdb"
    file.write_bytes(file.read_bytes().replace(state, bytes([state[0] ^ 1]) + state[1:]))
    assert LmdbStore.repair(str(copy / "a")).damage
    with Engine() as again:
        for name in ("a", "b"):
            again.create_store(name, kind, path=copy / name)
        again.check()
        assert again.queues["a"].ready == 0
        again.queues["later"].release()
        assert again.get("later").redelivered
