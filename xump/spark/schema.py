"""Columns: which of a dataframe are written, which of a queue are read, and their types in Spark and in Arrow.

Written batches stay as Spark makes them: the broker reads headers that are a struct, a map or Kafka's array of key and value.
Read batches are cast to what Spark expects, without a copy where the types are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyspark.sql import types

from xump.broker.columns import batches_of
from xump.spark.options import Options, unknown

SLICE_BYTES = 4 << 20
"""A batch is sent in slices of about so many bytes."""

TEXT = (types.StringType,)
TEXT_OR_BYTES = (types.StringType, types.BinaryType)
WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
SCALARS = (
    *TEXT_OR_BYTES, *WHOLE, types.BooleanType, types.FloatType, types.DoubleType, types.DecimalType, types.DateType,
    types.TimestampType, types.TimestampNTZType, types.NullType,
)
"""Types of headers in a struct."""

WRITTEN: dict[str, tuple[type[Any], ...]] = {
    "address": TEXT,
    "body": TEXT_OR_BYTES,
    "headers": (types.StructType, types.MapType, types.ArrayType),
    "reply_to": TEXT,
    "message_id": TEXT,
    "correlation_id": TEXT,
    "at": (types.TimestampType,),
    "expires": (types.TimestampType,),
    "priority": WHOLE,
}
"""Columns that are written, and their types."""

NEVER_NULL = ("address", "body")

READ: dict[str, tuple[Any, Any]] = {
    "id": (types.LongType(), pyarrow.int64()),
    "queue": (types.StringType(), pyarrow.string()),
    "address": (types.StringType(), pyarrow.string()),
    "body": (types.BinaryType(), pyarrow.binary()),
    "headers": (types.MapType(types.StringType(), types.StringType()), pyarrow.map_(pyarrow.string(), pyarrow.string())),
    "reply_to": (types.StringType(), pyarrow.string()),
    "timestamp": (types.TimestampType(), pyarrow.timestamp("us", "UTC")),
    "redelivered": (types.BooleanType(), pyarrow.bool_()),
}
"""The columns that a queue has unless the program gives a schema."""

READ_TOO: dict[str, tuple[Any, Any]] = {
    "message_id": (types.StringType(), pyarrow.string()),
    "correlation_id": (types.StringType(), pyarrow.string()),
    "delivery_count": (types.LongType(), pyarrow.int64()),
    "expires": (types.TimestampType(), pyarrow.timestamp("us", "UTC")),
    "at": (types.TimestampType(), pyarrow.timestamp("us", "UTC")),
    "priority": (types.ShortType(), pyarrow.int16()),
    "state": (types.StringType(), pyarrow.string()),
}
"""Columns that a schema may name, too."""

HEADER_TYPES: dict[type[Any], Any] = {
    types.StringType: pyarrow.string(), types.BinaryType: pyarrow.binary(), types.BooleanType: pyarrow.bool_(),
    types.ByteType: pyarrow.int8(), types.ShortType: pyarrow.int16(), types.IntegerType: pyarrow.int32(),
    types.LongType: pyarrow.int64(), types.FloatType: pyarrow.float32(), types.DoubleType: pyarrow.float64(),
}
"""Types of headers that are read into a struct."""


# ---- writing

def check_written(schema: types.StructType, options: Options) -> None:
    """Raises ValueError or TypeError unless the columns can be published."""
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in WRITTEN:
            raise ValueError(unknown("column", field.name, list(WRITTEN)))
        if names.count(field.name) > 1:
            raise ValueError(f"column {field.name} is there {names.count(field.name)} times")
        _check_type(field.name, field.dataType, WRITTEN[field.name])
    if "body" not in names:
        raise ValueError(f"column body is missing: there are {', '.join(names) or 'no columns'}")
    if ("address" in names) == (options.address is not None):
        raise ValueError("the rows have a column address, and there is an option address: give one of them" if "address" in names
                         else 'column address is missing: select one, or give all rows one address by .option("address", ...)')


def _check_type(name: str, kind: Any, allowed: tuple[type[Any], ...]) -> None:
    if not isinstance(kind, allowed):
        words = ", ".join(one().simpleString() for one in allowed) if name != "headers" else HEADERS_SHAPES
        raise TypeError(f"column {name} is of type {kind.simpleString()}; allowed: {words}")
    if isinstance(kind, types.StructType):
        for field in kind.fields:
            if not isinstance(field.dataType, SCALARS):
                raise TypeError(f"header {field.name} is of type {field.dataType.simpleString()}; a header is a text, bytes, a "
                                "number, a boolean, a date or a time")
    elif isinstance(kind, types.MapType):
        if not isinstance(kind.keyType, TEXT) or not isinstance(kind.valueType, TEXT_OR_BYTES):
            raise TypeError(f"column headers is of type {kind.simpleString()}; allowed: {HEADERS_SHAPES}")
    elif isinstance(kind, types.ArrayType):
        pair = kind.elementType
        if not isinstance(pair, types.StructType) or pair.fieldNames() != ["key", "value"] or not (
                isinstance(pair["key"].dataType, TEXT) and isinstance(pair["value"].dataType, TEXT_OR_BYTES)):
            raise TypeError(f"column headers is of type {kind.simpleString()}; allowed: {HEADERS_SHAPES}")


HEADERS_SHAPES = "a struct with a field for each header, map<string,string>, array<struct<key:string,value:binary>>"


def sendable(batches: Iterator[pyarrow.RecordBatch], address: str | None, where: str) -> Iterator[pyarrow.RecordBatch]:
    """The batches as they are sent: slices of about `SLICE_BYTES`. Raises ValueError for a row without address or body, which it
    names as one of `where`."""
    first = 0
    for batch in batches_of(batches, address):
        for name in NEVER_NULL:
            at = batch.schema.get_field_index(name)
            if at >= 0 and batch.column(at).null_count:
                row = first + batch.column(at).is_null().index(True).as_py()
                raise ValueError(f"{name} is null in row {row} of {where}, counted from 0: filter such rows out, or fill them")
        first += batch.num_rows
        yield from sliced(batch)


def sliced(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """The batch in parts of about `SLICE_BYTES`, of at least one row. A part whose rows are larger than those of others is
    divided again."""
    parts = min(-(-batch.nbytes // SLICE_BYTES), batch.num_rows)
    if parts <= 1:
        if batch.num_rows:
            yield batch
        return
    rows = -(-batch.num_rows // parts)
    for first in range(0, batch.num_rows, rows):
        part = batch.slice(first, rows)
        yield from sliced(part) if part.nbytes > 2 * SLICE_BYTES else (part,)


# ---- reading

def read_schema() -> types.StructType:
    """The columns of a queue."""
    return types.StructType([types.StructField(name, kind) for name, (kind, _) in READ.items()])


class Shape:
    """Which columns are read, and their types."""

    def __init__(self, schema: types.StructType) -> None:
        """Raises ValueError or TypeError for columns that a queue does not have."""
        self.columns = schema.fieldNames()
        """Their names."""
        self.headers: dict[str, str] | None = None
        """Types of headers by name, if they are read into a struct."""
        self.schema = pyarrow.schema([pyarrow.field(field.name, self._type(field)) for field in schema.fields])
        """Their types."""

    def _type(self, field: types.StructField) -> pyarrow.DataType:
        known = READ | READ_TOO
        if field.name not in known:
            raise ValueError(unknown("column", field.name, list(known)))
        expected, made = known[field.name]
        if field.name == "headers" and isinstance(field.dataType, types.StructType):
            return self._struct(field.dataType)
        if field.dataType.simpleString() != expected.simpleString():        # whether values may be null makes no difference
            raise TypeError(f"column {field.name} is of type {expected.simpleString()}, not {field.dataType.simpleString()}")
        return made

    def _struct(self, kind: types.StructType) -> pyarrow.DataType:
        for field in kind.fields:
            if type(field.dataType) not in HEADER_TYPES:
                allowed = ", ".join(one().simpleString() for one in HEADER_TYPES)
                raise TypeError(f"header {field.name} is of type {field.dataType.simpleString()}; allowed to read are {allowed}")
        found = {field.name: HEADER_TYPES[type(field.dataType)] for field in kind.fields}
        self.headers = {name: str(made) for name, made in found.items()}
        return pyarrow.struct([pyarrow.field(name, made) for name, made in found.items()])

    def shaped(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """A batch of a queue as Spark wants it."""
        columns = [column if column.type == field.type else column.cast(field.type, safe=False)
                   for column, field in zip(batch.columns, self.schema, strict=True)]
        return pyarrow.RecordBatch.from_arrays(columns, schema=self.schema)
