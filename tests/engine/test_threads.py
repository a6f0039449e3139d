"""Many threads on one engine: nothing is lost or done twice, a call wakes at once and only for its reason, close() ends it."""

import collections
import contextlib
import signal
import sys
import threading
import time
from functools import partial

import pyarrow
import pytest

from xump import INFINITE, Engine, QueueFull, always, copy_to, default, deliver, discard, field, match, move_to, where
from xump.errors import Closed, StaleDelivery
from xump.store_types import register_store, store_types
from xump.topologies import Housecat, Parrot, Wolfpack

THREADS = 8
EACH = 2000


class Crew:
    """Threads that start together; what one of them raises comes out when they are joined."""

    def __init__(self):
        self.threads, self.errors, self.start_together = [], [], threading.Event()

    def add(self, call, *arguments):
        def run():
            self.start_together.wait()
            try:
                call(*arguments)
            except BaseException as error:
                self.errors.append(error)
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def start(self):
        self.start_together.set()

    def join(self):
        self.start()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


class Watched(Engine):
    """Counts how often those who wait look for deliveries, and tells when they have begun to."""

    def __init__(self, **options):
        super().__init__(**options)
        self.looks = collections.Counter()
        self.waits = threading.Semaphore(0)

    def _wait(self, take, destination, timeout):
        def look():
            self.looks[threading.get_ident()] += 1
            taken = take()
            if taken is None:
                self.waits.release()        # in the list of those who wait, and about to
            return taken
        return super()._wait(look, destination, timeout)

    def when_waiting(self, count):
        """Returns when that many have looked in vain."""
        for _ in range(count):
            self.waits.acquire()


@pytest.fixture(autouse=True)
def switch_often():
    """Threads take turns more often than they would."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def engine():
    with Watched() as engine:
        yield engine
        if not engine.closed:
            engine.check()


class Ledger:
    """What consumers have settled."""

    def __init__(self, wanted):
        self.lock, self.settled, self.nacked, self.left = threading.Lock(), collections.Counter(), set(), wanted
        self.done = threading.Event()

    def settle(self, delivery):
        """Acks, or the first time for some nacks."""
        key = (delivery.destination, delivery.message.message_id)
        with self.lock:
            nack = int(delivery.message.message_id) % 7 == 0 and key not in self.nacked
            if nack:
                self.nacked.add(key)
            else:
                self.settled[key] += 1
        if nack:
            delivery.nack()
            return
        delivery.ack()
        with self.lock:
            self.left -= 1
            if self.left == 0:
                self.done.set()


def consume_by_take(engine, ledger, destination):
    try:
        while True:
            for delivery in engine.take(3, destination, timeout=None):
                ledger.settle(delivery)
    except Closed:
        pass


def consume_by_iterator(engine, ledger, destination):
    try:
        while True:     # what was nacked is not seen again by this iteration, so begin another
            for delivery in engine.deliveries(destination, timeout=0.001):
                ledger.settle(delivery)
    except Closed:
        pass


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


# ---- waiting

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


# ---- the end

def closing_calls(engine):
    return [
        lambda: engine.take(1, timeout=None), lambda: engine.take(1, "d", timeout=1e9),
        lambda: engine.take_batch(1, timeout=None), lambda: next(engine.deliveries(timeout=None)),
        lambda: next(engine.deliveries("d", timeout=None)),
    ]


def test_close_wakes_all_who_wait(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"))
    crew, closed = Crew(), []

    def wait(call):
        try:
            call()
        except Closed:
            closed.append(True)

    calls = closing_calls(engine) * 4
    for call in calls:
        crew.add(wait, call)
    crew.start()
    engine.when_waiting(len(calls))
    engine.close()
    crew.join()
    assert len(closed) == len(calls) and engine._waiting_destinations == []
    with pytest.raises(Closed):
        engine.take(1, timeout=None)


def test_stores_are_closed_once_whoever_closes():
    """Closing a store lets other threads in."""
    class SlowStore:
        def __init__(self, name):
            self.closed = 0

        def close(self):
            self.closed += 1
            threading.Event().wait(0.01)

    if "slow to close" not in store_types():
        register_store("slow to close", SlowStore)
    engine, crew = Engine(), Crew()
    stores = [engine.create_store(f"s{n}", "slow to close").backend for n in range(5)]
    for _ in range(THREADS):
        crew.add(engine.close)
    crew.join()
    assert [store.closed for store in stores] == [1] * 5


def test_close_while_others_are_at_the_door():
    """A filter works, others wait for their turn, one of them to close: after it all of them are told."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(message):
        inside.set()
        go_on.wait()
        return True

    for closer in range(4):
        inside.clear()
        go_on.clear()
        engine = Engine()
        queue = engine.create_queue("q")
        engine.create_selector("q", when=where(slow), do=discard)
        told, begun, crew = [], [], Crew()

        def call(what, told=told, begun=begun):
            begun.append(True)
            try:
                what()
                told.append("done")
            except Closed:
                told.append("closed")

        crew.add(call, lambda queue=queue: queue.publish("first"))
        crew.start()
        inside.wait()
        calls = [lambda engine=engine: engine.take(1), lambda queue=queue: queue.fetch(1), engine.sync, engine.check] * 2
        calls.insert(closer * 2, engine.close)
        for what in calls:
            crew.add(call, what)
        while len(begun) < 1 + len(calls):
            pass
        go_on.set()
        crew.join()
        assert len(told) == 10 and told.count("done") >= 2
        assert engine.closed


def test_publishers_meet_a_close_and_are_told():
    engine = Engine()
    engine.create_queue("q", limit=100)
    engine.create_selector("q", when=always, do=deliver("d"), credit=INFINITE)
    closed, crew = [], Crew()

    def work(n):
        try:
            while True:
                with contextlib.suppress(QueueFull):
                    engine.publish("q")
                for delivery in engine.take(2):
                    delivery.ack()
        except Closed:
            closed.append(n)

    for n in range(THREADS):
        crew.add(work, n)
    crew.start()
    while engine.queues["q"].last_id < 500:
        pass
    engine.close()
    crew.join()
    assert sorted(closed) == list(range(THREADS))


# ---- user code, building, growing and shrinking graphs

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
