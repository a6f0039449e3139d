"""Filters that are slow, and graphs that threads build, grow and shrink together."""

import collections
import contextlib
import threading
import time

import pytest

from xump import INFINITE, Engine, always, copy_to, default, deliver, discard, move_to, where
from xump.errors import Closed, StaleDelivery
from xump.topologies import Housecat, Parrot, Wolfpack
from tests.engine.threads.crew import Crew, EACH, Ledger, THREADS, consume_by_iterator, consume_by_take


def test_a_slow_filter_and_many_threads(engine):
    """The filter gives way in the middle of the engine's work, at every message."""
    engine.create_queue("q")
    engine.create_queue("all")
    running = []

    def slow(message):
        assert not running, "two at once"
        running.append(True)
        threading.Event().wait(0)
        running.clear()
        return int(message.message_id) % 2 == 0

    engine.create_selector("q", when=where(slow), do=copy_to("all"))
    engine.create_selector("q", when=where(slow), do=deliver("even"), credit=3)
    engine.create_selector("q", when=default, do=deliver("odd"), credit=3)
    crew, ledger = Crew(), Ledger(THREADS * 100)

    def publish(publisher):
        for n in range(100):
            engine.stats()      # before: once all is published and settled, the engine is closed
            engine.publish("q", message_id=str(publisher * 100 + n))

    for n in range(THREADS):
        crew.add(publish, n)
        crew.add(consume_by_take if n % 2 else consume_by_iterator, engine, ledger, ("even", "odd")[n // 2 % 2])
    crew.start()
    ledger.done.wait()
    engine.check()
    assert ledger.settled == {(("even", "odd")[id % 2], str(id)): 1 for id in range(THREADS * 100)}
    assert engine.queues["all"].ready == THREADS * 50
    assert [engine.stats()["selectors"][id]["errors"] for id in (1, 2)] == [0, 0]
    engine.close()
    crew.join()


def test_nobody_is_kept_out_by_one_who_gives_way_only_inside(engine):
    """Who waits finds the engine busy whenever it is let run: at the second time it is its turn."""
    inside, got_in = threading.Event(), threading.Event()

    def slow(message):
        inside.set()
        time.sleep(1e-4)
        return True

    engine.create_queue("q")
    engine.create_selector("q", when=where(slow), do=discard)
    crew = Crew()
    crew.add(lambda: (inside.wait(), engine.stats(), got_in.set()))
    crew.start()
    published = 0
    while not got_in.is_set() and published < 5000:
        engine.publish("q")
        published += 1
    assert published < 5000
    crew.join()


def test_building_from_several_threads(engine):
    """Blocks of several threads overlap; when the last one has ended everything is routed."""
    target = engine.create_queue("target")
    crew = Crew()

    def build(n):
        for round in range(20):
            with engine.building(), engine.building():
                name = f"q-{n}-{round}"
                engine.create_queue(name, auto_delete=True)
                engine.publish_many(name, [(str(at),) for at in range(5)])
                selector = engine.create_selector(name, when=always, do=move_to("target"), credit=INFINITE, name=name)
                assert engine.create_selector(
                    name, when=always, do=move_to("target"), credit=INFINITE, name=name) is selector

    for n in range(THREADS):
        crew.add(build, n)
    crew.join()
    engine.check()
    assert target.ready == THREADS * 20 * 5
    assert all(queue.ready == 0 for name, queue in engine.queues.items() if name != "target")
    crew, ids = Crew(), list(engine.selectors)
    for n in range(THREADS):
        crew.add(lambda n=n: [engine.delete_selector(id) for id in ids[n::THREADS]])
    crew.join()
    assert list(engine.queues) == ["target"]


def test_building_blocks_that_raise_and_overlap_leave_none_open(engine):
    queue = engine.create_queue("q")
    engine.create_selector("q", when=always, do=discard)
    crew = Crew()

    def build():
        for _ in range(50):
            with contextlib.suppress(ZeroDivisionError), engine.building():
                queue.publish()
                raise ZeroDivisionError

    for _ in range(THREADS):
        crew.add(build)
    crew.join()
    assert (queue.last_id, queue.ready) == (THREADS * 50, 0)


def test_the_same_names_from_many_threads(engine):
    crew, made = Crew(), collections.defaultdict(list)

    def create():
        for n in range(50):
            made["queue"].append(engine.create_queue(f"q{n}", limit=9))
            made["selector"].append(engine.create_selector(f"q{n}", when=always, do=deliver("d"), name=f"s{n}"))
            made["store"].append(engine.create_store(f"store{n % 3}"))
            made["named"].append(engine.create_queue().name)

    for _ in range(THREADS):
        crew.add(create)
    crew.join()
    assert [len({id(thing) for thing in made[kind]}) for kind in ("queue", "selector", "store")] == [50, 50, 3]
    assert len(set(made["named"])) == THREADS * 50
    assert sorted(engine.selectors) == list(range(1, 51))


def test_recipients_join_and_leave_while_others_publish(engine):
    """Nothing that a wolf had is lost when it leaves; what it still holds goes stale."""
    pack, cat, parrot = Wolfpack(engine, "pack"), Housecat(engine, "cat"), Parrot(engine, "parrot")
    stays = pack.join("stays", credit=4)
    crew, consumers, settled, lock = Crew(), Crew(), collections.Counter(), threading.Lock()
    wanted, done = 4 * 300, threading.Event()

    def settle(delivery):
        try:
            delivery.ack()
        except StaleDelivery:
            return
        with lock:
            settled[delivery.message.message_id] += 1
            if len(settled) == wanted:
                done.set()

    def publish(publisher):
        for n in range(300):
            engine.publish("pack", message_id=str(publisher * 300 + n))
            engine.publish("cat", f"guest-{n % 4}")
            engine.publish("parrot", "a.b")

    def come_and_go(n):
        for _ in range(30):
            guest = pack.join(f"guest-{n}", credit=3)
            address = cat.join(f"cat-{n}", f"guest-{n}", credit=INFINITE)
            listener = parrot.join(f"parrot-{n}", "a.*", credit=2)
            held = engine.take(2, guest.name)
            for delivery in held[1:]:
                settle(delivery)
            address.leave()
            listener.leave()
            guest.leave()
            for delivery in held[:1]:
                with pytest.raises(StaleDelivery):
                    delivery.ack()

    def consume():
        with contextlib.suppress(Closed):
            while True:
                for delivery in engine.take(2, stays.name, timeout=None):
                    settle(delivery)

    for n in range(4):
        crew.add(publish, n)
        crew.add(come_and_go, n)
        consumers.add(consume)
    consumers.start()
    crew.join()
    done.wait()
    engine.check()
    assert settled == {str(n): 1 for n in range(wanted)}
    assert sorted(engine.queues) == ["cat", "pack", "parrot", "stays"] and sorted(engine.selectors) == [1, 2]
    engine.close()
    consumers.join()


def test_stats_are_of_one_moment_while_queues_and_selectors_come_and_go():
    with Engine() as engine:
        engine.create_queue("in")
        crew, done = Crew(), threading.Event()

        def come_and_go():
            for number in range(EACH):
                engine.create_queue("out")
                selector = engine.create_selector("in", when=always, do=move_to("out"), credit=INFINITE)
                engine.publish("in", str(number))
                engine.delete_queue("out") if number % 2 else engine.delete_selector(selector)
            done.set()

        def look():
            while not done.is_set():
                stats = engine.stats()
                for selector in stats["selectors"].values():
                    assert selector["source"] in stats["queues"]
                for queue in stats["queues"].values():
                    gone = queue["settled"] + queue["deleted"] + sum(queue["dropped"].values())
                    assert queue["entered"] == queue["ready"] + queue["outstanding"] + queue["history"] + gone

        crew.add(come_and_go)
        crew.add(look)
        crew.add(look)
        crew.join()
