"""Tasks beside a PostgreSQL, which is started here, with fsync on. `python -m benchmarks.sql`; of the outbox it is `sql_relay`.

- Enqueue: 1,000 in one transaction, beside SQLAlchemy Core's INSERT ... RETURNING into the same table. Bar: 1 / 1.2 of its rate.
- Tasks: tasks that do nothing, through one worker process and through eight, each with one place; each finish is committed. From
  the first task's run to the last one's. Beside procrastinate, which keeps what is done (as Xump with `keep`) or deletes it, and
  pgqueuer, which claims one or, as it does by itself, ten, and writes what is finished ten at a time, or after 0.1 s. Bars: 3.0
  of procrastinate's rate, 1.0 of pgqueuer's with as many claimed.
- Latency: from the return of the commit to the handler, in another process, each 20 ms; woken by NOTIFY after the commit. Beside
  procrastinate and a LISTEN by hand, for comparison. Bars: 5 ms for the median, 15 ms for the 99th percentile.

Needs PostgreSQL of the system (apt-get install postgresql). procrastinate and pgqueuer are compared if they are installed; they
are in the extra `bench`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from time import monotonic_ns, perf_counter_ns
from typing import Any

from sqlalchemy import BigInteger, Engine, cast, create_engine, insert, text

from benchmarks.harness import Contestant, Table, Times, compare, describe, parser_of, speed_table, take_turns, verdict
from tests.sql import postgres
from xump.sql import Tasks, Wake, init, tables
from xump.sql.moments import Now

BATCH = 1_000
END_SECONDS = 120.0
PAUSE_SECONDS = 0.02
SAMPLES = 200
MEDIAN_BAR_MS, LATE_BAR_MS = 5.0, 15.0
WORKERS = (1, 8)
COUNTS = {"xump": (3_000, 12_000), "xump, keeps": (3_000, 12_000), "xump, claims 10": (6_000, 24_000),
          "procrastinate": (500, 1_200), "procrastinate, deletes": (500, 1_200), "pgqueuer, one at a time": (500, 1_200),
          "pgqueuer, claims 10": (2_000, 8_000)}
"""So many tasks, for one worker and for eight: some seconds each."""
LEFT = {"xump": "xump_task", "pgqueuer": "pgqueuer",
        "procrastinate": "(SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) AS open", "by hand": "by_hand"}


def system_of(kind: str) -> str:
    return kind.partition(",")[0]


class Bench:
    """The database with everybody's tables."""

    def __init__(self, server: postgres.Server) -> None:
        self.url = server.url().replace("+psycopg", "")
        self.engine: Engine = create_engine(server.url())
        self.tasks = Tasks(self.engine, wake=Wake.notify(self.engine))
        self.made = tables()
        init(self.engine)
        self._execute("CREATE TABLE by_hand (id bigserial PRIMARY KEY, number int, started timestamptz)")
        self.procrastinate: Any = self._procrastinate() if find_spec("procrastinate") else None
        self.has_pgqueuer = find_spec("pgqueuer") is not None and find_spec("asyncpg") is not None
        if self.has_pgqueuer:
            asyncio.run(self._pgqueuer(lambda queries: queries.install()))

    def _execute(self, statement: str) -> None:
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(statement))

    def _procrastinate(self) -> Any:
        from benchmarks.peers.task_workers import procrastinate_app

        app = procrastinate_app(self.url)
        app.schema_manager.apply_schema()
        app.task(name="note")(lambda number=None: None)
        return app

    async def _pgqueuer(self, work: Callable[[Any], Any]) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self.url)
        await work(Queries(AsyncpgDriver(connection)))
        await connection.close()

    def close(self) -> None:
        if self.procrastinate is not None:
            self.procrastinate.close()
        self.engine.dispose()

    def kinds(self) -> list[str]:
        there = {"xump": True, "procrastinate": self.procrastinate is not None, "pgqueuer": self.has_pgqueuer}
        return [kind for kind in COUNTS if there[system_of(kind)]]

    def fill(self, kind: str, count: int) -> None:
        system = system_of(kind)
        if system == "xump":
            with self.tasks.waking(), self.engine.begin() as connection:
                self.tasks.enqueue_many(connection, [{"name": "note"}] * count)
        elif system == "procrastinate":
            for done in range(0, count, 100):
                self.procrastinate.configure_task("note").batch_defer(*[{}] * min(100, count - done))
        else:
            asyncio.run(self._pgqueuer(lambda queries: queries.enqueue(["note"] * count, [None] * count, [0] * count)))

    def empty(self, kind: str) -> None:
        for table in {"xump": ["xump_task", "xump_task_done"], "procrastinate": ["procrastinate_jobs"],
                      "pgqueuer": ["pgqueuer", "pgqueuer_log"], "by hand": ["by_hand"]}[system_of(kind)]:
            self._execute(f"TRUNCATE {table} CASCADE")

    def wait_until_done(self, kind: str) -> None:
        end = time.monotonic() + END_SECONDS
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while connection.execute(text(f"SELECT EXISTS (SELECT FROM {LEFT[system_of(kind)]})")).scalar_one():
                if time.monotonic() > end:
                    raise RuntimeError(f"{kind} has not ended within {END_SECONDS:.0f} s")
                time.sleep(0.05)

    # ---- contestants; each returns nanoseconds

    def throughput(self, kind: str, workers: int, count: int) -> float:
        """A task, from the first one's run to the last one's."""
        self.empty(kind)
        with processes(kind, self.url, workers) as results:
            self.fill(kind, count)
            self.wait_until_done(kind)
        ran = sum(found["count"] for found in results)
        if ran != count:
            raise RuntimeError(f"{count} tasks were enqueued, and {ran} ran in {kind}")
        busy = [found for found in results if found["count"]]
        return float(max(found["last"] for found in busy) - min(found["first"] for found in busy)) / count

    def latency(self, kind: str, samples: int) -> Mapping[str, float]:
        """From the return of the commit to the handler."""
        self.empty(kind)
        enqueue, committed = self._enqueuer(kind), {}
        with processes(kind, self.url, 1) as results:
            for number in range(samples):
                time.sleep(PAUSE_SECONDS)
                committed[number] = enqueue(number)
            self.wait_until_done(kind)
        moments = results[0]["moments"]
        took = sorted(moments[str(number)] - committed[number] for number in range(samples))
        return {"median": float(statistics.median(took)), "99th percentile": float(took[round(samples * 0.99) - 1])}

    def _enqueuer(self, kind: str) -> Callable[[int], int]:
        """Commits, and returns when."""
        def xump_tasks(number: int) -> int:
            with self.tasks.waking():
                with self.engine.begin() as connection:
                    self.tasks.enqueue(connection, "note", number)
                return monotonic_ns()

        def procrastinate(number: int) -> int:
            self.procrastinate.configure_task("note").defer(number=number)
            return monotonic_ns()

        def by_hand(number: int) -> int:
            with self.engine.begin() as connection:
                connection.execute(text("INSERT INTO by_hand (number) VALUES (:number)"), {"number": number})
                connection.execute(text("NOTIFY by_hand"))
            return monotonic_ns()

        return {"xump": xump_tasks, "procrastinate": procrastinate, "by hand": by_hand}[kind]

    def enqueue(self, through_tasks: bool, count: int) -> float:
        """One INSERT."""
        self.empty("xump")
        task = self.made.task
        values = {"lane": "default", "name": "note", "payload": b"[[17],{}]", "codec": "json", "priority": 0}
        statement = insert(task).values(due=cast(Now(), BigInteger), created=Now()).returning(task.c.id)
        with self.engine.begin() as connection:
            begun = perf_counter_ns()
            if through_tasks:
                for _ in range(count):
                    self.tasks.enqueue(connection, "note", [17])
            else:
                for _ in range(count):
                    connection.execute(statement, values).scalar_one()
            return (perf_counter_ns() - begun) / count


