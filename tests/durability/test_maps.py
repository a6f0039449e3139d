"""The maps of queues and stores on disk: what is refused, cleaning, compaction, damage, and stores that are full or fail."""

import errno
import shutil

import pytest

import xump
from tests.durability.unhurried import unhurried
from tests.stores.toy_store import ToyStore
from xump.cli import main
from xump.errors import Closed, StoreFailed, StoreFull, StoreNotFound
from xump.stores.lmdb import LmdbStore
from xump.stores.ring import RingStore
from xump_ext.records import kinds

STORES = {"lmdb": LmdbStore, "ring": RingStore}
OPTIONS = {"ring": {"segment_bytes": 1 << 16, "min_bytes": 0}, "lmdb": {}, "toy": {}}


@pytest.fixture(autouse=True)
def with_toys(monkeypatch):
    monkeypatch.setitem(xump.store_types._registered, "toy", ToyStore)


@pytest.fixture(params=OPTIONS)
def kind(request):
    return request.param


def opened(engine, kind, path, **options):
    return engine.create_store("d", kind, path=str(path), **OPTIONS[kind] | options)


@pytest.mark.parametrize(("name", "value", "error", "said"), [
    (1, b"", TypeError, "name in a map must be a str, got int"), ("a", "x", TypeError, "must be bytes, got str; encode it first"),
    ("a", None, TypeError, "to delete the name: del meta"), ("\ud800", b"", ValueError, "the name in a map"),
    ("a", bytes(65536), ValueError, "'a' and its value have 65537 bytes, allowed are 65536 in the whole map")])
def test_what_is_no_name_or_value(name, value, error, said):
    with xump.Engine() as engine:
        queue = engine.create_queue("q", meta={"a": b"1"})
        for call in (lambda: queue.meta.__setitem__(name, value), lambda: queue.meta.update({"b": b"2", name: value}),
                     lambda: engine.create_queue("r", meta={name: value})):
            with pytest.raises(error, match=said):
                call()
        if value is not None:
            with engine.transaction() as tx, pytest.raises(error, match=said):
                tx.set_meta("q", name, value)
        assert queue.meta == {"a": b"1"} and list(engine.queues) == ["q"]


def test_what_is_no_map_or_owner():
    with xump.Engine() as engine:
        with pytest.raises(TypeError, match="meta must be a mapping of str to bytes, got list"):
            engine.create_queue("q", meta=[("a", b"1")])
        with pytest.raises(ValueError, match="map of queue 'q' would have 65537 bytes of names and values, allowed are 65536"):
            engine.create_queue("q", meta={"a": bytes(65535), "b": b""})
        with engine.transaction() as tx, pytest.raises(TypeError, match="or of a Store; got int"):
            tx.set_meta(1, "a", b"")
        with pytest.raises(xump.TransactionError):
            tx.set_meta("q", "a", b"")
        assert not engine.queues


def test_the_map_of_what_is_gone(kind, tmp_path):
    with xump.Engine() as engine:
        store = opened(engine, kind, tmp_path / "d")
        queue = engine.create_queue("q", store="d", meta={"a": b"1"})
        ram = engine.stores["ram"]
        engine.delete_store("d")
        for owner, error in ((store, StoreNotFound), (queue, xump.QueueNotFound)):
            with pytest.raises(error):
                owner.meta["a"] = b"2"
        with pytest.raises(StoreNotFound), engine.transaction() as tx:
            tx.set_meta(store, "a", b"1")
    for call in (lambda: ram.meta["a"], lambda: ram.meta.update(a=b"1"), lambda: queue.meta["a"]):
        with pytest.raises(Closed):
            call()


def test_bytes_like_values_and_texts_of_subclasses():
    class Name(str):
        pass

    with xump.Engine() as engine:
        meta = engine.create_queue("q").meta
        meta.update({Name("a"): bytearray(b"1"), "b": memoryview(b"2")})
        assert meta == {"a": b"1", "b": b"2"} and {type(name) for name in meta} == {str}
        assert repr(meta) == repr({"a": b"1", "b": b"2"})
        iterated = iter(meta)
        meta.clear()
        assert list(iterated) == ["a", "b"] and list(meta) == []


