"""Arrow columns into a queue at once, and row by row. `python -m benchmarks.batches`.

1,000,000 rows of an address, a body of 100 bytes and one text header, which pyarrow, Polars and DuckDB (the result of a query)
hold as columns. `publish_batch` takes them as they are. The peers:

    rows        what a program does without it: the library makes Python rows, each is published
    rows made   only the publishing of Python rows that are there already

All that was published waits in a RAM queue until the clock has stopped. Ratios are of rates; the bar is five times `rows`.
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


def each(make: Callable[[], Iterable[Sequence[Any]]]) -> Callable[[Engine], None]:
    """One call for each of the rows that `make` gives; their making is in what it takes."""

    def publish(engine: Engine) -> None:
        publish_one = engine.publish
        for address, body, headers in make():
            publish_one("rows", address, body, headers)

    return publish


def measure(rows: int, rounds: int) -> None:
    """Print the table."""
    table = table_of(rows)
    frame = polars.DataFrame(table)
    made = [(row["address"], row["body"], row["headers"]) for row in table.to_pylist()]
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE orders AS SELECT * FROM given")

        def of_pyarrow() -> Any:
            return ((row["address"], row["body"], row["headers"]) for row in table.to_pylist())

        contestants: dict[str, Contestant] = {
            "pyarrow, rows": lambda: published(rows, each(of_pyarrow)),
            "pyarrow, publish_batch": lambda: published(rows, lambda engine: engine.publish_batch("rows", table)),
            "Polars, rows": lambda: published(rows, each(frame.iter_rows)),
            "Polars, publish_batch": lambda: published(rows, lambda engine: engine.publish_batch("rows", frame)),
            "DuckDB, rows": lambda: published(rows, each(lambda: connection.table("orders").fetchall())),
            "DuckDB, publish_batch": lambda: published(
                rows, lambda engine: engine.publish_batch("rows", connection.table("orders"))
            ),
            "rows made": lambda: published(rows, each(lambda: made)),
        }
        times = take_turns(contestants, rounds)
    results = speed_table()
    for library in ("pyarrow", "Polars", "DuckDB"):
        compare(results, times, f"{library}, rows", [f"{library}, publish_batch"], BAR)
    compare(results, times, "rows made", [name for name in times if name.endswith("publish_batch")], None)


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    describe("pyarrow", "polars", "duckdb")
    if not hasattr(Engine, "publish_batch"):
        print("this engine has no publish_batch")
        return
    measure(100_000 if options.quick else options.rows, options.rounds)


if __name__ == "__main__":
    main()
