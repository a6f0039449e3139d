"""The hub, by the scenarios of the WebSub recommendation: discovery, verification, distribution, signatures, leases, the end."""

import asyncio
import hashlib
import hmac
import re
import time
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

from tests.broker.http.conftest import OK, Client, answer
from tests.broker.http.test_access import basic
from xump import Engine
from xump.broker import Broker
from xump.broker.http import websub
from xump.broker.http.outgoing import TASK
from xump.broker.http.websub import Subscription
from xump.broker.users import User, Users, hash_password

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def confirm(method, path):
    """Says yes to whatever the hub asks, and takes what it sends, or tells."""
    asked = parse_qs(urlsplit(path).query)
    return answer(200, asked["hub.challenge"][0].encode()) if "hub.challenge" in asked else OK


def ask(web, mode, topic, callback, **more):
    return web("POST", "/hub", urlencode({"hub.mode": mode, "hub.topic": topic, "hub.callback": callback, **more}), FORM)


def topic_of(web, queue, pattern):
    return f"{web.url}topics/{quote(queue, safe='')}/{quote(pattern, safe='')}"


def subscriptions(engine):
    return [name for name in list(engine.queues) if name.startswith("websub/")]


def begun(engine):
    """The subscriptions that have their selectors, too: those come after the queue, and only then does it get messages."""
    there = {selector.name for selector in list(engine.selectors.values())}
    return [name for name in subscriptions(engine) if f"{name} out" in there]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.001)


def test_a_topic_says_where_its_hub_is(engine, web):
    news = engine.create_queue("news")
    for address, body in (("sport.chess", b"Draw."), ("weather", b"Rain.")):
        news.publish(address, body, {"content-type": "text/plain"})
    found = web("GET", "/topics/news/sport.%23")
    assert (found.raw, found.headers["Content-Type"]) == (b"Draw.", "text/plain")
    assert found.headers["Link"] == f'<{web.url}hub>; rel="hub", <{topic_of(web, "news", "sport.#")}>; rel="self"'
    found = web("GET", "/topics/news/music")
    assert (found.raw, found.headers["Content-Type"]) == (b"", "application/octet-stream")
    assert web("GET", "/topics/news/a.%23%23").status == 400


def test_a_message_that_is_a_page_may_do_nothing_in_the_name_of_its_reader(engine, web):
    """The scripts of a page of this server may come from here: a second message, for instance."""
    engine.create_queue("news").publish("page", b'<script src="/topics/news/script"></script>', {"content-type": "text/html"})
    found = web("GET", "/topics/news/page")
    assert found.headers["Content-Type"] == "text/html"
    assert found.headers["Content-Security-Policy"] == "sandbox; default-src 'none'; frame-ancestors 'none'"
    assert found.headers["X-Content-Type-Options"] == "nosniff"


def test_the_hub_is_where_it_was_called(target):
    """By a name of its own, and in another virtual host."""
    hook = target(confirm)
    users = Users({"anna": User("anna", hash_password("secret", 2), dict.fromkeys(("/", "/more"), dict.fromkeys(
        ("configure", "write", "read"), re.compile(""))))})
    with Engine() as engine, Engine() as other, Broker(
            {"/": engine, "/more": other}, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=True, users=users) as broker:
        other.create_queue("news")
        web, headers = Client(broker.http.url), basic("anna", "secret") | {"Host": "news.example"}
        links = web("GET", "/topics/news/%23?vhost=%2Fmore", headers=headers).headers["Link"]
        hub, topic = re.fullmatch('<(.*)>; rel="hub", <(.*)>; rel="self"', links).groups()
        assert hub == "http://news.example/hub?vhost=%2Fmore" and topic == "http://news.example/topics/news/%23?vhost=%2Fmore"
        for place in (topic, topic.replace("http:", "https:")):     # a proxy speaks TLS for us
            given = urlencode({"hub.mode": "subscribe", "hub.topic": place, "hub.callback": hook.url})
            assert web("POST", "/hub?vhost=%2Fmore", given, FORM | headers).status == 202
            assert parse_qs(urlsplit(hook.next()[1]).query)["hub.topic"] == [place]
        until(lambda: len(begun(other)) == 2)
        assert web("POST", "/hub", given, FORM | headers).status == 400
        other.publish("news", "a", b"x")
        assert {hook.next()[2]["Link"] for _ in range(2)} == {links, links.replace("http:", "https:")}