def test_cleaning_carries_maps_on(kind, tmp_path):
    """Messages come and go until the log has been written anew several times over; maps stay, the newest state of each."""
    with xump.Engine() as engine:
        store = opened(engine, kind, tmp_path / "d", **({} if kind == "toy" else {"max_bytes": 1 << 21}))
        old = engine.create_queue("old", store="d", meta={"a": b"1" * 1000})
        engine.create_queue("emptied", store="d", meta={"a": b"1"}).meta.clear()
        store.meta["x"] = b"1"
        queue = engine.create_queue("q", store="d")
        for turn in range(60):
            store.meta["turn"] = queue.meta["turn"] = b"%d" % turn
            queue.publish("a", bytes(100_000))
            queue.purge()
            engine.sync()
        engine.check()
        assert store.live_bytes < 20_000
        shutil.copytree(tmp_path, tmp_path / "copied")
        assert old.meta["a"] == b"1" * 1000
    for path in (tmp_path / "d", tmp_path / "copied" / "d"):
        with xump.Engine() as engine:
            store = opened(engine, kind, path, **({} if kind == "toy" else {"max_bytes": 1 << 21}))
            engine.check()
            assert store.meta == {"x": b"1", "turn": b"59"} and engine.queues["q"].meta == {"turn": b"59"}
            assert engine.queues["old"].meta == {"a": b"1" * 1000} and dict(engine.queues["emptied"].meta) == {}


def test_names_that_are_set_one_by_one_write_the_last_state(tmp_path):
    sizes = {}
    for times in (1, 1000):
        with xump.Engine() as engine:
            unhurried(opened(engine, "ring", tmp_path / str(times), durability="group"))
            queue = engine.create_queue("q", store="d", meta={"n": b"\0" * 1000})
            engine.sync()
            for n in range(times):
                queue.meta["n"] = b"%01000d" % n
            engine.check()
            engine.sync()
            sizes[times] = engine.stores["d"].backend.end
            engine.check()
    assert sizes[1] == sizes[1000]


def test_maps_between_messages_of_one_group(kind, tmp_path):
    with xump.Engine() as engine:
        store = opened(engine, kind, tmp_path / "d")
        queue = engine.create_queue("q", store="d")
        for n in range(20):
            queue.publish("a", b"x" * n)
            queue.meta["n"] = b"%d" % n
            store.meta["n"] = b"%d" % n
            if n % 3:
                queue.delete(n)
            engine.check()
    with xump.Engine() as engine:
        store = opened(engine, kind, tmp_path / "d")
        engine.check()
        assert store.meta["n"] == engine.queues["q"].meta["n"] == b"19"


@pytest.mark.parametrize("kind", STORES)
def test_compaction_keeps_maps(kind, tmp_path, capsys):
    path = str(tmp_path / "d")
    with xump.Engine() as engine:
        store = opened(engine, kind, path)
        for n in range(5):
            store.meta["n"] = b"%d" % n
            queue = engine.create_queue("q", store="d", meta={"first": b"1"})
            queue.meta["n"] = b"\xff%d" % n
            engine.sync()
            queue.publish("a")
        engine.create_queue("gone", store="d", meta={"a": b"1"})
        engine.sync()
        engine.delete_queue("gone")
    assert main.main(["compact", path]) == main.main(["check", path]) == 0
    capsys.readouterr()
    assert main.main(["stats", path]) == 0
    assert capsys.readouterr().out.endswith("map of the store\n  n  4\n\nmap of queue 'q'\n  first  1\n  n  base64 /zQ=\n")
    assert main.main(["stats", path, "--json"]) == 0
    shown = capsys.readouterr().out
    assert '"meta": {\n  "n": "4"\n }' in shown and '"n": {\n     "base64": "/zQ="' in shown
    with xump.Engine() as engine:
        store = opened(engine, kind, path)
        engine.check()
        assert store.meta == {"n": b"4"} and engine.queues["q"].meta == {"first": b"1", "n": b"\xff4"}
        assert list(engine.queues) == ["q"] and engine.queues["q"].ready == 5


