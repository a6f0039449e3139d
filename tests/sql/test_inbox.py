"""The inbox without faults: once, handled, stored, processed, retried, dead, forgotten."""

import random
import threading
import time

import pytest
from sqlalchemy import Connection, select, text
from sqlalchemy.orm import Session

import xump
from tests.sql.conftest import BUSINESS, business, count, until
from xump.sql import Inbox, MissingId, TransactionAborted, init


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        engine.create_queue("jobs")
        engine.create_selector("jobs", when=xump.always, do=xump.deliver("worker"), credit=100)
        yield engine
        engine.check()


def deliveries(engine, *ids, group=None):
    for number in ids:
        engine.publish("jobs", "a", b"%d" % len(number), {"group": group or "g"}, message_id=number)
    return engine.take(len(ids), "worker")


def effect(connection, message):
    business(connection, message.message_id)


def test_handle_has_its_effect_once_and_acks_both(database, engine):
    inbox = Inbox()
    assert [inbox.handle(database, one, effect) for one in deliveries(engine, "a", "b", "a")] == [True, True, False]
    assert (count(database, BUSINESS), engine.queues["jobs"].outstanding, engine.queues["jobs"].ready) == (2, 0, 0)


def test_a_handler_that_raises_gives_the_message_back(database, engine, made):
    def fails(connection, message):
        business(connection)
        raise KeyError("broken")

    [one] = deliveries(engine, "a")
    with pytest.raises(KeyError):
        Inbox().handle(database, one, fails)
    assert (count(database, BUSINESS), count(database, made.inbox)) == (0, 0)
    [again] = engine.take(1, "worker")
    assert again.redelivered
    assert Inbox().handle(database, again, effect)


def test_once_in_the_order_that_is_right(database, engine):
    inbox = Inbox()
    found = []
    for one in deliveries(engine, "a", "a"):
        with one, database.begin() as connection, inbox.once(connection, one) as fresh:
            found.append(fresh)
            if fresh:
                effect(connection, one.message)
    for _ in range(2):
        with Session(database) as session, session.begin(), inbox.once(session, source="http", message_id="request 1") as fresh:
            found.append(fresh)
    assert found == [True, False, True, False]
    assert count(database, BUSINESS) == 1


def test_a_message_without_an_id_is_refused_and_goes_back(database, engine, made):
    engine.publish("jobs", "a", b"x", message_id="fine")
    engine.publish("jobs", "a", b"y")
    both = engine.take(2, "worker")
    with pytest.raises(MissingId, match="publish with message_id="):
        Inbox().receive(database, both)
    assert (count(database, made.inbox), engine.queues["jobs"].outstanding) == (0, 0 + len(engine.take(2, "worker")))
    inbox = Inbox(id_of=lambda delivery: delivery.body.decode())
    engine.publish("jobs", "a", b"z")
    assert inbox.receive(database, engine.take(1, "worker")) == 1
    with database.begin() as connection, pytest.raises(MissingId), inbox.once(connection):
        pass


@pytest.mark.parametrize("wrong", [{"address": "a\0"}, {"reply_to": "a\0"}, {"correlation_id": "a\0"}, {"message_id": "a\0"}])
def test_a_text_that_no_column_holds_is_refused_and_goes_back(database, engine, made, wrong):
    engine.publish("jobs", **{"message_id": "1", **wrong})
    [one] = engine.take(1, "worker")
    with pytest.raises(ValueError, match="must not contain NUL"):
        Inbox().receive(database, one)
    assert (engine.queues["jobs"].ready, count(database, made.inbox)) == (1, 0) or engine.take(1, "worker")[0].redelivered


