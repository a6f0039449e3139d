"""Taking messages over HTTP, with leases; lines of JSON; exchanges."""

import json
import socket
import threading
from contextlib import suppress
from http.client import HTTPException

import pika
import pytest

from tests.broker.http.conftest import Client
from tests.broker.http.test_websub import until
from xump.broker import Broker
from xump.broker.http import deliveries, server
from xump.broker.http.deliveries import Leases
from xump.broker.users import hash_password, read_users


def taken(asked):
    assert asked.status == 200, asked.raw
    return asked.json


def test_a_message_is_taken_and_acked(engine, web):
    jobs = engine.create_queue("jobs")
    jobs.publish("resize", b"cat.png", {"size": 3})
    [message] = taken(web("POST", "/queues/jobs/take"))
    assert (message["id"], message["address"], message["body"], message["headers"]) == (1, "resize", "cat.png", {"size": 3})
    assert message["delivery_count"] == 1
    assert (jobs.ready, jobs.outstanding) == (0, 1)
    assert taken(web("POST", "/queues/jobs/take")) == []
    assert web("POST", f"/deliveries/{message['delivery']}/ack").json == {"acked": True}
    assert jobs.outstanding == 0
    assert web("POST", f"/deliveries/{message['delivery']}/ack").status == 404


def test_what_is_nacked_comes_again_or_is_a_dead_letter(engine, web):
    engine.create_queue("dead")
    jobs = engine.create_queue("jobs", dead_letter="dead")
    jobs.publish("resize")
    [first] = taken(web("POST", "/queues/jobs/take"))
    assert web("POST", f"/deliveries/{first['delivery']}/nack").status == 200
    [second] = taken(web("POST", "/queues/jobs/take"))
    assert (second["id"], second["delivery_count"]) == (first["id"], 2)
    assert web("POST", f"/deliveries/{second['delivery']}/nack?requeue=false").status == 200
    assert (jobs.ready, engine.queues["dead"].ready) == (0, 1)


def test_a_delay_with_a_nack(engine, web):
    jobs = engine.create_queue("jobs")
    jobs.publish("resize")
    [message] = taken(web("POST", "/queues/jobs/take"))
    assert web("POST", f"/deliveries/{message['delivery']}/nack?delay=3600").status == 200
    assert jobs.delayed == 1


def test_several_at_once_and_waiting_for_the_first(engine, web):
    engine.create_queue("jobs")
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(web("POST", "/queues/jobs/take?count=5&wait=30").json))
    waiter.start()
    engine.publish_many("jobs", [("a",), ("b",), ("c",)])
    waiter.join()
    assert [message["address"] for message in answers[0]] == ["a", "b", "c"]


def test_a_lease_that_ends_gives_the_message_back(engine, web):
    engine.create_queue("jobs").publish("resize")
    [message] = taken(web("POST", "/queues/jobs/take?lease=0.01"))
    [again] = taken(web("POST", "/queues/jobs/take?wait=30"))
    assert (again["id"], again["delivery_count"]) == (message["id"], 2)
    assert web("POST", f"/deliveries/{message['delivery']}/ack").status == 404


def test_a_lease_that_is_renewed(engine, web):
    jobs = engine.create_queue("jobs")
    jobs.publish("resize")
    [message] = taken(web("POST", "/queues/jobs/take?lease=30"))
    assert web("POST", f"/deliveries/{message['delivery']}/renew").json == {"lease": 30.0}
    assert web("POST", f"/deliveries/{message['delivery']}/renew?lease=0.01").json == {"lease": 0.01}
    [again] = taken(web("POST", "/queues/jobs/take?wait=30"))
    assert again["delivery_count"] == 2


def test_the_end_of_the_broker_gives_all_back(engine, web):
    jobs = engine.create_queue("jobs")
    jobs.publish("resize")
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        [message] = taken(type(web)(broker.http.url)("POST", "/queues/jobs/take"))
        assert (message["id"], jobs.outstanding) == (1, 1)
    assert (jobs.ready, jobs.outstanding) == (1, 0)


