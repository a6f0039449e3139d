"""Stores leave their engine, one by one or with it: what lies in their queues, and what goes wrong meanwhile."""

import gc
import logging
import subprocess
import sys
import threading
import weakref

import pytest

from tests.durability.log_in_memory import two_shelves
from tests.durability.one_store import bodies as ready
from tests.patience import PATIENCE
from xump import INFINITE, Closed, Conflict, Engine, always, move_to, where
from xump import store_types as store

ALL = [b"1", b"2", b"3", b"4"]


def bodies(queue):
    return [message.body for message in queue.browse(state="ready")]


def two_stores(credit):
    """Four messages of `s`, moved in turn into two queues of another store in RAM."""
    engine = Engine(clock=lambda: 0)
    engine.create_store("r2")
    engine.create_queue("s")
    for name in ("b1", "b2"):
        engine.create_queue(name, store="r2")
        engine.create_selector("s", when=always, do=move_to(name), credit=credit)
    for body in ALL:
        engine.publish("s", body=body)
    return engine


@pytest.mark.parametrize("credit", [10, INFINITE])
def test_the_queues_of_a_store_go_as_one(credit):
    with two_stores(credit) as engine, two_stores(credit) as other:
        assert engine.delete_store("r2")
        with other.building():
            other.delete_queue("b1")
            other.delete_queue("b2")
        assert engine.stats() == other.stats()
        assert bodies(engine.queues["s"]) == ([] if credit is INFINITE else ALL)
        assert (list(engine.stores), list(engine.queues), list(engine.selectors)) == (["ram"], ["s"], [])
        engine.check()


def test_a_queue_of_a_store_may_delete_itself_with_another():
    with Engine() as engine:
        engine.create_store("r2")
        engine.create_queue("a", store="r2", auto_delete=True)
        engine.create_queue("b", store="r2")
        engine.create_selector("a", when=always, do=move_to("b"))
        assert engine.delete_store("r2") and not engine.queues


def test_a_queue_is_in_one_store():
    with Engine() as engine:
        engine.create_store("r2")
        engine.create_queue("q", store="r2")
        with pytest.raises(Conflict, match="queue 'q' exists with store='r2'; you asked for store='ram'"):
            engine.create_queue("q")


def test_a_clock_that_fails_leaves_the_store_where_it_is():
    times = iter([0, "never"])
    with Engine(clock=lambda: next(times, 0)) as engine:
        engine.create_store("r2")
        queue = engine.create_queue("q", store="r2")
        with pytest.raises(TypeError, match="clock"):
            engine.delete_store("r2")
        assert queue.publish() == 1 and not queue.held and "r2" in engine.stores
        assert engine.delete_store("r2")


# ---- stores that cannot be closed

class Stuck:
    """A store in RAM that cannot be closed."""

    closed = []

    def __init__(self, name):
        self.name = name

    def close(self):
        self.closed.append(self.name)
        raise OSError(f"{self.name} is stuck")


@pytest.fixture
def stuck(monkeypatch):
    monkeypatch.setitem(store._registered, "stuck", Stuck)
    Stuck.closed.clear()
    engine = Engine()
    for name in "xyz":
        engine.create_store(name, "stuck")
        engine.create_queue(f"{name}-1", store=name)
    yield engine
    engine.close()


def test_a_store_that_cannot_be_closed_holds_up_nobody(stuck, caplog, tmp_path):
    ring = stuck.create_store("ring", "ring", path=str(tmp_path / "ring"), min_bytes=0)
    stuck.create_queue("kept", store="ring").publish(body=b"kept")
    got = []

    def wait():
        with pytest.raises(Closed) as raised:
            stuck.take(1, timeout=PATIENCE)
        got.append(raised.type)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not stuck._waiting_destinations:
        waiting.join(0.001)
    with caplog.at_level(logging.ERROR, "xump"), pytest.raises(OSError, match="x is stuck"):
        stuck.close()
    waiting.join()
    assert got == [Closed] and stuck.closed and Stuck.closed == ["x", "y", "z"]
    assert [record.getMessage() for record in caplog.records if record.name == "xump"] == [
        "while stores were closed: y is stuck", "while stores were closed: z is stuck"]
    stuck.close()
    with Engine() as engine:
        engine.create_store("ring", ring.type, **ring.options)
        assert bodies(engine.queues["kept"]) == [b"kept"]


