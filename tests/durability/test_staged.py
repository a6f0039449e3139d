"""Staged queues and their adoptions on disk: cleaning, compaction, damage, and stores that are full."""

import shutil

import pytest

import xump
from tests.durability.test_maps import OPTIONS, STORES, opened, places
from tests.stores.toy_store import ToyStore
from xump import INFINITE, always, discard
from xump.cli import main
from xump.errors import StoreFull
from xump_ext.records import kinds


@pytest.fixture(autouse=True)
def with_toys(monkeypatch):
    monkeypatch.setitem(xump.store_types._registered, "toy", ToyStore)


@pytest.fixture(params=OPTIONS)
def kind(request):
    return request.param


def stage(engine, name, count, body=b"body"):
    engine.create_queue(name, store="d", staged=True)
    engine.publish_many(name, [(f"{name}.{n}", body) for n in range(count)])
    return name, count


def addresses(engine, name):
    return [message.address for message in engine.queues[name].browse()]


def test_cleaning_carries_adoptions_on(kind, tmp_path):
    """Messages come and go until the log has been written anew several times over."""
    options = {} if kind == "toy" else {"max_bytes": 1 << 21}
    with xump.Engine() as engine:
        opened(engine, kind, tmp_path / "d", **options)
        for name in ("t", "done", "q"):
            engine.create_queue(name, store="d")
        engine.adopt("t", [stage(engine, "a", 3), stage(engine, "b", 2)], meta={"m": b"1"})
        engine.adopt("t", [stage(engine, "c", 1)])
        engine.adopt("done", [stage(engine, "x", 1)])
        assert engine.enter("t", 1) == engine.enter("done", 1) == 1
        for _ in range(60):
            engine.publish("q", "a", bytes(100_000))
            engine.queues["q"].purge()
            engine.sync()
        engine.check()
        shutil.copytree(tmp_path, tmp_path / "copied")
    for path in (tmp_path / "d", tmp_path / "copied" / "d"):
        with xump.Engine() as engine:
            opened(engine, kind, path, **options)
            engine.check()
            target = engine.queues["t"]
            assert (target.entering, target.stable_id, engine.queues["done"].entering) == (5, 0, 0)
            assert [engine.enter("t", 2), target.stable_id, engine.enter("t", 2), target.stable_id] == [2, 0, 2, 5]
            assert engine.enter("t", 2) == 1 and sorted(engine.queues) == ["done", "q", "t"]
            assert addresses(engine, "t") == ["a.0", "a.1", "a.2", "b.0", "b.1", "c.0"]
            engine.check()


@pytest.mark.parametrize("kind", STORES)
def test_compaction_keeps_adoptions(kind, tmp_path, capsys):
    path = str(tmp_path / "d")
    with xump.Engine() as engine:
        opened(engine, kind, path)
        for name in ("t", "gone"):
            engine.create_queue(name, store="d")
        engine.adopt("gone", [stage(engine, "x", 1)])
        engine.sync()
        engine.adopt("t", [stage(engine, "a", 2), stage(engine, "b", 2)])
        engine.sync()
        engine.enter("t", 3)
        engine.delete_queue("gone")
        stage(engine, "loose", 1)
    assert main.main(["compact", path]) == main.main(["check", path]) == 0
    capsys.readouterr()
    assert main.main(["stats", path]) == 0
    shown = capsys.readouterr().out.splitlines()[3:6]
    assert [line.split()[0] for line in shown] == ["t", "b", "loose"]
    assert [line.rpartition("  ")[2] for line in shown] == ["1 entering", "staged, adopted by 't'", "staged"]
    assert main.main(["browse", path, "b"]) == 0 and capsys.readouterr().out.split()[:2] == ["2", "ready"]
    with xump.Engine() as engine:
        opened(engine, kind, path)
        engine.check()
        assert engine.enter("t", 9) == 1 and addresses(engine, "t") == ["a.0", "a.1", "b.0", "b.1"]
        assert sorted(engine.queues) == ["loose", "t"] and engine.queues["loose"].adopted_by is None


def damage(kind, path, record, queue):
    """Spoils every record of that kind and queue in a file."""
    file, data, found = places(path, kind, record)
    damaged = bytearray(data)
    for at in found:
        if kinds.HEAD.unpack_from(data, at)[5] == queue:
            damaged[at + kinds.HEAD.size] ^= 1
    assert damaged != data
    file.write_bytes(damaged)


def adopted(kind, path):
    """A store in which queue 1, `t`, has adopted queue 2, `a`."""
    with xump.Engine() as engine:
        opened(engine, kind, path)
        engine.create_queue("t", store="d")
        engine.adopt("t", [stage(engine, "a", 3)], meta={"m": b"1"})
        engine.enter("t", 1)


