"""Clients that vanish, freeze or send nonsense: no call of theirs stays open, and what they began is as if it had not been."""

import signal
import socket
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.broker.flight.conftest import until
from xump.broker import Broker, Client, Limits
from xump.broker.flight import calls, put, staging
from xump.broker.flight.entering import Entering
from xump.broker.answers import BrokerUnreachable

KINDS = ["put", "blocked put", "blocked numbered put", "stage", "browse", "take", "take much"]


@pytest.fixture
def begin(engine, flying):
    """Begins a call in a process, and returns the process."""
    engine.create_queue("jobs")
    engine.create_queue("full", limit=1)
    engine.create_queue("many")
    engine.publish_many("many", [("x", bytes(1000))] * 50_000)
    processes = []

    def begin(kind, broker=flying):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.broker.flight.peers", broker.flight.url, kind], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "begun\n"
        if kind.startswith("blocked"):          # it may wait for room for so short a time that it has ended already
            until(lambda: engine.queues["full"].ready == 1)
        elif kind != "commit":
            until(lambda: len(broker.flight.calls) == 1)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def is_as_before(engine, broker):
    until(lambda: len(broker.flight.calls) == 0)
    until(lambda: [name for name in list(engine.queues) if name.startswith("xump.staging/")] == [])
    until(lambda: len(engine.selectors) == 0)
    assert all(queue.outstanding == 0 for queue in engine.queues.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_vanishes(engine, flying, begin, kind):
    begin(kind).kill()
    is_as_before(engine, flying)


def test_a_client_that_vanishes_while_its_commit_enters(engine, flying, begin, monkeypatch):
    """It is decided all the same."""
    monkeypatch.setattr(staging, "COMMIT_SECONDS", 600.0)
    step, steps = Entering._step, []
    monkeypatch.setattr(Entering, "_step", lambda self, name: steps.append((self, name)))       # nothing enters
    client = begin("commit")
    until(lambda: steps and engine.queues["jobs"].entering == 2)
    client.kill()
    until(lambda: len(flying.flight.calls) == 0)
    assert (engine.queues["jobs"].ready, engine.queues["jobs"].entering) == (0, 2)
    monkeypatch.undo()
    flying.loop.call_soon_threadsafe(step, *steps[0])
    until(lambda: engine.queues["jobs"].ready == 2)


@pytest.mark.parametrize("kind", ["put", "stage", "browse", "take much"])
def test_a_client_that_freezes(engine, flying, begin, kind):
    begin(kind).send_signal(signal.SIGSTOP)
    until(lambda: all(call.waits_since is not None for call in list(flying.flight.calls._open)))
    flying.flight.look_after(time.monotonic() + 3599)
    assert len(flying.flight.calls) == 1
    # Again and again: what the client had sent before may just be read, and then the call does not wait.
    until(lambda: len(flying.flight.calls) == 0 or flying.flight.look_after(time.monotonic() + 3600))
    is_as_before(engine, flying)


@pytest.mark.parametrize("kind", ["blocked put", "blocked numbered put", "take"])
def test_a_client_that_freezes_while_the_broker_waits_for_room_or_messages(engine, begin, kind):
    limits = Limits(flight_idle_seconds=0.01)
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=limits) as broker:
        client = begin(kind, broker)
        client.send_signal(signal.SIGSTOP)
        until(lambda: len(broker.flight.calls) == 0 or broker.flight.look_after(time.monotonic() + 0.0))
        is_as_before(engine, broker)


@pytest.mark.parametrize("kind", ["blocked put", "blocked numbered put", "stage", "browse", "take"])
def test_a_broker_ends_though_its_clients_are_frozen(engine, begin, kind):
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
        begin(kind, broker).send_signal(signal.SIGSTOP)
        before = {thread for thread in threading.enumerate() if thread.name == "xump-flight-acks"}
    assert len(broker.flight.calls) == 0
    assert not [thread for thread in before if thread.is_alive()]
    is_as_before(engine, broker)


def test_a_client_that_does_not_read_its_answers_is_waited_for(engine, durable, monkeypatch):
    """So it is cut off like any other that reads nothing."""
    monkeypatch.setattr(put, "PENDING_MAX", 2)
    engine.create_queue("jobs", store=durable)
    call, writer, reading = calls.Call.__new__(calls.Call), Mock(), threading.Event()
    call.waits_since, call.vhost = None, Mock(engine=engine)
    writer.write.side_effect = lambda _: reading.wait()
    acks = put.Acks(call, writer)

    def publish():
        for _ in range(5):
            engine.publish("jobs", "a")
            acks.add({"rows": 1})

    publishing = threading.Thread(target=publish)
    publishing.start()
    until(lambda: call.waits_since is not None)
    reading.set()
    publishing.join()
    acks.close()
    assert call.waits_since is None
    assert writer.write.call_count == 5