@pytest.mark.parametrize("moment", ["in_time", "too_late"])
def test_a_message_that_comes_while_the_broker_ends_stays_in_its_queue(engine, web, monkeypatch, moment):
    """`in_time`: for a request that still waits; `too_late`: when requests have ended. In RAM each is a moment of its own."""
    monkeypatch.setattr(server, "END_SECONDS", 0.1 if moment == "too_late" else 30)
    jobs = engine.create_queue("jobs")
    wait, waits, close = deliveries.wait, threading.Event(), Leases.close

    async def wait_at_the_end(engine, take, *more):
        waits.set()
        if moment == "too_late":
            return await wait(engine, take, *more[:2])      # without the waiter that is woken at the end
        broker.is_ending = True         # as it says at the beginning of its end
        jobs.publish("resize")
        return take()

    def publish_and_close(leases):
        close(leases)
        if moment == "too_late":
            jobs.publish("resize")

    monkeypatch.setattr(deliveries, "wait", wait_at_the_end)
    monkeypatch.setattr(Leases, "close", publish_and_close)
    answers = []

    def take():
        with suppress(ConnectionError, HTTPException):      # the connection of a request that waits too long is closed
            answers.append(Client(broker.http.url)("POST", "/queues/jobs/take?wait=60"))

    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        waiter = threading.Thread(target=take)
        waiter.start()
        assert waits.wait(30)
    waiter.join()
    assert (jobs.ready, jobs.outstanding) == (1, 0)
    assert [(asked.status, asked.json["detail"]) for asked in answers] == [(503, "the broker ends")] * (moment == "in_time")


def test_what_was_taken_and_cannot_be_told_goes_back(engine, web, monkeypatch):
    def shown(delivery):
        if delivery.message.address == "b":
            raise ValueError("it cannot be shown")
        return {}

    jobs = engine.create_queue("jobs")
    engine.publish_many(jobs, [("a",), ("b",)])
    monkeypatch.setattr(deliveries, "shown_delivery", shown)
    assert web("POST", "/queues/jobs/take?count=2").status == 500
    assert (jobs.ready, jobs.outstanding) == (2, 0)


def test_a_message_that_the_engine_took_back(engine, web):
    engine.create_queue("jobs").publish("resize")
    [message] = taken(web("POST", "/queues/jobs/take"))
    engine.delete_queue("jobs")
    assert web("POST", f"/deliveries/{message['delivery']}/ack").status == 409


@pytest.mark.parametrize("verb", ["nack", "renew"])
def test_an_answer_to_a_message_that_the_engine_took_back_ends_its_lease(engine, web, verb):
    engine.create_queue("jobs").publish("resize")
    [message] = taken(web("POST", "/queues/jobs/take"))
    engine.delete_queue("jobs")
    assert [web("POST", f"/deliveries/{message['delivery']}/{verb}").status for _ in range(2)] == [409, 404]


def test_a_request_that_waits_hears_that_the_broker_ends(engine, web, monkeypatch):
    engine.create_queue("jobs")
    wait, waits, answers = deliveries.wait, threading.Event(), []

    async def waiting(*given):
        waits.set()
        return await wait(*given)

    def take():
        answers.append(Client(broker.http.url)("POST", "/queues/jobs/take?wait=60"))

    monkeypatch.setattr(deliveries, "wait", waiting)
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        waiter = threading.Thread(target=take)
        waiter.start()
        assert waits.wait(30)
    waiter.join()
    assert [(asked.status, asked.headers["Retry-After"]) for asked in answers] == [(503, "1")]


def test_a_client_that_went_while_it_waited_takes_nothing(engine, web, monkeypatch):
    """Each take counts as a delivery, and the queue allows one."""
    jobs = engine.create_queue("jobs", delivery_limit=1)
    began, wait = threading.Semaphore(0), deliveries.wait

    async def waits(*given):
        began.release()
        return await wait(*given)

    monkeypatch.setattr(deliveries, "wait", waits)
    request = b"POST /queues/jobs/take?wait=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    for _ in range(3):
        with socket.create_connection(web.broker.http.address) as client:
            client.sendall(request)
            assert began.acquire(timeout=30)
    until(lambda: not any(one.transport for one in web.broker.http._runner.server.connections))       # the loop has heard of it
    jobs.publish("important")
    [message] = taken(web("POST", "/queues/jobs/take?wait=30"))
    assert (message["address"], message["delivery_count"]) == ("important", 1)


def test_others_take_nothing_from_the_queue_of_a_connection(engine, web):
    with pika.BlockingConnection(pika.ConnectionParameters(*web.broker.address)) as connection:
        channel = connection.channel()
        channel.queue_declare("own", exclusive=True)
        channel.basic_publish("", "own", b"mine")
        channel.queue_declare("own", passive=True)
        for path, body in (("/queues/own/take", None), ("/webhooks/hook", {"queue": "own", "url": "http://127.0.0.1:1/"})):
            asked = web("PUT" if body else "POST", path, body)
            assert (asked.status, "exclusive" in asked.json["detail"]) == (403, True)
        assert len(web("GET", "/queues/own/messages").json) == 1        # they may look
        assert channel.basic_get("own", auto_ack=True)[2] == b"mine"


