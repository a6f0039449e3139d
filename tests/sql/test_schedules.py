"""Tasks that come again and again: cron's times, each once whoever looks, and times at which nobody looked."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import BigInteger, cast, event, select

from tests.patience import PATIENCE
from tests.sql.conftest import count
from tests.sql.test_tasks import rows
from xump.sql import Tasks
from xump.sql.moments import Now
from xump.sql.schedules import Cron

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)      # a Sunday
MINUTE = 60_000_000


def times(cron, number=3, moment=NOON, zone="UTC"):
    made, found = Cron(cron, zone), []
    for _ in range(number):
        moment = made.after(moment)
        found.append(f"{moment:%y-%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(("cron", "expected"), [
    ("* * * * *", ["26-03-01 12:01", "26-03-01 12:02", "26-03-01 12:03"]),
    ("*/25 * * * *", ["26-03-01 12:25", "26-03-01 12:50", "26-03-01 13:00"]),
    ("0 9-17/4 * * *", ["26-03-01 13:00", "26-03-01 17:00", "26-03-02 09:00"]),
    ("5,35 0 1 * *", ["26-04-01 00:05", "26-04-01 00:35", "26-05-01 00:05"]),
    ("0 0 31 * *", ["26-03-31 00:00", "26-05-31 00:00", "26-07-31 00:00"]),
    ("0 0 29 2 *", ["28-02-29 00:00", "32-02-29 00:00", "36-02-29 00:00"]),
    ("30 8 * * Mon-FRI", ["26-03-02 08:30", "26-03-03 08:30", "26-03-04 08:30"]),
    ("0 0 * jan,jun 7", ["26-06-07 00:00", "26-06-14 00:00", "26-06-21 00:00"]),
    ("0 0 13 * 5", ["26-03-06 00:00", "26-03-13 00:00", "26-03-20 00:00"]),     # either day will do
    ("0 0 */10 * 0", ["26-05-31 00:00", "26-06-21 00:00", "26-10-11 00:00"]),
    ("50/5 * * * *", ["26-03-01 12:50", "26-03-01 12:55", "26-03-01 13:50"]),
    ("@yearly", ["27-01-01 00:00", "28-01-01 00:00", "29-01-01 00:00"]),
    (" @daily ", ["26-03-02 00:00", "26-03-03 00:00", "26-03-04 00:00"]),
])
def test_times(cron, expected):
    assert times(cron) == expected


def test_the_clocks_of_a_zone():
    assert times("0 8 * * *", 2, datetime(2026, 3, 27, 12, tzinfo=UTC), "Europe/Berlin") == ["26-03-28 07:00", "26-03-29 06:00"]
    # 02:30 is left out on 29 March, and comes twice on 25 October
    assert times("30 2 * * *", 2, datetime(2026, 3, 28, 12, tzinfo=UTC), "Europe/Berlin") == ["26-03-29 01:30", "26-03-30 00:30"]
    assert times("30 2 * * *", 2, datetime(2026, 10, 24, 12, tzinfo=UTC), "Europe/Berlin") == ["26-10-25 00:30", "26-10-26 01:30"]


@pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
                                  "* * * * 8", "5-1 * * * *", "*/0 * * * *", "*/x * * * *", "1, * * * *", "-1 * * * *",
                                  "* * * mon *", "0 0 31 2 *", "@never", "1/ * * * *"])
def test_wrong_times(cron):
    with pytest.raises(ValueError, match="must be|must have five fields|has no time"):
        Cron(cron)


def test_what_is_wrong_is_refused(database):
    tasks = Tasks(database)
    tasks.schedule("a", "@daily", "note")
    for arguments, said in [(("a", "@daily", "note"), "already"), (("", "@daily", "note"), "1 to 200"),
                            (("b" * 201, "@daily", "note"), "1 to 200"), (("b", "@daily", "no\0te"), "NUL"),
                            (("b", 5, "note"), "cron must be a str"), (("b", "@daily", "note", object()), "JSON")]:
        with pytest.raises((TypeError, ValueError), match=said):
            tasks.schedule(*arguments)
    for options, said in [({"missed": "never"}, "missed must"), ({"zone": "Nowhere/At all"}, "zone must"),
                          ({"zone": "../x"}, "zone must")]:
        with pytest.raises(ValueError, match=said):
            tasks.schedule("b", "@daily", "note", **options)
    assert list(tasks.schedules) == ["a"]


def prepared(database, missed="once", cron="* * * * *"):
    tasks, ran = Tasks(database), []
    tasks.task("note")(ran.append)
    tasks.schedule("each", cron, "note", ["x"], missed=missed)
    return tasks, ran


def set_back(database, made, minutes):
    """As if nobody had looked for so long. Returns the time that was to be next."""
    with database.begin() as connection:
        now = connection.execute(select(cast(Now(), BigInteger))).scalar_one()
        then = now // MINUTE * MINUTE - minutes * MINUTE
        connection.execute(made.schedule.update().values(next_at=then))
    return then


def next_at(database, made):
    with database.connect() as connection:
        return connection.execute(select(made.schedule.c.next_at, cast(Now(), BigInteger))).one()


def test_it_comes_when_it_is_due_and_once(database, made):
    tasks, ran = prepared(database, cron="0 0 1 1 *")
    cleaners = [tasks.cleaner() for _ in range(2)]
    assert [cleaner.step()["scheduled"] for cleaner in cleaners] == [0, 0]
    then, now = next_at(database, made)
    assert now < then <= now + timedelta(days=367) // timedelta(microseconds=1)
    set_back(database, made, 5)
    assert [cleaner.step()["scheduled"] for cleaner in cleaners] == [1, 0]
    assert next_at(database, made).next_at == then
    assert (tasks.worker().drain(), ran) == (1, ["x"])
    [(name, number)] = rows_of(database, made.schedule, made.schedule.c.name, made.schedule.c.last_id)
    assert (name, number > 0) == ("each", True)


def test_a_first_look_that_was_rolled_back_leaves_the_schedule_to_the_next_one(database, made):
    tasks = Tasks(database)
    tasks.schedule("each minute", "* * * * *", "note")
    cleaner, ended = tasks.cleaner(), []

    @event.listens_for(database, "commit")
    def cut(connection):
        if not ended:
            ended.append(connection)
            raise OSError("the connection was cut at the commit")

    with pytest.raises(OSError, match="cut"):
        cleaner.step()
    event.remove(database, "commit", cut)
    assert count(database, made.schedule) == 0
    for _ in range(2):
        cleaner.step()
        assert count(database, made.schedule) == 1


def rows_of(database, table, *columns):
    with database.connect() as connection:
        return connection.execute(select(*columns).select_from(table)).all()


@pytest.mark.parametrize(("missed", "expected"), [("once", 1), ("all", 11), ("skip", 0)])
def test_times_at_which_nobody_looked(database, made, missed, expected):
    tasks, _ = prepared(database, missed)
    cleaner = tasks.cleaner()
    cleaner.step()
    before = set_back(database, made, 10)
    fired = cleaner.step()["scheduled"]
    _, now = next_at(database, made)
    late = now // MINUTE * MINUTE - before - 10 * MINUTE       # the minute may have ended in between
    assert expected <= fired <= expected + (late // MINUTE if missed == "all" else 0)
    dues = [due for due, in rows(database, made.task, made.task.c.due)]
    assert dues == [before + number * MINUTE for number in range(fired)]
    following, now = next_at(database, made)
    assert before + 10 * MINUTE < following <= now + MINUTE


def test_nothing_piles_up_while_no_worker_runs(database, made):
    tasks, ran = prepared(database, cron="@yearly")
    cleaner = tasks.cleaner()
    cleaner.step()
    for _ in range(3):
        set_back(database, made, 5)
        cleaner.step()
    assert count(database, made.task) == 1
    assert (tasks.worker().drain(), ran) == (1, ["x"])


def test_a_worker_looks_with_each_beat(database, made):
    tasks, ran = prepared(database)
    tasks.cleaner().step()
    set_back(database, made, 0)
    worker, came = tasks.worker(poll=1000), threading.Event()
    tasks.task("also")(came.set)
    tasks.schedules["each"] = tasks.schedules["each"].__class__("each", Cron("* * * * *"), "also", [], "once")
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert came.wait(PATIENCE)
    worker.stop()
    thread.join()
    assert ran == []


def test_other_times_begin_anew_and_the_older_program_keeps_off(database, made):
    old, _ = prepared(database)
    first = old.cleaner()
    first.step()
    new, _ = prepared(database, cron="0 0 1 1 *")
    new.cleaner().step()
    [(cron,)] = rows_of(database, made.schedule, made.schedule.c.cron)
    assert cron == "0 0 1 1 *"
    set_back(database, made, 5)
    assert first.step()["scheduled"] == 0
    assert new.cleaner().step()["scheduled"] == 1


def test_many_look_and_each_time_counts_once(database, made):
    prepared(database, "all")[0].cleaner().step()
    before = set_back(database, made, 30)
    together, counts = threading.Barrier(3), []

    def look():
        cleaner = prepared(database, "all")[0].cleaner()
        together.wait(PATIENCE)
        counts.append(cleaner.step()["scheduled"])

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dues = [due for due, in rows(database, made.task, made.task.c.due)]
    assert sum(counts) == len(dues) >= 31
    assert dues == [before + number * MINUTE for number in range(len(dues))]
