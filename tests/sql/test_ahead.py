"""Relays that run on PostgreSQL: the next batch is read while one is sent, and statements go to psycopg itself."""

import random
import threading
from concurrent.futures import wait

import pytest
from sqlalchemy import text
from sqlalchemy.pool import NullPool

from tests.sql.conftest import count, engine_of, until
from tests.sql.deaths import RELAY, before, die, killed, opened, relay_dying_at, sent_after_all
from tests.sql.postgres import CLIENTS
from tests.sql.test_stream import Taken, expected, fill, in_slot
from xump.sql import Down, Outbox, Pressed, Refused, init, tables



@pytest.fixture
def database(postgres_url):
    engine = engine_of(postgres_url)
    yield engine
    engine.dispose()


def autocommit(url):
    return engine_of(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)


@pytest.mark.parametrize("point", [point for point in RELAY if not point.startswith("r10")])
def test_relay_that_reads_ahead(database, postgres_url, made, tmp_path, point):
    """The batch behind the one at which it dies has been read, or is just being read."""
    rows = 1 if "single" in point else 5
    fill(database, ["k"] * rows)
    database.dispose()

    def work():
        relay = relay_dying_at(point, tmp_path, postgres_url, batch=2)
        if point == "r9_after_begin":
            before(relay, "_settle_all")        # BEGIN, DELETE and COMMIT are one statement
        relay.drain()

    killed(postgres_url, work)
    # The second batch is being deleted while the first one's deletion is counted.
    assert count(database, made.outbox) in ((1, 3) if point == "r11_after_commit" else (rows,))
    sent_after_all(database, made, tmp_path, point, rows)


def test_r10_after_delete_before_commit(database, postgres_url, made, tmp_path):
    """The DELETE is a transaction of its own. It waits for a row that is locked here, until its client is dead."""
    fill(database, ["k"] * 5)
    database.dispose()

    def work():
        relay, looking = Outbox().relay(opened(tmp_path), engine=engine_of(postgres_url), batch=2), autocommit(postgres_url)
        deletes = text(f"SELECT count(*) {CLIENTS} AND wait_event_type = 'Lock' AND query LIKE '%DELETE%'")

        def watch():
            with looking.connect() as connection:
                until(lambda: connection.execute(deletes).scalar_one())
            die()

        threading.Thread(target=watch).start()
        relay.drain()

    with database.begin() as holder:
        holder.execute(text("SELECT id FROM xump_outbox WHERE body = '1' FOR UPDATE"))
        killed(postgres_url, work)
    assert count(database, made.outbox) == 5
    sent_after_all(database, made, tmp_path, "r10", 5)


@pytest.mark.parametrize("seed", range(4))
def test_any_mixture_of_keys_keeps_the_order_of_each(database, made, seed):
    """Some rows are not taken for a few times, some never, and the target goes away now and then."""
    draw = random.Random(seed)
    keys = draw.choices([f"key {number}" for number in range(40)], [draw.random() ** 6 for _ in range(40)], k=900)
    pressed = {draw.randrange(900): draw.randint(1, 3) for _ in range(6)}
    away = {draw.randrange(900): 1 for _ in range(3)}
    refused = {draw.randrange(900) for _ in range(4)}

    def faults(row):
        number = int(row.body)
        if number in refused:
            return Refused("broken")
        for left, fault in ((away, Down("away")), (pressed, Pressed("no room"))):
            if left.get(number):
                left[number] -= 1
                if isinstance(fault, Down):
                    raise fault
                return fault
        return None

    fill(database, keys)
    target = Taken(faults)
    relay = Outbox().relay(target, engine=database, batch=draw.choice([10, 64, 150]), max_attempts=1, on_dead="skip", poll=0.001)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        until(lambda: count(database, made.outbox) == len(refused))
    finally:
        relay.stop()
        thread.join()
    sent = {key: [number for number in numbers if number not in refused] for key, numbers in expected(keys).items()}
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in target.by_key.items()} == {
        key: numbers for key, numbers in sent.items() if numbers}


