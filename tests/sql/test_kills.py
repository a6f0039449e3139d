"""A process is killed at each step of each pattern; then all starts again, and what is there is counted.

The child is a fork that opens its own connections and stores, and dies by SIGKILL. Leases are ended by hand, not waited for.
"""

import os
import signal

import pytest
from sqlalchemy import event

import xump
from tests.sql.conftest import BUSINESS, business, count, engine_of
from xump.sql import Inbox, Outbox, Tasks
from xump.sql.targets import EngineTarget


def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child did not come to the point at which it dies"


def before(owner, name):
    setattr(owner, name, die)


def after(owner, name):
    whole = getattr(owner, name)

    def and_die(*arguments, **named):
        whole(*arguments, **named)
        die()

    setattr(owner, name, and_die)


@pytest.fixture
def url(url, database, made):
    """Empty, and with no connection of this process's that the child would share."""
    database.dispose()
    return url


def opened(tmp_path):
    engine = xump.Engine()
    engine.create_store("disk", "ring", path=tmp_path / "store.xump")
    engine.create_queue("orders", store="disk", dedup=3600)
    return engine


def bodies(engine):
    return [message.body for message in engine.queues["orders"].browse()]


# ---- the producer

@pytest.mark.parametrize("point", ["p1_before_request", "p2_after_request", "p3_after_begin", "p4_after_business_write",
                                   "p5_after_outbox_insert", "p6_after_commit_before_reply"])
def test_producer(url, made, tmp_path, point):
    step, outbox, inbox = int(point[1]), Outbox(), Inbox()

    def request(database, dies):
        with database.connect() as connection:
            if dies in (1, 2):
                die()
            connection.begin()
            if dies == 3:
                die()
            with inbox.once(connection, source="http", message_id="request 1") as fresh:
                if fresh:
                    business(connection)
                    if dies == 4:
                        die()
                    outbox.publish(connection, "orders", "new", b"1", message_id="request 1")
                    if dies == 5:
                        die()
            connection.commit()
            if dies == 6:
                die()

    killed(lambda: request(engine_of(url), step))
    database = engine_of(url)
    there = 1 if step == 6 else 0
    assert (count(database, BUSINESS), count(database, made.outbox)) == (there, there)
    request(database, None)                             # upstream tries again
    with opened(tmp_path) as engine:
        outbox.relay(engine, engine=database).step()
        assert bodies(engine) == [b"1"]
    assert count(database, BUSINESS) == 1
    database.dispose()


# ---- the relay

RELAY = ["r1_before_query", "r2_after_query", "r3_send_failed_not_sent", "r4_single_sent_confirm_lost",
         "r5_single_confirmed_then_died", "r6_batch_died_between", "r7_batch_sent_confirm_lost", "r8_batch_confirmed_then_died",
         "r9_after_begin", "r10_after_delete_before_commit", "r11_after_commit"]


@pytest.mark.parametrize("point", RELAY)
def test_relay(url, made, tmp_path, point):
    outbox = Outbox()
    rows = 1 if "single" in point else 5

    def fill():
        database = engine_of(url)
        with database.begin() as connection:
            for number in range(rows):
                outbox.publish(connection, "orders", "new", b"%d" % number, key="k")
        database.dispose()

    def work():
        engine = opened(tmp_path)
        relay = outbox.relay(engine, engine=engine_of(url))
        step = int(point[1:].partition("_")[0])
        if step == 1:
            before(relay, "_read")
        elif step == 2:
            after(relay, "_read")
        elif step == 3:
            before(relay._target, "send")
        elif step in (4, 7):
            after(relay._target, "_send_all")
        elif step in (5, 8):
            after(relay._target, "send")
        elif step == 6:
            send = EngineTarget._send_all

            def between(rows):
                send(relay._target, [*rows[:2], Deadly()])

            relay._target._send_all = between
        elif step == 9:
            before(relay, "_settle")
        elif step == 10:
            after(relay, "_settle")
        else:
            after(relay, "step")
        relay.step()

    fill()
    killed(work)
    database = engine_of(url)
    gone = point == "r11_after_commit"
    assert count(database, made.outbox) == (0 if gone else rows)
    with database.begin() as connection:
        connection.execute(made.slot.update().values(until=0))      # the dead relay's lease is over
        connection.execute(made.relay.delete())
    with opened(tmp_path) as engine:
        if point[:3] in ("r1_", "r2_", "r3_", "r6_"):
            assert bodies(engine) == []
        outbox.relay(engine, engine=database).step()
        expected = [b"%d" % number for number in range(rows)]
        assert bodies(engine) in ([expected] if not gone else [expected, []])
        engine.check()
    assert count(database, made.outbox) == 0
    database.dispose()


class Deadly:
    """A row that kills as soon as it is looked at."""

    def __getattr__(self, name):
        die()


# ---- the inbox

@pytest.mark.parametrize("point", ["c1_before_subscribe", "c2_after_subscribe", "c3_received", "c4_after_begin",
                                   "c5_after_insert_before_commit", "c6_committed_not_acked", "c7_ack_lost", "c8_after_ack"])
