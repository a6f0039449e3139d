"""Counts what the rows of a batch take as messages, without a look at each.

A few bytes of Arrow may stand for many messages: a column of nulls has no buffers, a dictionary has one value for many rows, and
so may a column of views. The batches of most streams have no such column, and cost a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow
import pyarrow.compute
from pyarrow import types

ROW_BYTES = 96
"""The entry of a message."""

HEADER_BYTES = 16
"""A header takes at most so many bytes beside its name and its value."""

SURE_BYTES = 16 << 20
"""Where headers could take more than this, their nulls are counted, since the sender may say that there are more."""

SLICE = 10_000
LENGTHS_AT = pyarrow.array(range(0, 4 * SLICE, 4), pyarrow.int32())
"""A view has four numbers of 32 bits, and the first is its length: these are the places of so many lengths."""
NONE = pyarrow.scalar(0, pyarrow.int32())


class Weights:
    """The weights of the batches of a stream."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._folded = [at for at, kind in enumerate(schema.types) if is_folded(kind)]

    def of(self, batch: pyarrow.RecordBatch) -> int:
        """How many bytes the rows take as messages. Raises `ArrowException` if a dictionary lacks a value."""
        size: int = batch.num_rows * ROW_BYTES + batch.get_total_buffer_size()
        for at in self._folded:
            size += unfolded(batch.column(at))
        return size


def is_folded(kind: pyarrow.DataType) -> bool:
    """Whether the buffers of such a column may be smaller than its values."""
    return types.is_nested(kind) or types.is_dictionary(kind) or is_view(kind) or isinstance(kind, pyarrow.BaseExtensionType)


def is_view(kind: pyarrow.DataType) -> bool:
    """Whether it is one of views."""
    return str(kind) in ("string_view", "binary_view")


def is_text(kind: pyarrow.DataType) -> bool:
    """Whether it is one of texts or bytes."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
                or types.is_fixed_size_binary(kind))


def unfolded(column: pyarrow.Array) -> int:
    """How many bytes the values of a column take in messages beside its buffers."""
    if not len(column):
        return 0
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    kind = column.type
    if types.is_dictionary(kind):
        return total([lengths(column.dictionary).take(column.indices)])
    if is_view(kind):
        return total(view_lengths(column))
    if types.is_map(kind):
        return unfolded(column.keys) + unfolded(column.items)
    if types.is_struct(kind):
        return sum(header_bytes(kind.field(at).name, column.field(at)) for at in range(kind.num_fields))
    return 0


def header_bytes(name: str, values: pyarrow.Array) -> int:
    """The bytes of a header in the rows that have it, beside its buffers."""
    each, there = len(name) + HEADER_BYTES, len(values) - int(values.null_count)
    if len(values) * each > SURE_BYTES:
        there = total([values.is_valid()])
    return there * each + unfolded(values)


def lengths(values: pyarrow.Array) -> pyarrow.Array:
    """How long each value of a dictionary is."""
    if is_view(values.type) and len(values):
        return pyarrow.concat_arrays(view_lengths(values))
    if is_text(values.type):
        return pyarrow.compute.binary_length(values)
    return pyarrow.repeat(NONE, len(values))           # of nulls; publishing refuses others


def view_lengths(values: pyarrow.Array) -> list[pyarrow.Array]:
    """How long each view is, slice by slice."""
    numbers = pyarrow.Array.from_buffers(pyarrow.int32(), 4 * (values.offset + len(values)), [None, values.buffers()[1]])
    found: list[pyarrow.Array] = []
    for begin in range(0, len(values), SLICE):
        part = values.slice(begin, SLICE)
        sizes = numbers.slice(4 * part.offset).take(LENGTHS_AT.slice(0, len(part)))
        found.append(pyarrow.compute.if_else(part.is_valid(), sizes, NONE) if part.null_count else sizes)
    return found


def total(numbers: Iterable[pyarrow.Array]) -> int:
    """Their sum."""
    return sum(int(pyarrow.compute.sum(each).as_py() or 0) for each in numbers)
