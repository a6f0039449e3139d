"""Workers of task queues on PostgreSQL, each a process: `python -m benchmarks.peers.task_workers KIND URL`.

A worker says `ready`, runs tasks that do nothing but note when they ran, and at SIGTERM prints what it noted: how many, the first
and the last moment by the clock that all processes share, and the moment of each that had a number. The URL is as psycopg has it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

COUNT = 0
FIRST = LAST = 0
MOMENTS: dict[int, int] = {}


def note(number: int | None = None) -> None:
    """The task."""
    global COUNT, FIRST, LAST
    LAST = monotonic_ns()
    FIRST = FIRST or LAST
    COUNT += 1
    if number is not None:
        MOMENTS[number] = LAST


def ready() -> None:
    print("ready", flush=True)


def xump(url: str, keep: bool, prefetch: int) -> None:
    from sqlalchemy import create_engine

    from xump.sql import Tasks, Wake

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    tasks = Tasks(engine, keep=3600.0 if keep else None, wake=Wake.notify(engine))
    tasks.task("note")(note)
    worker = tasks.worker(prefetch=prefetch)
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    ready()
    worker.run()


def procrastinate_app(url: str) -> Any:
    """For enqueueing."""
    from procrastinate import App, SyncPsycopgConnector

    app = App(connector=SyncPsycopgConnector(conninfo=url))
    app.open()
    return app


async def procrastinate(url: str, delete: str | None) -> None:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="note")
    async def task(number: int | None = None) -> None:
        note(number)

    async with app.open_async():
        asyncio.get_running_loop().call_later(0.5, ready)       # it listens by then
        await app.run_worker_async(concurrency=1, **({"delete_jobs": delete} if delete else {}))


async def pgqueuer(url: str, batch: int) -> None:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.models import Job

    connection = await asyncpg.connect(url)
    queue = PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint("note")
    async def task(job: Job) -> None:
        note()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    loop.call_later(0.5, ready)
    await queue.run(batch_size=batch)
    await connection.close()


def by_hand(url: str) -> None:
    """LISTEN, a claim that is committed, the handler, and a DELETE."""
    import psycopg

    claim = ("UPDATE by_hand SET started = now() WHERE id = (SELECT id FROM by_hand WHERE started IS NULL ORDER BY id LIMIT 1 "
             "FOR UPDATE SKIP LOCKED) RETURNING id, number")
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    with psycopg.connect(url, autocommit=True) as listening, psycopg.connect(url, autocommit=True) as connection:
        listening.execute("LISTEN by_hand")
        ready()
        while not stopped:
            for _ in listening.notifies(timeout=0.2, stop_after=1):
                while found := connection.execute(claim).fetchone():
                    note(found[1])
                    connection.execute("DELETE FROM by_hand WHERE id = %s", found[:1])


KINDS: dict[str, Callable[[str], Any]] = {
    "xump": lambda url: xump(url, False, 0),
    "xump, keeps": lambda url: xump(url, True, 0),
    "xump, claims 10": lambda url: xump(url, False, 9),
    "procrastinate": lambda url: asyncio.run(procrastinate(url, None)),
    "procrastinate, deletes": lambda url: asyncio.run(procrastinate(url, "always")),
    "pgqueuer, one at a time": lambda url: asyncio.run(pgqueuer(url, 1)),
    "pgqueuer, claims 10": lambda url: asyncio.run(pgqueuer(url, 10)),
    "by hand": by_hand,
}


def main() -> None:
    kind, url = sys.argv[1:]
    KINDS[kind](url)
    print(json.dumps({"count": COUNT, "first": FIRST, "last": LAST, "moments": MOMENTS}), flush=True)


if __name__ == "__main__":
    main()
