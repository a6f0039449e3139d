"""The outbox and its relays, without faults: what is sent, when, in which order, and what is refused."""

import logging
import threading
import time
from contextlib import suppress

import pytest
from sqlalchemy import MetaData, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, declarative_base

import xump
from tests.durability.log_in_memory import LOGS
from tests.durability.failing_shelf import FailingShelf
from tests.sql.conftest import BUSINESS, business, count, engine_of, until
from xump import StoreFailed
from xump.sql import ConfigurationError, Outbox, Wake


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        engine.create_queue("orders", dedup=3600)
        engine.create_queue("mails")
        yield engine
        engine.check()


def bodies(engine, queue="orders"):
    return [message.body for message in engine.queues[queue].browse()]


def test_what_is_committed_is_sent_and_what_is_rolled_back_is_not(database, engine, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", "new", b"1")
    with database.connect() as connection:
        outbox.publish(connection, "orders", "new", b"2")
        connection.rollback()
    with Session(database) as session:
        outbox.publish(session, "orders", "new", b"3")
        session.commit()
    relay = outbox.relay(engine, engine=database)
    assert relay.step() == 2
    assert bodies(engine) == [b"1", b"3"]
    assert (relay.step(), count(database, made.outbox)) == (0, 0)


def test_a_message_arrives_as_it_was_given(database, engine):
    outbox = Outbox()
    headers = {"a": True, "b": 2**40, "c": 1.0, "d": float("inf"), "e": "\0 \N{GRINNING FACE}", "f": b"\0\xff"}
    with database.begin() as connection:
        outbox.publish(connection, "orders", "new.one", b"\0\xff", headers, key="k", message_id="m 1", reply_to="r",
                       correlation_id="c", priority=7, ttl=600)
        number = outbox.publish(connection, "orders", body=bytearray(b"x"), delay=3600)
    assert len(number) == 36
    assert outbox.relay(engine, engine=database).step() == 2
    [message] = [one for one in engine.queues["orders"].browse() if one.message_id == "m 1"]
    assert dict(message.headers) == headers
    assert [type(value) for value in message.headers.values()] == [type(value) for value in headers.values()]
    assert (message.address, message.body, message.reply_to, message.correlation_id, message.priority) == (
        "new.one", b"\0\xff", "r", "c", 7)
    assert message.expires > 0
    assert engine.queues["orders"].delayed == 1


def test_ids_of_ten_thousand_characters_and_empty_ones(database, engine):
    outbox, long = Outbox(), "x" * 10_000
    with database.begin() as connection:
        assert outbox.publish(connection, "orders", "a", key=long, message_id=long) == long
        outbox.publish(connection, "orders", "b", key="", lock=True)
    assert outbox.relay(engine, engine=database).step() == 2


@pytest.mark.parametrize(("arguments", "said"), [
    ({"queue": 1}, "queue must be a str, got int"),
    ({"address": "a\0"}, "must not contain NUL"),
    ({"message_id": "\ud800"}, "lone surrogate"),
    ({"body": "text"}, "body must be bytes, got str"),
    ({"headers": {"a": []}}, "header 'a' must be"),
    ({"headers": {"a": None}}, "header 'a' must be"),
    ({"headers": {"a": 2**63}}, "does not fit in 64 bits"),
    ({"headers": {"a": "\ud800"}}, "lone surrogate"),
    ({"headers": {"\ud800": 1}}, "lone surrogate"),
    ({"headers": {"": 1}}, "0 bytes, allowed are 1 to 65535"),
    ({"headers": {"x" * 65_536: 1}}, "65536 bytes, allowed are 1 to 65535"),
    ({"headers": {"x": "x" * (1 << 20)}}, "allowed are 1048576"),
    ({"headers": [("a", 1)]}, "headers must be a mapping"),
    *(({name: "x" * 65_535}, f"{name} has 65535 bytes, allowed are 65534")
      for name in ("address", "message_id", "reply_to", "correlation_id")),
    ({"headers": {1: "a"}}, "header's name must be a str"),
    ({"key": 1}, "key must be a str"),
    ({"lock": True}, "lock=True needs a key"),
    ({"delay": -1}, "delay must be 0 to"),
    ({"ttl": float("nan")}, "ttl must be 0 to"),
    ({"delay": "1"}, "delay must be a number of seconds"),
    ({"priority": 256}, "priority must be an int from 0 to 255, got 256"),
])
def test_what_is_wrong_is_refused_and_writes_nothing(database, made, arguments, said):
    with database.begin() as connection:
        with pytest.raises((TypeError, ValueError), match=said):
            Outbox().publish(connection, **{"queue": "orders", **arguments})
    assert count(database, made.outbox) == 0


def test_arguments_of_the_outbox_and_of_relays():
    database = engine_of("sqlite://")
    outbox = Outbox()
    with pytest.raises(ValueError, match='order must be "key", "all" or None'):
        Outbox(order="none")
    with pytest.raises(TypeError, match="expected a Connection or Session"):
        outbox.publish(database, "orders")
    for options, said in [({"batch": 0}, "batch must be"), ({"on_dead": "drop"}, "on_dead must be"),
                          ({"lease": 0}, "lease and poll"), ({"retry_delay": ()}, "at least one delay"),
                          ({"max_attempts": True}, "max_attempts must be")]:
        with pytest.raises(ValueError, match=said):
            outbox.relay(xump.Engine(), engine=database, **options)
    for target, kind in [("file:///x", ValueError), (1, TypeError), ("http", ValueError), ("http://", ValueError),
                         ("http://127.0.0.1:abc", ValueError), ("http://127.0.0.1:99999", ValueError),
                         ("http://127.0.0.1:1/prefix", ValueError), ("https://a/?b", ValueError)]:
        with pytest.raises(kind, match="target|with no path"):
            outbox.relay(target, engine=database)


def test_many_at_once_keep_their_order(database, engine):
    outbox = Outbox()
    with database.begin() as connection:
        ids = outbox.publish_many(connection, [
            {"queue": "orders", "body": b"%d" % number, "key": "k", "lock": True, "delay": 0 if number == 5 else None}
            for number in range(10)])
        assert outbox.publish_many(connection, []) == []
    assert len(set(ids)) == 10
    relay = outbox.relay(engine, engine=database, batch=3)
    while relay.step():
        pass
    assert bodies(engine) == [b"%d" % number for number in range(10)]


def test_two_relays_share_and_one_that_leaves_gives_its_share_back(database, made):
    outbox = Outbox()
    with xump.Engine() as engine:
        engine.create_queue("orders")
        one, two = (outbox.relay(engine, engine=database, lease=1000) for _ in range(2))
        one.step()
        assert len(one._slots.mine) == 16
        two.step()
        assert two._slots.mine == []                    # all are leased, and it is known now
        one._shared_at = -1000
        one.step()
        two._shared_at = -1000
        two.step()
        assert (len(one._slots.mine), len(two._slots.mine)) == (8, 8)
        assert set(one._slots.mine).isdisjoint(two._slots.mine)
        two._leave()
        one._shared_at = -1000
        one.step()
        assert len(one._slots.mine) == 16


def test_x10_poison_key_others_go_on(database, engine, made):
    outbox = Outbox()
    with database.begin() as connection:
        for number in range(6):
            outbox.publish(connection, "nowhere" if number == 2 else "orders", "a", b"%d" % number, key="ab"[number % 2])
    relay = outbox.relay(engine, engine=database, max_attempts=2, retry_delay=1000)
    assert relay.step() == 4
    assert bodies(engine) == [b"0", b"1", b"3", b"5"]
    with database.begin() as connection:
        outbox.publish(connection, "orders", "a", b"6", key="a")        # comes while its key is parked
        assert outbox.stats(connection)["parked"] == 2
    assert relay.step() == 0
    assert count(database, made.outbox, made.outbox.c.parked) == 3
    with database.begin() as connection:
        connection.execute(made.outbox.update().where(made.outbox.c.retry_at.is_not(None)).values(retry_at=0))
    assert relay.step() == 0
    with database.begin() as connection:
        [dead] = outbox.dead(connection)
        assert (dead["attempts"], dead["queue"]) == (2, "nowhere")
        assert "nowhere" in dead["error"]
        assert outbox.stats(connection)["dead"] == 1
    engine.create_queue("nowhere")
    with database.begin() as connection:
        assert outbox.revive(connection, [dead["id"]]) == 1
        assert outbox.revive(connection, [dead["id"]]) == 0
    while relay.step():
        pass
    assert (bodies(engine, "nowhere"), bodies(engine)[4:]) == ([b"2"], [b"4", b"6"])


@pytest.mark.parametrize("on_dead", ["block", "skip"])
def test_a_dead_row_blocks_its_key_or_not(database, engine, made, on_dead):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish_many(connection, [{"queue": queue, "key": "k", "body": queue.encode()} for queue in ("nowhere", "orders")])
        outbox.publish(connection, "nowhere")                           # without a key: in nobody's way
    relay = outbox.relay(engine, engine=database, max_attempts=1, on_dead=on_dead)
    sent = relay.step() + relay.step()
    assert sent == (1 if on_dead == "skip" else 0)
    with database.begin() as connection:
        dead = outbox.dead(connection)
        assert len(dead) == 2
        assert outbox.drop(connection, [row["id"] for row in dead]) == 2
    relay.step()
    assert (bodies(engine), count(database, made.outbox)) == ([b"orders"], 0)


def test_a_full_queue_is_waited_for_and_counts_no_attempt(database, made):
    outbox = Outbox()
    with xump.Engine() as engine:
        small = engine.create_queue("small", limit=3)
        other = engine.create_queue("other")
        with database.begin() as connection:
            for number in range(10):
                outbox.publish(connection, "small" if number % 2 else "other", "a", b"%d" % number, key=f"{number % 2}")
        relay = outbox.relay(engine, engine=database)
        assert relay.step() == 8
        assert relay.pressed and "small" in relay.pressed
        assert (small.ready, other.ready) == (3, 5)
        assert count(database, made.outbox, made.outbox.c.attempts == 0) == 2
        small.purge()
        assert (relay.step(), relay.pressed) == (2, None)
        assert [message.body for message in small.browse()] == [b"7", b"9"]


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("how", ["step", "drain", "run"])
def test_a_full_queue_that_more_than_a_batch_waits_for_keeps_no_other_waiting(database, made, how, parked):
    """Keys keep their order: what is behind a row of its key for the full queue waits, and more than a batch of it does."""
    outbox = Outbox()
    with xump.Engine() as engine:
        full, other = engine.create_queue("full", limit=11), engine.create_queue("other")
        for _ in range(11):
            full.publish("in the way")
        relay = outbox.relay(engine, engine=database, batch=4, poll=1000, retry_delay=1000)
        with database.begin() as connection:
            if parked:
                outbox.publish(connection, "missing", key="p")
        relay.drain()
        with database.begin() as connection:
            for number in range(10):
                outbox.publish(connection, "full", body=b"full %d" % number, key=f"k{number}" if number % 2 else None)
            outbox.publish(connection, "other", body=b"before", key="z")
            outbox.publish(connection, "full", body=b"z", key="z")
            for number in range(10):
                outbox.publish(connection, "other", body=b"behind %d" % number, key=f"k{number // 2 * 2 + 1}")
            for number in range(10):
                outbox.publish(connection, "other", body=b"free %d" % number, key=f"j{number % 2}")
        free = sorted([b"before", *(b"free %d" % number for number in range(10))])
        if how == "run":
            running = threading.Thread(target=relay.run)
            running.start()
            until(lambda: other.ready >= len(free))
            relay.stop()
            running.join()
        elif how == "drain":
            assert relay.drain() == len(free)
        else:
            while relay.step():
                pass
        found = [message.body for message in other.browse()]
        assert (sorted(found), "full" in relay.pressed) == (free, True)
        assert [[one for one in found if one[:4] == b"free" and one[5] % 2 == odd] for odd in (0, 1)] == [
            [b"free %d" % number for number in range(odd, 10, 2)] for odd in (0, 1)]
        full.purge()
        while relay.step():
            pass
        assert (full.ready, other.ready, relay.pressed) == (11, 21, None)
        place = {message.body: number for number, message in enumerate(other.browse())}
        assert all(place[b"behind %d" % number] < place[b"behind %d" % (number + 1)] for number in range(0, 10, 2))


def test_draining_goes_on_behind_a_batch_that_was_refused(database):
    outbox = Outbox()
    with xump.Engine() as engine:
        good = engine.create_queue("good")
        with database.begin() as connection:
            outbox.publish_many(connection, [{"queue": "missing"}] * 4 + [{"queue": "good"}])
        assert (outbox.relay(engine, engine=database, batch=4, retry_delay=1000).drain(), good.ready) == (1, 1)


@pytest.mark.parametrize("days", [-1, 0, 1])
def test_delays_and_lifetimes_hold_whatever_time_the_engine_has(database, made, days):
    outbox, now = Outbox(), [time.time_ns() + days * 86_400 * 10**9]
    with xump.Engine(clock=lambda: now[0]) as engine:
        orders = engine.create_queue("orders")
        with database.begin() as connection:
            outbox.publish(connection, "orders", body=b"lives", ttl=600)
            outbox.publish(connection, "orders", body=b"waits", delay=600)
            outbox.publish(connection, "orders", body=b"waits and lives", delay=600, ttl=900)
            outbox.publish(connection, "orders", body=b"is over", ttl=300)
            connection.execute(made.outbox.update().values(created=made.outbox.c.created - 300_000_000,
                                                           at=made.outbox.c.at - 300_000_000))
        assert outbox.relay(engine, engine=database).step() == 4

        def there(seconds):
            now[0] += seconds * 10**9
            engine.tick()
            return [message.body for message in orders.browse(state="ready")], orders.delayed

        assert there(0) == ([b"lives"], 2)
        assert there(200) == ([b"lives"], 2)
        assert there(120) == ([b"waits", b"waits and lives"], 0)
        assert there(320) == ([b"waits"], 0)


def test_a_store_that_failed_has_no_row_of_another_store_sent_twice(database, made):
    outbox = Outbox()
    with xump.Engine() as engine:
        for name in ("well", "failed"):
            engine.create_store(name, "failing shelf", path=f"relay {name}")
            engine.create_queue(name, store=name)
        FailingShelf.unwritable.add("failed")
        try:
            engine.publish("failed")
            with pytest.raises(StoreFailed):
                engine.sync()
            relay = outbox.relay(engine, engine=database)
            with database.begin() as connection:
                for name in ("well", "failed", "well"):
                    outbox.publish(connection, name, key=name)
            assert (relay.step(), relay.step(), count(database, made.outbox)) == (2, 0, 1)
            assert "failed" in relay.pressed
            with database.begin() as connection:
                outbox.publish(connection, "well")
            assert (relay.step(), engine.queues["well"].ready) == (1, 3)
        finally:
            FailingShelf.unwritable.clear()
            with suppress(StoreFailed):
                engine.close()
            LOGS.clear()


def test_a_relay_that_lost_its_lease_deletes_nothing(database, engine, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders", "a", message_id="1")

    class Slow:
        atomic = True

        def send(self, rows):
            with database.begin() as connection:        # the lease runs out while it sends
                connection.execute(made.slot.update().values(until=0))
                connection.execute(made.relay.delete())
            assert other.step() == 1
            return [None] * len(rows)

        def warn(self, rows, lease): ...
        def close(self): ...

    other = outbox.relay(engine, engine=database)
    slow = outbox.relay(Slow(), engine=database)
    assert (slow.step(), slow.lost) == (0, 1)
    assert len(bodies(engine)) == 1


def test_order_of_all_is_the_order_of_the_ids(database, engine):
    outbox = Outbox(order="all")
    for number in range(5):
        with database.begin() as connection:
            outbox.publish(connection, "orders", "a", b"%d" % number, key=f"{number}")
    assert outbox.relay(engine, engine=database).step() == 5
    assert bodies(engine) == [b"0", b"1", b"2", b"3", b"4"]


def test_order_of_all_holds_all_back(database, engine, made):
    """A row that is refused, and a full queue, and keys or none: nothing goes past."""
    outbox = Outbox(order="all")
    small = engine.create_queue("small", limit=1)
    with database.begin() as connection:
        for number, queue in enumerate(["orders", "small", "small", "orders", "nowhere", "orders"]):
            outbox.publish(connection, queue, "a", b"%d" % number, key=f"{number}" if number % 2 else None)
    relay = outbox.relay(engine, engine=database, retry_delay=1000)
    assert (relay.step(), bodies(engine), bodies(engine, "small")) == (2, [b"0"], [b"1"])
    small.purge()
    while relay.step():
        pass
    assert (bodies(engine), bodies(engine, "small")) == ([b"0", b"3"], [b"2"])
    engine.create_queue("nowhere")
    with database.begin() as connection:
        connection.execute(made.outbox.update().values(retry_at=0))
    while relay.step():
        pass
    assert (bodies(engine), bodies(engine, "nowhere")) == ([b"0", b"3", b"5"], [b"4"])


def test_the_oldest_row_counts_though_its_key_is_parked(database, engine, made):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "nowhere", key="k")
        connection.execute(made.outbox.update().values(created=made.outbox.c.created - 100_000_000))
    outbox.relay(engine, engine=database).step()
    with database.begin() as connection:
        outbox.publish(connection, "orders")
        stats = outbox.stats(connection)
    assert (stats["waiting"], stats["parked"], 100 <= stats["oldest_seconds"] < 1000) == (1, 1, True)


def test_a_prepared_transaction_is_an_old_snapshot(postgres_url):
    database = engine_of(postgres_url)
    with database.connect() as connection:
        transaction = connection.begin_twophase()
        business(connection)
        transaction.prepare()
        try:
            time.sleep(0.02)
            with database.connect() as other:
                assert Outbox().stats(other)["oldest_snapshot_seconds"] > 0.01
        finally:
            transaction.rollback()
    database.dispose()


def test_a_row_that_was_refused_is_tried_again_when_it_is_due(database, engine):
    """The poll is far away."""
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "nowhere")
    relay = outbox.relay(engine, engine=database, poll=1000, retry_delay=0.2)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        until(lambda: relay._reader.parked)
        engine.create_queue("nowhere")
        until(lambda: relay.sent == 1)
    finally:
        relay.stop()
        thread.join()


