"""Webhooks: what a target does with a message decides what becomes of it."""

import asyncio
import hashlib
import hmac
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import xump.aio
from tests.broker.http.conftest import OK, Client, answer
from tests.broker.http.test_websub import ask, begun, confirm, subscriptions, topic_of, until
from tests.durability import log_in_memory        # noqa: F401 (it registers `log shelf`)
from xump import Engine, StoreFull, always, deliver
from xump.broker import Broker
from xump.broker.http import cloudevents, outgoing, targets, webhooks


def subscribe(web, target, **about):
    found = web("PUT", "/webhooks/hook", {"queue": "jobs", "url": target.url, **about})
    assert found.status == 201, found.raw
    return found.json


def settled(queue):
    """Waits until the queue has nothing that is not settled."""
    engine = queue.engine
    while queue.ready + queue.outstanding + queue.delayed:
        engine.sync()
    engine.check()


def test_a_message_is_posted_and_acked(engine, web, target):
    jobs = engine.create_queue("jobs")
    hook = target(OK)
    shown = subscribe(web, hook, secret="key")
    assert shown == {"name": "hook", "queue": "jobs", "url": hook.url, "where": None, "credit": 10, "accepted": 0, "failed": 0,
                     "dead": 0, "error": None}
    jobs.publish("résumé\n", b"body", {"size": 7, "content-type": "text/plain", "raw": b"\xff"}, message_id="m 1")
    method, path, headers, body = hook.next()
    assert (method, path, body) == ("POST", "/hook", b"body")
    assert (headers["Content-Type"], headers["Xump-Queue"], headers["Xump-Id"], headers["Xump-Address"], headers["Xump-Headers"],
            headers["Xump-Message-Id"], headers["Xump-Delivery-Count"]) == (
        "text/plain", "jobs", "1", "r%C3%A9sum%C3%A9%0A", '{"size": 7}', "m 1", "1")
    assert headers["X-Hub-Signature"] == "sha256=" + hmac.new(b"key", b"body", hashlib.sha256).hexdigest()
    settled(jobs)
    assert web("GET", "/webhooks").json == [{**shown, "accepted": 1}]


def test_an_event_leaves_as_it_came(engine, web, target):
    engine.create_queue("jobs")
    hook = target(OK)
    subscribe(web, hook)
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "a", "ce-subject": "%C3%BC"}
    web("POST", "/queues/jobs", b"data", {"Content-Type": "text/plain", **event})
    _, _, headers, body = hook.next()
    assert body == b"data" and headers["Content-Type"] == "text/plain"
    assert {name: headers[name] for name in event} == event


@pytest.mark.parametrize("wrong", [
    answer(500), answer(404), answer(302, b"", "Location: http://127.0.0.1:1/elsewhere"), b"", b"nonsense\r\n\r\n",
    b"HTTP/1.1 500 X\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
], ids=["500", "404", "redirect", "closes", "nonsense", "half", "negative", "chunks"])
def test_what_is_not_accepted_comes_again(engine, web, target, wrong):
    jobs = engine.create_queue("jobs", retry_delay=0)
    hook = target(wrong + (b"" if b"close" in wrong or wrong.startswith(b"HTTP/1.1 ") else b"close"), OK)
    subscribe(web, hook)
    jobs.publish("a", b"x")
    counts = [hook.next()[2]["Xump-Delivery-Count"] for _ in range(2)]
    assert counts == ["1", "2"]
    settled(jobs)
    [shown] = web("GET", "/webhooks").json
    assert (shown["accepted"], shown["failed"], shown["error"]) == (1, 1, None)


def test_what_is_never_accepted_is_a_dead_letter(engine, web, target):
    dead = engine.create_queue("dead")
    jobs = engine.create_queue("jobs", retry_delay=0, delivery_limit=3, dead_letter="dead")
    hook = target(answer(500))
    subscribe(web, hook)
    jobs.publish("a", b"x")
    assert [hook.next()[2]["Xump-Delivery-Count"] for _ in range(3)] == ["1", "2", "3"]
    settled(jobs)
    assert dead.fetch(1).headers["xump_reason"] == "delivery-limit"


def served(engine):
    return sum(selector.counters()["served"] for selector in list(engine.selectors.values()))


