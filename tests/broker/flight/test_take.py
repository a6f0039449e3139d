"""Streams that take, and what becomes of messages that the engine has taken back meanwhile."""

import json
from contextlib import ExitStack

import pytest
from pyarrow import flight

from xump import Engine, always, deliver
from xump.broker import Broker, Client
from xump.broker.users import hash_password, read_users
from xump.errors import StaleDelivery

from tests.broker.flight.conftest import until
from tests.broker.flight.test_publish import rows


@pytest.fixture
def two(engine):
    """Two queues with one destination, and a message each."""
    queues = [engine.create_queue(name) for name in ("first", "second")]
    for queue in queues:
        engine.create_selector(queue, when=always, do=deliver("worker"), credit=10)
        for address in "abc":
            queue.publish(address)
    return queues


def taken_from(stream, count):
    """The [queue, id] of so many messages."""
    found = []
    while len(found) < count:
        found += [list(key) for key in zip(*next(stream.batches).select(["queue", "id"]).to_pydict().values(), strict=True)]
    return found


def test_messages_go_back_beside_those_that_the_engine_has_taken_back(engine, flying, client, two):
    with client.take("worker", destination=True) as stream:
        taken_from(stream, 6)
        engine.delete_queue("first")
    until(lambda: not flying.flight.sessions.streams())
    assert [message.address for message in engine.take(10, "worker")] == ["a", "b", "c"]


def test_an_error_names_what_is_stale(engine, client, two):
    with client.take("worker", destination=True) as stream:
        keys = taken_from(stream, 6)
        assert stream.ack([keys[0]]) == 1
        with pytest.raises(StaleDelivery, match=rf"1 of 6 messages are not unanswered .*: \['first', {keys[0][1]}\]\. None was"):
            stream.ack(keys)
        with pytest.raises(StaleDelivery, match=rf"or given twice: \['second', {keys[5][1]}\]\."):
            stream.ack([keys[5], keys[5]])
        with pytest.raises(StaleDelivery, match=r"20 of 20 .*\['first', 109\] and 10 more\. None"):
            stream.nack([["first", number] for number in range(100, 120)])
        assert stream.ack(keys[1:]) == 5


def test_credit_is_counted_where_a_part_of_an_answer_is_stale(engine, flying, client, two):
    """The batches before it are answered."""
    with client.take("worker", destination=True, credit=6) as stream:
        stream.ack(taken_from(stream, 6))
        keys = []
        for name in ("first", "second"):
            client.publish(name, rows("d"))
            keys += taken_from(stream, 1)
        engine.delete_queue("second")
        with pytest.raises(StaleDelivery, match="message 4 of queue 'second' is stale"):
            stream.ack(keys)
        [taking] = flying.flight.sessions.streams()
        assert (taking.unanswered, two[0].outstanding) == (1, 0)


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_message_that_comes_again_in_its_stream_is_answered(engine, flying, client, verb):
    """Its selector goes, and is made again. The delivery before is stale, and takes no credit."""
    queue = engine.create_queue("jobs")
    selector = engine.create_selector(queue, when=always, do=deliver("worker"), credit=10)
    queue.publish("a")
    with client.take("worker", destination=True, credit=2) as stream:
        first = taken_from(stream, 1)
        selector.delete()
        engine.create_selector(queue, when=always, do=deliver("worker"), credit=10)
        assert taken_from(stream, 1) == first
        [taking] = flying.flight.sessions.streams()
        assert taking.unanswered == 1
        assert getattr(stream, verb)(first) == 1
        assert queue.ready + queue.outstanding == (verb == "nack")


def test_credit_is_bounded(engine, client):
    engine.create_queue("jobs")
    for credit in (0, (1 << 20) + 1):
        with pytest.raises(ValueError, match=f"credit={credit}: expected 1 to 1048576"):
            client.take("jobs", credit=credit)


def test_sessions_are_of_a_user_and_a_virtual_host(tmp_path):
    """Names that others have drawn, too, are no obstacle, and answer nothing there."""
    everything = "".join(f'[users.anna.vhosts."{place}"]\nconfigure = ".*"\nwrite = ".*"\nread = ".*"\n' for place in ("/", "b"))
    path = tmp_path / "users.toml"
    path.write_text("".join(f'[users.{name}]\npassword = "{hash_password("x", 2)}"\n{everything.replace("anna", name)}'
                            for name in ("anna", "berta")) + '[vhosts."/"]\n[vhosts.b]\n')
    with (Engine() as one, Engine() as two, Broker(
            {"/": one, "b": two}, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", users=read_users(path)[0]) as broker,
          ExitStack() as stack):
        clients = [stack.enter_context(Client(broker.flight.url, user=name, password="x", vhost=vhost))
                   for name, vhost in (("anna", "/"), ("berta", "/"), ("anna", "b"))]
        streams = []
        for number, (client, engine) in enumerate(zip(clients, (one, one, two), strict=True)):
            engine.create_queue(f"q{number}").publish(f"for {number}")
            table, options = client._stream()
            ticket = {"take": {"queue": f"q{number}"}, "session": "same"}
            streams.append(table.do_get(flight.Ticket(json.dumps(ticket).encode()), options))
        taken = [next(chunk.data for chunk in stream if chunk.data.num_rows) for stream in streams]
        assert [batch.column("address").to_pylist() for batch in taken] == [[f"for {number}"] for number in range(3)]
        assert clients[2]._ask("ack", session="same", ids=[1]) == {"acked": 1}
        assert [one.queues["q0"].outstanding, one.queues["q1"].outstanding, two.queues["q2"].outstanding] == [1, 1, 0]
        for stream in streams:
            stream.cancel()