def test_an_idle_stream_goes_on_within_its_time(engine, flying):
    jobs = engine.create_queue("jobs")
    client = flight.connect(flying.flight.url)
    batch = pa.record_batch({"address": ["a"]})
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("jobs"), batch.schema)
    writer.write_batch(batch)
    answers.read()
    flying.flight.look_after(time.monotonic() + 3000)
    writer.write_metadata(pa.py_buffer(b"{}"))
    writer.write_batch(batch)
    answers.read()
    writer.close()
    assert jobs.ready == 2


def test_too_many_calls(engine):
    engine.create_queue("jobs")
    with (Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=Limits(flight_calls_max=1)) as broker,
          Client(broker.flight.url) as client, Client(broker.flight.url) as other):
        client._stream()        # pings, as the first stream does
        until(lambda: len(broker.flight.interceptor) == 0)      # a call counts until after its answer has come
        with client.take("jobs"):
            with pytest.raises(BrokerUnreachable, match="1 calls are open, which is the limit"):
                other.queues()
        until(lambda: len(broker.flight.interceptor) == 0)
        assert other.queues()


@pytest.mark.parametrize("sent", [
    b"", b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000])
def test_what_is_no_grpc(engine, flying, client, sent):
    with socket.create_connection(flying.flight.address) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1000):
            pass
    engine.create_queue("jobs")
    assert client.publish("jobs", pa.record_batch({"address": ["a"]})).rows == 1


@pytest.mark.parametrize("command", [
    b"{", b"[]", b"5", b"\xff", b'{"queue": 5}', b'{"queue": "jobs", "colour": 1}', b'{"stage": 5}', b'{"stage": {"run": 5}}',
    b'{"stage": {"run": "r", "partition": 0, "attempt": 0, "target": "jobs", "x": 1}}',
    b'{"queue": "jobs", "stage": {"run": "r", "partition": 0, "attempt": 0, "target": "jobs"}}'])
def test_descriptors_that_are_wrong(engine, flying, command):
    engine.create_queue("jobs")
    client = flight.connect(flying.flight.url)
    batch = pa.record_batch({"address": ["a"]})
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    with pytest.raises(flight.FlightServerError) as raised:
        writer.close()
    assert b'"ValueError"' in raised.value.extra_info
    with pytest.raises(flight.FlightServerError) as raised:
        client.do_get(flight.Ticket(b'{"queue": "jobs", "colour": 1}' if command == b"\xff" else b"{" + command)).read_all()
    assert b'"error"' in raised.value.extra_info
    with pytest.raises(flight.FlightServerError):
        list(client.do_action(flight.Action("purge", command)))
    assert engine.queues["jobs"].ready == 0


def offsets_beyond_the_data():
    return pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\xff\xff\0\0\x01\0\0\0"), pa.py_buffer(b"ab"))


def text_that_is_none():
    return pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\x02\0\0\0"), pa.py_buffer(b"\xff\xfe"))


def a_key_that_is_not_there():
    return pa.DictionaryArray.from_arrays(pa.array([5, 0], pa.int8()), pa.array(["x"]), safe=False)


@pytest.mark.parametrize("column", [offsets_beyond_the_data, text_that_is_none, a_key_that_is_not_there])
def test_columns_that_are_malformed(engine, client, column):
    jobs = engine.create_queue("jobs")
    with pytest.raises((ValueError, TypeError)):
        client.publish("jobs", pa.RecordBatch.from_arrays([column()], ["address"]))
    assert jobs.ready == 0
    assert client.publish("jobs", pa.record_batch({"address": ["a"]})).rows == 1


def test_a_batch_of_300_megabytes(engine, client):
    jobs = engine.create_queue("jobs")
    body = bytes(30_000_000)
    assert client.publish("jobs", pa.record_batch({"body": [body] * 10})).rows == 10
    assert sum(batch.num_rows for batch in client.browse("jobs", columns=["id", "body"])) == 10
    with pytest.raises(ValueError, match="body"):
        client.publish("jobs", pa.record_batch({"body": [bytes(300_000_000)]}))
    assert jobs.ready == 10