def test_a_key_that_no_index_takes(database, engine):
    long = "".join(map(chr, random.Random(3).choices(range(33, 1000), k=10_000)))
    inbox, seen = Inbox(order="key", key=lambda delivery: long + delivery.message.headers["more"]), []
    for number, more in enumerate(["", "x", ""]):
        engine.publish("jobs", body=b"%d" % number, headers={"more": more}, message_id=str(number))
    assert inbox.receive(database, engine.take(3, "worker")) == 3
    processor = inbox.process(lambda connection, message: seen.append(int(message.body)), engine=database)
    assert (processor.step(), seen, processor.step(), seen) == (2, [0, 1, 2], 1, [0, 1, 2])
    with pytest.raises(TypeError, match="key must be a str, got int"):
        engine.publish("jobs", message_id="wrong")
        Inbox(key=lambda delivery: 1).handle(database, engine.take(1, "worker")[0], effect)


def test_the_same_id_of_two_sources_is_two_messages(database):
    inbox = Inbox()
    with database.begin() as connection:
        for source, name in [("a", "bc"), ("ab", "c"), ("A", "bc"), ("a", "BC"), ("x" * 10_000, "y" * 10_000)]:
            with inbox.once(connection, source=source, message_id=name) as fresh:
                assert fresh
            with inbox.once(connection, source=source, message_id=name) as fresh:
                assert not fresh


def test_stored_then_processed(database, engine, made):
    inbox = Inbox()
    assert inbox.receive(database, deliveries(engine, "a", "b", "a")) == 2
    assert inbox.receive(database, deliveries(engine, "b")[0]) == 0
    assert inbox.receive(database, []) == 0
    assert engine.queues["jobs"].outstanding == 0
    seen = []

    def handler(connection, message):
        seen.append((message.message_id, message.body, message.headers["group"], message.address))
        effect(connection, message)

    processor = inbox.process(handler, engine=database)
    with database.connect() as connection:
        assert inbox.stats(connection)["waiting"] == 2
    assert (processor.step(), processor.step(), processor.handled) == (2, 0, 2)
    assert sorted(seen) == [("a", b"1", "g", "a"), ("b", b"1", "g", "a")]
    assert inbox.receive(database, deliveries(engine, "a")) == 0
    assert processor.step() == 0
    assert (count(database, BUSINESS), count(database, made.inbox, made.inbox.c.body.is_not(None))) == (2, 0)


def due_now(database, made):
    with database.begin() as connection:
        connection.execute(made.inbox.update().values(retry_at=0))


def test_a_message_that_fails_is_tried_again_and_is_dead_at_last(database, engine, made):
    inbox = Inbox()
    inbox.receive(database, deliveries(engine, "a"))

    def fails(connection, message):
        business(connection)
        raise KeyError("\0broken")

    processor = inbox.process(fails, engine=database, max_attempts=2, retry_delay=1000)
    assert (processor.step(), processor.step()) == (1, 0)
    due_now(database, made)
    assert (processor.step(), count(database, BUSINESS)) == (1, 0)
    with database.begin() as connection:
        [dead] = inbox.dead(connection)
        assert (dead["attempts"], "broken" in dead["error"], inbox.stats(connection)["dead"]) == (2, True, 1)
        assert inbox.revive(connection, [dead["id"]]) == 1
        assert inbox.revive(connection, [dead["id"]]) == 0
    assert inbox.process(effect, engine=database).step() == 1
    assert count(database, BUSINESS) == 1


def test_a_dead_message_that_is_dropped_stays_known(database, engine):
    inbox = Inbox()
    inbox.receive(database, deliveries(engine, "a"))

    def fails(connection, message):
        raise KeyError("broken")

    inbox.process(fails, engine=database, max_attempts=1).step()
    with database.begin() as connection:
        assert inbox.drop(connection, [row["id"] for row in inbox.dead(connection)]) == 1
    assert inbox.receive(database, deliveries(engine, "a")) == 0


def leases(database, made):
    with database.connect() as connection:
        return list(connection.execute(select(made.inbox.c.lease_until).order_by(made.inbox.c.id)).scalars())


