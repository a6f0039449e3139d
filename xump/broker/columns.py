"""The columns that a program publishes over Flight, as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
import pyarrow.compute

ROWS_MAX = 10_000
"""A table, or what is read as one, is sent in batches of so many rows at most."""


def batches_of(given: Any, address: str | None = None) -> Iterator[pyarrow.RecordBatch]:
    """The batches. Raises TypeError."""
    for batch in _batches(given):
        batch = _with_map(batch)
        if address is not None:
            if "address" in batch.schema.names:
                raise ValueError(f"address={address!r} is for rows without a column `address`")
            column = pyarrow.DictionaryArray.from_arrays(
                pyarrow.nulls(batch.num_rows, pyarrow.int8()).fill_null(0), pyarrow.array([address]))
            batch = batch.append_column("address", column.dictionary_decode())
        yield batch


def check_alike(first: pyarrow.RecordBatch, batch: pyarrow.RecordBatch | None) -> None:
    """Raise ValueError if a stream that began with `first` cannot go on with this batch."""
    if batch is not None and not batch.schema.equals(first.schema):
        raise ValueError(f"a batch has the columns {_said(batch)}, and the first one of the stream {_said(first)}: give all "
                         "batches the same")


def _said(batch: pyarrow.RecordBatch) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in batch.schema)


def _batches(given: Any) -> Iterator[pyarrow.RecordBatch]:
    if isinstance(given, pyarrow.RecordBatch):
        yield given
    elif isinstance(given, pyarrow.Table):
        yield from given.to_batches(ROWS_MAX)
    elif isinstance(given, pyarrow.RecordBatchReader):
        yield from given
    elif hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        yield from pyarrow.table(given).to_batches(ROWS_MAX)
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes, dict)):
        for one in given:
            if isinstance(one, (str, bytes, dict, tuple, int)):
                raise TypeError(f"expected record batches, got {type(one).__name__}: make a pyarrow.Table of rows")
            yield from _batches(one)
    else:
        raise TypeError(f"expected record batches, a table or a reader of pyarrow, or an iterable of batches, got "
                        f"{type(given).__name__}")


def _with_map(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Headers that are a list of structs of key and value, as some write a map, as a map."""
    at = batch.schema.get_field_index("headers")
    if at < 0:
        return batch
    kind = batch.schema.field(at).type
    if not pyarrow.types.is_list(kind) or not pyarrow.types.is_struct(kind.value_type):
        return batch
    pairs = kind.value_type
    if sorted(field.name for field in pairs) != ["key", "value"]:
        raise TypeError(f"column headers is of type {kind}; a list of pairs has structs of `key` and `value`")
    headers = batch.column(at)
    lengths = pyarrow.compute.list_value_length(headers).fill_null(0)
    ends = pyarrow.compute.cumulative_sum(lengths).cast(pyarrow.int32())
    pairs = headers.flatten()           # without what lies below null
    made = pyarrow.MapArray.from_arrays(pyarrow.concat_arrays([pyarrow.array([0], pyarrow.int32()), ends]),
                                        pairs.field("key"), pairs.field("value"), mask=headers.is_null())
    return batch.set_column(at, pyarrow.field("headers", made.type), made)
