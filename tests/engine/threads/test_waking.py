"""A thread that waits wakes at once, and only for its reason."""

import collections
import signal
import threading
from functools import partial

import pyarrow
import pytest

from xump import INFINITE, always, deliver, field, match, move_to
from xump.errors import Closed
from tests.engine.threads.crew import Crew, THREADS


def test_who_waits_is_woken_by_each_offer_and_looks_no_more_often(engine):
    """A consumer that waits looks once before it waits, and once when it is woken: nobody polls."""
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=INFINITE)
    taken = []
    consumer = threading.Thread(target=lambda: taken.extend(engine.take(1, "d", timeout=None)[0] for _ in range(50)))
    consumer.start()
    for n in range(50):
        engine.when_waiting(1)
        engine.publish("q", str(n))
    consumer.join()
    assert [delivery.message.address for delivery in taken] == [str(n) for n in range(50)]
    assert sum(engine.looks.values()) == 100


def test_who_waits_for_something_else_is_not_woken(engine):
    engine.create_queue("q")
    for name in ("noise", "d"):
        engine.create_selector("q", when=match("eq", name), do=deliver(name), credit=INFINITE)
    taken = []
    consumer = threading.Thread(target=lambda: taken.extend(engine.take(1, "d", timeout=None)))
    consumer.start()
    engine.when_waiting(1)
    for _ in range(1000):
        engine.publish("q", "noise")
    assert sum(engine.looks.values()) == 1
    engine.publish("q", "d")
    consumer.join()
    assert (len(taken), sum(engine.looks.values())) == (1, 2)


def one_taken(engine, messages):
    """The selector of one credit, and the delivery that has it; other messages wait behind it."""
    selector = engine.create_selector("q", when=always, do=deliver("d"))
    engine.publish_many("q", [()] * messages)
    return selector, *engine.take(1)


def entry(publish):
    """An act that publishes, past a selector that delivers."""
    def prepare(engine):
        engine.create_selector("q", when=always, do=deliver("d"))
        return lambda: publish(engine)
    return prepare


def by_transaction(engine):
    with engine.transaction() as tx:
        tx.publish("q")


def by_building(engine):
    def act():
        with engine.building():
            engine.create_selector("q", when=always, do=deliver("d"))
    engine.publish("q")
    return act


def by_creating_a_selector(engine):
    engine.publish("q")
    return lambda: engine.create_selector("q", when=always, do=deliver("d"))


def by_creating_a_queue(engine):
    """Nobody may take the message but who moves it where the queue will be, and delivers to itself by then."""
    engine.create_selector("q", when=always, do=move_to(field("reply_to")))
    engine.create_selector("q", when=always, do=deliver("nobody"), credit=0)
    engine.publish("q", reply_to="r")

    def act():
        with engine.building():
            engine.create_queue("r")
            engine.create_selector("r", when=always, do=deliver("d"))
    return act


def by_deleting_a_selector(engine):
    other = engine.create_selector("q", when=always, do=deliver("other"))
    engine.publish("q")
    engine.create_selector("q", when=always, do=deliver("d"))
    return other.delete


def by_deleting_a_queue(engine):
    engine.create_selector("q", when=always, do=move_to("p"))
    engine.publish("q")
    engine.create_selector("q", when=always, do=deliver("d"))
    return lambda: engine.delete_queue("p")


def by_making_room(delete):
    def prepare(engine):
        full = engine.create_queue("full", limit=1)
        full.publish("first")
        engine.create_selector("q", when=always, do=move_to("full"))
        engine.create_selector("full", when=match("eq", "first"), do=deliver("nobody"), credit=0)
        engine.create_selector("full", when=match("eq", ""), do=deliver("d"))
        engine.publish("q")
        return lambda: delete(full)
    return prepare


def by_enabling(engine):
    selector = engine.create_selector("q", when=always, do=deliver("d"), enabled=False)
    engine.publish("q")
    return selector.enable


def by_releasing(engine):
    engine.queues["q"].hold()
    engine.create_selector("q", when=always, do=deliver("d"))
    engine.publish("q")
    return engine.queues["q"].release


def by_batch(act):
    def prepare(engine):
        engine.create_selector("q", when=always, do=deliver("d"))
        engine.publish_many("q", [()] * 2)
        batch = engine.take_batch(1)
        return lambda: act(batch)
    return prepare