def test_what_finds_no_room_for_its_dead_letter_is_sent_again(engine):
    engine.create_store("s", "log shelf", path="webhooks", bytes_max=300_000)
    engine.create_queue("dead", store="s")
    jobs = engine.create_queue("jobs", store="s", dead_letter="dead")
    engine.create_selector("jobs", when=always, do=deliver("d"), credit=1000)
    with suppress(StoreFull):
        while True:
            jobs.publish("x", bytes(1000))
    for delivery in engine.take(1000):
        outgoing._bury(delivery, "refused")
    assert jobs.delayed > 100 and not jobs.outstanding
    engine.check()


def test_what_cannot_be_sent_comes_again_later(engine, web, target, monkeypatch):
    """The client library refuses a header before anything is sent: each time."""
    monkeypatch.setattr(cloudevents, "http_headers", lambda headers: [("ce-a\nb", "v")])
    engine.create_queue("dead")
    for name, options in (("jobs", {}), ("more", {"retry_delay": 0, "dead_letter": "dead"})):
        queue = engine.create_queue(name, **options)
        assert web("PUT", f"/webhooks/{name}", {"queue": name, "url": target(OK).url}).status == 201
        queue.publish("a", b"x")
        until(lambda queue=queue: queue.delayed or engine.queues["dead"].ready or served(engine) > 50)
    [message] = engine.queues["jobs"].browse(state="delayed")
    assert 0 < engine.next_due - message.timestamp < 60 * 10**9
    assert "header" in engine.queues["dead"].fetch(1).headers["xump_detail"]
    counts = [(one["accepted"], one["failed"], one["dead"]) for one in web("GET", "/webhooks").json]
    assert counts == [(0, 1, 0), (0, outgoing.ATTEMPTS_MAX, 1)]


def test_types_and_numbers_of_an_event(engine, web, target):
    jobs = engine.create_queue("jobs")
    hook = target(OK)
    subscribe(web, hook)
    jobs.publish("a", b"x", {
        "content-type": 'multipart/mixed; boundary="a%b é"', "cloudEvents_id": "7", "cloudEvents_n": 5, "cloudEvents_on": True,
        "cloudEvents_x": 0.5})
    _, _, headers, _ = hook.next()
    assert headers["Content-Type"] == 'multipart/mixed; boundary="a%b %C3%A9"'
    assert (headers["ce-n"], headers["ce-on"], headers["Xump-Headers"]) == ("5", "true", '{"cloudEvents_x": 0.5}')


def test_what_is_no_name_in_http_is_among_the_other_headers(engine, web, target):
    jobs = engine.create_queue("jobs")
    hook = target(OK)
    subscribe(web, hook)
    jobs.publish("a", b"x", {"cloudEvents_a\nb": "v", "cloudEvents_id": "7"})
    _, _, headers, _ = hook.next()
    assert (headers["Xump-Headers"], headers["ce-id"]) == (r'{"cloudEvents_a\nb": "v"}', "7")


def test_an_error_of_what_falls_due_ends_no_webhook(engine, web, target, monkeypatch):
    take, raised = xump.aio.take, []

    async def take_at_last(*arguments, **options):
        if len(raised) < 3:
            raised.append(OSError("the store does not answer"))
            raise raised[-1]
        return await take(*arguments, **options)

    monkeypatch.setattr(outgoing, "RETRY_SECONDS", (0,))
    monkeypatch.setattr(xump.aio, "take", take_at_last)
    jobs = engine.create_queue("jobs")
    hook = target(OK)
    subscribe(web, hook)
    jobs.publish("a", b"x")
    assert hook.next()[3] == b"x"
    assert len(raised) == 3


def test_what_was_taken_and_not_begun_goes_back(engine):
    async def stop_early():
        sender = outgoing.Outgoing(engine, "hook", "http://127.0.0.1:9/", None)
        for _turn in range(100):
            if sender._posts:
                break
            await asyncio.sleep(0)
        await sender.stop()

    jobs = engine.create_queue("jobs")
    engine.create_selector(jobs, when=always, do=deliver("hook"))
    jobs.publish("a", b"x")
    asyncio.run(stop_early())
    [delivery] = engine.take(1, "hook")
    assert delivery.delivery_count == 1           # it was not sent


def test_retry_after_is_heeded(engine, web, target):
    jobs = engine.create_queue("jobs", retry_delay=0)
    hook = target(answer(503, b"", "Retry-After: 9999"), OK)
    subscribe(web, hook)
    jobs.publish("a", b"x")
    hook.next()
    while not jobs.delayed:
        engine.sync()
    [message] = jobs.browse(state="delayed")
    assert 3000 * 10**9 < engine.next_due - message.timestamp < 3700 * 10**9