def test_leases_are_renewed_of_what_is_claimed_and_not_taken_by_another(database, engine, made):
    inbox = Inbox()
    inbox.receive(database, deliveries(engine, "a", "b", "c"))
    seen = []

    def handler(connection, message):
        seen.append(message.message_id)

    processor = inbox.process(handler, engine=database, lease=1000)
    attempt = processor._attempt

    def looked_at(row):
        if not seen:
            with database.begin() as connection:
                connection.execute(made.inbox.update().values(lease_until=0))
                connection.execute(made.inbox.update().where(made.inbox.c.id == row.id + 1).values(attempts=7))
            processor._renew()
            seen.append(leases(database, made))
        attempt(row)

    processor._attempt = looked_at
    processor.step()
    [first, second, third], *handled = seen
    assert (first > 0, second, third > 0, len(handled), processor.handled) == (True, 0, True, 2, 2)
    processor._renew()                                  # nothing is claimed any more
    assert leases(database, made) == [None, 0, None]


def test_a_processor_that_runs_renews_while_a_handler_works(postgres_url, engine, made):
    from tests.sql.conftest import engine_of

    database = engine_of(postgres_url)
    inbox = Inbox()
    inbox.receive(database, deliveries(engine, "a", "b"))
    found = []

    def handler(connection, message):
        """The first one waits until the lease of the second one has been renewed."""
        end = time.monotonic() + 60
        first = leases(database, made)
        while not found and leases(database, made)[1] == first[1] and time.monotonic() < end:
            time.sleep(0.01)
        found.append(leases(database, made)[1] != first[1])
        if len(found) == 2:
            processor.stop()

    processor = inbox.process(handler, engine=database, lease=0.3)
    processor.run()
    assert (found[0], processor.handled) == (True, 2)
    assert count(database, made.inbox, made.inbox.c.attempts == 1) == 2
    database.dispose()


@pytest.mark.parametrize("on_dead", ["block", "skip"])
def test_order_of_a_key(database, engine, made, on_dead):
    inbox = Inbox(order="key", key=lambda delivery: delivery.headers["group"], on_dead=on_dead)
    inbox.receive(database, deliveries(engine, "a1", group="a")[0])
    inbox.receive(database, deliveries(engine, "a2", group="a")[0])
    inbox.receive(database, deliveries(engine, "b1", group="b")[0])
    seen = []

    def handler(connection, message):
        seen.append(message.message_id)
        if message.message_id == "a1":
            raise KeyError("broken")

    processor = inbox.process(handler, engine=database, max_attempts=2, retry_delay=1000)
    assert (processor.step(), processor.step()) == (2, 0)
    assert sorted(seen) == ["a1", "b1"]                 # a2 waits
    due_now(database, made)
    processor.step()                                    # a1 is dead now
    processor.step()
    assert ("a2" in seen) == (on_dead == "skip")


def test_what_is_old_is_forgotten(database, made):
    inbox = Inbox(retain=10)
    with database.begin() as connection:
        for number in range(3):
            with inbox.once(connection, source="s", message_id=str(number)):
                pass
        connection.execute(made.inbox.update().where(made.inbox.c.message_id != "0").values(done_at=0))
    assert (inbox.purge(database), inbox.purge(database), count(database, made.inbox)) == (2, 0, 1)


@pytest.mark.parametrize("how", ["once", "handle", "process"])
def test_x5_aborted_transaction_committed(postgres_url, engine, made, how):
    from tests.sql.conftest import engine_of

    database = engine_of(postgres_url)
    inbox = Inbox()

    def swallows(connection, message):
        business(connection)
        try:
            connection.execute(text("SELECT 1/0"))
        except Exception:
            pass

    [one] = deliveries(engine, "a")
    if how == "process":
        inbox.receive(database, one)
        inbox.process(swallows, engine=database, max_attempts=1).step()
        with database.connect() as connection:
            assert "TransactionAborted" in inbox.dead(connection)[0]["error"]
    elif how == "handle":
        with pytest.raises(TransactionAborted, match="swallowed"):
            inbox.handle(database, one, swallows)
        assert engine.queues["jobs"].ready == 1 or engine.take(1, "worker")
    else:
        with pytest.raises(TransactionAborted), database.begin() as connection, inbox.once(connection, one):
            swallows(connection, one.message)
        one.ack()
    assert count(database, BUSINESS) == 0
    database.dispose()


