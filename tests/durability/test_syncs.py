"""How often the engine has a store written and synced: what each durability promises is kept, and not paid for twice.

What of it reaches the disk from LMDB, which syncs in C, `benchmarks/fsyncs.py` counts by strace.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest

from tests.durability.unhurried import unhurried
from tests.patience import PATIENCE
from xump import INFINITE, Engine, always, deliver, move_to
from xump.durability.committer import Committer
from xump.store_types import register_store, store_types
from xump.stores.lmdb import LmdbStore
from xump.stores.ring import RingStore

CALLS = 20


class Counting:
    """Counts, and lets a test hold up a sync."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.calls = {"write": 0, "sync": 0}
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def write(self, batch):
        super().write(batch)
        self.calls["write"] += 1

    def sync(self):
        self.entered.set()
        assert self.go_on.wait(PATIENCE)
        super().sync()
        self.calls["sync"] += 1

    def since(self, before):
        return {call: count - before[call] for call, count in self.calls.items()}


for store in (RingStore, LmdbStore):
    if f"counting {store.type}" not in store_types():
        register_store(f"counting {store.type}", type("Counted", (Counting, store), {}))


@pytest.fixture(params=["ring", "lmdb"])
def kind(request):
    return f"counting {request.param}"


def engine_on(path, kind, durability):
    engine = Engine()
    with engine.building():
        backend = unhurried(engine.create_store("disk", kind, path=path, durability=durability)).backend
        engine.create_queue("jobs", store="disk")
        engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10_000)
    engine.sync()
    return engine, backend


def in_a_transaction(engine):
    (delivery,) = engine.take(1)
    with engine.transaction() as transaction:
        transaction.publish("jobs", "", b"more")
        transaction.ack(delivery)


STEPS = {
    "publish": lambda engine: engine.publish("jobs", "", b"body"),
    "publish_many": lambda engine: engine.publish_many("jobs", [("", b"body")] * 50),
    "take and ack": lambda engine: engine.take(1)[0].ack(),
    "ack of many": lambda engine: engine.ack(engine.take(10)),
    "transaction": in_a_transaction,
}
EACH_CALL = {"sync": {"write": CALLS, "sync": CALLS}, "process": {"write": CALLS, "sync": 0}}
NOTHING = {"write": 0, "sync": 0}


@pytest.mark.parametrize("durability", ["sync", "group", "process", "none"])
def test_a_call_is_one_group(tmp_path, kind, durability):
    """Written and synced as the durability says, whatever the number of messages; none in a thread's place."""
    engine, backend = engine_on(tmp_path / "store", kind, durability)
    with engine:
        for name, step in STEPS.items():
            before = dict(backend.calls)
            for _ in range(CALLS):
                step(engine)
            assert backend.since(before) == EACH_CALL.get(durability, NOTHING), name


@pytest.mark.parametrize("durability", ["group", "process", "none"])
def test_all_that_came_in_is_one_sync(tmp_path, kind, durability):
    engine, backend = engine_on(tmp_path / "store", kind, durability)
    with engine:
        before = dict(backend.calls)
        for step in STEPS.values():
            for _ in range(CALLS):
                step(engine)
        engine.sync()
        calls = len(STEPS) * CALLS
        assert backend.since(before) == {"write": calls if durability == "process" else 1, "sync": 1}
        assert engine.queues["jobs"].durable_id == CALLS * (1 + 50 + 1)


def test_a_ring_asks_the_disk_once_for_each_sync(tmp_path, monkeypatch):
    engine, backend = engine_on(tmp_path / "store", "counting ring", "sync")
    asked = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, name=name, real=real: (asked.append(name), real(fd)))
    with engine:
        before = dict(backend.calls)
        for step in STEPS.values():
            for _ in range(CALLS):
                step(engine)
        assert asked == ["fdatasync"] * backend.since(before)["sync"]


