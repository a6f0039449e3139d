"""Arrow columns of every type become messages; limits."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from xump_ext.arrow.read import BatchReader
from xump_ext.message.headers import headers_bytes_max
from xump_ext.message.message import address_bytes_max, body_bytes_max
from tests.arrow.rows import BYTE_TYPES, TEXT_TYPES, exactly, read, same


TEXTS = ["orders.eu", "", None, "ünï", "x" * 40, "orders.eu", "\0", "日本.🎈"]
BYTES = [b"", b"\xff\0", None, b"x" * 13, b"123456789012", b"1234", b"12345678", bytes(range(200))]

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
