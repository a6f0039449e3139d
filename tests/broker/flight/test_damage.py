"""Batches that are damaged, or that stand for more than they seem to, are refused before the engine reads them."""

import struct
from contextlib import nullcontext
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import flight

from xump.broker import Broker, Client, Limits
from xump.broker.flight.chunks import checked, chunks
from xump.broker.flight.weights import HEADER_BYTES, ROW_BYTES, SLICE, Weights
from xump.errors import QueueFull, StoreFull

LIMITS = Limits()


def of_one(array, name="body"):
    return pa.RecordBatch.from_arrays([array], names=[name])


def damaged(batch, old, new, **options):
    """The batch, read from a stream in which some bytes were replaced."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    said = sink.getvalue().to_pybytes()
    at = said.rindex(old)
    return pa.ipc.open_stream(said[:at] + new + said[at + len(old):]).read_next_batch()


TEXT = "ABCDEFGH"
ENDS, FAR = struct.pack("<ii", 0, 8), struct.pack("<ii", 0, 1 << 16)
DAMAGED = {
    "bytes": damaged(of_one(pa.array([TEXT.encode()])), ENDS, FAR),
    "large bytes": damaged(of_one(pa.array([TEXT.encode()], pa.large_binary())), struct.pack("<qq", 0, 8),
                           struct.pack("<qq", 1 << 44, (1 << 44) + 1000)),
    "texts": damaged(of_one(pa.array([TEXT]), "address"), ENDS, FAR),
    "rows": damaged(of_one(pa.array([1] * 77), "at"), struct.pack("<q", 77 * 8), struct.pack("<q", 8)),
    "dictionary": damaged(of_one(pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), [TEXT.encode()])), ENDS, FAR),
    "headers": damaged(of_one(pa.array([{"h": TEXT}]), "headers"), ENDS, FAR),
    "map": damaged(of_one(pa.array([[(TEXT, "v")]], pa.map_(pa.string(), pa.string())), "headers"), ENDS, FAR),
}


@pytest.mark.parametrize("how", DAMAGED)
@pytest.mark.parametrize("stage", [False, True], ids=["put", "stage"])
def test_what_is_damaged_is_refused(engine, client, how, stage):
    jobs = engine.create_queue("jobs")
    with pytest.raises(ValueError, match="a batch is damaged") as caught:
        client.stage("run", 0, 0, "jobs", DAMAGED[how]) if stage else client.publish("jobs", DAMAGED[how])
    assert TEXT not in str(caught.value)
    assert (jobs.ready, list(engine.queues)) == (0, ["jobs"])
    assert client.publish("jobs", of_one(pa.array([b"whole"]))).rows == 1


def test_a_number_of_rows_below_0_is_refused():
    whole = pa.RecordBatch.from_arrays([pa.array([1] * 77)], names=["at"])
    said = whole.serialize().to_pybytes().replace(struct.pack("<q", 77), struct.pack("<q", -5))
    batch = pa.ipc.read_record_batch(pa.py_buffer(said), whole.schema)
    with pytest.raises(ValueError, match="a batch has -5 rows, allowed are 0 to 1000000"):
        checked(batch, Weights(batch.schema), LIMITS)


VIEW = struct.pack("<i4sii", 40, b"xxxx", 0, 0)


@pytest.mark.parametrize("batch", [
    damaged(of_one(pa.array([b"x" * 40], pa.binary_view())), VIEW, struct.pack("<i4sii", 40, b"xxxx", 0, 1 << 20)),
    damaged(of_one(pa.array([b"x" * 40], pa.binary_view())), VIEW, struct.pack("<i4sii", 1 << 20, b"xxxx", 0, 0)),
    damaged(of_one(pa.array(["a", "b", "a"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())), "address"),
            b"\0\1\0", b"\0\x7f\0")], ids=["place", "length", "index"])
def test_views_and_indices_that_lead_nowhere_are_refused(engine, flying, batch):
    """The engine looks at each, since they stand in the values."""
    jobs = engine.create_queue("jobs")
    with pytest.raises(ValueError, match="a batch is damaged|column 'body', row 0"):
        [chunk] = chunks_of(flying, [batch])
        engine.publish_batch(jobs, chunk.data)
    assert jobs.ready == 0


REPEATED = 3_000_000


@pytest.mark.parametrize("batch", [
    pa.RecordBatch.from_arrays([pa.nulls(REPEATED)], names=["address"]),
    pa.RecordBatch.from_arrays([pa.nulls(REPEATED, pa.struct([]))], names=["headers"])], ids=["null", "struct"])
def test_rows_without_bytes_are_bounded(engine, client, batch):
    jobs = engine.create_queue("jobs")
    for call in (lambda: client.publish("jobs", batch), lambda: client.stage("run", 0, 0, "jobs", batch)):
        with pytest.raises(ValueError, match=r"a batch has 3000000 rows, allowed are 0 to 1000000 .* send more batches"):
            call()
    assert jobs.ready == 0


LONG = b"x" * 100_000
VIEWS = struct.pack("<i4sii", len(LONG), b"xxxx", 0, 0) * 200


@pytest.mark.parametrize("array", [
    pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int8()), pa.array([LONG])),
    pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int8()), pa.array([LONG], pa.binary_view())),
    pa.Array.from_buffers(pa.binary_view(), 200, [None, pa.py_buffer(VIEWS), pa.py_buffer(LONG)]), pa.array([LONG] * 200)],
    ids=["dictionary", "dictionary of views", "views", "plain"])
def test_bytes_that_stand_for_many_are_counted(engine, array):
    """Also those that a compressed batch has."""
    jobs = engine.create_queue("jobs", limit=0)
    limits = Limits(batch_bytes_max=19_000_000)
    with (Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=limits) as broker,
          Client(broker.flight.url) as client):
        with pytest.raises(ValueError, match=r"a batch takes 20\d+ bytes as messages, allowed are 19000000"):
            client.publish("jobs", of_one(array))
        small = flight.connect(broker.flight.url)
        writer, answers = small.do_put(flight.FlightDescriptor.for_path("jobs"), of_one(array).schema, flight.FlightCallOptions(
            write_options=pa.ipc.IpcWriteOptions(compression="zstd")))
        writer.write_batch(of_one(array))
        assert answers.read() is None
        with pytest.raises(flight.FlightServerError, match="allowed are 19000000"):
            writer.close()
    assert jobs.ready == 0


@pytest.mark.usefixtures("no_garbage")
def test_a_large_batch_must_have_room_in_memory(engine):
    engine.create_queue("jobs")
    limits = Limits(memory_bytes=64 << 20)
    with (Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=limits) as broker,
          Client(broker.flight.url) as client):
        for on_full in ("wait", "error"):           # no waiting helps
            with pytest.raises(QueueFull, match="all messages may take 67108864 .* send more batches"):
                client.publish("jobs", pa.RecordBatch.from_arrays([pa.nulls(900_000)], names=["address"]), on_full=on_full)
        assert client.publish("jobs", of_one(pa.array([b"x"]))).rows == 1


def test_what_is_staged_counts_as_messages(engine):
    engine.create_queue("jobs")
    limits = Limits(staging_bytes=100_000)
    with (Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=limits) as broker,
          Client(broker.flight.url) as client, pytest.raises(StoreFull, match="beyond its staging_bytes, 100000")):
        client.stage("run", 0, 0, "jobs", pa.RecordBatch.from_arrays([pa.nulls(2000)], names=["address"]))


@pytest.mark.parametrize("array, beside", [
    (pa.array([b"abc", None, b"x" * 50]), 0), (pa.nulls(5), 0), (pa.array([]).dictionary_encode(), 0),
    (pa.array(["a", None, "a", "bcd"]).dictionary_encode(), 5), (pa.array([None, None]).dictionary_encode(), 0),
    (pa.array([b"abc", None, b"x" * 50], pa.binary_view()), 53), (pa.array([], pa.string_view()), 0),
    (pa.array(["ab"] * (2 * SLICE + 5), pa.string_view()), 4 * SLICE + 10),
    (pa.array([{"size": 1, "kind": None}, {"size": None, "kind": None}]), 4 + HEADER_BYTES),
    (pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())), 0),
    (pa.StructArray.from_arrays([pa.array(["v", "v"]).dictionary_encode()], names=["h"]), 2 * (1 + HEADER_BYTES) + 2)])
def test_the_weight_of_a_column(array, beside):
    batch = of_one(array)
    assert Weights(batch.schema).of(batch) == len(array) * ROW_BYTES + batch.get_total_buffer_size() + beside


def test_what_cannot_be_read_is_the_senders_fault(flying):
    """Arrow's reader raises `OSError` for bytes that are no compressed batch."""
    batch = of_one(pa.array([bytes(10_000)]))
    with pytest.raises(ValueError, match="a batch cannot be read: ZSTD"):
        list(chunks_of(flying, (damaged(batch, struct.pack("<q", 10_000), struct.pack("<q", 1), compression="zstd")
                                for _ in range(1))))


def chunks_of(flying, batches):
    """The chunks that a call reads."""
    batches = iter(batches)
    reader = SimpleNamespace(read_chunk=lambda: SimpleNamespace(data=next(batches), app_metadata=None))
    return chunks(SimpleNamespace(listener=flying.flight, waiting=nullcontext, check_open=lambda: None), reader)