def test_receive(url, made, tmp_path, point):
    step, inbox = int(point[1]), Inbox()
    with opened(tmp_path) as engine:
        engine.publish("orders", "new", b"1", message_id="1")

    def subscribed(engine):
        with engine.building():
            engine.create_selector("orders", when=xump.always, do=xump.deliver("worker"), credit=10)

    def receive(engine, database, dies):
        if dies == 1:
            die()
        subscribed(engine)
        if dies == 2:
            die()
        found = engine.take(1, "worker")
        if dies == 3:
            die()
        if dies == 4:
            before(inbox, "_insert")
        if dies == 5:
            event.listen(database, "commit", die)       # called before the commit
        if dies in (6, 7):
            found = [DiesAtAck(one, dies == 7) for one in found]
        new = inbox.receive(database, found) if found else 0
        engine.sync()
        if dies == 8:
            die()
        return new

    killed(lambda: receive(opened(tmp_path), engine_of(url), step))
    database = engine_of(url)
    assert count(database, made.inbox) == (1 if step >= 6 else 0)
    with opened(tmp_path) as engine:
        assert receive(engine, database, None) == (0 if step >= 6 else 1)
        assert engine.queues["orders"].outstanding == engine.queues["orders"].ready == 0
    processor = inbox.process(lambda connection, message: business(connection), engine=database)
    assert (processor.step(), processor.step(), count(database, BUSINESS)) == (1, 0, 1)
    database.dispose()


class DiesAtAck:
    """A delivery whose ack kills: before it, or when it is made and not yet on the disk."""

    def __init__(self, delivery, acks):
        self.delivery, self.acks = delivery, acks
        self.message, self.queue, self.group = delivery.message, delivery.queue, delivery.group

    def ack(self):
        if self.acks:
            self.delivery.ack()
        die()


@pytest.mark.parametrize("point", ["h1_before_query", "h2_after_query", "h3_after_begin", "h4_after_soft_delete",
                                   "h5_after_business_write", "h6_after_commit"])
def test_process(url, made, tmp_path, point):
    step, inbox = int(point[1]), Inbox()
    with opened(tmp_path) as engine:
        engine.publish("orders", "new", b"1", message_id="1")
        engine.create_selector("orders", when=xump.always, do=xump.deliver("worker"), credit=10)
        database = engine_of(url)
        inbox.receive(database, engine.take(1, "worker"))
        database.dispose()

    def handler(connection, message):
        business(connection)
        if dies and step == 5:
            die()

    def work():
        processor = inbox.process(handler, engine=engine_of(url))
        if step == 1:
            before(processor, "_claim")
        elif step == 2:
            before(processor, "_one")
        elif step == 3:
            before(processor._host, "handle")
        elif step == 4:
            after(processor, "_one")
        elif step == 6:
            after(processor, "step")
        processor.step()

    dies = True
    killed(work)
    dies = False
    database = engine_of(url)
    assert count(database, BUSINESS) == (1 if step == 6 else 0)
    with database.begin() as connection:
        connection.execute(made.inbox.update().values(lease_until=0))       # the claim of the dead one is over
    processor = inbox.process(handler, engine=database)
    processor.step()
    processor.step()
    assert count(database, BUSINESS) == 1
    attempts = 1 if step in (1, 6) else 2
    assert count(database, made.inbox, made.inbox.c.attempts == attempts, made.inbox.c.done_at.is_not(None)) == 1
    database.dispose()


# ---- tasks

@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("point", ["t10_died_in_handler", "t11_done_not_deleted", "t12_after_delete"])
def test_worker(url, made, point, transaction):
    """Effects are written by the task: in a transaction of its own, or in the one that ends it."""
    def prepared(database, dies):
        tasks = Tasks(database)

        def note(*connection):
            if dies == "t10_died_in_handler":
                die()
            if connection:
                business(*connection)
            else:
                with database.begin() as own:
                    business(own)

        tasks.task("note", transaction=transaction, retry_delay=0)(note)
        return tasks

    database = engine_of(url)
    with database.begin() as connection:
        prepared(database, None).enqueue(connection, "note")
    database.dispose()

    def work():
        worker = prepared(engine_of(url), point).worker()
        if point == "t11_done_not_deleted":
            after(worker, "_within" if transaction else "_work")
        if point == "t12_after_delete":
            before(worker, "_settled")
        worker.drain()

    killed(work)
    database = engine_of(url)
    with database.begin() as connection:
        connection.execute(made.task.update().values(lease_until=0))
    tasks = prepared(database, None)
    again = 0 if point == "t12_after_delete" else 1
    assert tasks.cleaner().step()["retried"] == again
    assert tasks.worker().drain() == again
    twice = point == "t11_done_not_deleted" and not transaction
    assert (count(database, BUSINESS), count(database, made.task)) == (2 if twice else 1, 0)
    database.dispose()
