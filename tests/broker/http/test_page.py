"""The live page in a browser without a window, and the description of the paths."""

import asyncio
import re

import pika
import pytest

from tests.broker.http.chromium import PROGRAM, opened
from tests.broker.http.conftest import Client
from tests.broker.http.test_access import basic
from xump import always, deliver
from xump.broker import Broker
from xump.broker.http.routes import ROUTES
from xump.broker.users import User, Users, hash_password

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="left out: it needs Debian's package chromium")
TEXT = "document.body.innerText"


@pytest.fixture
def browse(web, tmp_path):
    """Runs what is done with the page."""

    def browse(use, url=web.url, **headers):
        async def run():
            async with opened(url, tmp_path, **headers) as page:
                await page.until("document.readyState === 'complete' && document.querySelector('#queues tbody tr') !== null")
                await use(page)

        asyncio.run(run())

    return browse


@needs_chromium
def test_the_page_shows_queues_selectors_and_the_graph(engine, browse, web):
    jobs = engine.create_queue("<b>jobs</b>")
    engine.create_selector(jobs, when=always, do=deliver("worker"), credit=1)
    jobs.publish("a", b"x")
    jobs.publish("b", b"y")

    async def use(page):
        await page.until("document.getElementById('graph').complete && document.getElementById('graph').naturalWidth")
        text = await page.value(TEXT)
        assert "<b>jobs</b>" in text
        assert "no credit left: 1 message is not answered yet" in text
        assert not await page.is_seen("#trouble")
        await page.value("window.kept = [...document.querySelectorAll('#queues button')]")
        jobs.hold()
        await page.until(TEXT, "queue <b>jobs</b> is held")
        assert await page.value("kept.length === 1 && kept[0].isConnected")      # a click on it is not lost meanwhile
        assert {url for url in page.urls if not url.startswith("data:")} <= {
            web.url + path for path in ("", "page.js", "page.css", "overview?limit=200", "graph.svg")}

    browse(use)


@needs_chromium
def test_what_can_be_done_with_a_queue(engine, browse):
    jobs = engine.create_queue("jobs", dead_letter="dead")
    engine.create_queue("dead")
    jobs.publish("bad", b"never")
    engine.get("jobs").reject("too small")

    async def use(page):
        await page.click("#queues tr:nth-child(1) button")
        assert await page.value("document.getElementById('queue-name').textContent") == "jobs"
        assert not await page.is_seen("#requeue")
        await page.click("summary")
        for name, text in (("address", "image.resize"), ("headers", '{"size": 700}'), ("body", "cat.png")):
            await page.write(f"#publish [name={name}]", text)
        await page.click("#publish button")
        await page.until("document.getElementById('done').textContent", "Published as message 2.")
        await page.until("document.getElementById('messages').innerText", 'content-type: "text/plain" · size: 700')
        message = jobs.fetch(2)
        assert (message.address, message.body, message.headers["size"]) == ("image.resize", b"cat.png", 700)

        await page.write("#filter [name=where]", "size >")
        await page.click("#filter button")
        await page.until("document.getElementById('done').className === 'bad'")
        await page.write("#filter [name=where]", " 900")
        await page.click("#filter button")
        await page.until("document.getElementById('messages').innerText", "No messages.")

        await page.click("#hold")
        await page.until("document.getElementById('done').textContent", "Held")
        assert jobs.held
        await page.until("document.getElementById('hold').textContent === 'Release'")
        await page.click("#hold")
        await page.until("document.getElementById('done').textContent", "Released")
        assert not jobs.held
        await page.click("#purge")
        await page.until("document.getElementById('done').textContent", "1 message deleted.")
        assert page.asked == ["Delete all ready and delayed messages of jobs?"]
        assert jobs.ready == 0
        await page.click(".close")

        await page.click("#queues tr:nth-child(2) button")
        await page.until("document.getElementById('messages').innerText", "way: jobs (rejected) → dead")
        await page.click("#requeue")
        await page.until("document.getElementById('done').textContent", "1 message went back.")
        assert [message.address for message in jobs.browse()] == ["bad"]

    browse(use)


@needs_chromium
def test_a_queue_of_more_than_a_page(engine, browse):
    engine.create_queue("jobs")
    engine.publish_many("jobs", [("",)] * 45)

    async def use(page):
        await page.click("#queues button")
        for count in (20, 40, 45):
            await page.until(f"document.querySelectorAll('article').length === {count}")
            if count < 45:
                await page.click("#more")
        assert not await page.is_seen("#more")

    browse(use)


