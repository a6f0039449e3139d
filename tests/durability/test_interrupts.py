"""Handlers of signals that raise, in calls that change durable stores: nothing hangs, and what the call has done stays done."""

import signal
import threading
import time

import pytest

from tests.durability.one_store import KINDS
from tests.patience import PATIENCE
from xump import Engine, StoreFailed
from xump.durability.committer import Committer
from xump_ext.log.wakeup import Wakeup


class Interrupt(Exception):
    """What a handler raises."""


def interrupted(monkeypatch, owner, name):
    """The next call of a method is interrupted where it begins, and no other is."""
    real, hits = getattr(owner, name), []

    def hit(*args, **kwargs):
        hits.append(name)
        if len(hits) == 1:
            raise Interrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, hit)


def opened(path, kind="ring", **options):
    engine = Engine()
    engine.create_store("d", kind, path=str(path), **{**KINDS[kind], **options})
    return engine


# ---- what a store's thread waits for

def test_a_wakeup_wakes_all_that_wait_and_come_later():
    wakeup, woken = Wakeup(), []
    threads = [threading.Thread(target=lambda: woken.append(wakeup.wait(PATIENCE))) for _ in range(3)]
    for thread in threads:
        thread.start()
    wakeup.set()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3 and wakeup.is_set() and wakeup.wait(0) and wakeup.wait()


def test_a_wakeup_that_was_cleared_wakes_nobody():
    wakeup = Wakeup()
    assert not wakeup.is_set() and not wakeup.wait(0)
    for _ in range(3):
        wakeup.set()
        wakeup.set()
        assert wakeup.wait(0)
        wakeup.clear()
        wakeup.clear()
        assert not wakeup.is_set() and not wakeup.wait(0) and not wakeup.wait(0.001)


def test_no_wakeup_is_lost():
    """One thread sets and the other clears, each as soon as it can."""
    there, back = Wakeup(), Wakeup()

    def answer():
        for _ in range(5_000):
            assert there.wait(PATIENCE)
            there.clear()
            back.set()
    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(5_000):
        there.set()
        assert back.wait(PATIENCE)
        back.clear()
    thread.join()


# ---- calls

@pytest.mark.parametrize("durability", ["group", "none"])
def test_an_interrupt_before_the_store_is_told_does_not_keep_it_from_writing(tmp_path, monkeypatch, durability):
    interrupted(monkeypatch, Committer, "changed")
    with opened(tmp_path / "s", durability=durability) as engine:
        with pytest.raises(Interrupt):
            queue = engine.create_queue("q", store="d")
        queue = engine.queues["q"]
        deadline = time.monotonic() + PATIENCE
        while engine._stores["d"].committer._port.waiting and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not engine._stores["d"].committer._port.waiting
        queue.publish("1")
    with opened(tmp_path / "s") as engine:
        assert engine.queues["q"].ready == 1


@pytest.mark.parametrize("durability", ["sync", "group"])
def test_an_interrupted_sync_leaves_the_next_one_as_it_was(tmp_path, monkeypatch, durability):
    with opened(tmp_path / "s", durability=durability) as engine:
        queue = engine.create_queue("q", store="d")
        for number, call in enumerate(("__init__", "start"), 1):
            queue.publish()
            interrupted(monkeypatch, threading.Thread, call)
            with pytest.raises(Interrupt):
                engine.sync(timeout=PATIENCE)
            engine.sync(timeout=PATIENCE)
            assert queue.durable_id == number


def test_a_call_that_has_asked_for_a_sync_asks_again_if_the_first_was_interrupted(tmp_path, monkeypatch):
    """The first call has asked, and is interrupted before it has started the thread that syncs for both."""
    asked, real = [], threading.Thread.start
    with opened(tmp_path / "s") as engine:
        engine.create_queue("q", store="d").publish()
        committer = engine._stores["d"].committer
        second = threading.Thread(target=lambda: asked.append(committer.sync(time.monotonic() + PATIENCE)))

        def hit(thread):
            monkeypatch.setattr(threading.Thread, "start", real)
            second.start()
            while len(committer._asked) < 2:
                time.sleep(0.001)
            raise Interrupt
        monkeypatch.setattr(threading.Thread, "start", hit)
        with pytest.raises(Interrupt):
            engine.sync(timeout=PATIENCE)
        second.join()
    assert asked == [True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_signal_waits_until_a_store_is_deleted(tmp_path, kind, number):
    """It comes while the call does what fell due before."""
    moment = [1]

    def clock():
        if moment[0] == 100:
            moment[0] += 1
            signal.raise_signal(number)
        return moment[0]

    def handler(number, frame):
        raise Interrupt

    before = signal.signal(number, handler)
    try:
        engine = Engine(clock=clock)
        engine.create_store("d", kind, path=str(tmp_path / "s"), **KINDS[kind])
        engine.create_queue("q", store="d")
        engine.publish_many("q", [("1",), ("2",), ("3",)])
        engine.create_queue("short", store="d", ttl=1e-9).publish()
        moment[0] = 100
        with pytest.raises(Interrupt):
            engine.delete_store("d")
        assert list(engine.stores) == ["ram"] and not engine.queues
        engine.check()
        engine.close()
    finally:
        signal.signal(number, before)
    with opened(tmp_path / "s", kind) as engine:
        assert engine.queues["q"].ready == 3


def test_an_error_of_what_fell_due_does_not_leave_the_store_half_deleted(tmp_path, monkeypatch):
    """Another store fails, since a message in it expires in that call."""
    moment = [1]

    def broken(group):
        raise OSError("the disk is gone")

    with Engine(clock=lambda: moment[0]) as engine:
        for name in "de":
            engine.create_store(name, "ring", path=str(tmp_path / name), **{**KINDS["ring"], "durability": "sync"})
        engine.create_queue("q", store="d").publish()
        engine.create_queue("short", store="e", ttl=1e-9).publish()
        monkeypatch.setattr(engine._stores["e"].committer._backend, "write", broken)
        moment[0] = 100
        with pytest.raises(StoreFailed, match="'e' has failed: .*the disk is gone"):
            engine.delete_store("d")
        assert list(engine.stores) == ["ram", "e"] and list(engine.queues) == ["short"]
    with opened(tmp_path / "d") as engine:
        assert engine.queues["q"].ready == 1
