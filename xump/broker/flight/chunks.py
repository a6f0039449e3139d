"""Reads what clients stream, and refuses batches that are damaged, or too large, before the engine reads them.

Arrow's reader takes lengths and offsets as they come, so each batch is validated before it is used. That costs less than a
microsecond, since it does not look at the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
from pyarrow import flight

from xump.broker.flight.weights import Weights

if TYPE_CHECKING:
    from xump.broker.flight.calls import Call
    from xump.broker.limits import Limits


class Chunk(NamedTuple):
    """A message of a stream."""

    data: pyarrow.RecordBatch | None
    """Its rows."""
    bytes: int
    """How many bytes they take as messages."""
    said: pyarrow.Buffer | None
    """The bytes beside the rows."""


def chunks(call: Call, reader: flight.MetadataRecordBatchReader) -> Iterator[Chunk]:
    """The batches that the client sends, until it says that this was all, or is gone. Raises ValueError."""
    weights: Weights | None = None
    while True:
        with call.waiting():
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            except (OSError, pyarrow.ArrowException) as error:
                call.check_open()
                raise ValueError(f"a batch cannot be read: {error}") from None
        call.check_open()
        data, size = chunk.data, 0
        if data is not None:
            weights = weights or Weights(data.schema)
            size = checked(data, weights, call.listener.limits)
        yield Chunk(data, size, chunk.app_metadata)


def checked(batch: pyarrow.RecordBatch, weights: Weights, limits: Limits) -> int:
    """How many bytes the rows take as messages. Raises ValueError if the batch is damaged or too large."""
    rows = batch.num_rows
    if not 0 <= rows <= limits.batch_rows_max:
        raise ValueError(f"a batch has {rows} rows, allowed are 0 to {limits.batch_rows_max} (Limits.batch_rows_max): send more "
                         "batches")
    try:
        batch.validate()
        size = weights.of(batch)
    except pyarrow.ArrowException as error:
        raise ValueError(f"a batch is damaged: {error}") from None
    if size > limits.batch_bytes_max:
        raise ValueError(f"a batch takes {size} bytes as messages, allowed are {limits.batch_bytes_max} "
                         "(Limits.batch_bytes_max): send more batches with fewer rows each")
    return size


def json_object(given: bytes | None, what: str) -> dict[str, Any]:
    """A JSON object. Raises ValueError."""
    try:
        found = json.loads(given or b"{}")
    except RecursionError:
        raise ValueError(f"{what} nests too deeply: expected a JSON object of a few levels") from None
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} must be a JSON object, got {type(found).__name__}")
    return found
