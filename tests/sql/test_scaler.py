"""The scaler: what it decides over simulated minutes, and the processes that it starts and ends."""

import os
import signal
import sys

import pytest

from tests.sql.conftest import count, until
from tests.sql.test_tasks import rows
from xump.sql import Tasks
from xump.sql.scaling import Policy, Seen

LOOK = 5.0
SLEEPS = [sys.executable, "-c", "import time; time.sleep(1000)"]
DEAF = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(1000)
"""


class Simulated:
    """Workers that each end ten tasks a second, and tasks that arrive as told."""

    def __init__(self, maximum=16, rate=10.0):
        self.policy, self.rate = Policy(1, maximum), rate
        self.workers, self.now, self.waiting = 1, 0.0, 0.0
        self.changes = []

    def minutes(self, arriving, minutes=1.0):
        """Returns the least and the most number of workers."""
        seen = []
        for _ in range(round(minutes * 60 / LOOK)):
            self.now += LOOK
            self.waiting += LOOK * (arriving(self.now) if callable(arriving) else arriving)
            done = min(self.waiting, LOOK * self.rate * self.workers)
            self.waiting -= done
            taken = done / self.rate
            target = self.policy.decide(self.now, Seen(self.workers, int(self.waiting), 0, round(done), 0, taken, taken / LOOK))
            assert 1 <= target <= 16
            assert target <= 2 * self.workers
            assert target >= self.workers - 1
            if target != self.workers:
                self.changes.append((self.now, self.workers, target))
                self.workers = target
            seen.append(self.workers)
        return min(seen), max(seen)


def test_nothing_to_do_and_little_to_do():
    simulated = Simulated()
    assert simulated.minutes(0, 10) == (1, 1)
    assert simulated.minutes(5, 10) == (1, 1)
    assert simulated.changes == []


def test_a_steady_load_finds_its_workers_and_keeps_them():
    simulated = Simulated()
    simulated.minutes(45, 10)
    assert len(simulated.changes) <= 8
    changes = len(simulated.changes)
    least, most = simulated.minutes(45, 30)
    assert 5 <= least <= most <= 7
    assert len(simulated.changes) == changes
    assert simulated.waiting < 45 * LOOK


def test_a_step_up_is_answered_within_a_minute_and_a_step_down_slowly():
    simulated = Simulated()
    simulated.minutes(5, 5)
    least, most = simulated.minutes(150, 2)
    assert (least, most) == (1, 16)
    up = len(simulated.changes)
    assert up <= 6
    simulated.minutes(150, 10)
    assert simulated.waiting == 0
    assert simulated.workers == 16
    down = simulated.minutes(5, 1)
    assert down[0] >= 12                # nothing ends at once
    simulated.minutes(5, 30)
    assert simulated.workers <= 2
    assert all(new == old - 1 for _, old, new in simulated.changes[up:])


@pytest.mark.parametrize("period", [20.0, 40.0, 60.0])
def test_a_load_that_comes_and_goes_does_not_flap(period):
    simulated = Simulated()

    def wave(now):
        return 60.0 if now % period < period / 2 else 0.0

    simulated.minutes(wave, 10)
    changes = len(simulated.changes)
    simulated.minutes(wave, 30)
    assert len(simulated.changes) - changes <= 2


def test_limits_and_a_rate_that_is_not_known():
    policy = Policy(2, 5)
    assert policy.decide(0.0, Seen(0, 0, 0)) == 2
    assert policy.decide(5.0, Seen(9, 0, 0)) == 5
    now, workers = 10.0, 2
    for _ in range(20):         # tasks that take an hour: one more each second look, while some wait
        now += LOOK
        target = policy.decide(now, Seen(workers, 100, workers, busy=workers))
        assert target - workers in (0, 1)
        workers = target
    assert workers == 5
    for _ in range(60):         # all have one
        now += LOOK
        assert policy.decide(now, Seen(5, 0, 5, busy=5.0)) == 5


# ---- processes

@pytest.fixture
def tasks(database):
    tasks = Tasks(database)
    tasks.task("note")(print)
    return tasks


@pytest.fixture
def scaler_of(tasks):
    made = []

    def make(command, **options):
        made.append(tasks.scaler(command, **options))
        return made[-1]

    yield make
    for scaler in made:
        for child in scaler._children:
            child.process.kill()
            child.process.wait()


def worker_row(database, made, name, **values):
    with database.begin() as connection:
        connection.execute(made.worker.insert().values(
            **{"id": name, "host": "elsewhere", "pid": 1, "started": 0, "seen": 1 << 60, "places": 1, **values}))


def test_it_starts_the_least_and_counts_those_that_start(scaler_of):
    scaler = scaler_of(SLEEPS, minimum=2, maximum=3)
    assert [scaler.step() for _ in range(3)] == [2, 2, 2]
    pids = [child.process.pid for child in scaler._children]
    assert (len(pids), scaler.workers) == (2, 2)
    os.kill(pids[0], signal.SIGKILL)
    scaler._children[0].process.wait()
    assert scaler.step() == 2
    assert len(scaler._children) == 2
    scaler.close()
    assert scaler._children == []


def test_one_decides_until_it_ends(scaler_of, database, made):
    first, second = scaler_of(SLEEPS, maximum=2), scaler_of(SLEEPS, maximum=2)
    assert [first.step(), second.step(), first.step()] == [1, 0, 1]
    assert second._children == []
    first.close()
    assert second.step() == 1
    with database.begin() as connection:
        connection.execute(made.scaler.update().values(until=0))        # it was killed
    third = scaler_of(SLEEPS, maximum=2)
    assert [third.step(), second.step()] == [1, 0]


def test_workers_of_others_count_and_are_told_to_stop(scaler_of, database, made):
    for number in range(3):
        worker_row(database, made, f"w{number}", started=number)
    scaler = scaler_of(SLEEPS, minimum=1, maximum=2)
    assert scaler.step() == 2
    assert scaler._children == []
    assert [tuple(row) for row in rows(database, made.worker, made.worker.c.id, made.worker.c.stop)] == [
        ("w0", False), ("w1", False), ("w2", True)]
    assert (scaler.step(), scaler.workers) == (2, 2)


def test_it_learns_what_workers_can_do(scaler_of, database, made, tasks):
    """Six tasks ended in five seconds by one worker that was always busy, and 300 wait: that needs more."""
    worker_row(database, made, "w")
    scaler = scaler_of(SLEEPS, minimum=1, maximum=4)
    with database.begin() as connection:
        tasks.enqueue_many(connection, [{"name": "note"} for _ in range(300)])
    assert scaler.step() == 1
    for number in (1, 2):
        scaler._policy._at -= LOOK              # as if the time had gone by
        with database.begin() as connection:
            connection.execute(made.worker.update().values(
                finished=number * 5, failed=number, taken=number * 5_000_000, running=1))
        target = scaler.step()
    assert scaler._policy.rate == pytest.approx(6 / 5, rel=0.2)
    assert target == 2
    assert len(scaler._children) == 1


def test_a_worker_that_does_not_end_is_killed(scaler_of, caplog, tmp_path):
    scaler = scaler_of([sys.executable, "-c", DEAF, tmp_path / "deaf"], maximum=1, drain=0)
    scaler.step()
    until((tmp_path / "deaf").exists)
    [child] = scaler._children
    scaler.close()
    assert (scaler._children, child.process.returncode) == ([], -signal.SIGKILL)
    assert "is killed" in caplog.text


def test_a_command_that_does_not_start(scaler_of, caplog):
    scaler = scaler_of("/nowhere/at-all --option", maximum=1)
    assert scaler.step() == 1
    assert "cannot start a worker" in caplog.text


def test_what_is_wrong_is_refused(tasks):
    for options, said in [({"minimum": 0}, "minimum must"), ({"minimum": 3}, "maximum must be an int from 3"),
                          ({"interval": 0}, "interval must"), ({"drain": -1}, "drain must"), ({"maximum": True}, "maximum must")]:
        with pytest.raises(ValueError, match=said):
            tasks.scaler("worker", **{"maximum": 2, **options})
    with pytest.raises(ValueError, match="command must"):
        tasks.scaler("", maximum=1)


def test_a_worker_says_what_it_did_and_stops_when_it_is_told(database, made, tasks):
    import threading

    ran = []

    @tasks.task(max_attempts=1)
    def fails():
        raise KeyError("broken")

    tasks.task("count")(ran.append)
    with database.begin() as connection:
        fails.enqueue(connection)
        tasks.enqueue_many(connection, [{"name": "count", "payload": number} for number in range(3)])
    worker = tasks.worker(concurrency=2, prefetch=1, poll=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    told = made.worker
    until(lambda: count(database, told, told.c.finished == 3, told.c.failed == 1, told.c.taken > 0, told.c.places == 3) == 1)
    with database.begin() as connection:
        connection.execute(told.update().values(stop=True))
    thread.join(60)
    assert not thread.is_alive()
    assert count(database, told) == 0
