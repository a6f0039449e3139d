"""Call-backs when something is durable, and calls that do not wait: each is called once, whatever becomes of the store."""

import asyncio
import logging
import os
import threading

import pytest

import xump.aio
from tests.durability.log_in_memory import LOGS, Shelf
from xump import INFINITE, Closed, Engine, StoreFailed, StoreFull, always, move_to
from xump.store_types import register_store

LONG = 60


class Held(Shelf):
    """A test holds up its syncs, or lets them fail; it notes the threads that write."""

    stores = {}

    def __init__(self, name, *, space=None, **options):
        super().__init__(name, **options)
        Held.stores[name] = self
        self.go_on, self.entered = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails, self.threads, self.syncs = False, set(), 0
        self.space = space

    def write(self, group):
        self.threads.add(threading.current_thread())
        assert self.go_on.wait(LONG)
        if self.fails:
            raise OSError("the disk says no")
        super().write(group)

    def sync(self):
        self.entered.set()
        assert self.go_on.wait(LONG)
        if self.fails:
            raise OSError("the disk says no")
        super().sync()
        self.syncs += 1

    def room(self):
        return super().room() if self.space is None else self.space

    def oldest(self, demand):
        """Makes room as often as `spaces` says, when a call lacks some."""
        if not (demand.wanted_bytes and self.spaces):
            return None
        self.space = self.spaces.pop()
        return 0, self.end, b"".join(self.groups)

    def release(self, position):
        """Nothing is asked for its first part any more."""

    spaces = ()


register_store("held shelf", Held)


@pytest.fixture(autouse=True)
def fresh():
    LOGS.clear()
    Held.stores.clear()
    yield
    for store in Held.stores.values():
        store.go_on.set()


def opened(*names, durability="group", **options):
    engine = Engine()
    for name in names:
        engine.create_store(name, "held shelf", path=name, durability=durability, **options)
        engine.create_queue(f"q{name}", store=name)
    engine.sync()
    return engine


class Told:
    """A call-back that notes how it was called."""

    def __init__(self):
        self.errors, self.threads, self.called = [], [], threading.Event()

    def __call__(self, error):
        self.errors.append(error)
        self.threads.append(threading.current_thread())
        self.called.set()

    def once(self):
        """The error that it was called with, when it has been."""
        assert self.called.wait(LONG)
        error, = self.errors
        return error


def own(engine, name):
    return engine.stores[name].committer._thread


@pytest.mark.parametrize("durability", ["sync", "group", "process", "none"])
def test_it_is_called_when_the_store_has_what_was_done(durability):
    with opened("a", durability=durability) as engine:
        store, told = Held.stores["a"], Told()
        engine.publish("qa", body=b"x")
        engine.when_durable(told)
        assert told.once() is None
        assert len(LOGS["a"][0]) == len(store.groups) and b"x" in store.groups[-1]
        assert told.threads[0] is (threading.current_thread() if durability in ("sync", "process") else own(engine, "a"))
        if durability in ("sync", "group"):
            assert engine.queues["qa"].durable_id == 1


def test_in_ram_and_where_nothing_was_done_it_is_called_at_once():
    told = Told()
    with Engine() as engine:
        engine.create_queue("q")
        engine.publish("q")
        engine.when_durable(told)
        assert told.errors == [None]
    with opened("a", "b") as engine:
        engine.when_durable(told)
        assert told.errors == [None, None] and set(told.threads) == {threading.current_thread()}


def test_it_is_not_called_before_the_sync_has_returned():
    """What comes during a sync waits for the next one, and all that does shares it."""
    with opened("a") as engine:
        store, first, later = Held.stores["a"], Told(), [Told() for _ in range(10)]
        before = store.syncs
        store.entered.clear()
        store.go_on.clear()
        engine.publish("qa")
        engine.when_durable(first)
        for told in later:
            engine.publish("qa")
            engine.when_durable(told)
        assert first.errors == [] and engine.queues["qa"].durable_id == 0
        store.go_on.set()
        for told in later:
            assert told.once() is None
        assert first.errors == [None] and store.syncs - before <= 3 and engine.queues["qa"].durable_id == 11


def test_a_sync_of_another_thread_counts_and_the_stores_thread_calls():
    with opened("a") as engine:
        told = Told()
        engine.publish("qa")
        engine.stores["a"].committer._calls.add(engine.stores["a"].committer.everything[0], 0, told)     # hastens nobody
        engine.sync()
        assert told.once() is None and told.threads == [own(engine, "a")]


def test_several_stores_call_once():
    with opened("a", "b", "c") as engine:
        told = Told()
        for name in "abc":
            engine.publish(f"q{name}")
        engine.when_durable(told)
        assert told.once() is None
        assert [engine.queues[f"q{name}"].durable_id for name in "abc"] == [1, 1, 1]


