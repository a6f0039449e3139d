"""The numbers that are watched: asked for, shown by a broker, and kept while the database is away."""

import json
import threading
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import xump
from tests.sql.conftest import business, engine_of
from xump.broker import Broker
from xump.sql import Inbox, Metrics, Outbox, Tasks


def test_what_is_in_the_tables_and_how_much_was_done(database, made, monkeypatch):
    outbox, inbox, tasks = Outbox(), Inbox(), Tasks(database)
    tasks.task("note")(str)
    with xump.Engine() as engine:
        engine.create_queue("orders")
        relay = outbox.relay(engine, engine=database)
        processor = inbox.process(lambda connection, message: business(connection), engine=database)
        worker = tasks.worker()
        metrics = Metrics(database, outbox=outbox, inbox=inbox, tasks=tasks,
                          loops={"outbox": [relay], "inbox": [processor], "tasks": [worker]})
        with database.begin() as connection:
            for number in range(3):
                outbox.publish(connection, "orders", message_id=f"{number}")
                tasks.enqueue(connection, "note", number)
            connection.execute(made.outbox.update().values(created=made.outbox.c.created - 60_000_000))
        found = metrics.look()
        assert [found[name]["per_second"] for name in ("outbox", "inbox", "tasks")] == [0, 0, 0]
        assert (found["outbox"]["waiting"], found["outbox"]["dead"], found["tasks"]["ready"]) == (3, 0, 3)
        assert found["outbox"]["oldest_seconds"] >= 60
        assert found["outbox"]["oldest_snapshot_seconds"] >= 0
        assert (relay.step(), worker.drain()) == (3, 3)
        found = metrics.look()
        assert found["outbox"]["per_second"] > 0 and found["tasks"]["per_second"] > 0
        assert (found["outbox"]["waiting"], found["outbox"]["oldest_seconds"], found["inbox"]["per_second"]) == (0, 0, 0)


def test_a_broker_shows_them(database):
    outbox = Outbox()
    with database.begin() as connection:
        outbox.publish(connection, "orders")
    metrics = Metrics(database, outbox=outbox)
    with xump.Engine() as engine, Broker(engine, amqp="127.0.0.1:0", http="127.0.0.1:0") as broker:
        metrics.show_on(broker)
        url = broker.http.url

        def asked(path):
            with urlopen(url.rstrip("/") + path) as answer:
                return answer.read().decode()

        assert json.loads(asked("/overview"))["beside"] == [{"name": "outbox", "numbers": {}}]
        metrics.look()
        [shown] = json.loads(asked("/overview"))["beside"]
        assert shown["numbers"]["waiting"] == 1
        families = {sample.name: sample.value
                    for family in text_string_to_metric_families(asked("/metrics")) for sample in family.samples}
        assert families["xump_outbox_waiting"] == 1
        assert families["xump_outbox_dead"] == 0


def test_run_looks_until_it_is_stopped_and_outlives_a_database_that_is_away(sqlite_url, made, caplog):
    database = engine_of(sqlite_url)
    outbox = Outbox()
    metrics = Metrics(database, outbox=outbox, every=0.01)
    looks, enough = [], threading.Event()
    look = outbox.stats

    def stats(connection):
        looks.append(1)
        if len(looks) == 2:
            connection.exec_driver_sql("SELECT * FROM there_is_no_such_table")
        if len(looks) == 4:
            enough.set()
        return look(connection)

    outbox.stats = stats
    thread = threading.Thread(target=metrics.run)
    thread.start()
    try:
        assert enough.wait(60)
    finally:
        metrics.stop()
        thread.join()
    assert metrics.numbers["outbox"]["waiting"] == 0
    assert "those of the last look stay" in caplog.text
    database.dispose()


def test_arguments(sqlite_url):
    database = engine_of(sqlite_url)
    for wrong in ({}, {"outbox": Outbox(), "loops": {"inbox": []}}, {"outbox": Outbox(), "every": 0}):
        with pytest.raises(ValueError, match="at least one of|every must"):
            Metrics(database, **wrong)
    database.dispose()
