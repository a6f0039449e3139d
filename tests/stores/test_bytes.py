"""`Store.size_bytes` and `Store.live_bytes`: what the files take, and what the messages in them take."""

import os

import pyarrow
import pytest

import xump
from xump.store_types import file_bytes

BODY = b"x" * 10_000


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        yield engine


@pytest.fixture(params=["ram", "lmdb", "ring"])
def store(request, engine, tmp_path):
    if request.param == "ram":
        return engine.stores["ram"]
    return engine.create_store("s", request.param, path=tmp_path / "s")


def test_live_bytes_follow_the_messages(engine, store):
    queue = engine.create_queue("q", store=store, history_limit=None)
    empty = store.live_bytes
    engine.publish_many("q", [("address", BODY, {"n": n}) for n in range(50)])
    full = store.live_bytes - empty
    assert 50 * len(BODY) < full < 50 * len(BODY) * 1.3
    engine.get("q").ack()
    assert store.live_bytes - empty == full, "the history is kept, too"
    queue.delete(1)
    assert 0.97 < (store.live_bytes - empty) / full < 0.99
    engine.delete_queue("q")
    assert store.live_bytes <= empty


def test_a_message_counts_in_every_queue_of_its_store(engine, store):
    for name in ("q", "copy"):
        engine.create_queue(name, store=store)
    engine.create_queue("elsewhere")
    engine.create_selector("q", when=xump.always, do=xump.copy_to("copy"))
    engine.create_selector("copy", when=xump.always, do=xump.deliver("d"))
    before = store.live_bytes
    engine.publish("q", "a", BODY)
    once = store.live_bytes - before
    engine.queues["q"].hold()
    engine.publish("q", "a", BODY)
    assert store.live_bytes - before == 2 * once
    if store.name != "ram":
        engine.publish("elsewhere", "a", BODY)
        assert store.live_bytes - before == 2 * once


def test_size_bytes_are_those_of_the_files(engine, store):
    engine.create_queue("q", store=store)
    engine.publish_many("q", [("a", BODY)] * 100)
    engine.sync()
    if store.type == "ram":
        assert store.size_bytes == store.live_bytes
        return
    found = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(store.path) for name in names)
    assert store.size_bytes == (found or os.path.getsize(store.path)) >= store.live_bytes
    assert file_bytes(store.path) == store.size_bytes


def test_rows_that_are_still_columns_count(engine):
    engine.create_queue("q")
    engine.publish_batch("q", pyarrow.table({"body": [BODY] * 10}))
    assert 10 * len(BODY) < engine.stores["ram"].live_bytes < 10 * len(BODY) * 1.1


def test_of_a_closed_engine(engine, store):
    engine.create_queue("q", store=store)
    engine.publish("q", "a", BODY)
    engine.close()
    with pytest.raises(xump.Closed):
        store.live_bytes  # noqa: B018 - reading it is the test