@pytest.mark.parametrize("credit", [1, INFINITE])
def test_what_waits_behind_a_fence_counts(credit):
    """The end in the first store is logged when the second has the message."""
    with opened("a", "b") as engine:
        engine.create_selector("qa", when=always, do=move_to("qb"), credit=credit)
        told = Told()
        engine.publish("qa", body=b"x")
        engine.get("qb").ack()
        engine.when_durable(told)
        assert told.once() is None
        assert not engine.stores["a"].committer.fenced and not engine.stores["b"].committer.fenced
    left = [LOGS[name][0][: LOGS[name][1]] for name in "ab"]
    assert all(left)


def test_a_failed_sync_is_told_once_and_at_once_later():
    engine = opened("a", "b")
    store, told = Held.stores["a"], Told()
    store.fails = True
    engine.publish("qa")
    engine.publish("qb")
    engine.when_durable(told)
    assert isinstance(told.once(), StoreFailed) and "the disk says no" in str(told.errors[0])
    later = Told()
    engine.when_durable(later)
    assert isinstance(later.once(), StoreFailed)
    with pytest.raises(StoreFailed):
        engine.publish("qa")
    with pytest.raises(StoreFailed, match="says no"):       # no call of the program raised it … but the publish
        raise later.errors[0]
    engine.close()
    assert len(told.errors) == 1


def test_what_was_gathered_by_opening_the_store_counts():
    """No call has told the store's thread of it."""
    with opened("a") as engine:
        engine.publish("qa", ttl=1)
        engine.publish("qa")
        engine.get("qa")
        engine.sync()
        left = list(LOGS["a"][0])
    LOGS["a"] = [left, len(left)]                           # as after a crash
    with Engine() as engine:
        engine.create_store("a", "held shelf", path="a")
        committer, told = engine.stores["a"].committer, Told()
        with engine.building():
            pass
        engine.when_durable(told)
        assert told.once() is None and committer._port.ticket == committer._port.passed


def test_closing_tells_what_waits():
    engine = opened("a")
    store, told = Held.stores["a"], Told()
    store.go_on.clear()
    engine.publish("qa")
    engine.when_durable(told)
    closing = threading.Thread(target=engine.close)
    closing.start()
    assert told.errors == []
    store.go_on.set()
    closing.join(LONG)
    assert told.once() is None
    with pytest.raises(Closed):
        engine.when_durable(told)


def test_closing_a_store_that_fails_tells_the_error():
    engine = opened("a", "b")
    told = Told()
    engine.stores["a"].committer.stop()         # so that nobody but the close writes
    engine.publish("qa")
    engine.when_durable(told)
    Held.stores["a"].fails = True
    with pytest.raises(StoreFailed):
        engine.close()
    assert isinstance(told.once(), StoreFailed) and told.threads == [threading.current_thread()]


def test_deleting_a_store_tells_what_waits():
    with opened("a", "b") as engine:
        told = Told()
        engine.stores["a"].committer.stop()
        engine.publish("qa")
        engine.when_durable(told)
        assert told.errors == []
        engine.delete_store("a")
        assert told.once() is None


def test_what_a_call_back_raises_is_logged_and_the_others_are_called(caplog):
    def raises(error):
        raise SystemExit("not here")

    caplog.set_level(logging.ERROR, "xump")
    with opened("a") as engine:
        told = Told()
        engine.publish("qa")
        engine.when_durable(raises)
        engine.publish("qa")
        engine.when_durable(told)
        assert told.once() is None and "call-back" in caplog.text
        engine.publish("qa")
        again = Told()
        engine.when_durable(again)
        assert again.once() is None
    caplog.clear()
    with Engine() as engine:
        engine.when_durable(lambda error: 1 / 0)
        assert "division" in caplog.text


def test_a_call_back_may_call_the_engine():
    with opened("a") as engine:
        told = Told()

        def publishes(error):
            engine.publish("qa", "again")
            engine.when_durable(told)

        engine.publish("qa")
        engine.when_durable(publishes)
        assert told.once() is None and engine.queues["qa"].ready == 2


def test_a_call_back_may_close_the_engine():
    engine, told, closed = opened("a", "b"), Told(), threading.Event()

    def closes(error):
        engine.close()
        closed.set()

    for name in "ab":
        engine.publish(f"q{name}")
    engine.when_durable(closes)
    engine.when_durable(told)
    assert closed.wait(LONG) and told.once() is None and engine.closed


def test_what_is_no_function_is_refused():
    with Engine() as engine:
        for call in (engine.when_durable, engine.when_relieved):
            with pytest.raises(TypeError, match="int, which is not callable"):
                call(7)


def test_after_a_fork_the_parent_is_told_and_the_child_is_not():
    with opened("a") as engine:
        told = Told()
        Held.stores["a"].go_on.clear()
        engine.publish("qa")
        engine.when_durable(told)
        child = os.fork()
        if child == 0:
            try:
                engine.when_durable(told)
            except xump.ForkedError:
                os._exit(3 if told.errors == [] else 4)
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        Held.stores["a"].go_on.set()
        assert told.once() is None


# ---- calls that do not wait