def test_a_durable_store_that_cannot_be_closed_holds_up_nobody(tmp_path, monkeypatch):
    engine = Engine()
    for name in "ab":
        engine.create_store(name, "ring", path=str(tmp_path / name), min_bytes=0)
        engine.create_queue(f"of {name}", store=name).publish(body=ALL[0])
    backend = engine.stores["a"].backend
    close = type(backend).close

    def closed(self):
        close(self)
        if self is backend:
            raise OSError("a is stuck")

    monkeypatch.setattr(type(backend), "close", closed)
    with pytest.raises(OSError, match="a is stuck"):
        engine.close()
    with Engine() as engine:
        for name in "ab":
            engine.create_store(name, "ring", path=str(tmp_path / name))
            assert bodies(engine.queues[f"of {name}"]) == ALL[:1]


AT_EXIT = """
import sys
from xump import Engine
from xump.stores.ring import RingStore

class Stuck(RingStore):
    def close(self):
        super().close()
        raise OSError("stuck")

from xump import register_store
register_store("stuck", Stuck)
engines = [Engine() for _ in range(4)]
for number, engine in enumerate(engines):
    engine.create_store("s", "stuck", path=f"{sys.argv[1]}/{number}", min_bytes=0, group_ms=60_000)
    engine.create_queue("q", store="s").publish(body=b"1")
"""


