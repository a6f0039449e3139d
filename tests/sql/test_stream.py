"""Relays that have much to send: each slot is read on behind its own last row, and each key keeps its order."""

import random
from collections import defaultdict

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from tests.sql.conftest import count, engine_of
from xump.sql import Down, Outbox, Pressed, Refused
from xump.sql.payload import slot_of
from xump.sql.reading import EACH_MIN, Reader


class Taken:
    """A target that remembers what it was sent, by key; `faults` says what becomes of a row that is not taken."""

    atomic = False

    def __init__(self, faults=lambda row: None):
        self.faults, self.by_key, self.sizes, self.order = faults, defaultdict(list), [], []

    def send(self, rows):
        self.sizes.append(len(rows))
        held, outcomes = set(), []
        self.order.append([int(row.body) for row in rows])
        for row in rows:
            outcome = Pressed("behind another one") if row.key in held else self.faults(row)
            if outcome is None:
                self.by_key[row.key].append(int(row.body))
            else:
                held.add(row.key)
            outcomes.append(outcome)
        return outcomes

    def warn(self, rows, lease): ...
    def close(self): ...


def fill(database, keys, key_of_queue=lambda number: "orders"):
    """One row for each of these keys, whose body is its number."""
    with database.begin() as connection:
        Outbox().publish_many(connection, [
            {"queue": key_of_queue(number), "body": b"%d" % number, "key": key} for number, key in enumerate(keys)])


def drained(relay):
    while relay.step() or relay.pressed:
        pass


def expected(keys):
    found = defaultdict(list)
    for number, key in enumerate(keys):
        found[key].append(number)
    return found


def in_slot(slot, skip=()):
    """A key of that slot."""
    return next(key for key in map(str, range(10_000)) if slot_of(key) == slot and key not in skip)


@pytest.mark.parametrize("batch", [1, 7, 100, 2000])
def test_a_slot_with_far_more_rows_than_others_keeps_its_order(database, made, batch):
    """The others end while most of its rows are still to be read, at ids behind them."""
    many, few = in_slot(3), [in_slot(slot) for slot in (0, 5, 9)]
    keys = [many] * 300 + few * 20 + [many, *few] * 5
    if batch == 1:
        keys = keys[280:]
    fill(database, keys)
    target = Taken()
    drained(Outbox().relay(target, engine=database, batch=batch))
    assert target.by_key == expected(keys)
    assert count(database, made.outbox) == 0


@pytest.mark.parametrize("seed", range(3))
def test_any_mixture_of_keys_keeps_the_order_of_each(database, made, seed):
    draw = random.Random(seed)
    weights = [draw.random() ** 6 for _ in range(40)]
    keys = draw.choices([f"key {number}" for number in range(40)], weights, k=600)
    left = {draw.randrange(600): draw.randint(1, 3) for _ in range(6)}

    def faults(row):
        """Some rows are not taken for a few times."""
        number = int(row.body)
        if left.get(number, 0):
            left[number] -= 1
            return Pressed("no room")
        return None

    fill(database, keys)
    target = Taken(faults)
    drained(Outbox().relay(target, engine=database, batch=draw.choice([10, 64, 150])))
    assert target.by_key == expected(keys)
    assert count(database, made.outbox) == 0


def test_of_a_key_alone_a_whole_batch_is_read_at_once(database):
    fill(database, ["one"] * 900)
    target = Taken()
    drained(Outbox().relay(target, engine=database, batch=400))
    assert target.sizes == [400, 400, 100]


def test_what_was_sent_is_not_read_again_while_there_is_more(database, made, monkeypatch):
    """Not even when it is still there: a slot begins again when it is at its end, and what is late is sent then."""
    monkeypatch.setattr("xump.sql.reading.STREAM_SECONDS", 1e9)
    fill(database, ["one"] * 10)
    reader = Reader(made, 4)
    reader.begin([slot_of("one")])
    seen = []
    with database.begin() as connection:
        connection.execute(made.outbox.update().values(id=made.outbox.c.id + 1000))
        for _ in range(2):
            seen.append([int(row.body) for row in reader.read(connection)])
            assert reader.more
        connection.execute(made.outbox.update().where(made.outbox.c.body == b"9").values(id=1))      # becomes visible late
        seen += [[int(row.body) for row in reader.read(connection)], [int(row.body) for row in reader.read(connection)]]
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8], [9, 0, 1, 2]]


