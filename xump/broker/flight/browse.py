"""Reads a queue by id, slice by slice, without taking anything. A reader has a cursor of its own, an id.

A ticket is the name of a queue, or a JSON object:

    queue       the queue
    start       an id, {"ns": POSIX nanoseconds}, "head" or "current"; end: the last id, or a time. Without them: all there is
    where       a filter
    state       "ready", "delayed", "outstanding", "history"; or "all"
    reverse     whether the newest goes first
    columns     the names of the columns that are wanted
    headers     {"NAME": TYPE}: headers become a struct with these fields, of Arrow's types by name; without it: a map of texts

It never goes above what is durable, or above `stable_id`, as they were when it began.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute

import xump
from xump import filters
from xump._arguments import ID_MAX
from xump.broker.flight.calls import Call
from xump.broker.queues import is_stored
from xump.queue import STATES
from xump_ext.arrow.browse import browse_slice
from xump_ext.match.filter import Filter

if TYPE_CHECKING:
    from xump.queue import Queue

ROWS_MAX = 2048
"""So many rows a slice has at most,"""
VALUES_MAX = 64 * ROWS_MAX
"""so many values,"""
BYTES_MAX = 1 << 20
"""and so many bytes of bodies and headers, up to the end of a row."""
HEADERS_MAX = 1000
"""So many headers are columns."""
LOOKS_MAX = 16_384
"""After so many messages that a filter did not select, the client is looked after."""

NS_END = 1 << 63
"""Times are beyond neither this many nanoseconds nor its negative."""

TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
"""Types that values of all types fit, as the map of headers has them."""
NOT_FITTING = (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError)
"""Arrow's errors for a value that does not fit a type, and for one whose type never does."""

KNOWN = ("queue", "start", "end", "where", "state", "reverse", "columns", "headers")