def test_a_target_is_whatever_sends(database, made):
    class Bare:
        def send(self, rows):
            return [None] * len(rows)

    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders")
    relay = outbox.relay(Bare(), engine=database)
    assert (relay.drain(), count(database, made.outbox)) == (1, 0)


def test_warned_of_queues_that_let_copies_in(database, engine, caplog):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "mails")
    with caplog.at_level(logging.WARNING, "xump.sql"):
        outbox.relay(engine, engine=database).step()
    assert "queue 'mails' recognises copies for 0 seconds" in caplog.text
    assert "does not survive a crash" in caplog.text


def test_run_wakes_by_a_commit_of_a_session_and_ends(database, engine):
    wake = Wake.local()
    outbox = Outbox(wake=wake)
    relay = outbox.relay(engine, engine=database, poll=1000)
    selector = engine.create_selector("orders", when=xump.always, do=xump.deliver("reader"))
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        for number in range(3):
            with Session(database) as session, session.begin():
                with session.begin_nested():
                    business(session)
                outbox.publish(session, "orders", "a", b"%d" % number)
            [delivery] = engine.take(1, "reader", timeout=30)
            assert delivery.body == b"%d" % number
            delivery.ack()
        with outbox.waking(), database.begin() as connection:
            outbox.publish(connection, "orders", "a", b"core")
        [delivery] = engine.take(1, "reader", timeout=30)
        delivery.ack()
    finally:
        relay.stop()
        thread.join()
    assert selector.outstanding == 0


