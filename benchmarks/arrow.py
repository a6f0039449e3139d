"""What a row of Arrow data costs: ns to make a message of it, and to make columns of messages. `python -m benchmarks.arrow`.

1,000,000 rows of an address (100 different ones), a body of 100 bytes and one text header, handed over by pyarrow, Polars
and DuckDB. Columns of the first table:

    check   taking the data over and checking all of it; what the library does for that is in it, of DuckDB the whole query
    read    making contents in a compiled loop, 64 at a time, as an engine does
    drop    releasing them again, at once, so that `read` finds warm memory
    keep    as `read`, but all rows are kept: the page faults of fresh memory, 20 rows a page, are in it
    lowest  of `read`, for machines that are never quiet

The peer is what a program does without it: `to_pylist()` and a `Message` for each row (of 100,000). For writing: batches of
10,000 messages into columns, and lists of their attributes into `pyarrow.table`. Rounds are interleaved; the other figures
are medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import duckdb
import polars
import pyarrow

from benchmarks.harness import describe, parser_of
from benchmarks.peers import build
from xump_ext.arrow.read import BatchReader
from xump_ext.message.message import Message

PEER_ROWS = 100_000
BATCH_ROWS = 10_000
TYPE = pyarrow.schema(
    {"address": pyarrow.string(), "body": pyarrow.binary(), "headers": pyarrow.struct({"region": pyarrow.string()})}
)


def table_of(rows: int) -> pyarrow.Table:
    """Addresses and regions come in turn, so that neighbours differ."""
    addresses = pyarrow.array([f"orders.eu.{row % 100}" for row in range(rows)])
    bodies = pyarrow.array([b"x" * 100] * rows, pyarrow.binary())
    regions = pyarrow.array([f"region-{row % 7}" for row in range(rows)])
    return pyarrow.table([addresses, bodies, pyarrow.StructArray.from_arrays([regions], ["region"])], TYPE)


def sources(rows: int, connection: duckdb.DuckDBPyConnection) -> dict[str, Callable[[], Any]]:
    """The same rows, as each library has them."""
    table = table_of(rows)
    numbers = pyarrow.array(range(rows))
    several = pyarrow.StructArray.from_arrays(
        [numbers, numbers.cast(pyarrow.float64()), table["headers"].chunk(0).field(0)], ["size", "weight", "region"]
    )
    entries = pyarrow.array(
        [[("region", f"region-{row % 7}")] for row in range(rows)], pyarrow.map_(pyarrow.string(), pyarrow.string())
    )
    variants = {
        "pyarrow": table,
        "pyarrow, chunks of 10,000": pyarrow.Table.from_batches(table.to_batches(max_chunksize=10_000)),
        "pyarrow, address dictionary": table.set_column(0, "address", table["address"].combine_chunks().dictionary_encode()),
        "pyarrow, all addresses new": table.set_column(0, "address", pyarrow.array([f"orders.{row}" for row in range(rows)])),
        "pyarrow, three headers": table.set_column(2, "headers", several),
        "pyarrow, map of headers": table.set_column(2, "headers", entries),
        "pyarrow, no headers": table.drop_columns("headers"),
        "Polars": polars.DataFrame(table),
    }
    connection.register("given", table)
    connection.execute("CREATE TABLE orders AS SELECT * FROM given")
    made: dict[str, Callable[[], Any]] = {name: lambda data=data: data for name, data in variants.items()}
    made["DuckDB"] = lambda: connection.table("orders")
    return made


def messages_of(table: pyarrow.Table) -> list[Message]:
    """The peer that reads."""
    return [Message(row["address"], row["body"], row["headers"]) for row in table.to_pylist()]


def columns_of(messages: list[Message]) -> pyarrow.Table:
    """The peer that writes; with the columns that need a delivery left out, in its favour."""
    return pyarrow.table(
        {
            "address": [message.address for message in messages],
            "body": [message.body for message in messages],
            "headers": [dict(message.headers) for message in messages],
            "reply_to": pyarrow.array([message.reply_to for message in messages], pyarrow.string()),
            "message_id": pyarrow.array([message.message_id for message in messages], pyarrow.string()),
        }
    )


def measure(rows: int, rounds: int) -> None:
    """Print both tables."""
    loop = build("arrow_loop")
    peer = table_of(PEER_ROWS)
    took: dict[str, list[tuple[float, ...]]] = {}
    peers: list[float] = []
    writing: list[float] = []
    columns: list[float] = []
    with duckdb.connect() as connection:
        given = sources(rows, connection)
        for _ in range(rounds):
            for name, make in given.items():
                data = make()
                start = perf_counter_ns()
                reader = BatchReader(data)
                check = perf_counter_ns() - start
                assert reader.rows == rows
                read, drop = loop.drop(reader)
                del reader  # now, or it is released in what is measured next
                keep, _ = loop.keep(BatchReader(make()))
                took.setdefault(name, []).append((check / rows, read / rows, drop / rows, keep / rows))
            start = perf_counter_ns()
            messages = messages_of(peer)
            peers.append((perf_counter_ns() - start) / PEER_ROWS)
            writing.append(loop.write(BatchReader(given["pyarrow"]()), BATCH_ROWS, "wolf-1")[0] / rows)
            messages = messages[:BATCH_ROWS]
            start = perf_counter_ns()
            columns_of(messages)
            columns.append((perf_counter_ns() - start) / BATCH_ROWS)
            del messages
    print(f"{rows:,} rows, medians of {rounds}\n")
    print(f"    {'ns a row':30} {'check':>6} {'read':>6} {'drop':>6} {'keep':>6} {'lowest':>6}")
    for name, figures in took.items():
        medians = " ".join(f"{statistics.median(column):6.1f}" for column in zip(*figures, strict=True))
        print(f"    {name:30} {medians} {min(read for _, read, *_ in figures):6.1f}")
    base = statistics.median(check + read for check, read, *_ in took["pyarrow"])
    print(f"    {'to_pylist() and Message':30} {statistics.median(peers):13.0f}  {statistics.median(peers) / base:.0f} x\n")
    ratio = statistics.median(columns) / statistics.median(writing)
    print(f"    {'columns of messages':30} {statistics.median(writing):6.1f}")
    print(f"    {'attributes and pyarrow.table':30} {statistics.median(columns):6.0f}  {ratio:.0f} x")


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    describe("pyarrow", "polars", "duckdb")
    measure(100_000 if options.quick else options.rows, options.rounds)


if __name__ == "__main__":
    main()
