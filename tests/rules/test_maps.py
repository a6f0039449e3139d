"""The maps of queues and stores: names and values of your own, as durable as what they belong to (decisions 175 to 177)."""

import pytest

import xump
from tests.rules.test_reopened import ENDS, house  # noqa: F401 - a fixture
from xump.errors import QueueFull, QueueNotFound, TransactionError

LIMIT = 65536


@pytest.fixture
def engine(house):  # noqa: F811
    return house.engine


def meta_of(engine, store):
    return engine.stores[store].meta if isinstance(engine, xump.Engine) else engine.store_meta(store)


def test_a_map_is_a_mapping(engine):
    for meta in (engine.create_queue("q").meta, engine.create_queue("p", store="d").meta, meta_of(engine, "ram"),
                 meta_of(engine, "d")):
        assert dict(meta) == {} and "a" not in meta and meta.get("a") is None
        meta["a"] = b"1"
        meta.update({"b": b"2", "a": b"3"}, c=b"")
        assert meta == {"a": b"3", "b": b"2", "c": b""} and len(meta) == 3 and sorted(meta) == ["a", "b", "c"]
        assert meta.pop("b") == b"2" and meta.setdefault("c", b"9") == b"" and meta.pop("b", None) is None
        for wrong in (lambda meta: meta["b"], lambda meta: meta.pop("b"), lambda meta: meta.__delitem__("b")):
            with pytest.raises(KeyError, match="b"):
                wrong(meta)
        meta.clear()
        assert dict(meta) == {}


def test_a_queue_has_what_it_was_made_with_and_keeps_what_it_has(engine):
    for store in ("ram", "d"):
        queue = engine.create_queue(store, store=store, meta={"a": b"1"})
        queue.meta["b"] = b"2"
        assert engine.create_queue(store, store=store, meta={"a": b"9"}).meta == {"a": b"1", "b": b"2"}
        assert engine.create_queue(store, store=store).meta == {"a": b"1", "b": b"2"}
        assert engine.stats()["queues"][store]["meta_bytes"] == 4


def test_a_map_ends_with_its_queue(engine):
    for store in ("ram", "d"):
        queue = engine.create_queue(store, store=store, meta={"a": b"1"})
        meta = queue.meta
        engine.delete_queue(store)
        for use in (lambda: meta["a"], lambda: meta.update(b=b"1"), lambda: dict(queue.meta)):     # noqa: B023
            with pytest.raises(QueueNotFound):
                use()
        assert dict(engine.create_queue(store, store=store).meta) == {}


def test_too_much_is_refused_and_changes_nothing(engine):
    queue = engine.create_queue("q", store="d", meta={"ä": bytes(LIMIT - 10)})
    for call in (lambda: queue.meta.update(b=b"2", c=bytes(7)), lambda: queue.meta.update(ä=bytes(LIMIT)),
                 lambda: engine.create_queue("r", meta={"a": bytes(LIMIT)})):
        with pytest.raises(ValueError):
            call()
    assert list(queue.meta) == ["ä"] and "r" not in engine.queues
    queue.meta.update(b=bytes(7))
    assert engine.stats()["queues"]["q"]["meta_bytes"] == LIMIT


def test_a_transaction_sets_all_or_nothing(engine):
    ram, durable = engine.create_queue("ram", meta={"a": b"1"}), engine.create_queue("durable", store="d")
    full = engine.create_queue("full", store="d", limit=0)
    with engine.transaction() as tx:
        tx.set_meta("ram", "a", None)
        tx.set_meta(ram, "b", b"2")
        tx.set_meta(durable, "c", b"3")
        tx.set_meta("durable", "d", b"4")
        tx.set_meta("durable", "no", None)
        tx.publish("durable", "x")
        assert dict(ram.meta) == {"a": b"1"} and durable.ready == 0
    assert ram.meta == {"b": b"2"} and durable.meta == {"c": b"3", "d": b"4"} and durable.ready == 1
    with pytest.raises(QueueFull), engine.transaction() as tx:
        tx.set_meta("durable", "c", None)
        tx.set_meta("ram", "b", b"9")
        tx.publish(full, "x")
    with pytest.raises(QueueNotFound), engine.transaction() as tx:
        tx.set_meta("durable", "c", None)
        tx.set_meta("missing", "b", b"9")
    with pytest.raises(ValueError), engine.transaction() as tx:
        tx.publish("durable", "x")
        tx.set_meta("durable", "c", bytes(LIMIT // 2))
        tx.set_meta("durable", "d", bytes(LIMIT // 2))
    with pytest.raises(ZeroDivisionError), engine.transaction() as tx:
        tx.set_meta("durable", "c", None)
        raise ZeroDivisionError
    assert ram.meta == {"b": b"2"} and durable.meta == {"c": b"3", "d": b"4"} and durable.ready == 1


def test_a_transaction_changes_maps_of_one_durable_store(engine, tmp_path):
    if not isinstance(engine, xump.Engine):
        engine.stores.append("e")
    else:
        engine.create_store("e", "ring", path=str(tmp_path / "e"), min_bytes=0)
    one, other = engine.create_queue("one", store="d"), engine.create_queue("other", store="e", meta={"a": b"1"})
    for write in (lambda tx: tx.set_meta("other", "a", b"2"), lambda tx: tx.publish("other", "x")):
        with pytest.raises(TransactionError), engine.transaction() as tx:
            write(tx)
            tx.set_meta("one", "a", b"2")
    with engine.transaction() as tx:
        tx.set_meta("one", "a", b"2")
        tx.set_meta("other", "a", b"1")         # which it is already
    assert one.meta == {"a": b"2"} and other.meta == {"a": b"1"}


@ENDS
def test_maps_come_back(house, engine, crashed):  # noqa: F811
    queue = engine.create_queue("q", store="d", meta={"a": b"1", "größe": b"\xff" * 1000})
    gone = engine.create_queue("gone", store="d", meta={"a": b"1"})
    emptied = engine.create_queue("emptied", store="d", meta={"a": b"1"})
    meta_of(engine, "d").update({"x": b"1", "y": b"2"})
    meta_of(engine, "ram")["x"] = b"1"
    engine.sync()
    queue.meta["a"] = b"2"
    del meta_of(engine, "d")["y"]
    emptied.meta.clear()
    engine.delete_queue(gone.name)
    engine.create_queue("gone", store="d")
    for _ in range(2):
        engine = house.opened_again(crashed)
        assert engine.queues["q"].meta == {"a": b"2", "größe": b"\xff" * 1000}
        assert meta_of(engine, "d") == {"x": b"1"} and dict(meta_of(engine, "ram")) == {}
        assert dict(engine.queues["gone"].meta) == dict(engine.queues["emptied"].meta) == {}
    engine.queues["q"].meta["a"] = b"3"
    assert house.opened_again(crashed).queues["q"].meta["a"] == b"3"
