"""`publish_batch` and `take_batch`: Arrow columns in and out of an engine."""

import duckdb
import polars
import pyarrow
import pytest

import xump
from xump import INFINITE, always, copy_to, deliver, match, move_to


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        yield engine
        engine.check()


def table(rows=5):
    return pyarrow.table({
        "address": [f"a.{row % 3}" for row in range(rows)], "body": [b"%d" % row for row in range(rows)],
        "headers": [{"n": row, "k": "v"} for row in range(rows)]})


QUERY = "SELECT 'a.' || (range % 3) AS address, range::VARCHAR::BLOB AS body FROM range(5)"


@pytest.mark.parametrize(
    "make", [table, lambda: polars.from_arrow(table()), lambda: duckdb.sql(QUERY)], ids=["pyarrow", "polars", "duckdb"])
def test_rows_enter_as_messages_would(engine, make):
    queue = engine.create_queue("q")
    assert engine.publish_batch("q", make()) == range(1, 6)
    assert [(message.id, message.address, message.body) for message in queue.browse()] == [
        (row + 1, f"a.{row % 3}", b"%d" % row) for row in range(5)]


def test_rows_are_routed_in_one_run_after_all_have_entered(engine):
    for name in ("q", "odd", "all"):
        engine.create_queue(name)
    engine.create_selector("q", when=match("eq", "a.1"), do=copy_to("odd"))
    engine.create_selector("q", when=always, do=move_to("all"), credit=INFINITE)
    engine.publish_batch("q", table(3000))
    assert (engine.queues["q"].ready, engine.queues["odd"].ready, engine.queues["all"].ready) == (0, 1000, 3000)


def test_no_room_for_all_and_none_enters(engine):
    queue = engine.create_queue("q", limit=4)
    with pytest.raises(xump.QueueFull, match="'q'"):
        engine.publish_batch("q", table())
    assert queue.ready == 0 and queue.last_id == 0
    assert engine.publish_batch("q", table(4)) == range(1, 5)


def test_what_is_no_arrow_data_or_no_queue_changes_nothing(engine):
    queue = engine.create_queue("q")
    with pytest.raises(TypeError, match="list"):
        engine.publish_batch("q", [1, 2])
    with pytest.raises(ValueError, match="colour"):
        engine.publish_batch("q", pyarrow.table({"colour": ["red"]}))
    with pytest.raises(xump.QueueNotFound, match="nowhere"):
        engine.publish_batch("nowhere", table())
    assert queue.last_id == 0


@pytest.mark.parametrize("credit", [10, INFINITE])
def test_taken_as_columns_and_answered(engine, credit):
    queue = engine.create_queue("q", history_limit=None)
    engine.create_selector("q", when=always, do=deliver("d"), credit=credit)
    engine.publish_batch("q", table())
    batch = engine.take_batch(4, "d")
    taken = pyarrow.record_batch(batch)
    assert taken.column("id").to_pylist() == [1, 2, 3, 4]
    assert taken.column("headers").to_pylist()[2] == {"n": 2, "k": "v"}
    assert taken.column("destination").to_pylist() == ["d"] * 4
    batch.ack([1, 2])
    if credit is INFINITE:
        batch.ack([1])
    else:
        with pytest.raises(xump.StaleDelivery):
            batch.ack([1])
    batch.ack()
    assert (queue.history, queue.outstanding + queue.ready) == (4, 1)
    assert len(engine.take_batch(9)) == 1


@pytest.mark.parametrize("answer", ["ack", "nack"])
def test_what_its_selector_was_paid_for_is_answered(engine, answer):
    engine.create_queue("q")
    selector = engine.create_selector("q", when=always, do=deliver("d"), credit=5)
    engine.publish_many("q", [("a",), ("b",), ("c",)])
    batch = engine.take_batch(3)
    selector.pay(2)
    getattr(batch, answer)()
    assert (selector.outstanding, engine.queues["q"].outstanding) == ((0, 0) if answer == "ack" else (1, 1))
    engine.check()


