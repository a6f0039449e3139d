"""How much memory the rows of a batch keep while they wait in their columns: it is counted, for those who bound it."""

from __future__ import annotations

import pyarrow
import pytest

from xump import Engine
from xump_ext.arrow.read import BatchReader
from xump_ext.memory.slab import memory_bytes

pytestmark = pytest.mark.usefixtures("no_garbage")
ROWS = 100
BIG = 10_000
SLACK = 4_000          # validity, offsets, indices


def bytes_held(data: object) -> int:
    """What a reader of the data adds to the memory of messages; it is given back."""
    before = memory_bytes()
    reader = BatchReader(data)
    held = memory_bytes() - before
    del reader
    assert memory_bytes() == before
    return held


def column(type: pyarrow.DataType, rows: int = ROWS) -> pyarrow.Array:
    """Values of BIG bytes, each its own."""
    return pyarrow.array([str(number % 10) * BIG for number in range(rows)]).cast(pyarrow.binary()).cast(type)


@pytest.mark.parametrize("type", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view(), pyarrow.string(),
                                  pyarrow.large_string(), pyarrow.string_view()], ids=str)  # fmt: skip
def test_bodies_count(type):
    assert ROWS * BIG <= bytes_held(pyarrow.table({"body": column(type)})) <= ROWS * BIG + SLACK


def test_fixed_bodies_and_dictionaries_count():
    fixed = column(pyarrow.binary(BIG))
    assert ROWS * BIG <= bytes_held(pyarrow.table({"body": fixed})) <= ROWS * BIG + SLACK
    shared = column(pyarrow.binary()).dictionary_encode()
    assert 10 * BIG <= bytes_held(pyarrow.table({"body": shared})) <= 10 * BIG + SLACK


def test_only_the_rows_of_a_slice_count_and_every_chunk_does():
    batch = pyarrow.record_batch({"body": column(pyarrow.binary())})
    assert 7 * BIG <= bytes_held(batch.slice(3, 7)) <= 7 * BIG + SLACK
    table = pyarrow.Table.from_batches([batch, batch.slice(0, 10), batch.slice(0, 0)])
    assert 110 * BIG <= bytes_held(table) <= 110 * BIG + SLACK


def test_headers_count():
    values = column(pyarrow.string())
    struct = pyarrow.StructArray.from_arrays([values, pyarrow.array(range(ROWS))], ["text", "number"])
    assert ROWS * (BIG + 8) <= bytes_held(pyarrow.table({"headers": struct})) <= ROWS * (BIG + 8) + SLACK
    pairs = pyarrow.MapArray.from_arrays(list(range(ROWS + 1)), ["name"] * ROWS, values)
    assert ROWS * BIG <= bytes_held(pyarrow.table({"headers": pairs})) <= ROWS * (BIG + 20) + SLACK


def test_a_batch_that_is_refused_keeps_nothing():
    before = memory_bytes()
    with pytest.raises(ValueError, match="row 0"):
        BatchReader(pyarrow.table({"body": column(pyarrow.binary()), "priority": [300] * ROWS}))
    assert memory_bytes() == before


def test_rows_count_as_long_as_one_waits():
    with Engine() as engine:
        before = memory_bytes()
        jobs = engine.create_queue("jobs")
        engine.publish_batch(jobs, pyarrow.table({"body": column(pyarrow.binary())}))
        assert memory_bytes() - before >= ROWS * BIG
        jobs.purge()
        assert memory_bytes() - before < ROWS * BIG // 2


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 200, 256, 257, 5_000])
def test_texts_are_shared_whatever_the_number_of_rows(rows):
    """A small batch has few places for texts that it has made; all of its texts come out right, and equal ones are one object."""
    texts = [f"address-{number % 150}" for number in range(rows)]
    reader = BatchReader(pyarrow.table({"address": texts, "reply_to": texts[::-1]}))
    messages = reader.messages()
    assert [message.address for message in messages] == texts
    assert [message.reply_to for message in messages] == texts[::-1]
    assert all(message.address is message.reply_to for message in messages if message.address == message.reply_to)