OFFERS = {
    "publish": entry(lambda engine: engine.publish("q")),
    "publish_many": entry(lambda engine: engine.publish_many("q", [()])),
    "publish_batch": entry(lambda engine: engine.publish_batch("q", pyarrow.table({"address": ["a"]}))),
    "transaction": entry(by_transaction),
    "ack": lambda engine: one_taken(engine, 2)[1].ack,
    "ack of many": lambda engine: partial(engine.ack, one_taken(engine, 2)[1:]),
    "nack": lambda engine: one_taken(engine, 1)[1].nack,
    "reject": lambda engine: one_taken(engine, 2)[1].reject,
    "pay": lambda engine: one_taken(engine, 2)[0].pay,
    "grant": lambda engine: partial(one_taken(engine, 2)[0].grant, 1),
    "batch.ack": by_batch(lambda batch: batch.ack()),
    "batch.nack": by_batch(lambda batch: batch.nack()),
    "delete of the one taken": lambda engine: partial(engine.queues["q"].delete, one_taken(engine, 2)[1].id),
    "delete": by_making_room(lambda queue: queue.delete(1)),
    "purge": by_making_room(lambda queue: queue.purge()),
    "enable": by_enabling,
    "release": by_releasing,
    "building": by_building,
    "create_selector": by_creating_a_selector,
    "create_queue": by_creating_a_queue,
    "delete_selector": by_deleting_a_selector,
    "delete_queue": by_deleting_a_queue,
}


@pytest.mark.parametrize("offer", OFFERS)
def test_every_call_that_offers_wakes_who_waits(engine, offer):
    engine.create_queue("q")
    engine.create_queue("p")
    taken = []
    act = OFFERS[offer](engine)
    consumer = threading.Thread(target=lambda: taken.extend(engine.take(1, "d", timeout=None)))
    consumer.start()
    engine.when_waiting(1)
    act()
    consumer.join()
    assert len(taken) == 1
    assert sum(engine.looks.values()) == 2


def test_of_many_who_wait_each_gets_its_own(engine):
    """As many messages as consumers, in one call: each wakes and takes one."""
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=INFINITE)
    crew, taken = Crew(), []
    for _ in range(THREADS):
        crew.add(lambda: taken.extend(engine.take(1, "d", timeout=None)))
        crew.add(lambda: taken.append(next(engine.deliveries(timeout=None))))
    crew.start()
    engine.when_waiting(2 * THREADS)
    engine.publish_many("q", [(str(n),) for n in range(2 * THREADS)])
    crew.join()
    assert sorted(int(delivery.message.address) for delivery in taken) == list(range(2 * THREADS))
    assert set(engine.looks.values()) == {2}


def test_what_one_hands_back_another_gets(engine):
    """A consumer that stops in the middle of waiting, by an exception, takes nobody's turn."""
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=1)
    taken = []
    first, second = (threading.Thread(target=lambda: taken.extend(engine.take(1, timeout=None))) for _ in range(2))
    first.start()
    second.start()
    engine.when_waiting(2)
    engine.publish("q", "a")
    while not taken:
        pass
    taken[0].nack()
    first.join()
    second.join()
    assert [delivery.delivery_count for delivery in taken] == [1, 2]


def test_a_timeout_ends_the_waiting(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=9)
    assert engine.take(1, timeout=0.001) == []
    assert list(engine.deliveries("d", timeout=0.001)) == []
    assert len(engine.take_batch(1, timeout=0.001)) == 0
    assert sum(engine.looks.values()) == 6      # before the waiting, and after it
    assert engine._waiting_destinations == []
    engine.publish("q")
    assert len(engine.take(1, timeout=0.001)) == 1


def test_a_request_is_answered_in_another_thread_as_often_as_it_is_made(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=3)
    crew, answers = Crew(), collections.Counter()

    def answer():
        try:
            for delivery in engine.deliveries("d", timeout=None):
                with delivery as message:
                    delivery.reply(message.body)
        except Closed:
            pass

    def ask(asker):
        for n in range(100):
            answers[engine.request("q", body=b"%d %d" % (asker, n), timeout=None).body] += 1
        if sum(answers.values()) == 100 * THREADS:
            engine.close()

    for asker in range(THREADS):
        crew.add(ask, asker)
        crew.add(answer)
    crew.start()
    crew.join()
    assert answers == {b"%d %d" % (asker, n): 1 for asker in range(THREADS) for n in range(100)}


class Interrupted(BaseException):
    """Raised by the handler of a signal."""


@pytest.mark.parametrize("wait", [
    lambda engine: engine.request("q", timeout=None), lambda engine: engine.take(1, "other", timeout=None),
    lambda engine: next(engine.deliveries("other", timeout=1e9)), lambda engine: engine.publish("full", timeout=None),
])
def test_a_signal_interrupts_who_waits(engine, wait):
    """What its handler raises comes out of the call, which waits no more."""
    engine.create_queue("q")
    engine.create_queue("full", limit=0)
    interrupted = threading.Event()

    def handler(number, frame):
        if not interrupted.is_set():
            interrupted.set()
            raise Interrupted

    def interrupt(thread):
        while not engine._waiting_destinations:
            pass
        while not interrupted.is_set():
            signal.pthread_kill(thread, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    other = threading.Thread(target=interrupt, args=(threading.get_ident(),))
    try:
        other.start()
        with pytest.raises(Interrupted):
            wait(engine)
    finally:
        other.join()
        signal.signal(signal.SIGUSR1, before)
    assert engine._waiting_destinations == []
