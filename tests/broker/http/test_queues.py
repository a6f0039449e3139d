"""Queues over HTTP: looking changes nothing, and what changes something says what it did."""

import socket

import pika
import pytest

from xump import always, deliver
from xump.broker import message_of
from xump.broker.http import messages


def test_queues_are_listed_created_and_deleted(engine, web):
    assert web("PUT", "/queues/jobs", {"limit": 3, "dead_letter": "dead"}).json == {"name": "jobs"}
    assert (engine.queues["jobs"].limit, engine.queues["jobs"].dead_letter) == (3, "dead")
    assert web("PUT", "/queues/jobs", {"limit": 3, "dead_letter": "dead"}).status == 201
    found = web("PUT", "/queues/jobs", {"limit": 4})
    assert found.status == 409 and "jobs" in found.json["detail"]
    found = web("PUT", "/queues/more", {"size": 4})
    assert found.status == 400 and "size" in found.json["detail"]
    assert "more" not in engine.queues
    [listed] = web("GET", "/queues").json
    assert listed == {
        "name": "jobs", "store": "ram", "ready": 0, "delayed": 0, "outstanding": 0, "history": 0, "held": False}
    assert web("DELETE", "/queues/jobs").json == {"deleted": True}
    assert web("DELETE", "/queues/jobs").json == {"deleted": False}


def test_browse(engine, web):
    jobs = engine.create_queue("jobs")
    jobs.publish("text", b"abc", {"size": 7, "raw": b"\xff"}, reply_to="answers")
    jobs.publish("bytes", b"\xff")
    jobs.publish("later", delay=1000)
    first, second, third = web("GET", "/queues/jobs/messages").json
    assert first == {
        "id": 1, "address": "text", "headers": {"size": 7, "raw": {"base64": "/w=="}},
        "timestamp": jobs.fetch(1).timestamp, "hops": 0, "priority": 0,
        "reply_to": "answers", "body": "abc", "state": "ready", "until": None}
    assert (second["body_base64"], "body" in second, third["address"]) == ("/w==", False, "later")

    def ids(query):
        return [message["id"] for message in web("GET", f"/queues/jobs/messages?{query}").json]

    assert ids("reverse=true&limit=2") == [3, 2]
    assert ids("start=2") == [2, 3]
    assert ids("state=delayed") == [3]
    assert ids("where=size%20%3E%206") == [1]
    alone = web("GET", "/queues/jobs/messages/1").json
    assert alone == {name: value for name, value in first.items() if name not in ("state", "until")}
    assert jobs.ready == 2


def test_an_answer_has_so_many_bytes_of_bodies(engine, web, monkeypatch):
    monkeypatch.setattr(messages, "BODIES_BYTES_MAX", 5)
    jobs = engine.create_queue("jobs")
    engine.publish_many(jobs, [("a", bytes(size)) for size in (2, 3, 0, 9, 1, 2)])
    pages, start = [], 1
    while page := [message["id"] for message in web("GET", f"/queues/jobs/messages?start={start}").json]:
        pages.append(page)
        start = page[-1] + 1
    assert pages == [[1, 2], [3, 4], [5, 6]]
    taken = [[message["id"] for message in web("POST", "/queues/jobs/take?count=9").json] for _ in pages]
    assert taken == pages


@pytest.mark.parametrize(("path", "status", "text"), [
    ("/queues/none/messages", 404, "no queue 'none'"),
    ("/queues/jobs/messages?state=gone", 400, "expected ready, delayed, outstanding, history"),
    ("/queues/jobs/messages?start=x", 400, "start='x'"),
    ("/queues/jobs/messages?where=size%20%3E", 400, "size >"),
    ("/queues/jobs/messages/x", 400, "a message's id"),
    ("/queues/jobs/messages/9", 404, "queue 'jobs' has no message 9"),
])
def test_looking_at_what_is_not_there(engine, web, path, status, text):
    engine.create_queue("jobs")
    found = web("GET", path)
    assert found.status == status and text in found.json["detail"]


def test_names_with_braces(engine, web):
    engine.create_queue("{celery}")
    assert web("POST", "/queues/{celery}", b"x").status == 201
    assert [message["id"] for message in web("GET", "/queues/{celery}/messages").json] == [1]
    assert web("GET", "/queues/{celery}/messages/1").json["body"] == "x"


