"""Call-backs of outlets and watches come when their thread holds nothing that the engine needs; closing comes at any time."""

import signal
import threading
from contextlib import suppress

import pytest

from tests.durability.one_store import KINDS
from tests.patience import PATIENCE
from xump import INFINITE, Closed, Engine, StoreFull, always, copy_to, deliver, move_to, where
from xump.durability import opening

SMALL = {"ring": {"segment_bytes": 1 << 18, "min_bytes": 0}, "lmdb": {}}


def opened(kind, path, **options):
    engine = Engine()
    engine.create_store("s", kind, path=str(path), **options)
    return engine


def test_a_call_back_may_sync(kind, tmp_path):
    """The store's thread tells the outlet of what went on when it had made room."""
    synced = []
    with opened(kind, tmp_path / "s", durability="group", max_bytes=8 << 20, **SMALL[kind]) as engine:
        def sync():
            engine.sync(timeout=PATIENCE)
            synced.append(threading.current_thread().name)
        with engine.building():
            engine.create_queue("in")
            engine.create_queue("out", store="s")
            engine.create_selector("in", when=always, do=move_to("out"), credit=INFINITE)
            engine.create_selector("out", when=always, do=deliver("d"), credit=1000)
        engine.publish_many("in", [("m", bytes(50_000))] * 200)
        outlet = engine.outlet(sync, ["d"])
        count = 0
        while count < 200:
            taken = engine.take(1000, timeout=PATIENCE)
            assert taken
            engine.ack(taken)
            count += len(taken)
        engine.check()
        assert synced and outlet.destinations == ("d",)


def test_a_call_back_that_ends_the_program_fails_no_store(kind, tmp_path):
    def ends():
        raise SystemExit
    with opened(kind, tmp_path / "s", durability="group") as engine:
        with engine.building():
            engine.create_queue("q", store="s")
            for name in "ab":
                engine.create_queue(name, store="s")
                engine.create_selector("q", when=always, do=copy_to(name))
                engine.create_selector(name, when=always, do=deliver(name), credit=9)
        outlets = [engine.outlet(ends, [name]) for name in "ab"]
        with pytest.raises(SystemExit):
            engine.publish("q")
        with suppress(SystemExit):      # the rest is told at the end of the next call, of this thread or of the store's
            engine.sync()
        engine.sync()
        assert engine.stores["s"].error is None and len(engine.take(9)) == len(outlets)


def test_what_fell_due_before_a_refused_call_is_told_at_its_end(kind, tmp_path):
    """Its store made room in vain; the lock was given up meanwhile."""
    now, seen = [0], []
    with Engine(clock=lambda: now[0]) as engine:
        engine.create_store("s", kind, path=str(tmp_path / "s"), max_bytes=2 << 20, **SMALL[kind])
        engine.create_queue("q", store="s")
        engine.create_queue("a").publish(delay=1)
        engine.create_selector("a", when=always, do=deliver("d"), credit=9)
        outlet = engine.outlet(lambda: seen.append("called back"), ["d"])
        now[0] = 2 * 10**9
        with pytest.raises(StoreFull):
            engine.publish("q", body=bytes(8 << 20))
        assert seen == ["called back"] and len(outlet.take(9)) == 1


def test_a_call_back_comes_when_its_call_is_over():
    inside, told, go_on = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def slow(message):
        if message.address == "slow":
            inside.set()
            assert go_on.wait(PATIENCE)
            seen.append("the call was inside")
        return True

    def first():
        told.set()
        assert inside.wait(PATIENCE)
        threading.Timer(0.05, go_on.set).start()
    with Engine() as engine:
        for name in "ab":
            engine.create_queue(name)
        engine.create_selector("a", when=always, do=deliver("A"), credit=5)
        engine.create_selector("b", when=where(slow), do=deliver("B"), credit=5)
        outlets = [engine.outlet(first, ["A"]), engine.outlet(lambda: seen.append("called back"), ["B"])]
        one = threading.Thread(target=engine.publish, args=("a",))
        one.start()
        assert told.wait(PATIENCE)
        other = threading.Thread(target=engine.publish_many, args=("b", [("quick",), ("slow",)]))
        other.start()
        one.join()
        other.join()
        assert seen == ["the call was inside", "called back"] and len(outlets) == 2


def test_a_watch_may_wait_for_another_thread_that_changes_the_graph():
    def in_another_thread(changes):
        if changes[0].thing.name == "first":
            other = threading.Thread(target=engine.create_queue, args=("second",))
            other.start()
            other.join(PATIENCE)
            assert not other.is_alive()
    with Engine() as engine:
        engine.watch(in_another_thread)
        engine.create_queue("first")
        assert list(engine.queues) == ["first", "second"]


def closed_after(engine, call):
    """The call, after which another thread closes the engine."""
    def wrapped(*arguments):
        done = call(*arguments)
        close_in_another_thread(engine)
        return done
    return wrapped


def close_in_another_thread(engine):
    closer = threading.Thread(target=engine.close)
    closer.start()
    closer.join()


@pytest.mark.parametrize("owner", ["engine", "opening"])
def test_a_store_that_is_opened_while_the_engine_is_closed_is_closed_too(kind, tmp_path, owner, monkeypatch):
    with opened(kind, tmp_path / "s", **KINDS[kind]) as engine:
        engine.create_queue("q", store="s").publish()
    engine = Engine()
    if owner == "engine":
        read = closed_after(engine, engine._recover)
        monkeypatch.setattr(Engine, "_recover", lambda _, *arguments: read(*arguments))
    else:           # `close` does not see the store yet: the call that opens it closes it
        monkeypatch.setattr(opening, "Committer", closed_after(engine, opening.Committer))
    with pytest.raises(Closed):
        engine.create_store("s", kind, path=str(tmp_path / "s"), **KINDS[kind])
    monkeypatch.undo()
    with opened(kind, tmp_path / "s", **KINDS[kind]) as engine:
        assert engine.queues["q"].ready == 1
        engine.check()


def test_a_store_is_closed_once_by_close_and_by_delete_store(kind, tmp_path):
    engine = opened(kind, tmp_path / "s", **KINDS[kind])
    engine.create_queue("q", store="s").publish(body=b"kept")
    committer = engine.stores["s"].committer
    finish, errors = committer.finish, []

    def meanwhile(found):
        committer.finish = finish
        close_in_another_thread(engine)
        finish(found)
    committer.finish = meanwhile
    try:
        engine.delete_store("s")
    except Closed as error:
        errors.append(error)
    assert len(errors) <= 1 and engine.closed
    with opened(kind, tmp_path / "s", **KINDS[kind]) as engine:
        assert [message.body for message in engine.queues["q"].browse()] == [b"kept"]


def test_a_signal_ends_the_wait_for_a_change_of_the_graph():
    held, done = threading.Event(), threading.Event()

    def hold():
        with engine._graph_lock:
            held.set()
            assert done.wait(PATIENCE)
    with Engine() as engine:
        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(PATIENCE)
        before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
        threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1)).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                engine.create_queue("q")
        finally:
            signal.signal(signal.SIGUSR1, before)
            done.set()
        holder.join()
        engine.create_queue("q")
        assert list(engine.queues) == ["q"]


def test_changes_of_the_graph_take_turns():
    def change(name):
        for _ in range(200):
            with engine._graph_lock:        # it may be entered again
                engine.create_queue(name)
                inside.append(name)
                assert list(engine.queues) == [name]
                engine.delete_queue(name)
    inside = []
    with Engine() as engine:
        threads = [threading.Thread(target=change, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(inside) == 600 and not engine.queues
