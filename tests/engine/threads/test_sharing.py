"""Many threads on one engine: nothing is lost or done twice."""

import contextlib
import sys

import pytest

from xump import INFINITE, QueueFull, always, deliver, move_to
from xump.topologies import Parrot, Wolfpack
from tests.engine.threads.crew import Crew, EACH, Ledger, THREADS, consume_by_iterator, consume_by_take


@pytest.fixture(autouse=True)
def switch_often():
    """Threads take turns more often than they would."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def publish_all(publish, publisher):
    for n in range(EACH):
        publish(str(publisher * EACH + n))


@pytest.mark.parametrize("credit", [1, 5])
@pytest.mark.parametrize("consume", [consume_by_take, consume_by_iterator])
def test_a_pack_settles_every_message_once(engine, consume, credit):
    pack = Wolfpack(engine, "pack")
    crew, ledger = Crew(), Ledger(THREADS * EACH)
    for n in range(THREADS):
        pack.join(f"wolf-{n}", credit=credit)
        crew.add(consume, engine, ledger, f"wolf-{n}")
        crew.add(publish_all, lambda id: engine.publish("pack", "prey", message_id=id), n)
    crew.start()
    ledger.done.wait()
    engine.check()
    assert {id for _, id in ledger.settled} == {str(n) for n in range(THREADS * EACH)}
    assert set(ledger.settled.values()) == {1}
    counts = engine.stats()["queues"]["pack"]
    assert [counts[what] for what in ("entered", "settled", "ready", "outstanding")] == [THREADS * EACH] * 2 + [0, 0]
    engine.close()
    crew.join()


@pytest.mark.parametrize("consume", [consume_by_take, consume_by_iterator])
def test_parrots_settle_every_copy_once(engine, consume):
    parrot = Parrot(engine, "news")
    crew, ledger = Crew(), Ledger(THREADS * EACH * 2)
    for n in range(THREADS):
        parrot.join(f"parrot-{n}", f"*.{n // 2}.#", credit=4)
        crew.add(consume, engine, ledger, f"parrot-{n}")
        crew.add(publish_all, lambda id: engine.publish("news", f"a.{int(id) % 4}", message_id=id), n)
    crew.start()
    ledger.done.wait()
    engine.check()
    assert ledger.settled == {(f"parrot-{n}", str(id)): 1 for n in range(THREADS) for id in range(n // 2, THREADS * EACH, 4)}
    engine.close()
    crew.join()


def test_many_consumers_of_one_destination_share_it(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=20)
    crew, ledger = Crew(), Ledger(THREADS * EACH)
    for n in range(THREADS):
        crew.add((consume_by_take, consume_by_iterator)[n % 2], engine, ledger, "d" if n < 6 else None)
        crew.add(publish_all, lambda id: engine.publish("q", message_id=id), n)
    crew.start()
    ledger.done.wait()
    assert ledger.settled == {("d", str(id)): 1 for id in range(THREADS * EACH)}
    engine.close()
    crew.join()


def test_a_limited_queue_between_many_threads(engine):
    """Publishers that are turned away try again; back-pressure and overflow at once."""
    engine.create_queue("narrow", limit=3)
    engine.create_queue("q", limit=2)
    engine.create_selector("narrow", when=always, do=move_to("q"), credit=INFINITE)
    engine.create_selector("q", when=always, do=deliver("d"), credit=2)
    crew, ledger = Crew(), Ledger(THREADS * 200)

    def publish(publisher):
        for n in range(200):
            while True:
                with contextlib.suppress(QueueFull):
                    engine.publish("narrow", message_id=str(publisher * 200 + n))
                    break
                assert engine.queues["narrow"].ready <= 3

    for n in range(THREADS):
        crew.add(publish, n)
        crew.add(consume_by_take, engine, ledger, "d")
    crew.start()
    ledger.done.wait()
    engine.check()
    assert ledger.settled == {("d", str(id)): 1 for id in range(THREADS * 200)}
    engine.close()
    crew.join()