@pytest.mark.parametrize("kind", STORES)
def test_without_the_record_of_the_adoption_the_messages_stay_staged(kind, tmp_path):
    path = tmp_path / "d"
    adopted(kind, path)
    damage(kind, path, kinds.ADOPT, 1)
    assert STORES[kind].check(str(path)).damage
    assert STORES[kind].repair(str(path)).damage and not STORES[kind].check(str(path)).damage
    with xump.Engine() as engine:
        opened(engine, kind, path)
        engine.check()
        staged = engine.queues["a"]
        assert staged.staged and staged.adopted_by is None and engine.enter("t", 9) == 0
        engine.adopt("t", [("a", staged.ready)])
        assert engine.enter("t", 9) == 2 and addresses(engine, "t") == ["a.0", "a.1", "a.2"]


@pytest.mark.parametrize("kind", STORES)
def test_without_the_record_of_its_queue_a_message_still_enters(kind, tmp_path):
    path = tmp_path / "d"
    adopted(kind, path)
    damage(kind, path, kinds.QUEUE, 2)
    assert STORES[kind].repair(str(path)).damage and not STORES[kind].check(str(path)).damage
    with xump.Engine() as engine:
        opened(engine, kind, path)
        engine.check()
        assert engine.queues["recovered-2"].adopted_by == "t" and engine.queues["t"].entering == 2
        assert engine.enter("t", 9) == 2 and addresses(engine, "t") == ["a.0", "a.1", "a.2"] and list(engine.queues) == ["t"]


@pytest.mark.parametrize("kind", STORES)
def test_a_damaged_message_stops_the_others_until_it_is_deleted(kind, tmp_path):
    path = tmp_path / "d"
    with xump.Engine() as engine:
        opened(engine, kind, path)
        engine.create_queue("t", store="d")
        engine.create_queue("a", store="d", staged=True)
        for body in (b"first", b"find-me-please", b"third"):
            engine.publish("a", body.decode(), body * 100)
        engine.adopt("t", [("a", 3)])
    with xump.Engine() as engine:
        opened(engine, kind, path)
        file, data, found = places(path, kind, kinds.ENTER)
        with file.open("r+b") as damaged:
            for at in found:                # pages of earlier transactions have it, too
                if b"find-me" in data[at : at + 200]:
                    damaged.seek(data.index(b"find-me", at))
                    damaged.write(b"F")
        assert engine.enter("t", 9) == 1 and addresses(engine, "t") == ["first"]
        with pytest.raises((xump.StoreCorrupt, xump.StoreFailed)):
            engine.enter("t", 9)
        engine.check()
        assert engine.queues["t"].entering == 2 and engine.queues["a"].delete(2)
        assert engine.enter("t", 9) == 1 and addresses(engine, "t") == ["first", "third"]
        engine.check()


@pytest.mark.parametrize("kind", STORES)
def test_a_full_store_adopts_nothing_and_lets_in_what_it_has_room_for(kind, tmp_path):
    with xump.Engine() as engine:
        opened(engine, kind, tmp_path / "d", max_bytes=1 << 21)
        target, other = engine.create_queue("t", store="d"), engine.create_queue("other", store="d")
        engine.create_queue("a", store="d", staged=True)
        with pytest.raises(StoreFull):
            while True:
                engine.publish("a" if engine.queues["a"].ready < 20 else "other", "x", bytes(20_000))
        with pytest.raises(StoreFull):
            engine.adopt("t", [("a", 20)], meta={"m": bytes(60_000)})
        assert dict(target.meta) == {} and engine.queues["a"].adopted_by is None
        engine.check()
        other.purge()
        engine.adopt("t", [("a", 20)], meta={"m": bytes(60_000)})
        with pytest.raises(StoreFull):
            while True:
                other.publish("x", bytes(20_000))
        entered = [engine.enter("t", 5) for _ in range(8)]
        engine.check()
        assert target.ready == sum(entered) and target.entering == 20 - sum(entered)
        other.purge()
        while engine.enter("t", 5):
            pass
        assert target.ready == 20 and target.entering == 0
        engine.check()


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_what_was_staged_fills_by_half_lets_all_of_it_in(kind, tmp_path):
    """Nothing is left behind without a word, however long the log was written."""
    with xump.Engine() as engine:
        opened(engine, kind, tmp_path / "d", max_bytes=1 << 22)
        engine.create_queue("t", store="d")
        for turn in range(4):
            engine.adopt("t", [stage(engine, f"{turn}.{part}", 500, bytes(1000)) for part in range(2)])
            entered = []
            while engine.queues["t"].entering:
                entered.append(engine.enter("t", 50))
                assert entered[-1], (turn, entered)
            assert sum(entered) == 1000
            engine.check()
            engine.create_selector("t", when=always, do=discard, credit=INFINITE).delete()


def test_the_number_of_a_queue_that_an_adoption_names_is_not_given_to_another(tmp_path):
    for turn in range(3):
        with xump.Engine() as engine:
            opened(engine, "ring", tmp_path / "d")
            engine.create_queue("t", store="d")
            engine.create_queue(f"new {turn}", store="d", staged=True)
            engine.publish(f"new {turn}", "not yours")
            engine.check()
            assert engine.queues["t"].entering == 0
            assert engine.queues[f"new {turn}"].adopted_by is None
            if turn == 0:
                engine.adopt("t", [stage(engine, "a", 1), stage(engine, "b", 1)])
                engine.enter("t", 1)
                engine.enter("t", 1)
            engine.queues["t"].purge()