def test_hold_release_and_purge(engine, web):
    jobs = engine.create_queue("jobs")
    assert web("POST", "/queues/jobs/hold").json == {"held": True}
    engine.create_selector("jobs", when=always, do=deliver("worker"), credit=1)
    jobs.publish("a")
    assert jobs.held and engine.take(1) == []
    assert web("POST", "/queues/jobs/release").json == {"held": False}
    assert jobs.outstanding == 1
    jobs.publish("b")
    jobs.publish("c", delay=1000)
    assert web("POST", "/queues/jobs/purge").json == {"purged": 2}


def test_dead_letters_go_back_as_they_were(engine, web):
    engine.create_queue("dead")
    jobs = engine.create_queue("jobs", dead_letter="dead")
    for number in range(250):
        jobs.publish("resize", b"%d" % number, {"size": number}, reply_to="answers" if number % 2 else None)
        engine.get("jobs").reject("no such picture")
    assert web("POST", "/queues/dead/requeue?limit=3").json == {"requeued": 3}
    assert web("POST", "/queues/dead/requeue").json == {"requeued": 247}
    assert [(message.address, message.reply_to, dict(message.headers)) for message in jobs.browse()] == [
        ("resize", "answers" if number % 2 else None, {"size": number}) for number in range(250)]


def test_dead_letters_go_elsewhere(engine, web):
    engine.create_queue("dead")
    other = engine.create_queue("other", limit=1)
    jobs = engine.create_queue("jobs", dead_letter="dead")
    for _ in range(2):
        jobs.publish("a")
        engine.get("jobs").reject()
    found = web("POST", "/queues/dead/requeue?to=other")
    assert (found.status, other.ready, engine.queues["dead"].ready) == (503, 0, 2)
    assert web("POST", "/queues/dead/requeue?to=other&limit=1").json == {"requeued": 1}
    found = web("POST", "/queues/jobs/requeue")
    assert found.json == {"requeued": 0}
    jobs.publish("never dead")
    found = web("POST", "/queues/jobs/requeue")
    assert found.status == 400 and "does not say where it came from" in found.json["detail"] and jobs.ready == 1


def test_dead_letters_of_amqp_go_back_as_they_were(engine, web):
    properties = {"headers": {"size": 3, "tags": ["a", b"b"], "x-mine": None}, "content_type": "text/plain", "priority": 4}
    with pika.BlockingConnection(pika.ConnectionParameters(*web.broker.address)) as connection:
        channel = connection.channel()
        channel.exchange_declare("news", "topic")
        channel.exchange_declare("undertaker", "fanout")
        channel.queue_declare("dead")
        channel.queue_bind("dead", "undertaker")
        channel.queue_declare("jobs", arguments={"x-dead-letter-exchange": "undertaker", "x-dead-letter-routing-key": "rip"})
        channel.queue_bind("jobs", "news", "sport.#")
        channel.basic_publish("news", "sport.chess", b"Draw.", pika.BasicProperties(**properties))
        for _ in range(2):
            method, _, _ = channel.basic_get("jobs")
            channel.basic_reject(method.delivery_tag, requeue=False)
            channel.queue_declare("jobs", passive=True)
            [letter] = web("GET", "/queues/dead/messages").json
            assert letter["way"] == [{"queue": "jobs", "reason": "rejected", "count": 1}]
            assert (letter["address"], letter["amqp"]["exchange"]) == ("rip", "undertaker")
            assert letter["amqp"]["headers"]["x-death"][0]["routing-keys"] == ["sport.chess"]
            assert letter["amqp"]["headers"]["tags"][0] == "a" and letter["amqp"]["content_type"] == "text/plain"
            assert web("POST", "/queues/dead/requeue").json == {"requeued": 1}
        method, found, body = channel.basic_get("jobs", auto_ack=True)
        assert (method.exchange, method.routing_key, body) == ("news", "sport.chess", b"Draw.")
        assert (found.headers, found.content_type, found.priority) == (properties["headers"], "text/plain", 4)