def test_subscribe_receive_unsubscribe(engine, web, target):
    news = engine.create_queue("news")
    news.publish("sport.chess", b"before")
    hook = target(confirm)
    topic = topic_of(web, "news", "sport.#")
    assert ask(web, "subscribe", topic, hook.url + "?mine=1", **{"hub.secret": "s3", "hub.lease_seconds": "600"}).status == 202
    method, path, _, _ = hook.next()
    asked = parse_qs(urlsplit(path).query)
    assert method == "GET" and asked["mine"] == ["1"] and asked.pop("hub.challenge")
    assert {name: value for name, [value] in asked.items() if name != "mine"} == {
        "hub.mode": "subscribe", "hub.topic": topic, "hub.lease_seconds": "600"}
    until(lambda: begun(engine))
    news.publish("weather", b"Rain.")
    news.publish("sport.chess", b"Draw.", {"content-type": "text/plain"})
    method, path, headers, body = hook.next()
    assert (method, body, headers["Content-Type"]) == ("POST", b"Draw.", "text/plain")
    assert headers["Link"] == f'<{web.url}hub>; rel="hub", <{topic}>; rel="self"'
    assert headers["X-Hub-Signature"] == "sha256=" + hmac.new(b"s3", b"Draw.", hashlib.sha256).hexdigest()
    assert ask(web, "unsubscribe", topic, hook.url + "?mine=1").status == 202
    assert parse_qs(urlsplit(hook.next()[1]).query)["hub.mode"] == ["unsubscribe"]
    until(lambda: not subscriptions(engine))
    assert list(engine.queues) == ["news"] and not engine.selectors


@pytest.mark.parametrize("wrong", [answer(404), answer(200, b"other"), answer(200), answer(302, b"", "Location: /"), b"close"],
                         ids=["404", "other", "empty", "redirect", "closes"])
def test_who_does_not_confirm_is_not_subscribed(engine, web, target, wrong):
    engine.create_queue("news")
    hook, other = target(wrong), target(confirm)
    ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
    hook.next()
    ask(web, "subscribe", topic_of(web, "news", "#"), other.url)
    other.next()
    until(lambda: begun(engine))
    assert len(subscriptions(engine)) == 1


def test_who_does_not_confirm_stays_subscribed(engine, web, target):
    engine.create_queue("news")
    hook = target(confirm, answer(404), OK)
    topic = topic_of(web, "news", "#")
    ask(web, "subscribe", topic, hook.url)
    hook.next()
    until(lambda: begun(engine))
    ask(web, "unsubscribe", topic, hook.url)
    hook.next()
    engine.publish("news", "a", b"x")
    assert hook.next()[3] == b"x"


def test_a_lease_is_renewed_and_ends(engine, web, target):
    engine.create_queue("news")
    hook = target(confirm)
    topic = topic_of(web, "news", "#")
    ask(web, "subscribe", topic, hook.url, **{"hub.lease_seconds": "600"})
    hook.next()
    until(lambda: begun(engine))
    [name] = subscriptions(engine)
    before = engine.queues[name].meta["http.websub"]
    ask(web, "subscribe", topic, hook.url, **{"hub.lease_seconds": "1"})
    hook.next()
    until(lambda: name not in engine.queues or engine.queues[name].meta["http.websub"] != before)
    until(lambda: not subscriptions(engine))
    engine.publish("news", "a", b"x")
    assert not engine.selectors