@pytest.mark.parametrize(("path", "said"), [
    ("/queues/jobs/take?count=0", "count=0: expected 1 to 1000"),
    ("/queues/jobs/take?wait=61", "wait=61: expected 0 to 60 seconds"),
    ("/queues/jobs/take?wait=nan", "wait=nan: expected 0 to 60 seconds"),
    ("/queues/jobs/take?lease=0", "lease=0: expected more than 0"),
    ("/queues/jobs/take?lease=inf", "lease=inf: expected more than 0"),
    ("/queues/jobs/take?lesae=3", "no parameter 'lesae' here"),
])
def test_what_is_wrong_takes_nothing(engine, web, path, said):
    jobs = engine.create_queue("jobs")
    jobs.publish("resize")
    asked = web("POST", path)
    assert asked.status == 400
    assert said in asked.json["detail"]
    assert jobs.ready == 1


def test_the_tokens_of_others(engine, tmp_path):
    file = tmp_path / "users.json"
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    file.write_text(json.dumps({"users": {
        name: {"password": hash_password(name), "vhosts": {"/": everything}} for name in ("anna", "bob")}, "vhosts": {"/": {}}}))
    users = read_users(file)[0]
    engine.create_queue("jobs").publish("resize")
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", users=users) as broker:
        ask = Client(broker.http.url)
        anna, bob = ({"Authorization": f"Basic {code}"} for code in ("YW5uYTphbm5h", "Ym9iOmJvYg=="))
        [message] = taken(ask("POST", "/queues/jobs/take", headers=anna))
        assert ask("POST", f"/deliveries/{message['delivery']}/ack", headers=bob).status == 404
        assert ask("POST", f"/deliveries/{message['delivery']}/ack", headers=anna).status == 200


# ---- lines

LINES = {"Content-Type": "application/x-ndjson"}


def test_what_one_queue_shows_another_takes(engine, web):
    first, second = engine.create_queue("first"), engine.create_queue("second")
    first.publish("a", b"\xff\x00", {"size": 3, "ratio": 0.5, "big": True}, message_id="17", reply_to="x", priority=3)
    first.publish("b", "Käse".encode())
    lines = "\n".join(json.dumps(message) for message in web("GET", "/queues/first/messages").json)
    assert web("POST", "/queues/second", lines.encode(), LINES).json == {"ids": [1, 2]}
    for one, other in zip(first.browse(), second.browse(), strict=True):
        assert (one.address, one.body, one.headers, one.message_id, one.reply_to, one.priority) == (
            other.address, other.body, other.headers, other.message_id, other.reply_to, other.priority)


@pytest.mark.parametrize(("line", "said"), [
    (b"{", "line 2: not JSON"),
    (b"[]", "line 2: expected a JSON object, got list"),
    (b'{"adress": "a"}', "line 2: no 'adress' in a message"),
    (b'{"body": 3}', "line 2: body must be a text"),
    (b'{"body_base64": "?"}', "line 2: body_base64 is not base64"),
    (b'{"priority": 300}', "line 2: "),
])
def test_a_line_that_is_wrong_changes_nothing(engine, web, line, said):
    jobs = engine.create_queue("jobs")
    asked = web("POST", "/queues/jobs", b'{"address": "a"}\n' + line, LINES)
    assert asked.status == 400
    assert asked.json["detail"].startswith(said)
    assert jobs.ready == 0


# ---- exchanges

def test_a_message_for_an_exchange_goes_where_bindings_lead(engine, web):
    port = web.broker.address[1]
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.exchange_declare("site", "topic")
        channel.queue_declare("pages")
        channel.queue_bind("pages", "site", "page.#")
        asked = web("POST", "/exchanges/site?address=page.index&message_id=7", b"<html>", {"Content-Type": "text/html"})
        assert (asked.status, asked.json) == (201, {"queues": 1})
        method, properties, body = channel.basic_get("pages", auto_ack=True)
        assert (method.exchange, method.routing_key, body) == ("site", "page.index", b"<html>")
        assert (properties.content_type, properties.message_id) == ("text/html", "7")
        assert web("POST", "/exchanges/site?address=other", b"").json == {"queues": 0}
        assert web("POST", "/exchanges/none", b"").status == 404
