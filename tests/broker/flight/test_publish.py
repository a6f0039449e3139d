"""Publishing over Flight: what enters is what `publish_batch` takes, and each batch is answered once it is durable."""

import threading
from datetime import datetime, UTC
from itertools import chain, repeat

import pyarrow as pa
import pytest
from pyarrow import flight

from xump import Engine, always, deliver
from xump.broker import Client
from xump.broker import client as client_module
from xump.broker.answers import BrokerUnreachable, Published
from xump.broker.flight import producers, room
from xump.broker.flight.connections import host_and_port_of
from xump.broker.flight.connections import shut
from xump.broker.flight.producers import Producer
from xump.errors import QueueFull, QueueNotFound, StoreFailed

from tests.broker.flight.conftest import until


def rows(*addresses):
    return pa.record_batch({"address": list(addresses)})


def test_rows_enter_in_order_with_all_their_columns(engine, client):
    jobs = engine.create_queue("jobs")
    at = datetime(2100, 1, 1, tzinfo=UTC)
    table = pa.table({
        "address": ["a", "b"], "body": [b"one", b"two"], "headers": [{"size": 1, "kind": None}, {"size": None, "kind": "x"}],
        "reply_to": ["back", None], "message_id": ["m1", "m2"], "priority": [3, 0], "expires": [None, at]})
    assert client.publish("jobs", table) == Published(2, 1, 2)
    first, second = jobs.browse()
    assert (first.address, first.body, first.headers, first.reply_to, first.message_id) == (
        "a", b"one", {"size": 1}, "back", "m1")
    assert first.priority == 3
    assert second.headers == {"kind": "x"}
    assert second.expires == at.timestamp() * 10**9


@pytest.mark.parametrize("given", [
    rows("x", "y"), pa.table({"address": ["x", "y"]}), [rows("x"), rows("y")], iter([rows("x"), pa.table({"address": ["y"]})]),
    pa.RecordBatchReader.from_batches(rows("x").schema, [rows("x"), rows("y")])], ids=lambda given: type(given).__name__)
def test_anything_with_rows_can_be_published(engine, client, given):
    jobs = engine.create_queue("jobs")
    assert client.publish("jobs", given).rows == 2
    assert [message.address for message in jobs.browse()] == ["x", "y"]


def test_a_data_frame_of_polars_can_be_published(engine, client):
    polars = pytest.importorskip("polars")
    jobs = engine.create_queue("jobs")
    client.publish("jobs", polars.DataFrame({"address": ["x"], "body": [b"1"]}))
    assert [(message.address, message.body) for message in jobs.browse()] == [("x", b"1")]


@pytest.mark.parametrize("given", [[1], "text", [{"address": "x"}], 5])
def test_what_has_no_rows_is_refused(engine, client, given):
    engine.create_queue("jobs")
    with pytest.raises(TypeError, match="expected record batches"):
        client.publish("jobs", given)


def test_nothing_is_no_error(engine, client):
    engine.create_queue("jobs")
    assert client.publish("jobs", []) == Published(0, 0, 0)
    assert client.publish("jobs", rows().slice(0, 0)) == Published(0, 0, 0)
    with pytest.raises(QueueNotFound):
        client.publish("not there", [])