def test_changes_of_one_subscription_are_one_after_the_other(engine, web, target):
    engine.create_queue("news")
    hook = target(confirm)
    hub, vhost = web.broker.http.hub, web.broker.vhosts["/"]
    made = [Subscription(topic_of(web, "news", "#"), hook.url, "news", "#", str(number), 0.0) for number in range(4)]

    async def all_at_once():
        await hub._subscribe(vhost, made[0], 100)
        await asyncio.gather(*(hub._subscribe(vhost, one, 100) for one in made[1:]))
        senders = [task for task in asyncio.all_tasks() if task.get_name().startswith(TASK)]
        assert len(senders) == 1
        running = hub._running[vhost.name, made[0].name]
        hub._do(vhost, hub.end, made[0], True)      # its lease has ended in between
        await asyncio.gather(*hub._asking)
        assert hub._running == {(vhost.name, made[0].name): running} and running[0] is made[3]

    asyncio.run_coroutine_threadsafe(all_at_once(), web.broker.loop).result(30)
    engine.publish("news", "a", b"x")
    *_, headers, body = hook.next()
    assert headers["X-Hub-Signature"] == "sha256=" + hmac.new(b"3", body, hashlib.sha256).hexdigest()


def test_a_target_that_is_gone_ends_its_subscription(engine, web, target):
    news = engine.create_queue("news")
    hook = target(confirm, answer(410))
    ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
    hook.next()
    until(lambda: begun(engine))
    news.publish("a")
    hook.next()
    until(lambda: not subscriptions(engine))


def test_each_of_many_gets_each_message(engine, web, target):
    news = engine.create_queue("news")
    hooks = [target(confirm) for _ in range(3)]
    for number, hook in enumerate(hooks):
        ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
        hook.next()
        until(lambda count=number + 1: len(begun(engine)) == count)
    for number in range(5):
        news.publish("a", b"%d" % number)
    for hook in hooks:
        assert sorted(hook.next()[3] for _ in range(5)) == [b"%d" % number for number in range(5)]


def test_subscriptions_outlive_the_broker(tmp_path, target):
    hook = target(confirm)
    for session in range(2):
        with Engine() as engine:
            engine.create_store("disk", "lmdb", path=tmp_path / "store")
            news = engine.create_queue("news", store="disk")
            with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=True) as broker:
                web = Client(broker.http.url)
                if not session:
                    ask(web, "subscribe", topic_of(web, "news", "a.*"), hook.url)
                    hook.next()
                    until(lambda: begun(engine))
                news.publish("b", b"not this")
                news.publish("a.1", b"%d" % session)
                assert hook.next()[3] == b"%d" % session
                [name] = subscriptions(engine)
                until(lambda queue=engine.queues[name]: not queue.outstanding)


def denied(hook):
    """What the hub tells at last."""
    method, path, _, _ = hook.next()
    asked = {name: value for name, [value] in parse_qs(urlsplit(path).query).items()}
    assert (method, asked["hub.mode"]) == ("GET", "denied")
    return asked["hub.reason"]


def test_a_topic_that_ends_ends_its_subscriptions_when_all_is_sent(engine, web, target):
    engine.create_queue("news")
    hooks = [target(confirm), target(confirm, answer(503, b"", "Retry-After: 0"), confirm)]
    for count, hook in enumerate(hooks):
        ask(web, "subscribe", topic_of(web, "news", "#" if count else "other"), hook.url)
        hook.next()
        until(lambda count=count + 1: len(begun(engine)) == count)
    for name in subscriptions(engine):
        engine.queues[name].hold()
    engine.publish("news", "a", b"last")
    engine.delete_queue("news")
    assert "the topic has ended: its queue 'news' was deleted" in denied(hooks[0])
    [name] = subscriptions(engine)
    engine.queues[name].release()
    assert [hooks[1].next()[3] for _ in range(2)] == [b"last"] * 2
    assert "the topic has ended" in denied(hooks[1])
    until(lambda: not subscriptions(engine))
    assert not engine.selectors


def test_a_topic_that_has_ended_when_the_broker_starts(tmp_path, target):
    hook = target(confirm)
    for session in range(2):
        with Engine() as engine:
            engine.create_store("disk", "ring", path=tmp_path / "store")
            engine.create_queue("news", store="disk")
            if session:
                engine.delete_queue("news")
            with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", private_targets=True) as broker:
                if session:
                    assert "the topic has ended" in denied(hook)
                    assert not engine.queues
                else:
                    web = Client(broker.http.url)
                    ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
                    hook.next()
                    until(lambda: begun(engine))


def test_who_confirms_and_is_not_subscribed_is_told(engine, web, target):
    engine.create_queue("news")

    def too_late(method, path):
        engine.delete_queue("news")
        return confirm(method, path)

    hook = target(too_late, OK)
    ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
    hook.next()
    assert denied(hook) == "queue 'news' was deleted meanwhile"
    assert not engine.queues