def test_nacked_rows_wait_again_and_stale_ones_change_nothing(engine):
    queue = engine.create_queue("q")
    selector = engine.create_selector("q", when=always, do=deliver("d"), credit=10)
    engine.publish_batch("q", table())
    batch = engine.take_batch(5)
    batch.nack([2, ("q", 4)])
    again = engine.take_batch(5)
    assert pyarrow.record_batch(again).column("id").to_pylist() == [2, 4]
    assert pyarrow.record_batch(again).column("delivery_count").to_pylist() == [2, 2]
    selector.delete()
    with pytest.raises(xump.StaleDelivery):
        again.ack()
    with pytest.raises(ValueError, match="99"):
        batch.ack([99])
    assert queue.ready == 5 and queue.outstanding == 0


def test_an_id_of_two_queues_must_say_which(engine):
    for name in ("a", "b"):
        engine.create_queue(name)
        engine.create_selector(name, when=always, do=deliver("d"), credit=2)
        engine.publish(name)
    batch = engine.take_batch(2)
    with pytest.raises(ValueError, match="several queues"):
        batch.ack([1])
    batch.ack([("b", 1)])
    assert (engine.queues["a"].outstanding, engine.queues["b"].outstanding) == (1, 0)
    del batch
    assert engine.queues["a"].outstanding == 1


def test_a_batch_can_be_published_again(engine):
    engine.create_queue("q")
    engine.create_queue("p")
    engine.create_selector("q", when=always, do=deliver("d"), credit=9)
    engine.publish_batch("q", table())
    batch = engine.take_batch(9)
    assert engine.publish_batch("p", batch) == range(1, 6)
    assert [dict(message.headers) for message in engine.queues["p"].browse()] == [{"n": row, "k": "v"} for row in range(5)]


# ---- rows that wait where nobody consumes stay in their columns

def bodies(messages):
    return [message.body for message in messages]


def test_rows_are_seen_before_they_are_routed(engine):
    queue = engine.create_queue("q")
    engine.publish_batch("q", pyarrow.concat_tables([table(3), table(3)[:0], table(4)]))     # three chunks, one of them empty
    assert bodies(queue.browse()) == [b"0", b"1", b"2", b"0", b"1", b"2", b"3"]
    assert bodies(queue.browse(start=5, reverse=True)) == [b"1", b"0", b"2", b"1", b"0"]
    assert bodies(queue.browse(where="n >= 2")) == [b"2", b"2", b"3"]
    assert queue.fetch(6).headers == {"n": 2, "k": "v"} and queue.fetch(1).address == "a.0"
    kept = queue.fetch(7)
    assert queue.purge() == 7
    assert (kept.body, kept.headers["n"]) == (b"3", 3)


def test_a_selector_takes_rows_that_wait(engine):
    for name in ("q", "copies", "late"):
        engine.create_queue(name)
    engine.publish_batch("q", table(4))
    engine.publish("q", "a.1", b"single")
    assert engine.queues["q"].delete(2)
    engine.create_selector("q", when=match("eq", "a.1"), do=copy_to("copies"), start="head")
    assert bodies(engine.queues["copies"].browse()) == [b"single"]
    engine.queues["q"].hold()
    engine.publish_batch("q", table(2))
    engine.create_selector("q", when=always, do=move_to("late"), credit=1)
    assert engine.queues["late"].ready == 0
    engine.queues["q"].release()
    assert bodies(engine.queues["late"].browse()) == [b"0"]
    assert bodies(engine.queues["q"].browse(state="ready")) == [b"2", b"3", b"0", b"1"]


def held_bytes(call):
    """What pyarrow has allocated more, after `call`."""
    before = pyarrow.total_allocated_bytes()
    call()
    return pyarrow.total_allocated_bytes() - before


@pytest.mark.parametrize("end", [
    lambda engine: engine.queues["q"].purge(),
    lambda engine: [engine.queues["q"].delete(id) for id in range(1, 101)],
    lambda engine: engine.delete_queue("q"),
    lambda engine: engine.create_selector("q", when=always, do=deliver("d"), credit=10),
    lambda engine: engine.close(),
], ids=["purge", "delete", "delete_queue", "routed", "close"])
@pytest.mark.usefixtures("own_pool")
def test_columns_are_held_until_the_last_row_is_routed_or_gone(end):
    with xump.Engine() as engine:
        engine.create_queue("q")
        held = held_bytes(lambda: engine.publish_batch("q", table(100)))
        assert held > 0
        assert held_bytes(lambda: end(engine)) == -held