def places(path, kind, kind_of_record):
    """The offsets in a file of all records of that kind."""
    file = path if kind == "ring" else path / "data.mdb"
    data, at, found = file.read_bytes(), -1, []
    while (at := data.find(kinds.MAGIC_BYTES + bytes([kind_of_record]), at + 1)) >= 0:
        found.append(at - kinds.MAGIC_AT)
    return file, data, found


@pytest.mark.parametrize("kind", STORES)
def test_repair_takes_out_a_damaged_map(kind, tmp_path):
    """The map is as an older record has it, or empty; messages and other maps stay."""
    path = tmp_path / "d"
    with xump.Engine() as engine:
        store = opened(engine, kind, path)
        store.meta["x"] = b"1"
        queue = engine.create_queue("q", store="d", meta={"a": b"find-me" * 3})
        queue.publish("a", b"body")
    file, data, found = places(path, kind, kinds.META)
    damaged = bytearray(data)
    for at in found:                # pages of earlier transactions have it, too
        if b"find-me" in data[at : at + 100]:
            damaged[data.index(b"find-me", at)] ^= 1
    assert damaged != data
    file.write_bytes(damaged)
    report = STORES[kind].check(str(path))
    assert report.damage and STORES[kind].repair(str(path)).damage and not STORES[kind].check(str(path)).damage
    with xump.Engine() as engine:
        store = opened(engine, kind, path)
        engine.check()
        queue = engine.queues["q"]
        assert dict(queue.meta) == {} and store.meta == {"x": b"1"} and queue.fetch(1).body == b"body"
        queue.meta["a"] = b"2"
    with xump.Engine() as engine:
        opened(engine, kind, path)
        assert engine.queues["q"].meta == {"a": b"2"}


@pytest.mark.parametrize("kind", STORES)
def test_a_full_store_refuses_and_changes_nothing(kind, tmp_path):
    with xump.Engine() as engine:
        store = opened(engine, kind, tmp_path / "d", max_bytes=1 << 21)
        queue = engine.create_queue("q", store="d", meta={"a": b"1"})
        with pytest.raises(StoreFull):
            while True:
                queue.publish("a", bytes(20_000))
        entered = queue.last_id
        calls = [lambda: queue.meta.update(a=bytes(60_000)), lambda: store.meta.update(a=bytes(60_000)),
                 lambda: engine.create_queue("r", store="d", meta={"a": bytes(60_000)})]
        for call in calls:
            with pytest.raises(StoreFull):
                call()
        with pytest.raises(StoreFull, match="map of 'q'"), engine.transaction() as tx:
            tx.set_meta(queue, "a", bytes(60_000))
        with pytest.raises(StoreFull), engine.transaction() as tx:
            tx.set_meta(queue, "b", b"2")
            tx.publish("q", "a", bytes(20_000))
        engine.check()
        assert queue.meta == {"a": b"1"} and not store.meta and "r" not in engine.queues and queue.last_id == entered
        queue.purge()
        for call in calls:
            call()
        engine.check()


def test_a_store_that_fails(tmp_path, monkeypatch):
    with xump.Engine() as engine:
        store = opened(engine, "ring", tmp_path / "d", durability="sync")
        queue = engine.create_queue("q", store="d", meta={"a": b"1"})

        def fails():
            raise OSError(errno.EIO, "no disk")
        monkeypatch.setattr(store.backend, "sync", fails)
        with pytest.raises(StoreFailed):
            queue.meta["a"] = b"2"
        for change in (queue.meta, store.meta):
            with pytest.raises(StoreFailed):
                change["b"] = b"3"
        with pytest.raises(StoreFailed):
            engine.create_queue("r", store="d", meta={"a": b"1"})
        assert "b" not in queue.meta and "r" not in engine.queues
        engine.check()
