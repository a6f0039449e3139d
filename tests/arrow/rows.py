"""Rows as Arrow data gives them and as messages show them, with their types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from xump_ext.arrow.read import BatchReader
from xump_ext.message.message import Message


Row = tuple[str, bytes, dict[str, tuple[str, Any]], str | None, str | None]


def exactly(value: Any) -> tuple[str, Any]:
    """A value that equals only itself: True is not 1, 1 is not 1.0, NaN is NaN, 0.0 is not -0.0."""
    return type(value).__name__, repr(value) if isinstance(value, float) else value


def row_of(message: Message) -> Row:
    headers = {name: exactly(value) for name, value in message.headers.items()}
    return message.address, message.body, headers, message.reply_to, message.message_id


def row_expected(given: dict[str, Any]) -> Row:
    """What a row means, from `to_pylist()`."""
    body = given.get("body")
    headers = given.get("headers") or {}
    return (
        given.get("address") or "",
        body.encode() if isinstance(body, str) else body or b"",
        {name: exactly(value) for name, value in dict(headers).items() if value is not None},
        given.get("reply_to"),
        given.get("message_id"),
    )


def read(data: Any) -> list[Row]:
    reader = BatchReader(data)
    messages = reader.messages()
    assert reader.rows == len(messages)
    return [row_of(message) for message in messages]


def same(data: pa.Table | pa.RecordBatch) -> None:
    assert read(data) == [row_expected(row) for row in data.to_pylist()]


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
BYTE_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]

texts = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(["orders.eu", "x" * 16, "ä"]))
binaries = st.one_of(st.none(), st.binary(max_size=20))
numbers = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint64(): st.integers(0, 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
}


@st.composite
def columns(draw: st.DrawFn, type: pa.DataType, values: st.SearchStrategy[Any], rows: int) -> pa.Array:
    """An array that is a slice of a longer one, perhaps in a dictionary."""
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    given = draw(st.lists(st.one_of(st.none(), values), min_size=before + rows + after, max_size=before + rows + after))
    array = pa.array(given, type)
    if type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()) and draw(st.booleans()):
        array = array.dictionary_encode()
    return array.slice(before, rows)


@st.composite
def headers(draw: st.DrawFn, rows: int) -> pa.Array:
    """A slice of a struct of slices, with nulls at each level; or a map."""
    before = draw(st.integers(0, 5))
    if draw(st.integers(0, 3)) == 0:
        maps = st.one_of(
            st.none(), st.dictionaries(st.text(min_size=1, max_size=12), st.one_of(st.none(), st.text(max_size=9)), max_size=4)
        )
        given = draw(st.lists(maps, min_size=before + rows, max_size=before + rows))
        return pa.array([row and list(row.items()) for row in given], pa.map_(pa.string(), pa.string())).slice(before, rows)
    names = draw(st.lists(st.text(min_size=1, max_size=9).filter(lambda name: "\0" not in name), max_size=4, unique=True))
    fields = []
    for _ in names:
        type = draw(st.sampled_from([*numbers, *TEXT_TYPES, *BYTE_TYPES]))
        fields.append(draw(columns(type, numbers.get(type, texts if type in TEXT_TYPES else binaries), before + rows)))
    if not names:
        return pa.array([{}] * rows, pa.struct([]))
    mask = draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=before + rows, max_size=before + rows)))
    return pa.StructArray.from_arrays(fields, names, mask=None if mask is None else pa.array(mask, pa.bool_())).slice(
        before, rows
    )


@st.composite
def batches(draw: st.DrawFn) -> pa.StructArray:
    rows, before, after = draw(st.integers(0, 12)), draw(st.integers(0, 9)), draw(st.integers(0, 2))
    total = before + rows + after
    made = {
        "address": columns(draw(st.sampled_from(TEXT_TYPES)), texts, total),
        "body": columns(draw(st.sampled_from(BYTE_TYPES)), binaries, total),
        "headers": headers(total),
        "reply_to": columns(draw(st.sampled_from(TEXT_TYPES)), texts, total),
        "message_id": columns(draw(st.sampled_from(TEXT_TYPES)), texts, total),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(made)), min_size=1, unique=True))
    return pa.StructArray.from_arrays([draw(made[name]) for name in chosen], chosen).slice(before, rows)


values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=20), st.binary(max_size=20))
names = st.one_of(st.sampled_from(["a", "b", "region"]), st.text(min_size=1, max_size=9))
messages = st.builds(
    lambda address, body, headers, reply_to, message_id: Message(
        address, body, headers, reply_to=reply_to, message_id=message_id
    ),
    st.text(max_size=20),
    st.binary(max_size=40),
    st.dictionaries(names, values, max_size=4),
    texts,
    texts,
)
