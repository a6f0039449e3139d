"""Deliveries become Arrow columns, and who owns their memory."""

from __future__ import annotations

import ctypes
import gc
import math
import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.arrow.arrow_by_hand import ArrowArray, ArrowArrayStream, ArrowSchema
from hypothesis import given
from hypothesis import strategies as st

from xump_ext.arrow.export import ArrowBatch
from xump_ext.arrow.read import BatchReader
from xump_ext.arrow.write import write_batch
from xump_ext.message.message import Message
from tests.arrow.rows import Row, exactly, messages, read, row_expected, row_of


def deliveries(*messages: Message) -> list[tuple[Message, int, str | None, str | None]]:
    return [(message, 1, "d", "q") for message in messages]


def arrow(batch: ArrowBatch) -> pa.RecordBatch:
    record_batch = pa.record_batch(batch)
    record_batch.validate(full=True)
    return record_batch


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