def test_headers_may_be_maps_and_lists_of_pairs(engine, client):
    jobs = engine.create_queue("jobs")
    pairs = pa.array([[{"key": "a", "value": "1"}], []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    client.publish("jobs", pa.record_batch({"headers": pairs}))
    client.publish("jobs", pa.record_batch({"headers": pa.array([[("b", "2")]], pa.map_(pa.string(), pa.string()))}))
    assert [dict(message.headers) for message in jobs.browse()] == [{"a": "1"}, {}, {"b": "2"}]


def test_pairs_are_told_by_their_names(engine, client):
    jobs = engine.create_queue("jobs")
    pair = pa.struct([("value", pa.string()), ("key", pa.string())])
    pairs = pa.ListArray.from_arrays([0, 1, 3, 4], pa.array(
        [{"key": name, "value": name.upper()} for name in "abcd"], pair), mask=pa.array([False, True, False]))
    client.publish("jobs", pa.record_batch({"headers": pairs}))
    client.publish("jobs", pa.record_batch({"headers": pairs}).slice(1))
    client.publish("jobs", pa.record_batch({"headers": pairs}).slice(0, 0))
    assert [dict(message.headers) for message in jobs.browse()] == [{"a": "A"}, {}, {"d": "D"}, {}, {"d": "D"}]
    with pytest.raises(TypeError, match="structs of `key` and `value`"):
        client.publish("jobs", pa.record_batch({"headers": pa.array([[{"k": "a", "v": "1"}]])}))


def broken(*batches):
    """Batches, and then an error."""
    yield from batches
    raise OSError("the disk is gone")


@pytest.mark.parametrize("more, error", [
    (broken(), "the disk is gone"), ([5], "expected record batches"),
    ([pa.record_batch({"body": ["x"]})], "the columns body: string, and the first one of the stream address: string")])
def test_an_error_of_the_program_says_what_has_entered(engine, client, more, error):
    """Also of batches whose answers had not come yet."""
    jobs = engine.create_queue("jobs")
    with pytest.raises((OSError, TypeError, ValueError), match=error) as caught:
        client.publish("jobs", chain([rows("a", "b")] * 5, more))
    assert caught.value.published == Published(10, 1, 10)
    assert jobs.ready == 10


def test_dictionaries_are_texts(engine, client):
    jobs = engine.create_queue("jobs")
    client.publish("jobs", pa.record_batch({"address": pa.array(["x", "y", "x"]).dictionary_encode()}))
    assert [message.address for message in jobs.browse()] == ["x", "y", "x"]


def test_an_address_for_all(engine, client):
    jobs = engine.create_queue("jobs")
    client.publish("jobs", pa.record_batch({"body": [b"1", b"2"]}), address="all")
    assert [message.address for message in jobs.browse()] == ["all", "all"]
    with pytest.raises(ValueError, match="without a column"):
        client.publish("jobs", rows("x"), address="all")


def test_each_batch_is_answered_by_its_ids(engine, client):
    engine.create_queue("jobs")
    answers = list(client.publishing("jobs", (rows(*"x" * size) for size in range(1, 40))))
    assert [answer.rows for answer in answers] == list(range(1, 40))
    assert [(answer.first_id, answer.last_id) for answer in answers[:3]] == [(1, 1), (2, 3), (4, 6)]


def test_a_batch_is_answered_when_it_is_durable(engine, durable, client):
    jobs = engine.create_queue("jobs", store=durable)
    for answer in client.publishing("jobs", (rows("x", "y") for _ in range(30))):
        assert jobs.durable_id >= answer.last_id
    assert jobs.ready == 60


def test_rows_are_routed(engine, client):
    engine.create_queue("jobs")
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
    client.publish("jobs", rows("x", "y"))
    assert [delivery.address for delivery in engine.take(10, "worker")] == ["x", "y"]


def test_no_queue(client):
    with pytest.raises(QueueNotFound, match="no queue 'jobs'"):
        client.publish("jobs", rows("x"))


@pytest.mark.parametrize("column, error", [
    (pa.array([1]), TypeError), (pa.array(["x" * 70_000]), ValueError)], ids=["type", "length"])
def test_what_publish_batch_refuses_is_refused(engine, client, column, error):
    jobs = engine.create_queue("jobs")
    with pytest.raises(error, match="address"):
        client.publish("jobs", pa.record_batch({"address": column}))
    assert jobs.ready == 0


def test_the_rows_before_a_wrong_one_are_told(engine, client):
    jobs = engine.create_queue("jobs")
    with pytest.raises(ValueError, match="address") as raised:
        client.publish("jobs", [rows("x", "y"), rows("x" * 70_000), rows("z")])
    assert raised.value.published == Published(2, 1, 2)
    assert jobs.ready == 2


@pytest.mark.parametrize("numbered", [{}, {"producer": "p", "sequence": 0}])
def test_the_rows_before_a_wrong_one_are_told_if_their_answers_are_lost(engine, client, monkeypatch, numbered):
    """pyarrow drops the answers that it has not read when it finds, writing, that the stream has ended."""
    jobs = engine.create_queue("jobs")
    monkeypatch.setattr(client_module, "WINDOW", 1 << 30)          # it writes, and reads no answer
    answers = client.publishing("jobs", chain([rows("x", "y"), rows("z"), rows("x" * 70_000)], repeat(rows("w"))), **numbered)
    with pytest.raises(ValueError, match="address") as raised:
        next(answers)
    assert raised.value.published == Published(3, 1, 3)
    assert jobs.ready == 3


@pytest.mark.parametrize("before, published", [([], Published(0, 0, 0)), ([rows("a")], Published(1, 1, 1))])
def test_an_error_of_the_program_counts_the_rows_of_this_stream(engine, client, before, published):
    """Not those of another one, whose error it is."""
    for name in ("jobs", "others"):
        engine.create_queue(name)

    def batches():
        yield from before
        client.publish("others", [rows("x", "y"), rows("x" * 70_000)])

    with pytest.raises(ValueError, match="address") as raised:
        client.publish("jobs", batches())
    assert raised.value.published == published


def test_a_full_queue_refuses_a_batch_whole(engine, client):
    jobs = engine.create_queue("jobs", limit=3)
    with pytest.raises(QueueFull) as raised:
        client.publish("jobs", [rows("1", "2"), rows("3", "4")], on_full="error")
    assert raised.value.published == Published(2, 1, 2)
    assert [message.address for message in jobs.browse()] == ["1", "2"]


def test_a_full_queue_holds_the_stream_back(engine, client):
    jobs = engine.create_queue("jobs", limit=3)
    done = []
    publishing = threading.Thread(target=lambda: done.append(client.publish("jobs", rows(*"abcdefgh"))))
    publishing.start()
    seen = []
    while len(seen) < 8:
        delivery = engine.get("jobs", timeout=30)
        seen.append(delivery.address)
        delivery.ack()
    publishing.join()
    assert seen == list("abcdefgh")
    assert done == [Published(8, 1, 8)]
    assert jobs.ready == 0


@pytest.mark.parametrize("numbered", [{}, {"producer": "p", "sequence": 3}], ids=["", "numbered"])
def test_a_stream_that_waits_is_let_in_by_the_call_that_makes_room(engine, client, monkeypatch, numbered):
    """It looks for no room while there is none, and stands in line."""
    jobs = engine.create_queue("jobs", limit=1)
    tried, waiting = [], []
    for name in ("publish_batch", "_commit"):
        once = getattr(Engine, name)
        monkeypatch.setattr(Engine, name, lambda self, *given, once=once: tried.append(1) or once(self, *given))
    for name in ("_publish_later", "_commit_later"):
        later = getattr(Engine, name)
        monkeypatch.setattr(Engine, name, lambda self, *given, later=later: waiting.append(later(self, *given)) or waiting[-1])
    monkeypatch.setattr(room, "LOOK_SECONDS", 30)
    publishing = threading.Thread(target=client.publish, args=("jobs", rows("first", "second")), kwargs=numbered)
    publishing.start()
    until(lambda: waiting)
    tries = len(tried)
    engine.get("jobs").ack()
    assert [message.address for message in jobs.browse()] == ["second"]
    publishing.join()
    assert (len(tried), len(waiting)) == (tries, 1)
    assert client.publish("jobs", rows("first", "second"), **numbered, on_full="error").rows == 2 if numbered else True


def test_who_numbers_batches_is_not_passed_by_who_does_not(engine, client):
    jobs = engine.create_queue("jobs", limit=1)
    jobs.publish("first")
    streams = []
    for address, numbered in (("2", {"producer": "p", "sequence": 0}), ("3", {}), ("4", {"producer": "q", "sequence": 0})):
        before = len(engine._waiting_destinations)
        streams.append(threading.Thread(target=client.publish, args=("jobs", rows(address)), kwargs=numbered))
        streams[-1].start()
        until(lambda before=before: len(engine._waiting_destinations) > before)
    for number in range(2, 5):
        engine.get("jobs").ack()
        assert jobs.fetch(number).address == str(number)
    for stream in streams:
        stream.join()


def test_a_stream_that_waits_for_another_one_of_its_producer_ends_with_its_client(engine, flying):
    """The other one waits for room, and holds the number."""
    engine.create_queue("jobs", limit=0)
    command = flight.FlightDescriptor.for_command(b'{"queue": "jobs", "producer": "p", "sequence": 0}')
    clients = [flight.connect(flying.flight.url, generic_options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(2)]
    writers = []
    for number, client in enumerate(clients):
        writers.append(client.do_put(command, rows("x").schema)[0])
        writers[-1].write_batch(rows("a"))
        until(lambda count=number + 1: len(flying.flight.calls) == count)
    [(_, users)] = flying.flight.producers._locks.values()
    until(lambda: users == [2])
    last = list(flying.flight.calls._open)[-1]
    shut(flying.flight.address[1], {host_and_port_of(last.peer)})
    until(lambda: users == [1])
    assert len(flying.flight.calls) == 1
    flying.flight.calls.shut_all()          # else the other writer waits for the broker when it is collected
    until(lambda: not flying.flight.producers._locks)


def test_a_client_that_waits_for_room_and_goes_leaves_nothing(engine, flying):
    engine.create_queue("jobs", limit=1)
    client = flight.connect(flying.flight.url)
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("jobs"), rows("x").schema)
    writer.write_batch(rows("a", "b", "c"))
    until(lambda: engine.queues["jobs"].ready)
    assert len(flying.flight.calls) == 1
    flying.flight.calls.shut_all()
    until(lambda: not len(flying.flight.calls))
    assert engine.queues["jobs"].ready == 1


def test_any_client_of_flight_may_publish(engine, flying):
    jobs = engine.create_queue("jobs")
    client = flight.connect(flying.flight.url)
    writer, reader = client.do_put(flight.FlightDescriptor.for_path("jobs"), rows("x").schema)
    writer.write_batch(rows("x", "y"))
    assert reader.read().to_pybytes() == b'{"rows": 2, "first": 1, "last": 2}'
    writer.close()
    assert jobs.ready == 2


def test_a_broker_that_is_not_there():
    with Client("grpc://127.0.0.1:1", timeout=5) as client, pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 does not"):
        client.publish("jobs", rows("x"))


@pytest.mark.parametrize("store", ["ram", "ring", "lmdb"])
def test_what_a_producer_sends_again_enters_once(engine, flying, client, tmp_path, store):
    if store != "ram":
        engine.create_store("disk", store, path=str(tmp_path / "store"))
    jobs = engine.create_queue("jobs", store="ram" if store == "ram" else "disk")
    batches = [rows("a", "b"), rows("c"), rows("d", "e")]
    assert client.publish("jobs", batches[:2], producer="p", sequence=7) == Published(3, 1, 3)
    assert client.publish("jobs", batches, producer="p", sequence=7).rows == 5
    assert client.publish("jobs", batches, producer="p", sequence=7).rows == 5
    assert client.publish("jobs", batches[2:], producer="other", sequence=0).rows == 2
    assert [message.address for message in jobs.browse()] == list("abcdede")
    with pytest.raises(ValueError, match="had 2 rows, and has 1 now"):
        client.publish("jobs", rows("x"), producer="p", sequence=9)


@pytest.mark.parametrize("numbered", [{}, {"producer": "p", "sequence": 0}], ids=["", "numbered"])
@pytest.mark.parametrize("moment", [10, 0, -5, -10**18])
def test_times_from_1970_and_before(engine, client, numbered, moment):
    """Rows that have expired then are dead-lettered, and those that were due then are ready."""
    dead = engine.create_queue("dead")
    queue = engine.create_queue("jobs", dead_letter="dead")
    times = pa.array([moment, None], pa.timestamp("ns", "UTC"))
    client.publish("jobs", pa.table({"address": ["old", "new"], "expires": times}), **numbered)
    assert [message.address for message in dead.browse()] == ["old"]
    client.publish("jobs", pa.table({"address": ["due", "too"], "at": times}), **(numbered and numbered | {"sequence": 1}))
    assert [message.address for message in queue.browse(state="ready")] == ["new", "due", "too"]


def test_a_producer_is_held_back_and_goes_on_behind_what_entered(engine, client):
    engine.create_queue("jobs", limit=3)
    with pytest.raises(QueueFull):
        client.publish("jobs", rows(*"abcde"), producer="p", sequence=0, on_full="error")
    publishing = threading.Thread(target=client.publish, args=["jobs", rows(*"abcde")], kwargs={"producer": "p", "sequence": 0})
    publishing.start()
    seen = []
    while len(seen) < 5:
        with engine.get("jobs", timeout=30) as message:
            seen.append(message.address)
    publishing.join()
    assert seen == list("abcde")
    assert client.publish("jobs", rows(*"abcde"), producer="p", sequence=0).rows == 5
    assert engine.queues["jobs"].ready == 0


def test_producers_are_forgotten_one_after_the_other(engine, client):
    jobs = engine.create_queue("jobs")
    for number in range(103):
        client.publish("jobs", rows("x"), producer=f"p{number}", sequence=0)
    assert len([name for name in jobs.meta if name.startswith("flight.producer/")]) == 100
    assert jobs.ready == 103


def test_producers_with_long_names_fit_into_the_map(engine, client):
    jobs = engine.create_queue("jobs", meta={"others": bytes(47 << 10)})
    for number in range(100):
        name = f"{number:04}" + "\N{GRINNING FACE}" * 196
        for _ in range(2):
            assert client.publish("jobs", rows("x"), producer=name, sequence=0).rows == 1
    kept = {name: value for name, value in jobs.meta.items() if name.startswith("flight.producer/")}
    assert 10 < len(kept) < 100 and sum(len(name.encode()) + len(value) for name, value in kept.items()) <= producers.BYTES_MAX
    assert jobs.ready == 100


@pytest.mark.parametrize("wrong, said", [
    ({"producer": "", "sequence": 1}, "1 to 200"), ({"sequence": 1}, "producer=None"),
    ({"producer": "p", "sequence": -1}, "sequence=-1"), ({"on_full": "drop"}, "on_full='drop'")])
def test_wrong_options(engine, client, wrong, said):
    engine.create_queue("jobs")
    with pytest.raises(ValueError, match=said):
        client.publish("jobs", rows("x"), **wrong)


@pytest.mark.parametrize("numbered", [{}, {"producer": "p", "sequence": 0}])
def test_an_error_says_what_had_entered(engine, client, numbered):
    """Also of a batch that entered in part, before its queue was deleted."""
    engine.create_queue("jobs", limit=13)
    caught = []

    def publish():
        with pytest.raises(QueueNotFound) as error:
            client.publish("jobs", [rows("a", "b", "c"), rows(*"abcdefghijklmnopqrstuvwxy")], **numbered)
        caught.append(error.value)

    publishing = threading.Thread(target=publish)
    publishing.start()
    until(lambda: engine.queues["jobs"].ready == 13 and engine._waiting_destinations)
    engine.delete_queue("jobs")
    publishing.join()
    assert caught[0].published == Published(13, 1, 13)


@pytest.mark.parametrize("seconds", [0, 0.05], ids=["at once", "after the stream's end"])
def test_an_error_of_durability_says_what_had_entered(engine, client, monkeypatch, seconds):
    """To each stream what is its own, if all of them get the same error."""
    error = StoreFailed("the disk is gone")

    def when_durable(told):
        threading.Timer(seconds, told, [error]).start() if seconds else told(error)

    engine.create_queue("jobs")
    monkeypatch.setattr(engine, "when_durable", when_durable)
    for published in (Published(3, 1, 3), Published(2, 4, 5)):
        with pytest.raises(StoreFailed, match="the disk is gone") as caught:
            client.publish("jobs", rows(*"x" * published.rows))
        assert caught.value.published == published


def test_a_producer_that_another_stream_has_forgotten():
    class Meta(dict):
        """Another stream deletes the oldest name after the names were read."""

        def items(self):
            found = list(super().items())
            self.pop("flight.producer/p0", None)
            return found

    meta = Meta({f"flight.producer/p{number}": b'{"time": %d}' % number for number in range(100)})
    Producer(None, None, "jobs", "new", 0)._forget(meta)
    assert len(meta) == 99


@pytest.mark.parametrize("numbered", [{}, {"producer": "p", "sequence": 0}])
def test_columns_of_a_batch_without_rows_are_checked(engine, client, numbered):
    engine.create_queue("jobs")
    empty = pa.record_batch({"nothing": pa.array([], pa.int8())})
    for call in (lambda: client.publish("jobs", empty, **numbered), lambda: client.stage("run", 0, 0, "jobs", empty)):
        with pytest.raises(ValueError, match="column 'nothing' is unknown"):
            call()
    assert client.publish("jobs", rows()).rows == 0
    assert client.commit("run", "jobs", [client.stage("run", 0, 1, "jobs", rows())]).rows == 0