@pytest.mark.parametrize("ends", ["rollback", "commit", "close"])
@pytest.mark.parametrize("how", ["handle", "once", "once of a session", "once and commit", "process", "once in a savepoint"])
def test_a_handler_that_ends_the_transaction_has_nothing_acked_on_the_ground_of_another_one(database, engine, made, ends, how):
    """A rollback takes the mark along. The message goes back; if it was committed, it comes as a copy."""
    inbox, expected = Inbox(), 1 if ends == "commit" and how != "process" else 0

    def handler(connection, message):
        business(connection) if isinstance(connection, Connection) else business(connection.connection())
        getattr(connection, ends)()

    [one] = deliveries(engine, "a")
    if how == "process":
        inbox.receive(database, one)
        inbox.process(handler, engine=database, max_attempts=1).step()
        with database.connect() as connection:
            assert "TransactionAborted" in inbox.dead(connection)[0]["error"]
        return
    with pytest.raises(TransactionAborted, match="before its end"):
        if how == "handle":
            inbox.handle(database, one, handler)
        elif how == "once":
            with one, database.begin() as connection, inbox.once(connection, one):
                handler(connection, one.message)
        elif how == "once in a savepoint":
            with one, database.begin() as connection, connection.begin_nested() as savepoint, inbox.once(connection, one):
                business(connection)
                getattr(savepoint, ends)()
        else:
            with one, Session(database) as session:
                with inbox.once(session, one):
                    handler(session, one.message)
                if how == "once and commit":
                    session.commit()
    [again] = engine.take(1, "worker")
    assert again.redelivered
    if how != "once in a savepoint":
        assert (count(database, BUSINESS), count(database, made.inbox)) == (expected, expected)
    assert inbox.handle(database, again, effect) != (how != "once in a savepoint" and ends == "commit")



@pytest.mark.parametrize("most", [1, 3])
def test_a_message_that_kills_its_process_is_dead_at_last_and_takes_none_along(database, engine, made, most):
    """It does not come to say what was wrong. Those that were claimed with it are handled, each once."""
    inbox, ran = Inbox(), []
    inbox.receive(database, deliveries(engine, "a", "b", "kills", "c", "d"))

    def handler(connection, message):
        ran.append(message.message_id)
        if message.message_id == "kills":
            raise KeyboardInterrupt         # ends the process: nothing is written
        effect(connection, message)

    for _ in range(20):
        processor = inbox.process(handler, engine=database, max_attempts=most)
        try:
            if not processor.step():
                break
        except KeyboardInterrupt:
            with database.begin() as connection:
                connection.execute(made.inbox.update().where(made.inbox.c.lease_until.is_not(None)).values(lease_until=0))
    assert sorted(ran) == sorted(["a", "b", "c", "d", *["kills"] * most])
    with database.connect() as connection:
        [dead] = inbox.dead(connection)
        assert (dead["message_id"], dead["attempts"], dead["error"]) == (
            "kills", most, f"its process ended, or hung, in attempt {most}")
    assert count(database, BUSINESS) == 4