@pytest.mark.parametrize("durability", ["sync", "group", "process", "none"])
def test_calls_that_do_not_wait_leave_all_to_the_thread(durability):
    """Also past what makes a caller write that waits."""
    with opened("a", durability=durability) as engine:
        store, told = Held.stores["a"], Told()
        store.threads.clear()
        store.go_on.clear()
        with engine.not_waiting():
            for _ in range(10):
                engine.publish_many("qa", [("", bytes(1 << 18))] * 4)
            assert engine.pressed
            engine.when_relieved(told)
            assert told.errors == []
            store.go_on.set()
            assert told.once() is None and not engine.pressed
            engine.ack(engine.get("qa") for _ in range(5))
            with engine.transaction() as tx:
                tx.publish("qa")
        engine.sync()
        assert store.threads == {own(engine, "a"), threading.current_thread()} or store.threads == {own(engine, "a")}


def test_it_holds_for_the_thread_and_the_block():
    with opened("a", durability="sync") as engine:
        store = Held.stores["a"]
        store.threads.clear()
        with engine.not_waiting():
            other = threading.Thread(target=engine.publish, args=("qa",))
            other.start()
            other.join(LONG)
            assert store.threads == {other}
            with engine.not_waiting():
                pass
            told = Told()
            engine.publish("qa")
            engine.when_durable(told)
            assert told.once() is None and store.threads == {other, own(engine, "a")}
        engine.publish("qa")
        assert threading.current_thread() in store.threads and engine.queues["qa"].durable_id == 3


def test_room_is_made_by_the_thread_and_a_full_store_is_not_pressed():
    with opened("a", space=1 << 20) as engine:
        store, told = Held.stores["a"], Told()
        store.space, store.spaces = 0, [1 << 20]
        engine.publish("qa")
        engine.sync()
        with engine.not_waiting():
            with pytest.raises(StoreFull):
                engine.publish("qa", body=bytes(5000))
            engine.when_relieved(told)
            assert told.once() is None
            engine.publish("qa", body=bytes(5000))
            store.space = 0
            engine.sync()
            with pytest.raises(StoreFull):          # it is looked for room once
                engine.publish("qa", body=bytes(5000))
            again = Told()
            engine.when_relieved(again)
            assert again.once() is None
            with pytest.raises(StoreFull):
                engine.publish("qa", body=bytes(5000))
            assert not engine.pressed
            engine.get("qa").ack()                  # now there may be some
            with pytest.raises(StoreFull):
                engine.publish("qa", body=bytes(5000))
            last = Told()
            engine.when_relieved(last)
            assert last.once() is None


def test_a_store_that_fails_under_pressure_tells_so():
    engine = opened("a")
    store, told = Held.stores["a"], Told()
    store.go_on.clear()
    with engine.not_waiting():
        engine.publish_many("qa", [("", bytes(1 << 20))] * 5)
        assert engine.pressed
        engine.when_relieved(told)
        store.fails = True
        store.go_on.set()
        assert isinstance(told.once(), StoreFailed) and not engine.pressed
        with pytest.raises(StoreFailed):
            engine.publish("qa")
    engine.close()


def test_closing_ends_the_pressure():
    engine = opened("a")
    store, told = Held.stores["a"], Told()
    store.go_on.clear()
    with engine.not_waiting():
        engine.publish_many("qa", [("", bytes(1 << 20))] * 5)
        engine.when_relieved(told)
    closing = threading.Thread(target=engine.close)
    closing.start()
    store.go_on.set()
    closing.join(LONG)
    assert told.once() is None


# ---- asyncio

def test_tasks_wait_for_it():
    async def confirm(engine):
        engine.publish("qa")
        await xump.aio.durable(engine)
        return engine.queues["qa"].durable_id

    async def all_of(engine):
        return await asyncio.gather(*(confirm(engine) for _ in range(20)))

    with opened("a") as engine:
        assert asyncio.run(all_of(engine)) == [20] * 20


def test_a_task_is_told_of_a_failure_and_may_be_cancelled():
    async def confirm(engine):
        engine.publish("qa")
        waiting = asyncio.ensure_future(xump.aio.durable(engine))
        await asyncio.sleep(0)
        waiting.cancel()
        Held.stores["a"].fails = True
        Held.stores["a"].go_on.set()
        with pytest.raises(StoreFailed):
            await xump.aio.durable(engine)

    engine = opened("a")
    Held.stores["a"].go_on.clear()
    asyncio.run(confirm(engine))
    with pytest.raises(StoreFailed):
        engine.close()


def test_a_task_pauses_while_the_engine_is_pressed():
    async def fill(engine):
        with engine.not_waiting():
            engine.publish_many("qa", [("", bytes(1 << 20))] * 5)
            waiting = asyncio.ensure_future(xump.aio.relieved(engine))
            await asyncio.sleep(0)
            assert not waiting.done()
            Held.stores["a"].go_on.set()
            await waiting
            assert not engine.pressed
            await xump.aio.relieved(engine)

    with opened("a") as engine:
        Held.stores["a"].go_on.clear()
        asyncio.run(fill(engine))