def test_a_lease_of_thousands_of_digits_is_the_longest(engine, web, target):
    engine.create_queue("news")
    hook = target(confirm)
    assert ask(web, "subscribe", topic_of(web, "news", "#"), hook.url, **{"hub.lease_seconds": "9" * 5000}).status == 202
    assert f"hub.lease_seconds={365 * 24 * 3600}" in hook.next()[1]


@pytest.mark.parametrize(("kind", "body", "status", "text"), [
    ("multipart/form-data", "hub.mode=x", 415, "the body must be application/x-www-form-urlencoded"),
    ("application/x-www-form-urlencoded", "hub.mode=%ff", 400, "the body is no form: 'utf-8' codec"),
])
def test_what_is_no_form(web, kind, body, status, text):
    found = web("POST", "/hub", body, {"Content-Type": kind})
    assert found.status == status and text in found.json["detail"]


def test_only_so_many_targets_are_asked_at_once(engine, web, target, monkeypatch):
    monkeypatch.setattr(websub, "ASKED_MAX", 1)
    engine.create_queue("news")
    hook = target(None)
    assert ask(web, "subscribe", topic_of(web, "news", "#"), hook.url).status == 202
    found = ask(web, "subscribe", topic_of(web, "news", "#"), hook.url)
    assert (found.status, found.json["detail"]) == (503, "1 targets are being asked already")
    hook.next()


@pytest.mark.parametrize(("form", "status", "text"), [
    ({}, 400, "hub.mode"), ({"hub.mode": "publish"}, 400, "hub.mode must be subscribe or unsubscribe, got 'publish'"),
    ({"hub.mode": "subscribe", "hub.topic": "http://elsewhere/topics/news/a"}, 400, "hub.topic must be http://127.0.0.1"),
    ({"hub.topic": "news"}, 400, "/topics/QUEUE/PATTERN, got"), ({"hub.topic": "news/a/b"}, 400, "QUEUE/PATTERN"),
    ({"hub.topic": "news/a?vhost=other"}, 400, "QUEUE/PATTERN"), ({"hub.topic": "news/a?x"}, 400, "is no URL"),
    ({"hub.topic": "http://[/"}, 400, "is no URL"), ({"hub.topic": "news/%23#part"}, 400, "QUEUE/PATTERN"),
    ({"hub.callback": "nonsense"}, 400, "expected an http or https URL"),
    ({"hub.topic": "none/%23"}, 404, "no queue 'none'"), ({"hub.topic": "news/a.%23%23"}, 400, "a.##"),
    ({"hub.lease_seconds": "x"}, 400, "hub.lease_seconds"), ({"hub.lease_seconds": "0"}, 400, "hub.lease_seconds"),
    ({"hub.secret": "x" * 200}, 400, "at most 199 bytes"),
    ({str(number): "x" for number in range(101)} | {"hub.mode": "subscribe"}, 400, "the body is no form: Max number of fields"),
    ({"hub.mode": "x" * (1 << 20)}, 413, "the body may have 1048576 bytes at most"),
])
def test_refused(engine, web, form, status, text):
    engine.create_queue("news")
    if "hub.mode" not in form and form:
        form = {"hub.mode": "subscribe", "hub.topic": "news/%23", "hub.callback": "http://127.0.0.1:1/", **form}
    if "hub.topic" in form and "//" not in form["hub.topic"]:
        form["hub.topic"] = f"{web.url}topics/{form['hub.topic']}"
    found = web("POST", "/hub", urlencode(form), FORM)
    assert found.status == status and text in found.json["detail"]


def test_a_topic_that_the_engine_refuses_is_not_kept(engine, web, target):
    """The next start would find it, and end there."""
    engine.create_queue("own", staged=True)
    hook = target(confirm)
    assert ask(web, "subscribe", topic_of(web, "own", "#"), hook.url).status == 202
    modes = [parse_qs(urlsplit(hook.next()[1]).query)["hub.mode"] for _request in range(2)]
    assert modes == [["subscribe"], ["denied"]] and list(engine.queues) == ["own"]
