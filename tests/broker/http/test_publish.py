"""Publishing over HTTP: what comes in, when it is answered, and what is refused without a change."""

import json
import socket
from contextlib import suppress

import pika
import pytest
from cloudevents.core.bindings.http import (
    from_http_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent

from tests.broker.http.conftest import Client
from tests.broker.http.test_websub import until
from xump import Engine
from xump.broker import Broker, Limits
from xump.broker.http import call, server
from xump_ext.memory.slab import memory_bytes


def test_body_address_and_headers(engine, web):
    jobs = engine.create_queue("jobs")
    found = web("POST", "/queues/jobs?address=image.resize&reply_to=answers&message_id=7&correlation_id=6&priority=3", b"cat.png",
                {"Content-Type": "image/png", "Xump-Headers": '{"size": 700, "new": true}'})
    assert (found.status, found.json) == (201, {"ids": [1]})
    message = jobs.fetch(1)
    assert (message.address, message.body, message.reply_to, message.message_id, message.correlation_id, message.priority) == (
        "image.resize", b"cat.png", "answers", "7", "6", 3)
    assert dict(message.headers) == {"size": 700, "new": True, "content-type": "image/png"}


def test_what_curl_says_by_itself_is_no_type(engine, web):
    jobs = engine.create_queue("jobs")
    web("POST", "/queues/jobs", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"})
    assert (jobs.fetch(1).body, dict(jobs.fetch(1).headers)) == (b"a=b", {})


def test_names_with_slashes_and_of_any_script(engine, web):
    engine.create_queue("a/b ü")
    assert web("POST", "/queues/a%2Fb%20%C3%BC", b"x").status == 201
    assert engine.queues["a/b ü"].ready == 1


def test_delays_and_lives(engine, web):
    jobs = engine.create_queue("jobs")
    web("POST", "/queues/jobs?delay=1000&ttl=2000", b"x")
    assert (jobs.delayed, jobs.fetch(1).expires - jobs.fetch(1).timestamp > 2999 * 10**9) == (1, True)


@pytest.mark.parametrize(("path", "body", "headers", "status", "text"), [
    ("/queues/none", b"", {}, 404, "no queue 'none'"),
    ("/queues/jobs?adress=a", b"", {}, 400, "no parameter 'adress' here; there are address, "),
    ("/queues/jobs?priority=high", b"", {}, 400, "priority='high': expected a whole number"),
    ("/queues/jobs?priority=256", b"", {}, 400, "priority"),
    ("/queues/jobs?delay=-1", b"", {}, 400, "delay"),
    ("/queues/jobs?ttl=nan", b"", {}, 400, "ttl"),
    ("/queues/jobs?vhost=none", b"", {}, 404, "no virtual host 'none'"),
    ("/queues/jobs", b"", {"Xump-Headers": "{"}, 400, "Xump-Headers is not JSON"),
    ("/queues/jobs", b"", {"Xump-Headers": "[]"}, 400, "Xump-Headers must be a JSON object, got list"),
    ("/queues/jobs", b"", {"Xump-Headers": '{"a": [1]}'}, 400, "a"),
    ("/queues/jobs", b"", {"Host": "["}, 400, "the header Host is '['"),
    ("/queues/jobs", b"", {"Origin": "http://["}, 403, "a page of http://["),
    ("/queues/jobs", b"[" * 100_000, {"Content-Type": "application/x-ndjson"}, 400, "line 1: not JSON"),
    ("/queues/jobs", b'{"specversion": "1.0", "data_base64": "\xc3\xa9"}', {"Content-Type": "application/cloudevents+json"},
     400, "data_base64 must be a text in base64"),
    ("/queues/full", b"", {}, 503, "queue 'full' has no room"),
    ("/queues/jobs", bytes(65 << 20), {}, 413, "the body may have 67108864 bytes at most"),
])
def test_refused(engine, web, path, body, headers, status, text):
    engine.create_queue("jobs")
    engine.create_queue("full", limit=0)
    found = web("POST", path, body, headers)
    assert (found.status, found.headers["Content-Type"]) == (status, "application/problem+json; charset=utf-8")
    assert text in found.json["detail"] and found.json["status"] == status
    assert (found.headers["Retry-After"] == "1") == (status == 503)
    assert engine.stats()["engine"]["held_messages"] == 0


def test_a_body_that_comes_too_slowly(engine, web, monkeypatch):
    monkeypatch.setattr(call, "BODY_SECONDS", 0.01)
    engine.create_queue("jobs")
    with socket.create_connection(web.broker.http.address) as client, client.makefile("rb") as answers:
        client.sendall(b"POST /queues/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
        assert answers.readline().startswith(b"HTTP/1.1 408")
        assert b"only 4 bytes of the body came: send 10000 a second, or more" in answers.read()     # and the connection ends


@pytest.mark.usefixtures("no_garbage")
def test_a_body_counts_as_memory_while_it_comes(engine):
    engine.create_queue("jobs")
    limits = Limits(memory_bytes=memory_bytes() + (8 << 20))
    begins = b"POST /queues/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7000000\r\n\r\n" + bytes(6_000_000)
    with Broker(engine, amqp=None, http="127.0.0.1:0", limits=limits) as broker:
        memory = broker.memory
        with socket.create_connection(broker.http.address) as first, socket.create_connection(broker.http.address) as second:
            first.sendall(begins)
            until(lambda: memory.promised == 6_000_000)
            with second.makefile("rb") as answers, suppress(ConnectionError):
                second.sendall(begins)
                assert answers.readline().startswith(b"HTTP/1.1 503")
        until(lambda: memory.promised == 0)


def test_an_answer_that_is_read_too_slowly(engine, web, monkeypatch):
    """It is more than the buffers of two sockets have room for."""
    monkeypatch.setattr(call, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(call, "RATE_MIN", 1 << 40)
    engine.create_queue("jobs").publish("a", bytes(32 << 20))
    with socket.create_connection(web.broker.http.address) as client:
        client.sendall(b"GET /topics/jobs/%23 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read = len(client.recv(1))
        until(lambda: not web.broker.http._calls)
        with suppress(ConnectionError):
            while piece := client.recv(1 << 20):
                read += len(piece)
                assert read < 32 << 20


def test_a_request_that_does_not_begin(engine, monkeypatch):
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.01)
    with Broker(engine, amqp=None, http="127.0.0.1:0") as broker:
        for beginning in (b"", b"GET / HTTP/1.1\r\nHost: loc", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"):
            with socket.create_connection(broker.http.address) as client, client.makefile("rb") as answers:
                client.sendall(beginning)
                assert b"200 OK" in answers.read() or b"localhost" not in beginning        # and the connection ends


def test_it_is_durable_when_it_is_answered(tmp_path):
    with Engine() as engine:
        engine.create_store("disk", "ring", path=tmp_path / "store", group_ms=10_000)
        jobs = engine.create_queue("jobs", store="disk")
        with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
            assert Client(broker.http.url)("POST", "/queues/jobs", b"x").status == 201
            assert jobs.durable_id == 1


EVENT = {"specversion": "1.0", "id": "17", "source": "/shop", "type": "order.new", "subject": "A 1"}


def test_an_event_in_three_modes_is_the_same_message(engine, web):
    jobs = engine.create_queue("jobs")
    data = b'{"size":7}'
    binary = {f"ce-{name}": value for name, value in EVENT.items()}
    web("POST", "/queues/jobs", data, {"Content-Type": "application/json", **binary})
    structured = {**EVENT, "datacontenttype": "application/json", "data": {"size": 7}}
    web("POST", "/queues/jobs", structured, {"Content-Type": "application/cloudevents+json; charset=utf-8"})
    found = web("POST", "/queues/jobs", json.dumps([structured, structured]).encode(), {
        "Content-Type": "application/cloudevents-batch+json"})
    assert found.json == {"ids": [3, 4]}
    first, *others = jobs.browse()
    assert (first.address, first.body, first.message_id) == ("order.new", data, "/shop#17")
    assert dict(first.headers) == {
        "content-type": "application/json", **{f"cloudEvents_{name}": value for name, value in EVENT.items()}}
    assert [(one.address, one.body, one.message_id, one.headers) for one in others] == [
        (first.address, first.body, first.message_id, first.headers)] * 3


def test_a_queue_with_dedup_lets_an_event_in_once(engine, web):
    jobs = engine.create_queue("jobs", dedup=3600)
    for _ in range(2):
        found = web("POST", "/queues/jobs", EVENT, {"Content-Type": "application/cloudevents+json"})
        assert found.json == {"ids": [1]}
    assert jobs.ready == 1


def test_two_events_are_two_whatever_their_sources(engine, web):
    jobs = engine.create_queue("jobs", dedup=3600)
    for source, number in (("/shop#1", "2"), ("/shop", "1#2"), ("/shop%231", "2")):
        web("POST", "/queues/jobs", EVENT | {"source": source, "id": number}, {"Content-Type": "application/cloudevents+json"})
    assert jobs.ready == 3


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize("data", [{"size": 7}, "text"])
def test_the_events_of_the_sdk(engine, web, write, data):
    jobs = engine.create_queue("jobs")
    kind = "application/json" if isinstance(data, dict) else "text/plain"
    written = write(CloudEvent({**EVENT, "datacontenttype": kind, "subject": 'ü "%'}, data))
    assert web("POST", "/queues/jobs", written.body, dict(written.headers)).status == 201
    [message] = jobs.browse()
    assert message.headers["cloudEvents_subject"] == 'ü "%'
    assert (json.loads(message.body) if kind == "application/json" else message.body.decode()) == data
    assert from_http_event(written).get_id() == message.headers["cloudEvents_id"]


@pytest.mark.parametrize(("event", "kind", "status", "text"), [
    ({"id": "1"}, "application/cloudevents+json", 400, "'specversion' is missing"),
    ({**EVENT, "specversion": "0.3"}, "application/cloudevents+json", 400, "specversion 1.0"),
    ({**EVENT, "Bad-Name": "x"}, "application/cloudevents+json", 400, "Bad-Name"),
    ({**EVENT, "depth": 1.5}, "application/cloudevents+json", 400, "a text, a whole number or a boolean"),
    ({**EVENT, "data": 1, "data_base64": "AA=="}, "application/cloudevents+json", 400, "not both"),
    ({**EVENT, "data_base64": "%"}, "application/cloudevents+json", 400, "base64"),
    ({**EVENT, "datacontenttype": 7}, "application/cloudevents+json", 400, "datacontenttype"),
    (EVENT, "application/cloudevents+avro", 415, "application/cloudevents+json"),
    (EVENT, "application/cloudevents-batch+json", 400, "a JSON array, got dict"),
])
def test_events_that_are_none(engine, web, event, kind, status, text):
    jobs = engine.create_queue("jobs")
    found = web("POST", "/queues/jobs", event, {"Content-Type": kind})
    assert found.status == status and text in found.json["detail"]
    assert jobs.ready == 0


def test_a_batch_enters_whole_or_not_at_all(engine, web):
    jobs = engine.create_queue("jobs", limit=1)
    batch = json.dumps([EVENT, EVENT]).encode()
    found = web("POST", "/queues/jobs", batch, {"Content-Type": "application/cloudevents-batch+json"})
    assert (found.status, jobs.ready) == (503, 0)


NEWS = "/exchanges/amq.fanout"
AS_JSON = {"Content-Type": "application/cloudevents+json"}
SURROGATE = json.dumps(
    {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "datacontenttype": "text/plain", "data": "\ud800"})


@pytest.mark.parametrize(("path", "body", "headers", "text"), [
    ("/exchanges/later", b"", {"Xump-Headers": '{"x-delay": 10000000000000}'}, "x-delay of 10000000000000 ms: at most"),
    (NEWS + "?ttl=-1", b"", {}, "ttl='-1': ttl must be from 0"),
    (NEWS + "?ttl=inf", b"", {}, "ttl='inf': ttl must be from 0 to 3155760000 seconds"),
    (NEWS + "?priority=300", b"", {}, "a number does not fit in its property: {'priority': 300}"),
    (NEWS, b"", {"Xump-Headers": '{"n": 9223372036854775808}'}, "an int in a header has 64 bits"),
    (NEWS, b"", {"Xump-Headers": json.dumps({"n" * 256: 1})}, "it has 256 bytes, allowed are 255"),
    (NEWS, b"", {"Xump-Headers": "[" * 5000}, "Xump-Headers is not JSON"),
    ("/queues/jobs", SURROGATE.encode(), AS_JSON, "data is a text that is not Unicode"),
    ("/queues/jobs", b"[" * 100_000, AS_JSON, "the event is not JSON"),
])
def test_what_amqp_or_json_cannot_say_is_the_mistake_of_who_says_it(engine, web, path, body, headers, text):
    jobs = engine.create_queue("jobs")
    with pika.BlockingConnection(pika.ConnectionParameters(*web.broker.address)) as connection:
        channel = connection.channel()
        channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
        for exchange in ("later", "amq.fanout"):
            channel.queue_bind("jobs", exchange)
        found = web("POST", path, body, headers)
    assert (found.status, jobs.counters()["entered"]) == (400, 0)
    assert text in found.json["detail"]
