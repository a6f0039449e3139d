"""Messages out of Arrow data and deliveries into it: whatever the type, chunk, slice and library, the rows are the same."""

from __future__ import annotations

import ctypes
import gc
import math
import pickle
import threading
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.arrow.arrow_by_hand import ArrowArray, ArrowArrayStream, ArrowSchema
from hypothesis import given
from hypothesis import strategies as st

from xump_ext.arrow.export import ArrowBatch
from xump_ext.arrow.read import BatchReader
from xump_ext.arrow.write import write_batch
from xump_ext.message.headers import headers_bytes_max
from xump_ext.message.message import Message, address_bytes_max, body_bytes_max

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


# ---- types

TEXTS = ["orders.eu", "", None, "ünï", "x" * 40, "orders.eu", "\0", "日本.🎈"]
BYTES = [b"", b"\xff\0", None, b"x" * 13, b"123456789012", b"1234", b"12345678", bytes(range(200))]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
BYTE_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
INDEX_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def dictionary(values: list[Any], index: pa.DataType, type: pa.DataType) -> pa.Array:
    """Encoded by hand: with nulls among the indices and in the dictionary, and a value that nobody uses."""
    distinct = list(dict.fromkeys(values))
    unused: list[Any] = ["unused"] if pa.types.is_string(type) or pa.types.is_large_string(type) else [b"unused"]
    return pa.DictionaryArray.from_arrays(
        pa.array([distinct.index(value) for value in values], index), pa.array(distinct + unused, type)
    )


@pytest.mark.parametrize("column", ["address", "reply_to", "message_id", "body"])
@pytest.mark.parametrize("type", TEXT_TYPES, ids=str)
def test_text(column: str, type: pa.DataType) -> None:
    same(pa.table({column: pa.array(TEXTS, type)}))


@pytest.mark.parametrize("type", [*BYTE_TYPES, pa.binary(3)], ids=str)
def test_bytes(type: pa.DataType) -> None:
    values = [b"abc", None, b"\0\0\xff"] if type == pa.binary(3) else BYTES
    same(pa.table({"body": pa.array(values, type), "headers": pa.StructArray.from_arrays([pa.array(values, type)], ["b"])}))


@pytest.mark.parametrize("index", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("type", [pa.string(), pa.large_string()], ids=str)
def test_dictionary_of_text(index: pa.DataType, type: pa.DataType) -> None:
    column = dictionary(TEXTS, index, type)
    headers = pa.StructArray.from_arrays([column], ["h"])
    same(pa.table({"address": column, "reply_to": column, "message_id": column, "body": column, "headers": headers}))


@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary()], ids=str)
def test_dictionary_of_bytes(type: pa.DataType) -> None:
    column = dictionary(BYTES, pa.int16(), type)
    same(pa.table({"body": column, "headers": pa.StructArray.from_arrays([column], ["h"])}))


def test_null_columns() -> None:
    nulls = pa.nulls(3)
    headers = pa.StructArray.from_arrays([nulls, nulls.dictionary_encode()], ["a", "b"])
    same(pa.table({"address": nulls, "body": nulls, "headers": headers, "reply_to": nulls, "message_id": nulls}))
    same(pa.table({"address": nulls.dictionary_encode(), "body": nulls.dictionary_encode(), "headers": nulls}))


HEADERS = [
    (pa.bool_(), [True, None, False]),
    *((type, [0, None, 2 ** (type.bit_width - 1) - 1, -(2 ** (type.bit_width - 1))]) for type in INDEX_TYPES[:4]),
    *((type, [0, None, 2**type.bit_width - 1]) for type in INDEX_TYPES[4:7]),
    (pa.uint64(), [0, None, 2**63 - 1]),
    (pa.float32(), [0.5, -0.0, None, math.inf, math.nan, 3.4028234663852886e38]),
    (pa.float64(), [0.1, -0.0, None, -math.inf, math.nan, 5e-324]),
    *((type, TEXTS) for type in TEXT_TYPES),
    *((type, BYTES) for type in BYTE_TYPES),
]