def test_an_exception_in_a_wake_up_is_logged_and_not_raised(database, made, caplog):
    class Broken(Wake):
        def signal(self):
            raise RuntimeError("broken")

    with Session(database) as session, session.begin():
        Outbox(wake=Broken()).publish(session, "orders")
    assert count(database, made.outbox) == 1
    assert caplog.text.count("RuntimeError: broken") == 1
    outbox = Outbox(wake=Broken())
    with outbox.waking(), database.begin() as connection:
        outbox.publish(connection, "orders")
    assert count(database, made.outbox) == 2
    assert caplog.text.count("RuntimeError: broken") == 2


def test_notices_that_nobody_takes_do_not_pile_up(engine, monkeypatch):
    monkeypatch.setattr("xump.sql.wake.NOTICES_MAX", 3)
    wake = Wake.queue(engine, "wake")
    for _ in range(10):
        wake.signal()
    assert engine.queues["wake"].ready == 3
    woken, again = threading.Event(), Wake.queue(engine, "wake")        # a second one takes the queue as it is
    leave = again.join(woken)
    assert woken.wait(60)
    leave()


def test_a_notice_in_a_savepoint_goes_with_it(postgres_url):
    database = engine_of(postgres_url)
    wake, woken = Wake.notify_in_transaction(database), threading.Event()
    outbox = Outbox(wake=wake)
    leave = wake.join(woken)
    assert woken.wait(60)           # it listens now
    woken.clear()
    with database.begin() as connection:
        savepoint = connection.begin_nested()
        outbox.publish(connection, "orders")
        savepoint.rollback()
        outbox.publish(connection, "orders")
    assert woken.wait(60)
    leave()
    database.dispose()


