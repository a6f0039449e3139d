"""A full store that stands still is cleaned for any gain, and for nothing else (`xump/durability/standstill.py`)."""

import itertools
import threading
import time

import pytest

from tests.model.full import SEGMENT, SMALL
from tests.patience import PATIENCE
from xump import INFINITE, Engine, StoreFull, always, move_to


def test_what_a_lap_writes_anew_is_no_gain(tmp_path):
    """A ring that is full of live messages lacks a few bytes for one that waits: fewer than the heads of the groups take that
    copying writes. The thread tries it once, and does not go round and round, with the turn in its hands."""
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s", **SMALL["ring"])
        engine.create_queue("kept", store="s")
        engine.create_queue("upstream")
        engine.create_selector("upstream", when=always, do=move_to("kept"), credit=INFINITE)
        with pytest.raises(StoreFull):
            while True:
                engine.publish("kept", "x", bytes(9_000))
                engine.sync()                   # how the room is spent depends on no thread
        [committer] = engine._committers()
        tried = 0
        for size in range(1_600, 0, -32):       # some of them lack so few
            engine.publish("upstream", "x", bytes(size))
            engine.sync(timeout=PATIENCE)
            if 0 < committer._port.demand(0).refused_bytes - committer._backend.room() < 1_200:
                eventually(lambda: not committer._standstill._watching)
                tried += 1
            engine.queues["upstream"].purge()
            engine.check()
        assert tried > 10


@pytest.fixture
def still(tmp_path):
    """An engine whose ring is full."""
    with Engine() as engine:
        engine.create_store("s", "ring", path=tmp_path / "s", durability="process", segment_bytes=SEGMENT, min_bytes=0,
                            max_bytes=16 * SEGMENT)
        engine.create_queue("kept", store="s")
        engine.create_queue("target", store="s")
        engine.create_queue("upstream")
        engine.create_selector("upstream", when=always, do=move_to("target"), credit=INFINITE)
        with pytest.raises(StoreFull):
            while True:
                engine.publish_many("kept", [("x", bytes(1_000))] * 20)
        yield engine
        engine.check()


def eventually(condition):
    until = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def wait_upstream(engine):
    engine.publish("upstream", "x", bytes(4_000))
    assert engine.queues["upstream"].ready == 1


def end_some(engine, count=35):
    """So many messages end that a clean log has room for the one upstream: 22 are enough, and 53 would be worth cleaning."""
    for message in itertools.islice(engine.queues["kept"].browse(), count):
        engine.queues["kept"].delete(message.id)


def test_a_store_that_stands_still_is_cleaned_for_a_small_gain(still):
    wait_upstream(still)
    end_some(still)
    eventually(lambda: still.queues["target"].ready == 1)


def test_it_is_not_asked_again_while_cleaning_gains_nothing(still):
    [committer] = still._committers()
    wait_upstream(still)
    eventually(lambda: not committer._standstill._watching)
    asked = []
    oldest, committer._backend.oldest = committer._backend.oldest, asked.append
    end_some(still)
    eventually(lambda: any(demand.stands_still for demand in asked) and not committer._standstill._watching)
    committer._backend.oldest = oldest


@pytest.mark.usefixtures("no_garbage")
def test_a_system_that_gives_no_threads(still, monkeypatch, caplog):
    """The calls succeed, and the first one that gets a thread has the log cleaned."""
    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        wait_upstream(still)
        end_some(still)
    assert caplog.messages == ["store 's': messages wait for room, and no thread looks after it: can't start new thread"]
    end_some(still, 1)
    eventually(lambda: still.queues["target"].ready == 1)