@pytest.mark.parametrize(("type", "values"), HEADERS, ids=lambda value: str(value)[:12])
def test_header(type: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, type)
    for part in (column, column[1:], column[2:3]):
        headers = pa.StructArray.from_arrays([part, part], ["one", "ä" * 9])
        same(pa.table({"headers": headers}))
        same(pa.table({"address": ["a"] * len(part), "headers": headers})[1:])


DAY = 86_400 * 10**9
TIMES = [
    (pa.timestamp("s"), [0, None, -1, 9_223_372_036], 10**9),
    (pa.timestamp("ms", "Europe/Berlin"), [1_700_000_000_123, None, -1], 10**6),
    (pa.timestamp("us"), [1_700_000_000_123_456, None, -1], 1000),
    (pa.timestamp("ns", "UTC"), [1_700_000_000_123_456_789, None, -(2**63), 2**63 - 1], 1),
    (pa.date32(), [0, None, -1, 20_000, -(2**31)], 1),
    (pa.date64(), [0, None, -DAY // 10**6, 20_000 * DAY // 10**6], 10**6 / DAY),
    (pa.time32("s"), [0, None, 86_399], 10**9),
    (pa.time32("ms"), [0, None, 86_399_999], 10**6),
    (pa.time64("us"), [0, None, 86_399_999_999], 1000),
    (pa.time64("ns"), [0, None, 86_399_999_999_999], 1),
    (pa.duration("s"), [0, None, -5], 10**9),
    (pa.duration("ms"), [0, None, -5], 10**6),
    (pa.duration("us"), [0, None, -5], 1000),
    (pa.duration("ns"), [0, None, -5, 2**63 - 1], 1),
]


@pytest.mark.parametrize(("type", "numbers", "unit"), TIMES, ids=lambda value: str(value)[:20])
def test_times_become_nanoseconds_and_dates_days(type: pa.DataType, numbers: list[int | None], unit: float) -> None:
    column = pa.array(numbers, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    expected = [{} if number is None else {"h": exactly(int(number * unit))} for number in numbers]
    for start in range(len(numbers)):
        table = pa.table({"headers": pa.StructArray.from_arrays([column[start:]], ["h"])})
        assert [row[2] for row in read(table)] == expected[start:]
        sliced = pa.table({"headers": pa.StructArray.from_arrays([column], ["h"])})[start:]
        assert [row[2] for row in read(sliced)] == expected[start:]


def test_days_before_1970_that_are_cut_are_rounded_down() -> None:
    column = pa.array([-1, 1], pa.int64()).view(pa.date64())
    table = pa.table({"headers": pa.StructArray.from_arrays([column], ["h"])})
    assert [row[2] for row in read(table)] == [{"h": exactly(-1)}, {"h": exactly(0)}]


@pytest.mark.parametrize("type", [pa.timestamp("s"), pa.duration("s"), pa.timestamp("ms"), pa.timestamp("us")], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_moment_that_does_not_fit_is_told(type: pa.DataType, sign: int) -> None:
    column = pa.array([1, sign * 2**62], pa.int64()).view(type)
    with pytest.raises(ValueError, match="header 'h', row 1: .* do not fit into 64 bits"):
        BatchReader(pa.table({"headers": pa.StructArray.from_arrays([column], ["h"])}))
    hidden = pa.StructArray.from_arrays([column], ["h"], mask=pa.array([False, True]))
    assert len(read(pa.table({"headers": hidden}))) == 2


DECIMALS = [pa.decimal128(9, 2), pa.decimal128(38, 0), pa.decimal256(60, 30), pa.decimal128(5, -3)]


@pytest.mark.parametrize("type", DECIMALS, ids=str)
def test_decimals_become_text(type: pa.DataType) -> None:
    given = [Decimal(number).scaleb(-type.scale) for number in (0, 1, -1, 1250, 99_999, -99_999)]
    if type.precision >= 38:
        given += [Decimal(10**37 + 1).scaleb(-type.scale, Context(prec=80))]
    column = pa.array([*given, None], type)
    expected = [*({"h": exactly(f"{number:f}")} for number in given), {}]
    for start in range(len(expected)):
        table = pa.table({"headers": pa.StructArray.from_arrays([column[start:]], ["h"])})
        assert [row[2] for row in read(table)] == expected[start:]


def test_header_of_half_floats() -> None:
    numpy = pytest.importorskip("numpy")
    column = pa.array(numpy.array([0.5, -0.0, 65504.0, 6e-8, math.inf, math.nan], numpy.float16))
    expected = [{"h": exactly(float(value))} for value in column.to_numpy()]
    assert [row[2] for row in read(pa.table({"headers": pa.StructArray.from_arrays([column], ["h"])}))] == expected


def test_header_maps() -> None:
    rows: list[Any] = [[("a", "1"), ("b", None)], None, [], [("ä" * 20, "x" * 30)], [(f"n{at}", str(at)) for at in range(40)]]
    for key, value in ((pa.string(), pa.string()), (pa.large_string(), pa.binary()), (pa.string_view(), pa.string_view())):
        given = [row and [(name, text and text.encode() if value == pa.binary() else text) for name, text in row] for row in rows]
        table = pa.table({"headers": pa.array(given, pa.map_(key, value))})
        same(table)
        same(table[2:])
        same(pa.concat_tables([table[3:], table[:2]]))
        same(pa.table({"headers": table["headers"].chunk(0)[1:4]}))


def test_headers_in_the_order_of_their_columns() -> None:
    table = pa.table({"headers": [{"b": 1, "a": None, "c": "x"}, {"b": None, "a": 2, "c": "y"}]})
    assert [list(message.headers) for message in BatchReader(table).messages()] == [["b", "c"], ["a", "c"]]


def test_an_empty_struct_is_no_headers() -> None:
    same(pa.table({"address": ["a", "b"], "headers": pa.array([{}, None], pa.struct([]))}))


def test_columns_of_a_taken_batch_are_passed_over() -> None:
    table = pa.table(
        {"id": [1], "queue": ["q"], "address": ["a"], "destination": ["d"], "delivery_count": [3], "timestamp": [None]}
    )
    assert read(table) == [("a", b"", {}, None, None)]


def test_any_shape_of_data() -> None:
    batch = pa.record_batch({"address": ["a", "b", "c"], "body": [b"1", b"2", b"3"]})
    rows: list[Any] = [("a", b"1", {}, None, None), ("b", b"2", {}, None, None), ("c", b"3", {}, None, None)]
    array = pa.StructArray.from_arrays([pa.array(["z", "a", "b", "c"]), pa.array([b"z", b"1", b"2", b"3"])], ["address", "body"])
    for data in (
        batch,
        pa.table(batch),
        pa.RecordBatchReader.from_batches(batch.schema, [batch]),
        array[1:],
        pa.chunked_array([array[1:]]),
    ):
        assert read(data) == rows
    assert read(pa.table({})) == []
    assert read(pa.table({"address": pa.chunked_array([], pa.string())})) == []
    with pytest.raises(TypeError, match="'headers'.*'l'"):
        BatchReader(pa.table({"headers": pa.chunked_array([], pa.int64())}))


def test_a_reader_that_raises_halfway() -> None:
    def batches() -> Any:
        yield pa.record_batch({"address": ["a"]})
        raise LookupError("the next file is gone")

    with pytest.raises(ValueError, match="the next file is gone"):
        BatchReader(pa.RecordBatchReader.from_batches(pa.schema({"address": pa.string()}), batches()))


def test_buffers_that_are_not_aligned() -> None:
    offsets = pa.py_buffer(b"." + b"".join(at.to_bytes(4, "little") for at in (0, 2, 3))).slice(1)
    numbers = pa.py_buffer(b"." + b"".join(at.to_bytes(8, "little") for at in (7, 8))).slice(1)
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    headers = pa.StructArray.from_arrays([pa.Array.from_buffers(pa.int64(), 2, [None, numbers])], ["n"])
    assert [(row[0], row[2]["n"]) for row in read(pa.table({"address": texts, "headers": headers}))] == [
        ("ab", ("int", 7)),
        ("c", ("int", 8)),
    ]


# ---- limits


def null_at_the_end(values: list[Any], type: pa.DataType) -> pa.Array:
    """The last value stays in the buffers, under a null."""
    array = pa.array(values, type)
    bitmap = pa.py_buffer(((1 << len(values) - 1) - 1).to_bytes(8, "little"))
    return pa.Array.from_buffers(type, len(values), [bitmap, *array.buffers()[1:]])


@pytest.mark.parametrize("type", TEXT_TYPES, ids=str)
def test_an_address_too_long(type: pa.DataType) -> None:
    fits, long = "ü" * (address_bytes_max // 2), "x" * (address_bytes_max + 1)
    same(pa.table({"address": pa.array([fits], type)}))
    with pytest.raises(ValueError, match="'address', row 3: 65535 bytes, allowed are 65534"):
        BatchReader(pa.table({"address": pa.chunked_array([["a", "b"], [None, long]], type)}))
    if type != pa.string_view():
        assert [row[0] for row in read(pa.table({"address": null_at_the_end([fits, long], type)}))] == [fits, ""]


def test_a_dictionary_with_a_value_too_long() -> None:
    values = pa.array(["a", "x" * (address_bytes_max + 1)])
    assert [row[0] for row in read(pa.table({"address": pa.DictionaryArray.from_arrays([0, None], values)}))] == ["a", ""]
    with pytest.raises(ValueError, match="'address', row 1: 65535 bytes"):
        BatchReader(pa.table({"address": pa.DictionaryArray.from_arrays([0, 1], values)}))


def test_a_body_too_long() -> None:
    long = pa.array([b"", bytes(body_bytes_max + 1)])
    with pytest.raises(ValueError, match=f"'body', row 1: {body_bytes_max + 1} bytes, allowed are {body_bytes_max}"):
        BatchReader(pa.table({"body": long}))
    assert len(read(pa.table({"body": pa.array([b"", bytes(body_bytes_max)])}))[1][1]) == body_bytes_max


def test_headers_too_long() -> None:
    """The limit is of the block: 3 bytes, the name, 4 bytes, the text."""
    fits, long = "x" * (headers_bytes_max - 8 - 8), "x" * (headers_bytes_max - 8 - 7)
    for rest in ("", None):
        headers = pa.array([{"a": None, "b": "y"}, {"a": fits, "b": rest}])
        same(pa.table({"headers": headers}))
    with pytest.raises(ValueError, match=f"'headers', row 1: {headers_bytes_max + 1} bytes, allowed are {headers_bytes_max}"):
        BatchReader(pa.table({"headers": pa.array([{"a": None, "b": "y"}, {"a": long, "b": ""}])}))
    for texts, error in ((fits, None), (long, "'headers', row 1")):
        table = pa.table({"headers": pa.array([[], [("a", texts), ("b", "")]], pa.map_(pa.string(), pa.string()))})
        if error is None:
            same(table)
        else:
            with pytest.raises(ValueError, match=error):
                BatchReader(table)


# ---- any table

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


def test_messages_outlive_what_they_were_read_from() -> None:
    before = pa.total_allocated_bytes()
    table = pa.table({"address": [f"a{at}" for at in range(3000)], "body": [b"%d" % at for at in range(3000)]})
    messages = BatchReader(table).messages()
    del table
    gc.collect()
    assert pa.total_allocated_bytes() == before
    assert [(message.address, message.body) for message in messages] == [(f"a{at}", b"%d" % at) for at in range(3000)]


# ---- other libraries


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


# ---- deliveries into columns


def deliveries(*messages: Message) -> list[tuple[Message, int, str | None, str | None]]:
    return [(message, 1, "d", "q") for message in messages]


def arrow(batch: ArrowBatch) -> pa.RecordBatch:
    record_batch = pa.record_batch(batch)
    record_batch.validate(full=True)
    return record_batch


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


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value)


def written(message: Message, batch: list[Message]) -> Row:
    """What a message is after its batch was written and read: the rule for headers, once more and obviously."""
    as_map = any("\0" in name for other in batch for name in other.headers)
    headers = {}
    for name, value in message.headers.items():
        beside = [value for other in batch for key, value in other.headers.items() if as_map or key == name]
        types = {type(other) for other in beside}
        if (
            types == {int, float}
            and not as_map
            and all(isinstance(other, float) or int(float(other)) == other for other in beside)
        ):
            value = float(value)
        elif bytes in types:
            value = value if isinstance(value, bytes) else text_of(value).encode()
        elif len(types) > 1 or as_map:
            value = text_of(value)
        headers[name] = exactly(value)
    return message.address, message.body, headers, message.reply_to, message.message_id


@given(st.lists(messages, max_size=12), st.sampled_from([0, 10, 2**31 - 1]))
def test_any_batch_written(given: list[Message], small_bytes_max: int) -> None:
    batch = write_batch(deliveries(*given), small_bytes_max=small_bytes_max)
    assert len(batch) == len(given)
    expected = [written(message, given) for message in given]
    assert read(batch) == expected
    assert read(arrow(batch)) == expected


def test_columns_of_a_batch() -> None:
    reduced: Any = Message("a", b"x", {"n": 1}, reply_to="r", message_id="m").__reduce__()
    rebuild, state = reduced
    first = rebuild(*state[:5], "stamped", 2**64 - 1, 1_700_000_000_123_456_789, 3, "c", 1_800_000_000_123_456_789, 200)
    batch = arrow(write_batch([(first, 2**32 - 1, "d", "q"), (Message("ü"), 0, None, None)]))
    assert batch.schema == pa.schema(
        {
            "id": pa.uint64(),
            "queue": pa.string(),
            "destination": pa.string(),
            "delivery_count": pa.uint32(),
            "timestamp": pa.timestamp("ns", "UTC"),
            "address": pa.string(),
            "body": pa.binary(),
            "headers": pa.struct({"n": pa.int64()}),
            "reply_to": pa.string(),
            "message_id": pa.string(),
            "correlation_id": pa.string(),
            "expires": pa.timestamp("ns", "UTC"),
            "priority": pa.uint8(),
        }
    )
    assert batch["correlation_id"].to_pylist() == ["c", None]
    assert batch["expires"].cast(pa.int64()).to_pylist() == [1_800_000_000_123_456_789, None]
    assert batch["priority"].to_pylist() == [200, 0]
    assert batch["id"].to_pylist() == [2**64 - 1, 0]
    assert batch["queue"].to_pylist() == ["q", None]
    assert batch["destination"].to_pylist() == ["d", None]
    assert batch["delivery_count"].to_pylist() == [2**32 - 1, 0]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789, 0]
    assert [row_expected(row) for row in batch.to_pylist()] == [row_of(first), row_of(Message("ü"))]


HEADER_TYPES = [
    ([True, False], pa.bool_(), [True, False]),
    ([1, -(2**63)], pa.int64(), [1, -(2**63)]),
    ([0.5, -0.0], pa.float64(), [0.5, -0.0]),
    (["x", ""], pa.string(), ["x", ""]),
    ([b"x", b""], pa.binary(), [b"x", b""]),
    ([1, 0.5], pa.float64(), [1.0, 0.5]),
    ([2**53, 0.5], pa.float64(), [2.0**53, 0.5]),
    ([-(2**63), 0.5], pa.float64(), [-(2.0**63), 0.5]),
    ([2**53 + 1, 0.5], pa.string(), ["9007199254740993", "0.5"]),
    ([2**63 - 1, 1e300], pa.string(), ["9223372036854775807", "1e+300"]),
    ([True, 1], pa.string(), ["true", "1"]),
    ([False, 1.0], pa.string(), ["false", "1.0"]),
    ([1, "x"], pa.string(), ["1", "x"]),
    ([math.inf, "x"], pa.string(), ["inf", "x"]),
    ([1, b"\xff"], pa.binary(), [b"1", b"\xff"]),
    (["ü", b"\xff", True], pa.binary(), ["ü".encode(), b"\xff", b"true"]),
]


@pytest.mark.parametrize(("given", "type", "expected"), HEADER_TYPES, ids=lambda value: str(value)[:20])
def test_type_of_a_header(given: list[Any], type: pa.DataType, expected: list[Any]) -> None:
    batch = arrow(write_batch(deliveries(Message(), *(Message(headers={"h": value}) for value in given), Message())))
    assert batch.schema.field("headers").type == pa.struct({"h": type})
    assert [row["h"] for row in batch["headers"].to_pylist()] == [None, *expected, None]


def test_names_in_order_of_first_appearance() -> None:
    given = [Message(headers=dict.fromkeys(row, 1)) for row in ("ca", "", "abc", "xbaz", "zyx", "c")]
    batch = arrow(write_batch(deliveries(*given)))
    assert [field.name for field in batch.schema.field("headers").type] == list("cabxzy")
    assert [dict(message.headers) for message in BatchReader(batch).messages()] == [dict(message.headers) for message in given]


def test_a_batch_without_headers() -> None:
    batch = arrow(write_batch(deliveries(Message("a"), Message("b"))))
    assert batch.schema.field("headers").type == pa.null()
    with_headers = arrow(write_batch(deliveries(Message("c", headers={"n": 1}))))
    joined = pa.concat_tables([pa.table(batch), pa.table(with_headers)], promote_options="default")
    assert read(joined) == [row_of(message) for message in (Message("a"), Message("b"), Message("c", headers={"n": 1}))]


def test_an_empty_batch() -> None:
    assert arrow(write_batch([])).num_rows == 0
    assert read(write_batch([])) == []


def test_too_many_names_make_a_map() -> None:
    for count, is_map in ((1024, False), (1025, True)):
        given = [Message(headers={f"n{at}": at}) for at in range(count)] + [Message()]
        batch = arrow(write_batch(deliveries(*given)))
        assert pa.types.is_map(batch.schema.field("headers").type) == is_map
        assert read(batch) == [
            ("", b"", {name: exactly(str(value) if is_map else value) for name, value in message.headers.items()}, None, None)
            for message in given
        ]


def test_a_map_of_bytes_when_there_are_bytes() -> None:
    batch = arrow(write_batch(deliveries(Message(headers={"a\0b": b"\xff", "n": 1}))))
    assert batch["headers"].to_pylist() == [[("a\0b", b"\xff"), ("n", b"1")]]


def test_large_columns_only_where_needed() -> None:
    given = deliveries(Message("a", b"x" * 100, {"s": "x" * 50, "b": b"y"}), Message("b", b"", {"s": "", "b": b"z" * 40}))
    schema = arrow(write_batch(given, small_bytes_max=30)).schema
    assert [schema.field(name).type for name in ("address", "body", "queue")] == [pa.string(), pa.large_binary(), pa.string()]
    assert schema.field("headers").type == pa.struct({"s": pa.large_string(), "b": pa.large_binary()})


def test_bodies_wherever_they_are() -> None:
    """In the message's own block, as it comes out of a batch, or in an object."""
    table = pa.table({"body": [b"inline", b"", b"x" * 1000], "headers": [{"n": 1}, None, {"n": 2}]})
    inline = BatchReader(table).messages()
    assert read(write_batch(deliveries(*inline))) == [row_expected(row) for row in table.to_pylist()]
    assert [message.body for message in inline] == table["body"].to_pylist()
    assert read(write_batch(deliveries(*inline))) == [row_expected(row) for row in table.to_pylist()]


def test_other_libraries_read_a_batch() -> None:
    given = [
        Message("ü", b"\xff", {"n": 1, "s": "x"}, reply_to="r"),
        Message("b"),
        Message("c", b"x" * 20, {"f": 0.5}, message_id="m"),
    ]
    batch = write_batch(deliveries(*given))
    rows = [row_of(message) for message in given]
    polars = pytest.importorskip("polars")
    assert read(polars.DataFrame(batch)) == rows
    assert polars.DataFrame(write_batch([])).height == 0
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("batch", arrow(batch))
        assert read(connection.sql("SELECT * FROM batch")) == rows


@pytest.mark.parametrize("wrong", [None, 1, (Message(), 1), (None, 1, "d", "q"), ("m", 1, "d", "q"), (Message(), 1, b"d", "q")])
def test_no_delivery(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        write_batch([(Message(), 1, "d", "q"), wrong])
    for count in (-1, 2**32):
        with pytest.raises(OverflowError):
            write_batch([(Message(), count, "d", "q")])


# ---- who owns what


def pointer(capsule: Any, name: bytes, kind: Any) -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(get(capsule, name), ctypes.POINTER(kind))


def some_batch() -> ArrowBatch:
    return write_batch(deliveries(*(Message(f"a{at}", b"body" * at, {"s": f"h{at}", "n": at}) for at in range(20))))


def test_exported_again_and_again() -> None:
    batch = some_batch()
    tables = [pa.table(batch) for _ in range(3)] + [pa.table(arrow(batch)) for _ in range(3)]
    assert pa.schema(batch) == tables[0].schema
    expected = read(batch)
    capsules = [batch.__arrow_c_stream__(), batch.__arrow_c_array__(), batch.__arrow_c_schema__()]
    del batch
    gc.collect()
    assert all(read(table) == expected for table in tables)
    del capsules
    assert all(table.equals(tables[0]) for table in tables)


def test_children_may_be_moved_out() -> None:
    """The interface allows a consumer to take a child and release its parent."""
    schema_capsule, array_capsule = some_batch().__arrow_c_array__()
    array, schema = pointer(array_capsule, b"arrow_array", ArrowArray), pointer(schema_capsule, b"arrow_schema", ArrowSchema)
    at = next(at for at in range(schema.contents.n_children) if schema.contents.children[at].contents.name == b"headers")
    child, child_schema = ArrowArray(), ArrowSchema()
    for moved, parent in ((child, array), (child_schema, schema)):
        source = parent.contents.children[at]
        ctypes.memmove(ctypes.byref(moved), source, ctypes.sizeof(moved))
        source.contents.release = type(source.contents.release)()
        parent.contents.release(parent)
        assert not parent.contents.release
    del array_capsule, schema_capsule
    headers = pa.Array._import_from_c(ctypes.addressof(child), ctypes.addressof(child_schema))
    assert headers.to_pylist() == [{"s": f"h{at}", "n": at} for at in range(20)]


def test_a_stream_gives_its_batch_once() -> None:
    capsule = some_batch().__arrow_c_stream__()
    stream = pointer(capsule, b"arrow_array_stream", ArrowArrayStream)
    schemas, arrays = [ArrowSchema(), ArrowSchema()], [ArrowArray() for _ in range(3)]
    assert [stream.contents.get_schema(stream, ctypes.pointer(schema)) for schema in schemas] == [0, 0]
    assert [stream.contents.get_next(stream, ctypes.pointer(array)) for array in arrays] == [0, 0, 0]
    assert [bool(array.release) for array in arrays] == [True, False, False]
    assert stream.contents.get_last_error(stream) is None
    stream.contents.release(stream)
    del capsule, stream
    assert arrays[0].length == 20
    for held in (*schemas, arrays[0]):
        held.release(ctypes.pointer(held))
        assert not held.release


def test_released_in_any_thread() -> None:
    batch = some_batch()
    expected = read(batch)
    tables = [[pa.table(batch) for _ in range(50)] for _ in range(4)]
    threads = [threading.Thread(target=held.clear) for held in tables]
    del batch
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tables == [[], [], [], []]
    assert len(expected) == 20


def test_a_batch_comes_from_deliveries() -> None:
    with pytest.raises(TypeError, match="take_batch"):
        ArrowBatch()
    empty = ArrowBatch.__new__(ArrowBatch)
    assert len(empty) == 0
    assert read(empty) == []
    with pytest.raises(TypeError):
        pickle.dumps(some_batch())
