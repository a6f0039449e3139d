"""Arrow columns into a queue at once, and row by row. `python -m benchmarks.batches`.

1,000,000 rows of an address, a body of 100 bytes and one text header, which pyarrow, Polars and DuckDB (the result of a query)
hold as columns. `publish_batch` takes them as they are. The peers:

    publish     a call for each row; its values are Python's already, a fresh header dict is made of them
    rows        the same, and the library makes the Python values: what a program does without `publish_batch`

At first all that was published waits in a RAM queue until the clock has stopped: memory is fresh, and its page faults are in the
figures. `10,000 deep`, the queue is purged after every 10,000, not timed. Ratios are of rates; bars are on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any

import duckdb
import polars

from benchmarks.arrow import table_of
from benchmarks.harness import Contestant, compare, describe, parser_of, speed_table, take_turns
from xump import Engine

BAR = 5.0
LIBRARIES = ("pyarrow", "Polars", "DuckDB")
SHALLOW = 10_000


def published(rows: int, publish: Callable[[Engine], object]) -> float:
    """Nanoseconds a row of what `publish` puts into the queue."""
    with Engine() as engine:
        queue = engine.create_queue("rows")
        started = perf_counter_ns()
        publish(engine)
        took = perf_counter_ns() - started
        assert queue.ready == rows
        last = engine.queues["rows"].fetch(rows)
        assert last is not None and last.address == f"orders.eu.{(rows - 1) % 100}" and len(last.body) == 100
        assert last.headers["region"] == f"region-{(rows - 1) % 7}"
    return took / rows


def in_parts(rows: int, parts: Sequence[Any], publish: Callable[[Engine, Any], object]) -> float:
    """The same, part by part; what it published is purged before the next."""
    took = 0
    with Engine() as engine:
        queue = engine.create_queue("rows")
        for part in parts:
            started = perf_counter_ns()
            publish(engine, part)
            took += perf_counter_ns() - started
            assert queue.purge() == min(rows, SHALLOW)
    return took / rows


def by_row(engine: Engine, rows: Iterable[Sequence[Any]]) -> None:
    """One call for each row."""
    publish = engine.publish
    for address, body, region in rows:
        publish("rows", address, body, {"region": region})


def rows_of(table: Any) -> Iterable[Sequence[Any]]:
    """As pyarrow makes them."""
    return zip(table["address"].to_pylist(), table["body"].to_pylist(), table["region"].to_pylist(), strict=True)


def measure(rows: int, rounds: int) -> None:
    """Print the tables."""
    table = table_of(rows)
    frame = polars.DataFrame(table)
    flat = table.drop_columns("headers").append_column("region", table["headers"].combine_chunks().field("region"))
    flat_frame = polars.DataFrame(flat)
    made = list(rows_of(flat))
    starts = range(0, rows, SHALLOW)
    slices = [table.slice(start, SHALLOW) for start in starts]
    frames = [frame.slice(start, SHALLOW) for start in starts]
    pieces = [made[start : start + SHALLOW] for start in starts]
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE orders AS SELECT * FROM given")

        def query(columns: str) -> Any:
            return connection.sql(f"SELECT {columns} FROM orders")

        contestants: dict[str, Contestant] = {
            "publish": lambda: published(rows, lambda engine: by_row(engine, made)),
            "pyarrow, publish_batch": lambda: published(rows, lambda engine: engine.publish_batch("rows", table)),
            "Polars, publish_batch": lambda: published(rows, lambda engine: engine.publish_batch("rows", frame)),
            "DuckDB, publish_batch": lambda: published(rows, lambda engine: engine.publish_batch("rows", query("*"))),
            "pyarrow, rows": lambda: published(rows, lambda engine: by_row(engine, rows_of(flat))),
            "Polars, rows": lambda: published(rows, lambda engine: by_row(engine, flat_frame.iter_rows())),
            "DuckDB, rows": lambda: published(
                rows, lambda engine: by_row(engine, query("address, body, headers.region").fetchall())
            ),
            "publish, 10,000 deep": lambda: in_parts(rows, pieces, by_row),
            "pyarrow, publish_batch, 10,000 deep": lambda: in_parts(rows, slices, lambda e, part: e.publish_batch("rows", part)),
            "Polars, publish_batch, 10,000 deep": lambda: in_parts(rows, frames, lambda e, part: e.publish_batch("rows", part)),
        }
        times = take_turns(contestants, rounds)
    results = speed_table()
    print("  publish: a call for each row")
    compare(results, times, "publish", [f"{library}, publish_batch" for library in LIBRARIES], BAR)
    print("  rows: the library makes Python values, then a call for each row")
    for library in LIBRARIES:
        compare(results, times, f"{library}, rows", [f"{library}, publish_batch"], BAR)
    print("  publish, 10,000 deep: memory is warm")
    compare(results, times, "publish, 10,000 deep", [f"{name}, publish_batch, 10,000 deep" for name in LIBRARIES[:2]], BAR)


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    describe("pyarrow", "polars", "duckdb")
    measure(100_000 if options.quick else options.rows, options.rounds)


if __name__ == "__main__":
    main()
