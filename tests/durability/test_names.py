"""A queue that is deleted from one durable store and made anew in another is in one of them after any crash."""

import errno

import pytest

from tests.durability.two_stores import commit, crashed, make_stores
from xump import INFINITE, Engine, StoreFailed, always, deliver, move_to


def fail(engine, name, monkeypatch):
    """Have the next write of a store fail."""
    def write(batch):
        raise OSError(errno.EIO, "Input/output error", engine.stores[name].backend.path)
    monkeypatch.setattr(engine.stores[name].backend, "write", write)


def wait_for(engine, name):
    """Have this store fail with what it has gathered."""
    errors = []
    for committer in engine._committers():
        if committer.name == name:
            committer.flush(errors)
    assert len(errors) == 1


@pytest.mark.parametrize("durability", ["group", "none"])
def test_a_name_goes_to_another_store(kind, folder, tmp_path, durability):
    with Engine() as engine:
        make_stores(engine, kind, folder, durability=durability)
        engine.create_queue("q", store="a")
        engine.publish("q", "old")
        engine.sync()
        engine.delete_queue("q")
        engine.check()
        engine.create_queue("q", store="b", limit=5)
        engine.publish("q", "new")
        engine.check()
        commit(engine, "b")
        with crashed(kind, folder, tmp_path) as after:
            assert (after.queues["q"].store.name, after.queues["q"].limit) == ("b", 5)
            assert [message.address for message in after.queues["q"].browse()] == ["new"]


def test_to_and_fro(kind, folder, tmp_path):
    with Engine() as engine:
        make_stores(engine, kind, folder)
        engine.create_queue("q", store="a")
        for store in ("b", "a", "b"):
            engine.delete_queue("q")
            engine.create_queue("q", store=store)
            commit(engine, store)
            engine.check()
            with crashed(kind, folder, tmp_path) as after:
                assert after.queues["q"].store.name == store


def test_by_way_of_ram(kind, folder, tmp_path):
    with Engine() as engine:
        make_stores(engine, kind, folder)
        engine.create_queue("q", store="a")
        engine.sync()
        engine.delete_queue("q")
        engine.create_queue("q")
        engine.delete_queue("q")
        engine.create_queue("q", store="b")
        commit(engine, "b")
        with crashed(kind, folder, tmp_path) as after:
            assert after.queues["q"].store.name == "b"


def test_a_queue_that_deletes_itself(kind, folder, tmp_path):
    with Engine() as engine:
        make_stores(engine, kind, folder)
        engine.create_queue("q", store="a", auto_delete=True)
        selector = engine.create_selector("q", when=always, do=deliver("worker"))
        engine.sync()
        engine.delete_selector(selector)
        engine.create_queue("q", store="b")
        commit(engine, "b")
        with crashed(kind, folder, tmp_path) as after:
            assert after.queues["q"].store.name == "b"


def test_while_messages_of_it_are_on_their_way_to_another_store(kind, folder, tmp_path):
    """The end of the queue stands behind a fence."""
    with Engine() as engine:
        make_stores(engine, kind, folder, ("a", "b", "c"))
        engine.create_queue("q", store="a")
        engine.create_queue("target", store="c")
        engine.sync()
        for _ in range(2):      # the second one under the name that the first one has not given up
            engine.create_queue("q", store="a")
            engine.create_selector("q", when=always, do=move_to("target"), credit=INFINITE)
            engine.publish("q", "m")
            engine.delete_queue("q")
            engine.check()
            assert engine.stores["a"].journal.is_leaving("q")
        engine.create_queue("q", store="b")
        assert not engine.stores["a"].journal.is_leaving("q")
        commit(engine, "b")
        engine.check()
        with crashed(kind, folder, tmp_path, ("a", "b", "c")) as after:
            assert after.queues["q"].store.name == "b" and after.queues["target"].ready == 2
            assert list(after.queues) == ["q", "target"]


def test_a_store_that_is_opened_with_such_a_name(kind, folder, tmp_path):
    with Engine() as engine:
        make_stores(engine, kind, folder, ["c"])
        engine.create_queue("q", store="c")
    with Engine() as engine:
        make_stores(engine, kind, folder)
        engine.create_queue("q", store="a")
        engine.sync()
        engine.delete_queue("q")
        make_stores(engine, kind, folder, ["c"])
        with crashed(kind, folder, tmp_path, ("a", "b", "c")) as after:
            assert after.queues["q"].store.name == "c"


def test_other_names_wait_for_nothing(kind, folder):
    """Nor does a name that stays in its store, or goes to RAM, or that its store has given up."""
    with Engine() as engine:
        make_stores(engine, kind, folder)
        for name in ("q", "given up"):
            engine.create_queue(name, store="a")
        engine.delete_queue("given up")
        engine.sync()
        engine.delete_queue("q")
        synced = [committer.syncs for committer in engine._committers()]
        engine.create_queue("other", store="b")
        engine.create_queue("given up", store="b")
        engine.create_queue("q", store="a")
        engine.delete_queue("q")
        engine.create_queue("q")
        assert [committer.syncs for committer in engine._committers()] == synced
        assert engine.stores["a"].journal.is_leaving("q") and not engine.stores["a"].journal.is_leaving("given up")


def test_a_name_of_a_store_that_failed_stays_there(kind, folder, monkeypatch):
    engine = Engine()
    make_stores(engine, kind, folder)
    engine.create_queue("q", store="a")
    engine.sync()
    engine.delete_queue("q")
    fail(engine, "a", monkeypatch)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="store 'a' has failed"):
            engine.create_queue("q", store="b")
        assert "q" not in engine.queues
    engine.create_queue("other", store="b")
    engine.check()
    engine.close()


def test_so_does_one_whose_end_waits_for_a_store_that_failed(kind, folder, monkeypatch):
    engine = Engine()
    make_stores(engine, kind, folder, ("a", "b", "c"))
    engine.create_queue("q", store="a")
    engine.create_queue("target", store="c")
    engine.create_selector("q", when=always, do=move_to("target"), credit=INFINITE)
    engine.sync()
    fail(engine, "c", monkeypatch)
    engine.publish("q", "m")
    engine.delete_queue("q")
    wait_for(engine, "c")
    with pytest.raises(StoreFailed, match="queue 'q' was deleted from store 'a', which cannot write that"):
        engine.create_queue("q", store="b")
    assert "q" not in engine.queues
    engine.create_queue("other", store="b")
    engine.check()
    engine.close()
