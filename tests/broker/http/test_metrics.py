"""The numbers, read with Prometheus' own parser, are those of `stats()`."""

import asyncio
import threading

import pika
import pytest
from aiohttp.web import StreamResponse
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.http.conftest import Client
from xump import INFINITE, Engine, __version__, always, deliver, discard, match, move_to
from xump.broker import Broker
from xump.broker.http import metrics, overview


def samples(web):
    found = web("GET", "/metrics")
    assert found.status == 200
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(found.raw.decode()) for sample in family.samples}


def test_numbers_of_queues_and_selectors(engine, web):
    name = 'a "queue"\\ of\nlines'
    engine.create_queue("dead")
    jobs = engine.create_queue(name, dead_letter="dead", history_limit=1, dedup=60)
    engine.create_selector(jobs, when=match("eq", "drop"), do=discard)
    worker = engine.create_selector(jobs, when=match("eq", "work"), do=deliver("worker"), credit=2, name="worker")
    free = engine.create_selector("dead", when=always, do=deliver("free"), credit=INFINITE)
    for number, address in enumerate(("drop", "work", "work", "work", "lost")):
        jobs.publish(address, message_id=str(number))
    jobs.publish("late", delay=1000)
    found = samples(web)
    host, queue = ("vhost", "/"), ("messaging_destination_name", name)
    numbers = jobs.counters()
    for state in ("ready", "delayed", "outstanding", "history"):
        assert found["xump_queue_messages", queue, ("state", state), host] == numbers[state]
    assert found["xump_queue_entered_messages_total", queue, host] == numbers["entered"] > 0
    assert found["xump_queue_dead_lettered_messages_total", ("error_type", "unroutable"), queue, host] == 1
    assert found["xump_queue_oldest_age_seconds", queue, host] >= 0
    labels = queue, ("name", "worker"), ("selector", str(worker.id)), host
    assert found["xump_selector_available_credit", *labels] == worker.available == 0
    assert found["xump_selector_served_messages_total", *labels] == 2
    dead = ("messaging_destination_name", "dead"), ("name", ""), ("selector", str(free.id)), host
    assert found["xump_selector_available_credit", *dead] == float("inf")
    assert found["xump_connections",] == 0


def test_numbers_of_stores(engine, web, tmp_path):
    store = engine.create_store("disk", "ring", path=tmp_path / "store")
    engine.create_queue("jobs", store="disk").publish("a")
    engine.sync()
    found = samples(web)
    labels = ("store", "disk"), ("vhost", "/")
    assert found["xump_store_size_bytes", *labels] == store.size_bytes > 0
    assert found["xump_store_live_bytes", *labels] == store.live_bytes > 0
    assert found["xump_store_sync_seconds_count", *labels] == store.syncs > 0
    assert found["xump_store_sync_seconds_sum", *labels] == store.sync_seconds > 0
    assert found["xump_store_failed", *labels] == 0


def test_no_message_waits_for_a_scrape_of_many_queues(engine, web, monkeypatch):
    """The loop is given up between a few queues, and between pieces of the answer."""
    turns, written = [], []
    write = StreamResponse.write

    async def noted(response, data):
        written.append(len(data))
        await write(response, data)

    async def others():
        while not ended.is_set():
            turns.append(len(written))
            await asyncio.sleep(0)

    monkeypatch.setattr(StreamResponse, "write", noted)
    with engine.building():
        for number in range(1000):
            engine.create_queue(f"queue {number}")
    ended = threading.Event()
    watching = asyncio.run_coroutine_threadsafe(others(), web.broker.loop)
    found = samples(web)
    ended.set()
    watching.result(10)
    assert sum(name[0] == "xump_queue_held" for name in found) == 1000
    assert len(written) > 2 and max(written) < 2 * metrics.PIECE_BYTES
    assert turns.count(0) >= 1000 // metrics.AT_ONCE         # while queues were looked at
    assert set(range(1, len(written))) <= set(turns)         # after each piece


def test_no_message_waits_for_an_overview_of_many_queues(engine, web):
    with engine.building():
        for number in range(1000):
            engine.create_queue(f"queue {number}")
            engine.create_selector(f"queue {number}", when=always, do=deliver("worker"))
    turns, ended = [], threading.Event()

    async def others():
        while not ended.is_set():
            turns.append(len(looked))
            await asyncio.sleep(0)

    looked = []
    counters = overview.came_and_went
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "came_and_went", lambda found: looked.append(1) or counters(found))
        watching = asyncio.run_coroutine_threadsafe(others(), web.broker.loop)
        found = web("GET", "/overview?limit=5").json
        ended.set()
        watching.result(10)
    assert found["totals"] == {"queues": 1000, "selectors": 1000, "connections": 0}
    assert len(set(turns)) >= 1000 // overview.AT_ONCE