def test_x6_savepoint_first_sqlite(sqlite_url, made):
    """As it comes, the driver would commit what is in the savepoint: refused. Set up, it is rolled back with all else."""
    from sqlalchemy import create_engine

    database = create_engine(sqlite_url)
    with database.connect() as connection, connection.begin(), connection.begin_nested():
        with pytest.raises(ConfigurationError, match="configure_sqlite"):
            Outbox().publish(connection, "orders")
    with pytest.raises(ConfigurationError, match="configure_sqlite"):
        Outbox().relay(xump.Engine(), engine=database)
    database.dispose()
    database = engine_of(sqlite_url)
    with database.connect() as connection:
        with connection.begin_nested():
            Outbox().publish(connection, "orders")
            business(connection)
        connection.rollback()
    assert (count(database, made.outbox), count(database, BUSINESS)) == (0, 0)
    database.dispose()


def test_what_a_session_has_in_mind_is_written_before_the_message(postgres_url, made):
    """The row that the writers of a key exclude each other by is locked before the id is drawn."""
    database, outbox = engine_of(postgres_url), Outbox()
    base = declarative_base(metadata=MetaData())

    class Business(base):
        __table__ = BUSINESS.to_metadata(base.metadata)

    with Session(database) as session, session.begin():
        session.add(Business(id=1, what="new"))
    with Session(database) as first, Session(database) as second:
        first.get(Business, 1).what = "paid"
        outbox.publish(first, "orders", key="1")
        second.execute(text("SET LOCAL lock_timeout = '50ms'"))
        second.get(Business, 1).what = "shipped"
        with pytest.raises(DBAPIError, match="lock timeout"):
            outbox.publish_many(second, [{"queue": "orders", "key": "1"}])
    database.dispose()