@pytest.mark.usefixtures("own_pool")
def test_an_empty_batch_holds_nothing(engine):
    engine.create_queue("q")
    assert held_bytes(lambda: engine.publish_batch("q", table(0))) == 0


def in_buffers(array, buffers):
    """The same array over bytearrays, which are added to `buffers`."""
    if pyarrow.types.is_dictionary(array.type):
        return pyarrow.DictionaryArray.from_arrays(
            in_buffers(array.indices, buffers), in_buffers(array.dictionary, buffers), safe=False)
    children = []
    if pyarrow.types.is_struct(array.type):
        children = [in_buffers(array.field(at), buffers) for at in range(array.type.num_fields)]
    if pyarrow.types.is_map(array.type):
        pairs = pyarrow.StructArray.from_arrays([array.keys, array.items], fields=[array.type.key_field, array.type.item_field])
        children = [in_buffers(pairs, buffers)]
    own = [None if buffer is None else bytearray(buffer)
           for buffer in array.buffers()[:1 if pyarrow.types.is_struct(array.type) else 2 if children else None]]
    buffers += [buffer for buffer in own if buffer is not None]
    wrapped = [None if buffer is None else pyarrow.py_buffer(buffer) for buffer in own]
    return pyarrow.Array.from_buffers(array.type, len(array), wrapped, array.null_count, array.offset, children)


WORDS = ["short", "", None, "a longer one, in a block", "größer", "x", "short", None, "y" * 30, "z"]
NUMBERS = [1, 2, None, 4, 5, 0, 7, None, 9, 10]
TYPES = {
    **{str(type): (type, NUMBERS) for type in (
        pyarrow.int8(), pyarrow.int16(), pyarrow.int32(), pyarrow.int64(), pyarrow.uint8(), pyarrow.uint16(), pyarrow.uint32(),
        pyarrow.uint64(), pyarrow.float16(), pyarrow.float32(), pyarrow.float64())},
    "bool": (pyarrow.bool_(), [None if number is None else number > 4 for number in NUMBERS]),
    **{str(type): (type, WORDS) for type in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())},
    **{str(type): (type, [None if word is None else word.encode() for word in WORDS]) for type in (
        pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view())},
    "fixed": (pyarrow.binary(3), [None if number is None else b"%03d" % number for number in NUMBERS]),
    "dictionary": (pyarrow.dictionary(pyarrow.int16(), pyarrow.string()), WORDS),
    "map": (pyarrow.map_(pyarrow.string(), pyarrow.string()), [
        None if word is None else [("a name", word), ("another name", "v")] for word in WORDS]),
}


def sized(value):
    """What must not change: all of a number, the size of a text."""
    if isinstance(value, dict):
        return {name: sized(inner) for name, inner in value.items()}
    return len(value) if isinstance(value, bytes) else len(value.encode()) if isinstance(value, str) else value


@pytest.mark.parametrize("fill", [0, 0x41, 0x80, 0xFF])
@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("kind", TYPES)
def test_a_producer_that_writes_into_its_buffers_changes_no_number_and_no_bound(engine, kind, first, fill):
    type, values = TYPES[kind]
    queue = engine.create_queue("q")
    buffers = []
    column = in_buffers(pyarrow.array(values, type), buffers)
    columns = {"headers": column if kind == "map" else pyarrow.StructArray.from_arrays([column], names=["a name"])}
    if kind in ("string", "large_string", "string_view", "dictionary"):
        columns |= dict.fromkeys(("address", "reply_to", "message_id"), column)
    if values is not NUMBERS and kind not in ("bool", "map"):
        columns["body"] = column
    batch = pyarrow.table(columns).slice(first)
    expected = [dict(row or {}) if kind == "map" else {} if row is None else {"a name": row} for row in values[first:]]

    def shown(messages):
        return [[sized(part) for part in (m.address, m.body, m.reply_to, m.message_id, dict(m.headers))] for m in messages]

    engine.publish_batch(queue, batch)
    assert [dict(message.headers) for message in queue.browse()] == expected
    before = shown(queue.browse())
    for buffer in buffers:
        buffer[:] = bytes([fill]) * len(buffer)
    assert shown(queue.browse()) == before
    engine.create_selector("q", when=always, do=deliver("d"), credit=20)
    taken = engine.take_batch(20)
    pyarrow.record_batch(taken).validate(full=True)
    assert len(taken) == len(before)


