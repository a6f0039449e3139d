"""A process is killed at each step of each pattern; then all starts again, and what is there is counted."""

import pytest
from sqlalchemy import event

import xump
from tests.sql.conftest import BUSINESS, business, count, engine_of
from tests.sql.deaths import RELAY, after, before, bodies, die, killed, opened, relay_dying_at, sent_after_all
from tests.sql.test_stream import fill
from xump.sql import Inbox, Outbox, Tasks


@pytest.fixture
def url(url, database, made):
    """Empty, and with no connection of this process's that the child would share."""
    database.dispose()
    return url


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

    killed(url, lambda: request(engine_of(url), step))
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

@pytest.mark.parametrize("point", RELAY)
def test_relay(url, made, tmp_path, point):
    rows = 1 if "single" in point else 5
    database = engine_of(url)
    fill(database, ["k"] * rows)
    database.dispose()
    killed(url, lambda: relay_dying_at(point, tmp_path, url).step())
    assert count(database, made.outbox) == (0 if point == "r11_after_commit" else rows)
    sent_after_all(database, made, tmp_path, point, rows)
    database.dispose()


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

    killed(url, lambda: receive(opened(tmp_path), engine_of(url), step))
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
    killed(url, work)
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

    killed(url, work)
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