def test_a_slot_that_never_ends_is_begun_again_after_a_time(database, made, monkeypatch):
    fill(database, ["one"] * 10)
    reader = Reader(made, 4)
    reader.begin([slot_of("one")])
    with database.begin() as connection:
        first = reader.read(connection)
        monkeypatch.setattr("xump.sql.reading.STREAM_SECONDS", -1)
        assert reader.read(connection) == first


def test_slots_that_came_are_read_from_the_front(database, made):
    outbox = Outbox()
    fill(database, ["one"] * 10)
    relay = outbox.relay(Taken(), engine=database, batch=4)
    assert relay.step() == 4
    relay._slots.mine = [slot_of("one")]
    assert not relay._reader.has(relay._slots.mine)
    assert relay.step() == 4
    assert relay._reader.has(relay._slots.mine)


def test_a_key_that_is_released_amid_a_stream_keeps_its_order(database, made):
    """While rows are parked each read begins at the front: what is released has ids that a stream has passed."""
    outbox = Outbox()
    parked = in_slot(3)
    other = in_slot(3, {parked})
    keys = [parked] * 3 + [other] * 200

    fill(database, keys)
    target = Taken(lambda row: Refused("broken") if int(row.body) == 0 else None)
    relay = outbox.relay(target, engine=database, batch=20, max_attempts=1)
    for _ in range(4):
        relay.step()
    with database.begin() as connection:
        assert outbox.drop(connection, [row["id"] for row in outbox.dead(connection)]) == 1
        outbox.publish(connection, "orders", body=b"999", key=parked)
    drained(relay)
    assert target.by_key[parked] == [1, 2, 999]
    assert target.by_key[other] == expected(keys)[other]
    assert count(database, made.outbox) == 0


def test_a_target_that_goes_away_amid_a_stream_gets_the_same_rows_again(database):
    left = 2

    def faults(row):
        nonlocal left
        if int(row.body) == 25 and left:
            left -= 1
            raise Down("gone")

    fill(database, ["one"] * 60)
    target = Taken(faults)
    relay = Outbox().relay(target, engine=database, batch=10)
    drained(relay)
    assert list(dict.fromkeys(target.by_key["one"])) == [*range(60)]       # the first copies, in order
    assert left == 0


def test_few_rows_are_read_in_one_query(database, made):
    keys = [in_slot(slot) for slot in range(16)]
    fill(database, keys * 3)
    reader = Reader(made, 2000)
    reader.begin(range(16))
    asked = []
    ask = reader._ask
    reader._ask = lambda *given: asked.append(given) or ask(*given)
    with database.begin() as connection:
        assert len(reader.read(connection)) == 48
    assert (len(asked), reader.more, EACH_MIN > 3) == (1, False, True)


def test_a_connection_that_is_cut_amid_a_stream(postgres_url, made):
    """psycopg's own errors come as SQLAlchemy's do, and the pool does not give that connection out again."""
    database = engine_of(postgres_url)
    killer = engine_of(postgres_url)
    fill(database, ["one"] * 30)
    target = Taken()
    relay = Outbox().relay(target, engine=database, batch=10)
    assert relay.step() == 10
    read = relay._reader._any_parked()
    relay._reader._statements["parked"] = select(
        func.pg_terminate_backend(func.pg_backend_pid())).where(~read.scalar_subquery())
    with pytest.raises(DBAPIError):
        relay.step()
    del relay._reader._statements["parked"]
    drained(relay)
    assert target.by_key["one"] == [*range(30)]

    class Cut(Reader):
        def _ask(self, connection, *given):
            pid = connection.connection.driver_connection.info.backend_pid
            with killer.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            return super()._ask(connection, *given)

    fill(database, ["one"] * 5)
    relay._reader = Cut(made, 10)
    with pytest.raises(DBAPIError) as caught:
        relay.step()
    assert caught.value.connection_invalidated
    relay._reader = Reader(made, 10)
    assert relay.step() == 5
    killer.dispose()
    database.dispose()