@pytest.mark.parametrize("type", [pyarrow.string(), pyarrow.string_view()])
@pytest.mark.parametrize("old", ["a short text, or not", "größer als vorher"])
def test_a_text_that_is_no_utf8_any_more_has_question_marks(engine, old, type):
    queue = engine.create_queue("q")
    buffers = []
    column = in_buffers(pyarrow.array([old] * 2, type), buffers)
    headers = pyarrow.StructArray.from_arrays([column], names=["text"])
    engine.publish_batch("q", pyarrow.table({"address": column, "message_id": column, "headers": headers}))
    assert next(iter(queue.browse())).address == old
    new = old.encode()[:-1] + b"\xc3"
    for buffer in buffers:
        buffer[:] = buffer.replace(old.encode(), new)
    shown = "".join(chr(byte) if byte < 128 else "?" for byte in new)
    for message in queue.browse():
        assert (message.address, message.message_id, message.headers["text"]) == (shown, shown, shown)


def test_what_the_taking_releases_is_taken_too(engine):
    for name, limit in (("source", None), ("narrow", 1), ("copies", None)):
        engine.create_queue(name, limit=limit)
    with engine.building():
        engine.create_selector("source", when=always, do=move_to("narrow"), credit=INFINITE)
        engine.create_selector("narrow", when=always, do=copy_to("copies"))
        engine.create_selector("narrow", when=always, do=deliver("d"), credit=INFINITE)
        engine.create_selector("copies", when=always, do=deliver("d"), credit=100)
    for number in range(50):
        engine.publish("source", f"{number}")
    batch = engine.take_batch(200)
    rows = pyarrow.record_batch(batch)
    rows.validate(full=True)
    assert rows.num_rows == 100
    for queue in ("narrow", "copies"):
        taken = zip(rows["queue"].to_pylist(), rows["address"].to_pylist(), strict=True)
        assert [address for name, address in taken if name == queue] == [str(number) for number in range(50)]
    engine.check()
    batch.nack([("copies", 3)])
    batch.ack()
    assert [message.address for message in engine.queues["copies"].browse()] == ["2"]


@pytest.mark.parametrize("ids", [
    lambda rows: rows["id"][1:3],
    lambda rows: pyarrow.chunked_array([rows["id"][1:2], rows["id"][2:3]]),
    lambda rows: list(rows["id"])[1:3],
    lambda rows: polars.Series(rows["id"])[1:3],
    lambda rows: pytest.importorskip("numpy").array(rows["id"].to_pylist()[1:3], "uint64"),
    lambda rows: [("q", rows["id"][1]), rows["id"][2]],
], ids=["array", "chunked", "scalars", "polars", "numpy", "pairs"])
def test_ids_are_taken_from_the_column(engine, ids):
    queue = engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=10)
    engine.publish_batch("q", table())
    batch = engine.take_batch(5)
    batch.ack(ids(pyarrow.record_batch(batch)))
    assert [message.id for message in queue.browse()] == [1, 4, 5]


@pytest.mark.parametrize("id", [True, "1", None, 1.0, [1], (1,), ("q", True), (["q"], 1), (1, 1), pyarrow.scalar(None),
                                pyarrow.scalar(True)], ids=repr)
def test_ids_that_are_none(engine, id):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), credit=10)
    engine.publish_batch("q", table())
    batch = engine.take_batch(5)
    for answer in (batch.ack, batch.nack):
        with pytest.raises(TypeError, match=r"ids must be ints or \(queue, id\) pairs, got "):
            answer([2, id])
    with pytest.raises(ValueError, match="99 is not in this batch"):
        batch.ack(pyarrow.array([1, 99]))
    batch.ack()
    assert engine.queues["q"].held == 0