def test_what_was_read_ahead_is_given_up_when_its_key_is_parked(database, made):
    """Row 3 is refused while the rows behind it have been read."""
    fill(database, ["k"] * 12)
    target = Taken(lambda row: Refused("broken") if int(row.body) == 3 else None)
    relay = Outbox().relay(target, engine=database, batch=4, max_attempts=1)
    relay.drain()
    assert target.by_key["k"] == [0, 1, 2]
    with database.begin() as connection:
        Outbox().drop(connection, [row["id"] for row in Outbox().dead(connection)])
    relay.drain()
    assert target.by_key["k"] == [0, 1, 2, *range(4, 12)]


def test_what_is_late_is_sent_after_a_second_at_most(database, made, monkeypatch):
    """A slot whose end was reached is not begun again while its rows are still there, but it is in time."""
    few, many = in_slot(1), in_slot(2)
    fill(database, [few] + [many] * 400)
    with database.begin() as connection:
        connection.execute(made.outbox.update().values(id=made.outbox.c.id + 1000))
    monkeypatch.setattr("xump.sql.reading.STREAM_SECONDS", 1e9)
    began = []

    class Late(Taken):
        def send(self, rows):
            if not began:
                began.append(True)
                with database.begin() as connection:            # an id before all that were read
                    Outbox().publish(connection, "orders", body=b"999", key=few)
                    connection.execute(made.outbox.update().where(made.outbox.c.body == b"999").values(id=1))
            if sum(map(len, self.by_key.values())) > 200:
                monkeypatch.setattr("xump.sql.reading.STREAM_SECONDS", -1)
            return super().send(rows)

    target = Late()
    assert Outbox().relay(target, engine=database, batch=20).drain() == 402
    assert target.by_key == {few: [0, 999], many: [*range(1, 401)]}
    late = [number for numbers in target.order for number in numbers].index(999)
    assert 200 < late < 300


def test_slots_that_another_relay_got_are_not_sent_from_what_was_read(database, made):
    """The shares are looked at before each batch: what was read ahead of slots that went is dropped."""
    keys = [in_slot(slot) for slot in (0, 15)]
    fill(database, keys * 20)
    outbox = Outbox()
    other, sizes = outbox.relay(Taken(), engine=database), []

    class Sharing(Taken):
        def send(self, rows):
            sizes.append(len(rows))
            outcomes = super().send(rows)
            if len(sizes) == 1:
                other.step()            # says that it is there
                relay._shared_at = -1e9
            elif len(sizes) == 2:
                other._shared_at = -1e9
                other.step()            # takes what was let go
            return outcomes

    target = Sharing()
    relay = outbox.relay(target, engine=database, batch=8)
    relay.drain()
    drained = other._target.by_key
    other._shared_at = -1e9
    while other.step():
        pass
    other._leave()
    together = {key: sorted([*target.by_key[key], *drained[key]]) for key in keys}
    assert together == expected(keys * 20)
    assert drained[keys[1]]
    assert (relay.lost, other.lost) == (0, 0)


def test_a_lease_that_ends_while_a_batch_is_sent(database, made):
    fill(database, ["k"] * 6)
    outbox = Outbox()

    class Slow(Taken):
        def send(self, rows):
            if not self.sizes:
                wait([relay._ahead._next])          # without a lease it would read nothing
                with database.begin() as connection:
                    connection.execute(made.slot.update().values(until=0))
            return super().send(rows)

    relay = outbox.relay(Slow(), engine=database, batch=2)
    assert (relay.drain(), relay.lost, count(database, made.outbox)) == (6, 4, 0)        # one more was on its way


def test_connections_that_are_cut_amid_a_stream(database, made, caplog):
    """Those that read and delete are made anew; nothing is lost, and the first copies keep their order."""
    fill(database, ["k"] * 200)
    left = [3]

    class Cutting(Taken):
        def send(self, rows):
            if left[0] and len(self.sizes) % 4 == 1:
                with database.begin() as connection:
                    connection.execute(text(f"SELECT pg_terminate_backend(pid, 30000) {CLIENTS}"))
                left[0] -= 1
            return super().send(rows)

    target = Cutting()
    relay = Outbox().relay(target, engine=database, batch=10, poll=0.001)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        until(lambda: not left[0])
        until(lambda: count(database, made.outbox) == 0)
    finally:
        relay.stop()
        thread.join()
    assert list(dict.fromkeys(target.by_key["k"])) == [*range(200)]
    assert "the relay cannot reach the database" in caplog.text