def test_calls_that_come_during_a_sync_share_the_next(tmp_path, kind):
    engine, backend = engine_on(tmp_path / "store", kind, "sync")
    with engine:
        backend.entered.clear()
        backend.go_on.clear()
        before = dict(backend.calls)
        threads = [threading.Thread(target=engine.publish, args=("jobs", "", b"body")) for _ in range(10)]
        threads[0].start()
        assert backend.entered.wait(PATIENCE)
        for thread in threads[1:]:
            thread.start()
        while engine.queues["jobs"].ready + engine.queues["jobs"].outstanding < len(threads):
            threading.Event().wait(0.001)
        assert engine.queues["jobs"].durable_id == 0
        backend.go_on.set()
        for thread in threads:
            thread.join()
        # Who was in, but had not come to wait yet, finds nothing to write, and syncs once more.
        assert backend.calls["write"] - before["write"] == 2 and 2 <= backend.calls["sync"] - before["sync"] < len(threads) // 2
        assert engine.queues["jobs"].durable_id == len(threads)


def test_the_thread_does_not_wait_for_who_writes_already(tmp_path, kind, monkeypatch):
    """It would be given the turn that the next `sync` needs, and keep it while it waits for the interpreter's lock: that took a
    fifth of the time of a group in LMDB."""
    engine, backend = engine_on(tmp_path / "store", kind, "group")
    committer, commit, turns = engine._stores["disk"].committer, Committer.write_for_others, []
    monkeypatch.setattr(Committer, "write_for_others", lambda self, *how: turns.append(self) or commit(self, *how))
    with engine:
        backend.entered.clear()
        backend.go_on.clear()
        engine.publish("jobs", "", b"body")
        thread = threading.Thread(target=engine.sync)
        thread.start()
        assert backend.entered.wait(PATIENCE)
        committer._hurry.set()          # as when `group_ms` are over
        while committer._hurry.is_set() or committer.wakeup.is_set():
            time.sleep(0.001)
        time.sleep(0.05)
        assert turns == []
        backend.go_on.set()
        thread.join()
        engine.publish("jobs", "", b"body")
        committer._hurry.set()
        while engine.queues["jobs"].durable_id < 2:
            time.sleep(0.001)
        assert turns == [committer]


def test_the_thread_gets_its_turn_while_contents_are_read(tmp_path, kind, monkeypatch):
    """A consumer of a backlog gives way only inside the engine, where it reads; what it acks is written all the same, and a close
    in the middle is no failure of the store."""
    with engine_on(tmp_path / "s", kind, "group")[0] as engine:
        engine.publish_many("jobs", [("", b"body")] * 1000)
    writes = []
    with Engine() as engine:
        backend = engine.create_store("disk", kind, path=tmp_path / "s", durability="process", group_ms=0.1).backend
        fetch = backend.fetch
        monkeypatch.setattr(backend, "fetch", lambda *record: (time.sleep(1e-4), fetch(*record)[0], fetch(*record)[1][:140])[1:])
        with engine.building():
            engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        backend.calls["write"] = 0
        for count, delivery in enumerate(engine.deliveries(), 1):
            delivery.ack()
            writes.append(backend.calls["write"])
            if count == 500:
                break
    assert writes[-1] > 10
    with Engine() as engine:
        engine.create_store("disk", kind, path=tmp_path / "s")
        assert (engine.queues["jobs"].ready, engine.queues["jobs"].outstanding) == (500, 0)
        engine.check()


@pytest.mark.parametrize("source_deleted", [False, True])
@pytest.mark.parametrize("group_ms", [0.1, 1, 60_000])
def test_after_sync_a_message_that_was_moved_is_in_one_store_only(tmp_path, kind, group_ms, source_deleted):
    """In the files as they are then; also if the queue that it came from is gone."""
    def stores(folder):
        engine = Engine()
        for name in ("left", "right"):
            engine.create_store(name, kind, path=folder / name, group_ms=group_ms)
        return engine

    for turn in range(5):
        folder, copy = tmp_path / f"{turn}", tmp_path / f"copy of {turn}"
        folder.mkdir()
        with stores(folder) as engine:
            with engine.building():
                engine.create_queue("a", store="left")
                engine.create_queue("b", store="right")
                engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
            for number in range(turn + 1):
                engine.publish("a", "", b"%d" % number)
            if source_deleted:
                engine.delete_queue("a")
            engine.sync()
            shutil.copytree(folder, copy)
        with stores(copy) as engine:
            assert {name: queue.ready for name, queue in engine.queues.items()} == (
                {"b": turn + 1} if source_deleted else {"a": 0, "b": turn + 1})