@pytest.mark.parametrize("headers", [{"x-death": "none"}, {"x-death": [1]}, {"x-death": [{"queue": 7}]}])
def test_what_only_says_that_it_is_dead_does_not_go_back(engine, web, headers):
    jobs = engine.create_queue("jobs")
    jobs.publish(message_of("jobs", b"", {"headers": headers}))
    found = web("POST", "/queues/jobs/requeue")
    assert found.status == 400 and "does not say where it came from" in found.json["detail"]
    assert web("POST", "/queues/jobs/requeue?to=jobs").json == {"requeued": 1}
    assert jobs.ready == 1


def test_what_went_back_before_an_error_is_said(engine, web):
    engine.create_queue("dead", retry_delay=60)
    jobs = engine.create_queue("jobs", dead_letter="dead")
    for _ in range(130):
        jobs.publish("a")
        engine.get("jobs").reject()
    engine.create_queue("others", limit=110)
    found = web("POST", "/queues/dead/requeue?to=others")
    assert found.status == 503 and found.json["detail"].endswith("; 100 went back before that")
    assert (engine.queues["others"].ready, engine.queues["dead"].ready) == (100, 30)


def test_what_is_refused_was_not_delivered(engine, web):
    """Else the dead letters would be dropped after some tries."""
    dead = engine.create_queue("dead", delivery_limit=1)
    for number in range(3):
        dead.publish(str(number))
    engine.create_queue("others", limit=2)
    for _ in range(3):
        assert web("POST", "/queues/dead/requeue?to=others").status == 503
    assert [message.address for message in dead.browse()] == ["0", "1", "2"]
    engine.check()
    assert web("POST", "/queues/dead/requeue?to=others&limit=2").json == {"requeued": 2}
    assert engine.get("dead").delivery_count == 1


def test_what_cannot_go_back_is_left_alone(engine, web):
    """It is not even taken: after a delivery more it would be a dead letter of the dead letters."""
    engine.create_queue("worse")
    dead = engine.create_queue("dead", delivery_limit=1, dead_letter="worse")
    jobs = engine.create_queue("jobs", dead_letter="dead")
    jobs.publish("a")
    engine.get("jobs").reject()
    dead.publish("never dead")
    before = engine.stats()["queues"]["dead"]
    for query, status, said in (("", 400, "message 2 does not say"), ("?to=nosuch", 404, "no queue 'nosuch'")):
        found = web("POST", f"/queues/dead/requeue{query}")
        assert found.status == status and said in found.json["detail"]
    engine.delete_queue("jobs")
    found = web("POST", "/queues/dead/requeue?limit=1")
    assert found.status == 404 and "no queue 'jobs' in the virtual host '/': name another one" in found.json["detail"]
    assert engine.stats()["queues"]["dead"] == before


def test_exchanges_are_for_publishing(engine, web):
    with pika.BlockingConnection(pika.ConnectionParameters(*web.broker.address)) as connection:
        channel = connection.channel()
        for name, internal in (("news", False), ("inner", True)):
            channel.exchange_declare(name, "topic", internal=internal)
            channel.queue_declare("jobs")
            channel.queue_bind("jobs", name, "a.#")
        assert web("POST", "/queues/amq.x%2Fnews?address=a.b", b"x").status == 201
        assert engine.queues["jobs"].ready == 1
        for method, path in (("POST", "inner"), ("DELETE", "news"), ("PUT", "new"), ("POST", "news/hold")):
            found = web(method, f"/queues/amq.x%2F{path}", b"{}" if method == "PUT" else b"x")
            assert found.status == 403 and "is for clients of AMQP" in found.json["detail"]
        assert not {queue["name"] for queue in web("GET", "/overview").json["queues"] if queue["may_configure"]} - {"jobs"}


def test_a_limit_of_none(engine, web):
    queue = engine.create_queue("jobs")
    queue.publish("a")
    assert web("GET", "/queues/jobs/messages?limit=0").json == []
    assert len(web("GET", "/queues/jobs/messages").json) == 1


@pytest.mark.parametrize("said", [b"GET / HTTP/9.x\r\n\r\n", b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n"])
def test_what_is_no_http_is_a_line_in_the_log(web, caplog, said):
    with socket.create_connection(web.broker.http.address) as other:
        other.sendall(said)
        answered = b""
        while more := other.recv(4096):
            answered += more
    assert b" 400 Bad Request" in answered
    [record] = [one for one in caplog.records if "Error handling request" in one.message]
    assert record.exc_info is None and "\n" not in record.message and record.name == "xump"