def test_a_target_that_hangs_is_given_up(engine, web, target, monkeypatch):
    monkeypatch.setattr(targets, "SECONDS", 0.2)
    jobs = engine.create_queue("jobs", retry_delay=0)
    hook = target(None, OK)
    subscribe(web, hook)
    jobs.publish("a", b"x")
    assert [hook.next()[2]["Xump-Delivery-Count"] for _ in range(2)] == ["1", "2"]
    settled(jobs)


def test_an_answer_is_not_read_to_its_end(engine, web, target):
    jobs = engine.create_queue("jobs")
    hook = target(answer(200, bytes(1 << 20)))
    subscribe(web, hook)
    for number in range(3):
        jobs.publish("a", b"%d" % number)
    assert sorted(hook.next()[3] for _ in range(3)) == [b"0", b"1", b"2"]
    settled(jobs)


def test_a_status_that_came_counts(engine, web, target):
    jobs = engine.create_queue("jobs")
    subscribe(web, target(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf"))
    jobs.publish("a", b"x")
    settled(jobs)
    assert web("GET", "/webhooks").json[0]["accepted"] == 1


def test_a_webhook_takes_what_it_asks_for(engine, web, target):
    jobs = engine.create_queue("jobs", unmatched="keep")
    hook = target(OK)
    subscribe(web, hook, where="size > 5", credit=1)
    engine.publish_many(jobs, [("a", b"small", {"size": 1}), ("a", b"large", {"size": 9})])
    assert hook.next()[3] == b"large"
    while jobs.outstanding:
        engine.sync()
    assert jobs.ready == 1


def test_changed_and_deleted(engine, web, target):
    jobs = engine.create_queue("jobs")
    first, second = target(OK), target(OK)
    subscribe(web, first)
    subscribe(web, second)
    jobs.publish("a", b"x")
    assert second.next()[3] == b"x"
    settled(jobs)
    assert web("DELETE", "/webhooks/hook").json == {"deleted": True}
    assert web("DELETE", "/webhooks/hook").json == {"deleted": False}
    jobs.publish("a", b"y")
    assert (jobs.ready, dict(jobs.meta), first.asked.empty(), second.asked.empty()) == (1, {}, True, True)


def senders(web):
    """How many tasks send something."""
    async def count():
        return sum(task.get_name().startswith(outgoing.TASK) for task in asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), web.broker.loop).result(30)


def test_changes_of_one_webhook_are_one_after_the_other(engine, web, target, monkeypatch):
    """All have come when the first one ends what there was."""
    engine.create_queue("jobs")
    subscribe(web, target(OK))
    all_there, came = threading.Event(), []
    checked, stop = webhooks._checked, webhooks.Webhook.stop

    def count(given, private):
        came.append(given)
        if len(came) == 3:
            web.broker.loop.call_later(0, all_there.set)
        return checked(given, private)

    async def stop_then(webhook):
        await asyncio.to_thread(all_there.wait, 30)
        await stop(webhook)

    monkeypatch.setattr(webhooks, "_checked", count)
    monkeypatch.setattr(webhooks.Webhook, "stop", stop_then)
    with ThreadPoolExecutor(3) as threads:
        shown = list(threads.map(lambda hook: subscribe(web, hook), [target(OK) for _ in range(3)]))
    assert senders(web) == 1
    [left] = web("GET", "/webhooks").json
    assert left in shown
    web("DELETE", "/webhooks/hook")
    assert senders(web) == 0


def test_what_is_on_its_way_goes_back(engine, web, target):
    jobs = engine.create_queue("jobs")
    hook = target(None)
    subscribe(web, hook)
    jobs.publish("a", b"x")
    hook.next()
    web("DELETE", "/webhooks/hook")
    assert (jobs.ready, jobs.outstanding) == (1, 0)


def test_it_ends_with_its_queue(engine, web, target):
    engine.create_queue("jobs")
    subscribe(web, target(OK))
    engine.delete_queue("jobs")
    assert web("GET", "/webhooks").json == []
    engine.create_queue("jobs")
    assert web("GET", "/webhooks").json == []


def test_it_outlives_the_broker(tmp_path, target):
    hook = target(OK)
    for session in range(2):
        with Engine() as engine:
            engine.create_store("disk", "ring", path=tmp_path / "store")
            jobs = engine.create_queue("jobs", store="disk")
            with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=True) as broker:
                web = Client(broker.http.url)
                if not session:
                    subscribe(web, hook)
                assert [one["url"] for one in web("GET", "/webhooks").json] == [hook.url]
                jobs.publish("a", b"%d" % session)
                assert hook.next()[3] == b"%d" % session
                settled(jobs)