def test_sync_waits_for_what_went_on_in_the_group_of_another_thread(tmp_path, kind):
    """The message is durable in the second store, so its end goes on in the first, in a group that a thread is writing."""
    engine = Engine()
    with engine.building():
        for name, queue in (("left", "a"), ("right", "b")):
            unhurried(engine.create_store(name, kind, path=tmp_path / name))
            engine.create_queue(queue, store=name)
        engine.create_selector("a", when=always, do=move_to("b"), credit=INFINITE)
    engine.publish("a", "", b"body")
    left, right = (engine._stores[name].committer for name in ("left", "right"))
    backend, order = left._backend, []
    thread = threading.Thread(target=left.sync, args=(None,))
    real = right.sync

    def go_on():
        order.append("durable in both")
        backend.go_on.set()

    def sync(deadline):
        right.sync = real
        assert real(deadline)
        backend.entered.clear()
        backend.go_on.clear()
        thread.start()
        assert backend.entered.wait(PATIENCE)         # the group that ends the message is written, and not durable yet
        threading.Timer(0.05, go_on).start()
        return True

    right.sync = sync
    engine.sync()
    order.append("returned")
    thread.join()
    engine.close()
    assert order == ["durable in both", "returned"]


IN_A_HANDLER = """
import os, signal, sys
from xump import Engine

engine = Engine()
engine.create_store("s", "ring", path=sys.argv[1], durability="sync", min_bytes=1 << 20, segment_bytes=1 << 16)
engine.create_queue("q", store="s")
signal.signal(signal.SIGTERM, lambda number, frame: exec(sys.argv[2]))
sync = os.fdatasync

def synced(fd):
    os.fdatasync = sync
    signal.raise_signal(signal.SIGTERM)
    sync(fd)

os.fdatasync = synced
engine.publish("q")
"""


@pytest.mark.parametrize("call", ["engine.sync()", "engine.publish('q')", "engine.close()"])
def test_the_handler_of_a_signal_that_comes_during_a_write_may_write(tmp_path, call):
    """It is called when the write is over, and another one may begin."""
    path = str(tmp_path / "s")
    subprocess.run([sys.executable, "-c", IN_A_HANDLER, path, call], check=True, timeout=PATIENCE)
    with Engine() as engine:
        engine.create_store("s", "ring", path=path)
        assert engine.queues["q"].ready == 1 + ("publish" in call)


@pytest.fixture
def no_more_threads(monkeypatch):
    """How many threads the system refuses to start."""
    refused, start = [0], threading.Thread.start

    def started(thread):
        if refused[0]:
            refused[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)
    monkeypatch.setattr(threading.Thread, "start", started)
    return refused


def test_a_thread_that_cannot_be_started_is_started_the_next_time(tmp_path, no_more_threads):
    path = str(tmp_path / "s")
    with Engine() as engine:
        for refused in (1, 0):
            no_more_threads[0] = refused
            with pytest.raises(RuntimeError) if refused else nullcontext():
                engine.create_store("s", "ring", path=path)         # its lock is free again after that
        engine.create_store("p", "ring", path=str(tmp_path / "p"), durability="process")
        for store in "sp":
            engine.create_queue(store, store=store)
            engine.publish(store)
        for refused in (1, 0):
            no_more_threads[0] = refused
            with pytest.raises(RuntimeError) if refused else nullcontext():
                engine.sync(timeout=PATIENCE)
        no_more_threads[0] = 1
        with engine.not_waiting(), pytest.raises(RuntimeError):
            engine.publish("p")
    with Engine() as engine:        # it was closed in order
        for store in "sp":
            engine.create_store(store, "ring", path=str(tmp_path / store))
        assert (engine.queues["s"].ready, engine.queues["p"].ready) == (1, 2)
