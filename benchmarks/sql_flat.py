"""What a poll of `xump.sql` costs when the tables are full of rows that it is not about. `python -m benchmarks.sql_flat`.

PostgreSQL, with fsync off: only reading is measured. Each line is one statement, as relay, processor and worker run it: how long
it takes, and how many pages of 8 KiB it looks at, which says the same on every machine, beside those of it on empty tables.

- *done*: 10,000,000 messages of the inbox that are done, 10,000,000 tasks that are kept.
- *parked*: 1,000,000 rows of the outbox behind one that is dead.
- *future*, *other lane*: 1,000,000 tasks that are not due; that are due, in another lane.
- *open reader*: a transaction that stays open while 15,000 rows of the outbox are sent: the relay reads on behind what it had.

The bar: ten times the pages of empty tables, or 100, whichever is more. A poll that walked the rows would look at 10,000 or more.
"""

from __future__ import annotations

import json
import statistics
from time import perf_counter_ns
from typing import Any

from sqlalchemy import Connection, create_engine, text

from benchmarks.harness import Table, describe, parser_of, verdict
from xump.sql import Inbox, Tables, init, tables
from xump.sql.claims import Claims
from xump.sql.reading import Reader
from xump.sql.tables import SLOTS

DONE, MANY, SENT = 10_000_000, 1_000_000, 15_000
QUICK = 100
TIMES = 50
PAGES_MAX = 100

FILLED = {
    "done messages": "INSERT INTO xump_inbox (digest, source, message_id, address, received, retry_at, done_at) "
                     "SELECT sha256(n::text::bytea), 's', n, '', 0, 0, n FROM generate_series(1, :rows) AS n",
    "done tasks": "INSERT INTO xump_task_done (id, lane, name, payload, finish_time, attempts, outcome) "
                  "SELECT n, 'default', 'name', '', n, 1, 'done' FROM generate_series(1, :rows) AS n",
    "parked rows": "INSERT INTO xump_outbox (slot, queue, address, key, body, message_id, created, parked) "
                   "SELECT 7, 'orders', '', 'key', '', n, 0, true FROM generate_series(1, :rows) AS n",
    "future tasks": "INSERT INTO xump_task (lane, name, payload, codec, due, priority, created) "
                    "SELECT 'default', 'name', '', 'json', 1::bigint << 60, n % 10, 0 FROM generate_series(1, :rows) AS n",
    "tasks of another lane": "INSERT INTO xump_task (lane, name, payload, codec, due, priority, created) "
                             "SELECT 'other', 'name', '', 'json', 0, n % 10, 0 FROM generate_series(1, :rows) AS n",
    "rows": "INSERT INTO xump_outbox (slot, queue, address, key, body, message_id, created) "
            "SELECT n % 16, 'orders', '', 'key', '', n, 0 FROM generate_series(1, :rows) AS n",
}


def filled(database: Any, what: str, rows: int) -> None:
    """Write rows, and have the database know of them."""
    with database.begin() as connection:
        connection.execute(text(FILLED[what]), {"rows": rows})
    analyzed(database)


def analyzed(database: Any) -> None:
    with database.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE xump_inbox, xump_outbox, xump_task, xump_task_done")


def polls(made: Tables, database: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """What relay, processor and worker run, and its parameters."""
    reader = Reader(made, 2000)
    claims = Claims(made, "worker", ["default"], 1, False)
    since = "{" + ",".join(["0"] * 10) + "}"
    lateral = {"slots": list(range(SLOTS)), "after": [0] * SLOTS, "each": 125}
    found = {
        "relay": (reader._lateral(False), lateral),
        "relay, with parked rows": (reader._lateral(True), lateral),
        "processor": (Inbox(order="key").process(print, engine=database)._chosen(), {}),
        "worker": (claims._turn.params(**claims._constant, ids="{}", attempts="{}", since=since, places=1), {}),
    }
    return {name: _compiled(database, statement, parameters) for name, (statement, parameters) in found.items()}


def _compiled(database: Any, statement: Any, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    compiled = statement.compile(database)
    return str(compiled), compiled.construct_params(parameters)


def cost(connection: Connection, poll: tuple[str, dict[str, Any]]) -> tuple[float, int]:
    """The median time in microseconds, and pages. What it changed is rolled back."""
    statement, parameters = poll
    took = []
    for _ in range(TIMES):
        started = perf_counter_ns()
        connection.exec_driver_sql(statement, parameters).all()
        took.append(perf_counter_ns() - started)
        connection.rollback()
    return statistics.median(took) / 1000, pages(connection, poll)


def pages(connection: Connection, poll: tuple[str, dict[str, Any]]) -> int:
    """How many pages it looks at; the second time, when dead rows that it met are marked."""
    statement, parameters = poll
    for _ in range(2):
        found: Any = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters).scalar()
        connection.rollback()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def behind_an_open_reader(database: Any, made: Tables, rows: int) -> tuple[int, int]:
    """Pages of a relay's read from the front, and behind what it had, when a reader is open that could see what was sent."""
    filled(database, "rows", rows)
    with database.connect() as old:
        old.execution_options(isolation_level="REPEATABLE READ").execute(text("SELECT count(*) FROM xump_outbox")).all()
        with database.begin() as connection:
            last = connection.execute(text("SELECT max(id) FROM xump_outbox")).scalar_one()
            connection.execute(text("DELETE FROM xump_outbox"))
        with database.connect() as connection:
            found = []
            for after in (0, last):
                parameters = {"slots": list(range(SLOTS)), "after": [after] * SLOTS, "each": 125}
                found.append(pages(connection, _compiled(database, Reader(made, 2000)._lateral(False), parameters)))
    return found[0], found[1]


def main() -> None:
    """Measure."""
    from tests.sql import postgres

    options = parser_of(__doc__).parse_args()
    less = QUICK if options.quick else 1
    describe("SQLAlchemy", "psycopg")
    with postgres.running() as server:
        database, made = create_engine(server.url()), tables()
        init(database, made)
        analyzed(database)
        table = Table(52, "us", "pages", "empty", "")
        with database.connect() as connection:
            empty = {name: cost(connection, poll)[1] for name, poll in polls(made, database).items()}
        for what, rows, name in (("done messages", DONE, "processor"), ("done tasks", DONE, "worker"),
                                 ("parked rows", MANY, "relay, with parked rows"), ("parked rows", 0, "relay"),
                                 ("future tasks", MANY, "worker"), ("tasks of another lane", MANY, "worker")):
            if rows:
                filled(database, what, rows // less)
            with database.connect() as connection:
                took, looked_at = cost(connection, polls(made, database)[name])
            table.print(f"{name}: {rows // less or MANY // less:,} {what}", f"{took:.0f}", f"{looked_at}", f"{empty[name]}",
                        verdict(looked_at <= max(PAGES_MAX, 10 * empty[name])))
        with database.begin() as connection:
            connection.execute(text("TRUNCATE xump_outbox"))
        front, behind = behind_an_open_reader(database, made, SENT // min(less, 10))
        table.print("relay: open reader, from the front", "", f"{front}", f"{empty['relay']}")
        table.print("relay: open reader, behind what it had", "", f"{behind}", f"{empty['relay']}",
                    verdict(behind <= max(PAGES_MAX, 10 * empty["relay"])))
        database.dispose()


if __name__ == "__main__":
    main()