def test_all_engines_are_closed_at_the_end_of_the_interpreter(tmp_path):
    done = subprocess.run([sys.executable, "-c", AT_EXIT, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "stuck" in done.stderr
    for number in range(4):
        with Engine() as engine:
            engine.create_store("s", "ring", path=str(tmp_path / str(number)))
            assert bodies(engine.queues["q"]) == ALL[:1]


DROPPED = """
import gc, sys
from xump import Engine
from xump.stores.ring import RingStore

class Telling(RingStore):
    def sync(self):
        print("sync", self.durability)
        super().sync()

    def close(self):
        super().close()
        print("close", self.durability)

from xump import register_store
register_store("telling", Telling)

def dropped(durability):
    engine = Engine()
    engine.create_store("deleted", "telling", path=f"{sys.argv[1]}/{durability} deleted", min_bytes=0, durability=durability)
    engine.create_store("s", "telling", path=f"{sys.argv[1]}/{durability}", min_bytes=0, durability=durability, group_ms=60_000)
    engine.delete_store("deleted")
    engine.create_queue("q", store="s").publish(body=b"1")

for durability in ("sync", "group", "process", "none"):
    dropped(durability)
gc.collect()
print("the end")
"""


def test_so_are_those_that_were_dropped(tmp_path):
    """Each keeps its lock until then, and what was only written is synced."""
    done = subprocess.run([sys.executable, "-c", DROPPED, str(tmp_path)], capture_output=True, text=True, check=True)
    before, after = done.stdout.split("the end\n")
    closed = sorted(line for line in before.splitlines() if line.startswith("close"))
    assert closed == sorted(f"close {one}" for one in ("sync", "group", "process", "none"))      # the deleted ones
    assert set(after.splitlines()) == {
        "sync sync", "close sync", "sync group", "close group", "sync process", "close process", "close none"}
    assert done.stderr == ""
    for durability in ("sync", "group", "process", "none"):
        with Engine() as engine:
            engine.create_store("s", "ring", path=str(tmp_path / durability))
            assert bodies(engine.queues["q"]) == ALL[:1]


def test_an_engine_without_its_stores_may_be_dropped(tmp_path):
    engine = Engine()
    engine.create_store("s", "ring", path=str(tmp_path / "s"), min_bytes=0, durability="process")
    engine.delete_store("s")
    left = weakref.ref(engine)
    del engine
    gc.collect()
    assert left() is None


def test_a_store_that_cannot_be_closed_is_deleted_all_the_same(stuck):
    stuck.create_queue("s")
    stuck.create_selector("s", when=always, do=move_to("x-1"), credit=9)
    stuck.publish("s", body=b"1")
    with pytest.raises(OSError, match="x is stuck"):
        stuck.delete_store("x")
    assert "x" not in stuck.stores and "x-1" not in stuck.queues
    assert bodies(stuck.queues["s"]) == [b"1"] and not any(queue.held for queue in stuck.queues.values())
    stuck.check()
    with pytest.raises(OSError, match="y is stuck"):
        stuck.close()


# ---- what is no store

class Half:
    """Says that it is durable, and is not."""

    durable = True
    open = 0

    def __init__(self, name):
        Half.open += 1

    def close(self):
        Half.open -= 1
        raise OSError("and more than that")


@pytest.mark.parametrize(("factory", "said"), [
    (lambda name: None, r"'odd'.*returned None, which is not a store: it has no close; xump_ext\.store"),
    (lambda name: name, "returned 's', which is not a store"),
    (Half, "no scan, write, sync, fetch, room, oldest, release;"),
])
def test_what_is_no_store_is_refused(factory, said, monkeypatch):
    monkeypatch.setitem(store._registered, "odd", factory)
    with Engine() as engine:
        with pytest.raises(TypeError, match=said):
            engine.create_store("s", "odd")
        assert list(engine.stores) == ["ram"] and Half.open == 0
        with pytest.raises(TypeError, match=said):
            engine.apply({"version": 1, "stores": {"s": {"type": "odd"}}})
        assert list(engine.stores) == ["ram"]


def test_an_option_that_is_not_there_says_what_was_meant():
    with Engine() as engine:
        with pytest.raises(TypeError, match=r"argument 'pth' \(did you mean 'path'\?\); its options are path, durability,"):
            engine.create_store("s", "ring", pth="orders.xump")
        with pytest.raises(TypeError, match="missing a required argument: 'path'; its options are path"):
            engine.create_store("s", "ring")


def test_a_type_that_shows_no_signature_checks_its_options_itself(monkeypatch):
    def none(factory):
        raise ValueError("no signature found")

    monkeypatch.setitem(store._registered, "compiled", Stuck)
    monkeypatch.setattr(store.inspect, "signature", none)
    with Engine() as engine, pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        engine.create_store("s", "compiled", width=1)


def test_what_expired_while_its_store_was_closed_is_not_deleted_again(tmp_path, monkeypatch, clock):
    """Messages of the store were moved into a queue in RAM, and their time is over when the last sync returns."""
    with Engine(clock=clock) as engine:
        engine.create_store("s", "ring", path=str(tmp_path / "s"))
        engine.create_queue("d", store="s")
        engine.create_queue("r", ttl=1)
        engine.create_selector("d", when=always, do=move_to("r"), credit=INFINITE)
        for body in ALL:
            engine.publish("d", body=body)
        close = Engine._close_stores

        def late(engine, stores, errors):
            close(engine, stores, errors)
            clock.tick(5)
        monkeypatch.setattr(Engine, "_close_stores", late)
        assert engine.delete_store("s")
        assert engine.queues["r"].ready == 0
        engine.check()
        monkeypatch.undo()


# ---- what the other stores keep of a durable one

def test_a_store_is_deleted_with_what_is_in_its_file_only(opened):
    with opened() as engine:
        for name in ("q1", "q2"):
            engine.create_queue(name, store="d")
            engine.publish_many(name, [("x", b"body", {"n": n}) for n in range(5)])
    with opened() as engine:
        with engine.building():
            engine.create_queue("ram", limit=5)
            for name in ("q1", "q2"):
                engine.create_selector(name, when=where("n >= 0"), do=move_to("ram"), credit=10)
        engine.delete_store("d")
        assert list(engine.queues) == ["ram"] and engine.queues["ram"].ready == 0
        engine.check()
    with opened() as engine:
        assert {name: len(found) for name, found in ready(engine).items()} == {"q1": 5, "q2": 5}


@pytest.mark.usefixtures("empty_shelves")
def test_nothing_goes_on_out_of_a_store_that_is_deleted():
    with two_shelves() as engine:
        for name, store in (("q1", "left"), ("q2", "left")):
            engine.create_queue(name, store=store)
        engine.create_queue("r", store="right", limit=2)
        engine.create_selector("q1", when=always, do=move_to("r"), credit=10)
        engine.create_selector("q2", when=always, do=move_to("r"), credit=INFINITE)
        for name in ("q1", "q2"):
            engine.publish_many(name, [("", b"x")] * 3)
        engine.delete_store("left")
        assert ready(engine) == {"r": []}
        engine.check()


@pytest.mark.usefixtures("empty_shelves")
def test_what_a_deleted_store_lent_is_in_its_file_only():
    with two_shelves() as engine:
        engine.create_queue("l", store="left")
        for name in ("ram", "ram2"):
            engine.create_queue(name)
        engine.create_selector("l", when=always, do=move_to("ram"), credit=INFINITE)
        engine.publish("l", body=b"1")
        engine.delete_store("left")
        engine.create_selector("ram", when=always, do=move_to("ram2"), credit=INFINITE)
        engine.check()
        assert ready(engine) == {"ram": [], "ram2": []}
    with two_shelves() as engine:
        assert ready(engine) == {"l": [b"1"]}


@pytest.mark.usefixtures("empty_shelves")
def test_a_queue_in_ram_is_deleted_with_what_it_was_lent():
    with two_shelves() as engine:
        engine.create_queue("l", store="left")
        engine.create_queue("ram")
        engine.create_selector("l", when=always, do=move_to("ram"), credit=INFINITE)
        engine.publish("l", body=b"1")
        engine.delete_queue("ram")
        engine.check()
    with two_shelves() as engine:
        assert ready(engine) == {"l": []}