def test_confirms_are_counted(engine, web):
    engine.create_queue("full", limit=1)
    with pika.BlockingConnection(pika.ConnectionParameters(*web.broker.address)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "full", b"first")
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "full", b"second")
        found = samples(web)
    assert found["xump_channels",] == 1
    assert found["xump_confirmed_publishes_total",] == found["xump_refused_publishes_total",] == 1
    assert found["xump_unconfirmed_publishes",] == 0
    assert found["target_info", ("messaging_system", "xump"), ("service_name", "xump"), ("service_version", __version__)] == 1


def test_overview_says_why_a_selector_waits(engine, web):
    engine.create_queue("full", limit=0)
    jobs = engine.create_queue("jobs")
    engine.create_selector(jobs, when=always, do=deliver("worker"), credit=1)
    jobs.publish("a")
    [selector] = web("GET", "/overview").json["selectors"]
    assert selector["why"] == "no credit left: 1 message is not answered yet"
    jobs.hold()
    assert web("GET", "/overview").json["selectors"][0]["why"] == "queue jobs is held"


def test_overview_says_whose_fault_it_is(engine, web):
    engine.create_queue("full", limit=0)
    window = engine.create_window(2)
    for name, do, options in (("moved", move_to("full"), {}), ("shared", deliver("a"), {"window": window, "credit": 10}),
                              ("ahead", deliver("b"), {"credit": 10, "ahead": 3}), ("off", deliver("c"), {"enabled": False}),
                              ("idle", deliver("d"), {"credit": INFINITE})):
        engine.create_queue(name, unmatched="keep")
        engine.create_selector(name, when=always, do=do, **options)
        engine.publish_many(name, [("a",)] * 5)
    engine.take(10, "a")
    engine.take(10, "d")
    assert {one["source"]: one["why"] for one in web("GET", "/overview").json["selectors"]} == {
        "moved": "its target has no room", "off": "disabled", "idle": None,
        "shared": "no credit left in the window that it shares: 2 messages are not answered yet",
        "ahead": "its program has not taken yet what is offered to it, 3"}


def test_overview_of_a_few(engine, web):
    for number in range(5):
        engine.create_queue(f"q{number}")
        engine.create_selector(f"q{number}", when=match("eq", "x"), do=deliver("worker"), enabled=number != 3)
    for number, count in ((1, 2), (2, 1), (4, 3)):
        engine.publish_many(f"q{number}", [("x",)] * count)
        engine.queues[f"q{number}"].hold()
    found = web("GET", "/overview?limit=2").json
    assert found["totals"] == {"queues": 5, "selectors": 5, "connections": 0}
    assert [queue["name"] for queue in found["queues"]] == ["q1", "q4"]
    assert [selector["source"] for selector in found["selectors"]] == ["q1", "q2"]
    assert web("GET", "/overview?limit=-1").status == 400


def test_why_nothing_is_read_of_a_client(engine, web, monkeypatch):
    engine.create_queue("jobs")
    with pika.BlockingConnection(pika.ConnectionParameters(*web.broker.address)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=3, global_qos=True)
        channel.basic_consume("jobs", lambda *_: None)
        channel.basic_publish("", "jobs", b"x")
        connection.process_data_events(0.1)
        [ours] = web.broker.connections
        web.broker.loop.call_soon_threadsafe(ours._hold, "stores")
        while not ours.held:
            pass
        [found] = web("GET", "/overview").json["connections"]
        assert found["waits"] == ["a store makes room for what the client has published"]
        assert found["client"] == "Pika Python Client Library"
        assert [(one["queue"], one["credit"]) for one in found["windows"]] == [("jobs", None), (None, 3)]
        web.broker.loop.call_soon_threadsafe(ours._go_on, "stores")


def test_health():
    with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        web = Client(broker.http.url)
        assert web("GET", "/health").json == {"status": "ok"}
        engine.close()
        found = web("GET", "/health")
        assert (found.status, found.json["detail"]) == (503, "the engine is closed")


def test_a_graph_too_large_to_read_is_not_drawn(engine, web):
    engine.create_queue("jobs")
    assert web("GET", "/graph.svg").raw.startswith(b"<svg ")
    with engine.building():
        for number in range(400):
            engine.create_queue(str(number))
    found = web("GET", "/graph.svg")
    assert found.status == 413 and "401 queues and selectors" in found.json["detail"]