@pytest.mark.parametrize("url", [
    "http://127.0.0.1/", "http://localhost/", "http://10.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest", "http://127.1/",
    "http://0x7f000001/", "http://2130706433/", "http://[::ffff:127.0.0.1]/", "http://printer.localhost/",
])
def test_private_targets_must_be_allowed(engine, url):
    engine.create_queue("jobs")
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        found = Client(broker.http.url)("PUT", "/webhooks/hook", {"queue": "jobs", "url": url})
        assert found.status == 403 and "private_targets" in found.json["detail"]
        assert not engine.selectors


def test_a_name_of_a_private_address_is_not_called(engine, monkeypatch):
    async def resolve(self, host, port=0, family=0):
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", resolve)
    jobs = engine.create_queue("jobs", delivery_limit=1)
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        web = Client(broker.http.url)
        web("PUT", "/webhooks/hook", {"queue": "jobs", "url": "http://inside.example/"})
        jobs.publish("a")
        settled(jobs)
        assert "no address that the internet reaches" in web("GET", "/webhooks").json[0]["error"]


def test_what_was_allowed_before_is_not_called_any_more(tmp_path, target):
    """The broker was started anew without `private_targets`."""
    hook = target(confirm)
    for session in range(2):
        with Engine() as engine:
            engine.create_store("disk", "ring", path=tmp_path / "store")
            for name in ("jobs", "news"):
                engine.create_queue(name, store="disk")
            with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=not session) as broker:
                web = Client(broker.http.url)
                if not session:
                    subscribe(web, hook)
                    ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
                    hook.next()
                    until(lambda engine=engine: begun(engine))
                    continue
                for name in ("jobs", "news"):
                    engine.publish(name, "a")
                [name] = subscriptions(engine)
                until(lambda engine=engine, name=name: engine.queues["jobs"].delayed and engine.queues[name].delayed)
                assert "an address that the internet does not reach" in web("GET", "/webhooks").json[0]["error"]
                assert hook.asked.empty()


def test_a_change_that_fails_leaves_the_webhook_as_it_was(engine, web, target):
    jobs, more = engine.create_queue("jobs"), engine.create_queue("more")
    hook = target(OK)
    subscribe(web, hook)
    kept = dict(jobs.meta)
    found = web("PUT", "/webhooks/hook", {"queue": "jobs", "url": hook.url, "secret": "s" * 70_000})
    assert found.status == 400
    engine.create_selector(more, when=always, do=deliver("other"), name="webhook other")
    assert web("PUT", "/webhooks/other", {"queue": "jobs", "url": hook.url}).status == 409
    assert dict(jobs.meta) == kept
    jobs.publish("a", b"x")
    assert hook.next()[3] == b"x"
    settled(jobs)
    assert web("PUT", "/webhooks/hook", {"queue": "more", "url": hook.url}).status == 201
    assert not jobs.meta and len(more.meta) == 1


@pytest.mark.parametrize(("about", "status", "text"), [
    ({"url": "http://h/"}, 400, "queue must be the name"), ({"queue": "jobs"}, 400, "expected an http or https URL"),
    ({"queue": "none", "url": "http://h/"}, 404, "no queue 'none'"),
    ({"queue": "jobs", "url": "http://xn--/"}, 400, "is no URL"),
    ({"queue": "jobs", "url": "ftp://h/"}, 400, "ftp://h/"), ({"queue": "jobs", "url": "http://u:p@h/"}, 400, "without user"),
    ({"queue": "jobs", "url": "http://h/", "credit": 0}, 400, "credit must be a whole number from 1 to 1000, got 0"),
    ({"queue": "jobs", "url": "http://h/", "credit": True}, 400, "credit"),
    ({"queue": "jobs", "url": "http://h/", "where": "size >"}, 400, "size >"),
    ({"queue": "jobs", "url": "http://h/", "secret": 7}, 400, "secret must be a text"),
    ({"queue": "jobs", "url": "http://h/", "retries": 7}, 400, "a webhook has no 'retries'"),
    ([], 400, "a JSON object"), (b"{", 400, "not JSON"),
])
def test_refused(engine, web, about, status, text):
    engine.create_queue("jobs")
    found = web("PUT", "/webhooks/hook", b"[]" if about == [] else about)
    assert found.status == status and text in found.json["detail"]
    assert not engine.selectors and web("GET", "/webhooks").json == []