def test_two_workers_of_a_processor_have_one_row_in_different_attempts(database, engine):
    """The first one fails, and before it has taken the row off its list another one claims it."""
    inbox, failed = Inbox(), []
    inbox.receive(database, deliveries(engine, "a"))

    def handler(connection, message):
        if not failed:
            failed.append(message)
            raise OSError("not yet")

    processor = inbox.process(handler, engine=database, retry_delay=0)
    attempt, steps = processor._attempt, []

    def attempted(row):
        attempt(row)
        if not steps:
            steps.append(None)
            steps.append(processor.step())          # as another thread does it

    processor._attempt = attempted
    assert (processor.step(), steps, processor.handled, processor._held) == (1, [None, 1], 1, set())


@pytest.mark.parametrize("where", ["here", "beside"])
def test_what_ends_a_worker_of_a_processor_ends_all_and_is_raised(postgres_url, engine, where):
    from tests.sql.conftest import engine_of

    database = engine_of(postgres_url)
    inbox, here, all_there = Inbox(), threading.current_thread(), threading.Barrier(3)
    inbox.receive(database, deliveries(engine, "a", "b", "c"))

    def handler(connection, message):
        all_there.wait(60)
        if (threading.current_thread() is here) == (where == "here"):
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        inbox.process(handler, engine=database, workers=3, batch=1, poll=1000).run()
    assert set(threading.enumerate()) <= before
    database.dispose()


def test_a_delivery_that_was_taken_back_keeps_no_other_from_its_ack(database, engine, made):
    three = deliveries(engine, "a", "b", "c")
    three[1].nack()
    assert Inbox().receive(database, three) == 3
    assert engine.queues["jobs"].outstanding + engine.queues["jobs"].ready == 1
    [again] = engine.take(1, "worker")
    assert (again.message.message_id, Inbox().receive(database, again)) == ("b", 0)
    three = deliveries(engine, "d", "", "e")
    three[0].nack()
    with pytest.raises(MissingId):
        Inbox().receive(database, three)
    assert len(engine.take(9, "worker")) == 3


def test_a_memory_that_is_too_short_is_warned_of(database, engine, caplog):
    engine.create_queue("long", ttl=1000)
    engine.create_queue("retried", retry_delay=[10, 100], delivery_limit=5)
    for name in ("long", "retried"):
        engine.create_selector(name, when=xump.always, do=xump.deliver(name), credit=100)
    for retain, names in [(1000, ""), (999, "long"), (310, "long"), (309, "long retried")]:
        caplog.clear()
        inbox = Inbox(retain=retain)
        for name in ("long", "retried", "long"):
            engine.publish(name, message_id=f"{retain}")
            inbox.receive(database, engine.take(1, name))
        told = [record.args[0] for record in caplog.records if record.name == "xump.sql"]
        assert told == names.split()


def test_a_processor_that_runs_looks_when_the_next_attempt_is_due_and_forgets_what_is_old(database, engine, made, monkeypatch):
    monkeypatch.setattr("xump.sql.processor.PURGE_SECONDS", 0.05)
    inbox, tries = Inbox(retain=0), []
    inbox.receive(database, deliveries(engine, "a"))

    def handler(connection, message):
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("broken")

    processor = inbox.process(handler, engine=database, retry_delay=0.2, poll=1000)
    thread = threading.Thread(target=processor.run)
    thread.start()
    try:
        until(lambda: count(database, made.inbox) == 0)
    finally:
        processor.stop()
        thread.join()
    assert (len(tries), processor.handled) == (2, 1)


def test_arguments(database):
    for wrong, said in [({"order": "all"}, "order must be"), ({"on_dead": "drop"}, "on_dead must be"),
                        ({"retain": -1}, "retain")]:
        with pytest.raises(ValueError, match=said):
            Inbox(**wrong)
    for wrong, said in [({"workers": 0}, "workers must be"), ({"lease": 0}, "lease and poll")]:
        with pytest.raises(ValueError, match=said):
            Inbox().process(effect, engine=database, **wrong)
    with database.begin() as connection, pytest.raises(TypeError, match="must be str"):
        with Inbox().once(connection, source="a", message_id=1):
            pass
    init(database)
