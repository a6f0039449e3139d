"""Any table, in any chunks, from other libraries too."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xump_ext.arrow.read import BatchReader
from tests.arrow.rows import batches, binaries, read, row_expected, same, texts


@given(batches())
def test_any_batch(batch: pa.StructArray) -> None:
    assert read(batch) == [row_expected(row) for row in batch.to_pylist()]
    same(pa.table(pa.RecordBatch.from_struct_array(batch)))


@given(
    st.lists(st.tuples(texts, binaries, st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), texts), min_size=1, max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
    st.integers(0, 20),
)
def test_any_cut_into_chunks(rows: list[tuple[Any, ...]], cuts: list[int], start: int) -> None:
    given = [{"address": row[0], "body": row[1], "headers": {"n": row[2]}, "message_id": row[3]} for row in rows]
    schema = pa.schema(
        {"address": pa.string(), "body": pa.binary(), "headers": pa.struct({"n": pa.int64()}), "message_id": pa.string()}
    )
    table = pa.Table.from_pylist(given, schema)
    ends = sorted(cuts)
    parts = [table[first:last] for first, last in zip([0, *ends], [*ends, len(rows)], strict=True)]
    same(pa.concat_tables(parts)[start:])


def test_addresses_are_shared_and_never_mixed_up() -> None:
    """Of every length around the words that are compared, alike but for one byte."""
    given = [("a" * length)[:at] + "b" + ("a" * length)[at + 1 :] for length in range(1, 40) for at in range(length)] * 2
    messages = BatchReader(pa.table({"address": given, "reply_to": given})).messages()
    assert [message.address for message in messages] == given
    assert [message.reply_to for message in messages] == given
    few = BatchReader(pa.table({"address": ["orders.eu", "orders.us"] * 50})).messages()
    assert len({id(message.address) for message in few}) == 2


@pytest.mark.usefixtures("own_pool")
def test_messages_outlive_what_they_were_read_from() -> None:
    before = pa.total_allocated_bytes()
    table = pa.table({"address": [f"a{at}" for at in range(3000)], "body": [b"%d" % at for at in range(3000)]})
    messages = BatchReader(table).messages()
    del table
    gc.collect()
    assert pa.total_allocated_bytes() == before
    assert [(message.address, message.body) for message in messages] == [(f"a{at}", b"%d" % at) for at in range(3000)]


def library_table() -> pa.Table:
    return pa.table(
        {
            "address": ["orders.eu", None, "", "ünï"] * 3,
            "body": [b"", None, b"\xff" * 30, b"\0"] * 3,
            "headers": [
                {"n": 1, "s": "x", "f": 0.5, "t": True},
                None,
                {"n": None, "s": None, "f": None, "t": None},
                {"n": -1, "s": "y" * 20, "f": None, "t": False},
            ]
            * 3,
            "reply_to": ["r", None, "", "x" * 13] * 3,
            "message_id": [f"m-{at}" for at in range(12)],
        }
    )


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    table = library_table()
    rows = [row_expected(row) for row in table.to_pylist()]
    frame = polars.DataFrame(table)
    assert read(frame) == rows
    assert read(frame[3:7]) == rows[3:7]
    assert read(polars.concat([frame[:5], frame[8:]], rechunk=False)) == rows[:5] + rows[8:]
    categories = frame.select(polars.col("address").cast(polars.Categorical), polars.col("body"))
    assert [row[:2] for row in read(categories)] == [row[:2] for row in rows]


def test_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    table = library_table()
    with duckdb.connect() as connection:
        connection.register("given", table)
        rows = [row_expected(row) for row in table.to_pylist()]
        assert read(connection.sql("SELECT * FROM given ORDER BY message_id[3:]::int")) == rows
        maps = connection.sql(
            "SELECT 'a' || range AS address, map {'k': 'v' || range} AS headers FROM range(5000) ORDER BY range"
        )
        assert read(maps) == [(f"a{at}", b"", {"k": ("str", f"v{at}")}, None, None) for at in range(5000)]
        structs = connection.sql(
            "SELECT {'n': range::uinteger, 'e': 'x'::enum('x', 'y')} AS headers FROM range(5000) ORDER BY range"
        )
        assert [row[2] for row in read(structs)] == [{"n": ("int", at), "e": ("str", "x")} for at in range(5000)]


def test_duckdb_that_fails_halfway() -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection, pytest.raises((ValueError, OSError, duckdb.Error)):
        BatchReader(
            connection.sql("SELECT CASE WHEN range < 4000 THEN 'a' ELSE error('too far') END AS address FROM range(5000)")
        )