@contextmanager
def processes(kind: str, url: str, count: int) -> Iterator[list[Any]]:
    """Workers that are ready; what they noted, after the block."""
    command = [sys.executable, "-m", "benchmarks.peers.task_workers", kind, url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) for _ in range(count)]
    found: list[Any] = []
    try:
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a worker of {kind} does not start: {' '.join(command)}")
        time.sleep(0.5)
        yield found
        for process in started:
            process.send_signal(signal.SIGTERM)
        found += [json.loads(process.communicate(timeout=END_SECONDS)[0].splitlines()[-1]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def tasks_through(bench: Bench, table: Table, rounds: int, share: int) -> None:
    for place, workers in enumerate(WORKERS):
        contestants: dict[str, Contestant] = {
            kind: partial(bench.throughput, kind, workers, max(100, COUNTS[kind][place] // share)) for kind in bench.kinds()}
        times = take_turns(contestants, rounds)
        print(f"  tasks, {workers} worker{'s' * (workers > 1)}")
        for peer, own, bar in (("procrastinate", "xump, keeps", 3.0), ("procrastinate, deletes", "xump", 3.0),
                               ("pgqueuer, one at a time", "xump", 1.0), ("pgqueuer, claims 10", "xump, claims 10", 1.0)):
            if peer in times:
                compare(table, times, peer, [own], bar)
        if len(times) == len([kind for kind in COUNTS if system_of(kind) == "xump"]):
            for name in times:
                compare(table, times, name, [], None)


def latencies(bench: Bench, rounds: int, samples: int) -> None:
    names = ["by hand", "procrastinate", "xump"] if bench.procrastinate is not None else ["by hand", "xump"]
    times: Times = take_turns({name: partial(bench.latency, name, samples) for name in names}, rounds)
    print("  from the commit to the handler, ms")
    table = Table(46, "ms", "min", "max", "bar", "", width=8)
    for name, took in times.items():
        each = [one / 1e6 for one in took]
        cells = [f"{one:.1f}" for one in (statistics.median(each), min(each), max(each))]
        if name.startswith("xump"):
            bar = MEDIAN_BAR_MS if name.endswith("median") else LATE_BAR_MS
            cells += [f"{bar:.0f}", verdict(statistics.median(each) < bar)]
        table.print(name, *cells)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--share", type=int, default=1, metavar="N", help="one in N of the tasks; with --quick one in ten")
    options = parser.parse_args(arguments)
    share = 10 if options.quick else options.share
    if not postgres.is_installed():
        print("left out: PostgreSQL is not installed (apt-get install postgresql)")
        return
    describe("SQLAlchemy", "psycopg", *(name for name in ("procrastinate", "pgqueuer", "asyncpg") if find_spec(name)))
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    with postgres.running(fsync=True) as server:
        bench = Bench(server)
        with bench.engine.connect() as connection:
            print(f"PostgreSQL {connection.execute(text('SHOW server_version')).scalar_one()}, fsync on")
        try:
            table = speed_table()
            print("  enqueue")
            compare(table, take_turns({"core": partial(bench.enqueue, False, BATCH), "xump": partial(bench.enqueue, True, BATCH)},
                                      options.rounds), "core", ["xump"], 1 / 1.2)
            tasks_through(bench, table, options.rounds, share)
            latencies(bench, options.rounds, SAMPLES // share)
        finally:
            bench.close()


if __name__ == "__main__":
    main()