def test_a_target_that_raises_what_it_should_not(database, made):
    """It comes out, when the thread that reads has ended, and nothing was deleted."""
    fill(database, ["k"] * 30)
    target = Taken(lambda row: 1 / 0)
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        Outbox().relay(target, engine=database, batch=4).drain()
    assert set(threading.enumerate()) <= before
    assert count(database, made.outbox) == 30


def test_deleting_waits_for_no_disk_and_the_setting_ends_with_it(database, made):
    relay = Outbox().relay(Taken(), engine=database)
    relay.step()
    with database.connect() as connection:
        raw = connection.connection.driver_connection
        raw.execute(relay._forget, {"ids": "{1}", "owner": relay._slots.owner})
        assert raw.execute("SHOW synchronous_commit").fetchone() == ("off",)
        raw.commit()
        assert raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
    relay._leave()


def test_a_schema_and_a_prefix_of_ones_own(database):
    with database.begin() as connection:
        connection.execute(text('DROP SCHEMA IF EXISTS "Shop" CASCADE'))
        connection.execute(text('CREATE SCHEMA "Shop"'))
    made = tables("Shop", "own_")
    init(database, made)
    outbox = Outbox(tables=made)
    with database.begin() as connection:
        outbox.publish_many(connection, [{"queue": "orders", "body": b"%d" % number, "key": "k"} for number in range(9)])
    target = Taken()
    assert outbox.relay(target, engine=database, batch=2).drain() == 9
    assert target.by_key["k"] == [*range(9)]
    with database.begin() as connection:
        connection.execute(text('DROP SCHEMA "Shop" CASCADE'))


def test_a_batch_is_sent_while_the_one_before_is_deleted(database, postgres_url, made):
    """Its DELETE waits for a row that is locked here, and the next batch goes out meanwhile; the one after that waits."""
    fill(database, ["k"] * 6)
    target = Taken()
    relay = Outbox().relay(target, engine=database, batch=2)
    with database.connect() as holder:
        holder.execute(text("SELECT id FROM xump_outbox WHERE body = '1' FOR UPDATE"))
        thread = threading.Thread(target=relay.drain)
        thread.start()
        until(lambda: len(target.sizes) == 2)
        assert (relay.sent, count(database, made.outbox)) == (0, 6)
        holder.rollback()
    thread.join()
    assert (relay.sent, relay.lost, target.by_key["k"]) == (6, 0, [*range(6)])


def test_what_it_sent_is_deleted_before_a_relay_lets_go_of_slots(database, made):
    """Else another relay would send it again, without a crash."""
    fill(database, ["k"] * 4)
    outbox = Outbox()
    order = []

    class Sharing(Taken):
        def send(self, rows):
            relay._shared_at = -1e9
            return super().send(rows)

    relay = outbox.relay(Sharing(), engine=database, batch=2)
    share = relay._slots.share

    def shared(connection):
        order.append(count(database, made.outbox))
        return share(connection)

    relay._slots.share = shared
    relay.drain()
    assert (order, relay.lost) == ([4, 2, 0], 0)


def test_a_relay_whose_lease_was_over_looks_what_it_has_before_it_sends_more(database, made):
    fill(database, ["k"] * 6)
    outbox = Outbox()
    other = outbox.relay(Taken(), engine=database)

    class Slow(Taken):
        def send(self, rows):
            if not self.sizes:
                wait([relay._ahead._next])
                with database.begin() as connection:
                    connection.execute(made.slot.update().values(until=0))
                    connection.execute(made.relay.delete())
                other.step()
            return super().send(rows)

    target = Slow()
    relay = outbox.relay(target, engine=database, batch=2)
    assert (relay.drain(), relay.lost, relay.drain()) == (0, 4, 0)
    assert target.by_key["k"] == [0, 1, 2, 3]
    other._leave()
