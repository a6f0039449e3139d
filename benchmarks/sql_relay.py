"""A relay into a durable engine beside `DELETE ... RETURNING` by hand. `python -m benchmarks.sql_relay`.

Both empty an outbox of PostgreSQL with fsync on, which has 40,000 rows of 100 bytes in 1,000 keys. By hand: psycopg, batches of
1,000, each committed; what it returns goes nowhere. The relay reads, publishes into a queue on the disk, waits until that is
durable, and deletes: into a ring and into LMDB, into queues that recognise copies, and into one that does not. Bar: 0.5 of the
rows a second by hand.

Needs PostgreSQL (`apt-get install postgresql`), which is started in a folder of its own.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from sqlalchemy import create_engine

from benchmarks.harness import BODY, compare, describe, parser_of, speed_table, take_turns
from xump import Engine
from xump.sql import Outbox, init, tables

ROWS, QUICK_ROWS = 40_000, 4_000
KEYS = 1_000
CHUNK = 1_000
BAR = 0.5
BY_HAND = "DELETE ... RETURNING by hand"
DELETE = """DELETE FROM xump_outbox WHERE id = ANY(ARRAY(SELECT id FROM xump_outbox ORDER BY id LIMIT %s))
RETURNING id, queue, address, body, headers, reply_to, message_id, props, at, created"""


def fill(database: Any, rows: int) -> None:
    """Write the rows, and have the database look as it does after a while."""
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish_many(connection, [
            {"queue": "orders", "address": "new", "body": BODY, "key": f"customer {number % KEYS}", "message_id": f"{number}",
             "headers": {"size": number}} for number in range(rows)])
    with database.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE xump_outbox")
        connection.exec_driver_sql("CHECKPOINT")


def by_hand(database: Any, rows: int) -> float:
    fill(database, rows)
    taken = 0
    with database.connect() as connection:
        raw = connection.connection.driver_connection
        started = perf_counter_ns()
        while taken < rows:
            taken += len(raw.execute(DELETE, (CHUNK,), prepare=True).fetchall())
            raw.commit()
        return (perf_counter_ns() - started) / rows


def relayed(database: Any, rows: int, folder: str, kind: str, dedup: float | None) -> float:
    fill(database, rows)
    with tempfile.TemporaryDirectory(dir=folder) as place, Engine() as engine:
        engine.create_store("disk", kind, path=Path(place, "orders.xump"))
        queue = engine.create_queue("orders", store="disk", dedup=dedup)
        relay = Outbox().relay(engine, engine=database)
        started = perf_counter_ns()
        sent = relay.drain()
        took = perf_counter_ns() - started
        assert sent == queue.ready == rows
    return took / rows


def main() -> None:
    """Measure."""
    from tests.sql import postgres

    parser = parser_of(__doc__)
    options = parser.parse_args()
    rows = QUICK_ROWS if options.quick else ROWS
    describe("SQLAlchemy", "psycopg")
    with postgres.running(fsync=True) as server, tempfile.TemporaryDirectory() as folder:
        database = create_engine(server.url())
        init(database, tables())
        contestants = {
            BY_HAND: partial(by_hand, database, rows),
            "relay into a ring": partial(relayed, database, rows, folder, "ring", None),
            "relay into a ring, dedup": partial(relayed, database, rows, folder, "ring", 3600.0),
            "relay into LMDB, dedup": partial(relayed, database, rows, folder, "lmdb", 3600.0),
        }
        print("  relay: ns a row", flush=True)
        compare(speed_table(), take_turns(contestants), BY_HAND, list(contestants)[1:], BAR)
        database.dispose()


if __name__ == "__main__":
    main()