@needs_chromium
def test_clients_and_their_windows(engine, browse, web):
    engine.create_queue("by hand").publish("a")
    with pika.BlockingConnection(pika.ConnectionParameters(
            *web.broker.address, client_properties={"product": "shop"}, heartbeat=0)) as connection:     # it is idle
        channel = connection.channel()
        channel.queue_declare("jobs")
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume("jobs", lambda *_: None)
        for _ in range(3):
            channel.basic_publish("", "jobs", b"x")
        connection.process_data_events(0)

        async def use(page):
            await asyncio.to_thread(web, "POST", "/queues/by%20hand/take")       # its lease ends while Chromium starts
            await page.until("document.getElementById('connections').innerText", "jobs: 2 of 2")
            await page.until("document.getElementById('connections').innerText", "by hand")
            rows = await page.value("[...document.querySelectorAll('#connections tbody tr')].map((row) => row.innerText)")
            assert re.fullmatch(r"shop\tguest\t127\.0\.0\.1:\d+\t1\t0\tjobs: 2 of 2\t", rows[0])
            assert rows[1] == "HTTP\tguest\t\t0\t0\tby hand: 1 of any number\t"
            assert "amq.consumer" in await page.value("document.getElementById('selectors').innerText")

        browse(use)


@needs_chromium
def test_who_may_not_configure_only_looks(engine, browse):
    engine.create_queue("jobs").publish("a")
    engine.create_queue("own").publish("a")
    anna = Users({"anna": User("anna", hash_password("secret"), {"/": {
        permission: re.compile(pattern) for permission, pattern in (("configure", "^own$"), ("write", ""), ("read", ""))}})})
    ben = Users({"ben": User("ben", hash_password("secret"), {"/": {
        permission: re.compile(pattern) for permission, pattern in (("configure", "^$"), ("write", ""), ("read", ""))}})})
    for users, name, place, may in ((anna, "anna", 1, False), (anna, "anna", 2, True), (ben, "ben", 1, False)):
        with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0", users=users) as broker:
            async def use(page, place=place, may=may, name=name):
                assert name in await page.value("document.getElementById('summary').textContent")
                await page.click(f"#queues tr:nth-child({place}) button")
                await page.until("document.querySelectorAll('article').length === 1")
                assert await page.is_seen("#hold") == await page.is_seen("#purge") == may
                assert await page.is_seen("#publishing") == (name == "anna")

            browse(use, broker.http.url, **basic(name, "secret"))


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")])
def test_wide_and_narrow_light_and_dark(engine, browse, width, scheme):
    engine.apply({"version": 1, "queues": {"a very long name of a queue " * 3: {}, "jobs": {"unmatched": "keep"}}, "selectors": [
        {"source": "jobs", "when": {"where": "size > 500 AND size < 1000 AND colour = 'red'"}, "do": {"deliver": "worker"}}]})
    engine.queues["jobs"].publish("a" * 200, b"x" * 500, {"n" * 80: "v" * 200})

    async def use(page):
        await page.look_like(width, 700, scheme)
        await page.until(f"window.innerWidth === {width} && matchMedia('(prefers-color-scheme: {scheme})').matches")
        await page.until("document.getElementById('graph').naturalWidth")
        assert await page.value("document.documentElement.scrollWidth <= window.innerWidth")
        red, ink = [int(await page.value(f"getComputedStyle(document.body).{name}.match(/\\d+/)[0]"))
                    for name in ("backgroundColor", "color")]
        assert (red < 60 < 200 < ink) if scheme == "dark" else (ink < 60 < 200 < red)
        assert await page.is_seen("#queues thead") == (width == 1280)
        label = "getComputedStyle(document.querySelector('#queues tr:nth-child(2) td:nth-child(3)'), '::before').content"
        assert ("ready" in await page.value(label)) == (width == 360)
        await page.click("#queues tr:nth-child(2) button")
        await page.until("document.querySelectorAll('article').length === 1")
        assert await page.value("document.getElementById('queue').scrollWidth <= document.getElementById('queue').clientWidth")

    browse(use)


@needs_chromium
def test_a_broker_that_is_gone_is_told(engine, browse):
    engine.create_queue("jobs")
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        async def use(page):
            await asyncio.to_thread(broker.close)
            await page.until("document.getElementById('trouble').innerText", "The broker does not answer")

        browse(use, broker.http.url)


def test_every_path_is_described_and_none_else(engine):
    with Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        document = Client(broker.http.url)("GET", "/openapi.json").json
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith((".", "it.", "before.", "durable."))