class Browse:
    """The request of a ticket."""

    def __init__(self, call: Call, options: dict[str, Any]) -> None:
        if set(options) - set(KNOWN) or not isinstance(options.get("queue"), str):
            raise ValueError(f"a ticket has `queue` and perhaps {', '.join(KNOWN[1:])}; got {options!r}")
        self.queue = call.queue("read", options["queue"])
        """The queue that is read."""
        self._call = call
        self._reverse = options.get("reverse", False)
        if not isinstance(self._reverse, bool):
            raise ValueError(f"reverse={self._reverse!r}: expected true or false")
        self._state = options.get("state", "all")
        if self._state not in (*STATES, "all"):
            raise ValueError(f"state={self._state!r}: expected {', '.join((*STATES, 'all'))}")
        self._filter = None if options.get("where") is None else Filter(filters.compile(options["where"])[1])
        self._types = types_of(options.get("headers"))
        self._named = None if self._types is None else {field.name: str(field.type) in TEXTS for field in self._types}
        self._columns = None
        self._columns = columns_of(options.get("columns"), self._shaped(self._slice(1, 0)[0]).schema.names)
        self.schema = self._shaped(self._slice(1, 0)[0]).schema
        """The columns."""
        self._rows_max = max(1, min(ROWS_MAX, VALUES_MAX // (len(self.schema) + len(self._types or ()))))
        self._readable = readable(self.queue)
        self._start, self._end = self._bounds(self._at(options.get("start"), True), self._at(options.get("end"), False))

    def _bounds(self, start: int | None, end: int | None) -> tuple[int, int]:
        """The ids from which to which it goes."""
        first = 1 if start is None else max(start, 1)
        last = self._readable if end is None else min(end, self._readable)
        return (last, first) if self._reverse else (first, last)

    def _at(self, given: object, first: bool) -> int | None:
        """An id; of a time: the first one from it on, or the last one before it."""
        if given is None or given == "head":
            return None
        if given == "current":
            return self.queue.frontier
        if isinstance(given, dict) and set(given) == {"ns"} and type(given["ns"]) is int and -NS_END < given["ns"] < NS_END:
            found = next(iter(self._first_since(given["ns"])), self._readable + 1)
            return found if first else found - 1
        if type(given) is not int or not 0 <= given <= ID_MAX:
            raise ValueError(f"{given!r} is no place in a queue: expected an id, {{'ns': POSIX nanoseconds}}, 'head', 'current'")
        return given

    def _first_since(self, moment: int) -> list[int]:
        found = browse_slice(self._call.engine, self.queue, ("time", moment), 0, None, None, False, 1, BYTES_MAX, 1, None)[0]
        ids: list[int] = pyarrow.record_batch(found).column("id").to_pylist()
        return ids

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The slices."""
        start, end = self._start, self._end
        if start == 0 or end == 0 or (start < end if self._reverse else start > end):
            return
        at: int | None = start
        while at is not None:
            self._call.check_open()
            rows, at = self._slice(at, self._rows_max)
            if rows.num_rows:
                yield self._shaped(rows)

    def _slice(self, at: int, rows: int) -> tuple[pyarrow.RecordBatch, int | None]:
        last = self._end if rows else 0
        columns = self._columns
        if columns is not None and self._types is not None and "id" not in columns:
            columns = [*columns, "id"]          # for errors, which name it
        found, after = browse_slice(
            self._call.engine, self.queue, at, last, None if self._state == "all" else self._state, self._filter, self._reverse,
            rows, BYTES_MAX, LOOKS_MAX, self._named, columns)
        return pyarrow.record_batch(found), after

    def _shaped(self, rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The columns that are wanted, as they are wanted."""
        if self._types is not None and (self._columns is None or "headers" in self._columns):
            rows = with_headers(rows, self._types)
        return rows if self._columns is None else rows.select(self._columns)


@functools.cache
def columns_of_queues() -> pyarrow.Schema:
    """The columns of a ticket that asks for none: those of all queues."""
    with xump.Engine() as engine:
        queue = engine.create_queue("rows")
        found, _ = browse_slice(engine, queue, 1, 0, None, None, False, 0, BYTES_MAX, LOOKS_MAX, None)
        return pyarrow.record_batch(found).schema


def readable(queue: Queue) -> int:
    """The last id that a reader by id may see."""
    return min(queue.stable_id, queue.durable_id) if is_stored(queue) else queue.stable_id


def columns_of(given: object, known: list[str]) -> list[str] | None:
    """The names of the columns that are wanted; None: all. Raises ValueError."""
    if given is None:
        return None
    if not isinstance(given, list) or not given or not all(name in known for name in given):
        raise ValueError(f"columns={given!r}: expected a list of one or more of {', '.join(known)}")
    if len(set(given)) != len(given):
        raise ValueError(f"columns={given!r}: give each name once")
    return given


def types_of(given: object) -> list[pyarrow.Field] | None:
    """The fields of the struct of headers. Raises ValueError."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"headers={given!r}: expected an object of names and types, as {{'size': 'int64'}}")
    if len(given) > HEADERS_MAX:
        raise ValueError(f"headers has {len(given)} names, allowed are {HEADERS_MAX}: ask for fewer, or leave it out for a map")
    if not all(isinstance(kind, str) for kind in given.values()):
        raise ValueError(f"headers={given!r}: a type is a text, as 'int64'")
    return [pyarrow.field(name, pyarrow.type_for_alias(kind)) for name, kind in given.items()]


def with_headers(rows: pyarrow.RecordBatch, fields: list[pyarrow.Field]) -> pyarrow.RecordBatch:
    """The rows with their headers as a struct of these fields; a header that a message does not have is null. Raises
    `ArrowInvalid` for a value that does not fit."""
    at = rows.schema.get_field_index("headers")
    headers = rows.column(at)
    found: list[list[pyarrow.Array]] = [[] for _ in fields]
    if pyarrow.types.is_struct(headers.type):       # of a field for each header and type of value: `write_named_headers.pyx`
        for number, one in enumerate(headers.type):
            found[int(one.name)].append(headers.field(number))
    columns = [header_of(values, field, rows.column("id")) for values, field in zip(found, fields, strict=True)]
    made = pyarrow.StructArray.from_arrays(columns, fields=fields) if fields else pyarrow.nulls(rows.num_rows, pyarrow.struct([]))
    return rows.set_column(at, pyarrow.field("headers", made.type), made)


def header_of(found: list[pyarrow.Array], field: pyarrow.Field, ids: pyarrow.Array) -> pyarrow.Array:
    """A header as a column, from its values by type. Raises `ArrowInvalid`, which names the first message whose value does not
    fit."""
    if not found:
        return pyarrow.nulls(len(ids), field.type)
    try:
        columns = [fitted(values, field.type) for values in found]
    except NOT_FITTING:
        for at, values in ((at, values) for at in range(len(ids)) for values in found if values[at].is_valid):
            try:
                fitted(values.slice(at, 1), field.type)
            except NOT_FITTING as error:
                raise pyarrow.ArrowInvalid(
                    f"header {field.name!r} of message {ids[at]} is {values[at].as_py()!r}, which does not fit into {field.type}"
                    f": ask for another type, or leave such messages out by `where` ({error})") from None
        raise
    return columns[0] if len(columns) == 1 else pyarrow.compute.coalesce(*columns)


def fitted(values: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    """The values as another type. Raises `ArrowInvalid`; Arrow itself makes infinity of a number that is too large for a type."""
    made = values.cast(kind)
    if pyarrow.types.is_floating(kind) and pyarrow.types.is_floating(values.type):
        is_lost = pyarrow.compute.and_(pyarrow.compute.is_inf(made), pyarrow.compute.is_finite(values))
        if pyarrow.compute.any(is_lost).as_py():
            raise pyarrow.ArrowInvalid(f"beyond the range of {kind}")
    return made
