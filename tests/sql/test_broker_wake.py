"""Wakes and presence over a broker: commits wake other processes, and a worker's queue ends with it."""

import os
import signal
import sys
import threading

import pytest
from sqlalchemy import select

import xump
from benchmarks.ports import free_port
from tests.sql.conftest import count, engine_of, until
from xump.broker import Broker
from xump.sql import ConfigurationError, Outbox, Tasks, Wake

FAR = 1000.0


@pytest.fixture
def broker_engine():
    with xump.Engine() as engine:
        yield engine


@pytest.fixture
def broker_url(broker_engine):
    with Broker(broker_engine, amqp="127.0.0.1:0") as broker:
        yield url_of(broker)


def url_of(broker):
    return f"amqp://guest:guest@127.0.0.1:{broker.address[1]}/%2F"


def prepared(database, url):
    tasks, ran = Tasks(database, wake=Wake.queue(url, "wake")), []
    tasks.task("note")(ran.append)
    return tasks, ran


def queues(engine):
    return sorted(name for name in engine.queues if name.startswith("wake."))


def test_a_commit_of_another_process_wakes_workers_and_relays(sqlite_url, broker_engine, broker_url):
    """Two objects stand for two processes: they have nothing in common but the URL."""
    database = engine_of(sqlite_url)
    tasks, ran = prepared(database, broker_url)
    other, _ = prepared(database, broker_url)
    outbox, target = (Outbox(wake=Wake.queue(broker_url, "wake")) for _ in range(2)), xump.Engine()
    target.create_queue("orders", dedup=3600)
    writing, reading = outbox
    loops = [tasks.worker(poll=FAR, retry_time=FAR), reading.relay(target, engine=database, poll=FAR)]
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(queues(broker_engine)) == 2)
        until(lambda: not any(broker_engine.queues[name].ready for name in queues(broker_engine)))
        for number in range(3):
            with other.waking(), database.begin() as connection:
                other.enqueue(connection, "note", number)
                writing.publish(connection, "orders", body=b"%d" % number)
            until(lambda number=number: len(ran) == target.queues["orders"].ready == number + 1)
    finally:
        for loop in loops:
            loop.stop()
        for thread in threads:
            thread.join()
    until(lambda: not queues(broker_engine))
    assert ran == [0, 1, 2]
    target.close()
    database.dispose()


def test_a_worker_that_is_killed_is_missed_by_its_queue(sqlite_url, broker_engine, broker_url, made):
    """Long before its three beats are; one that ends in good order is not missed, and neither is one that was never there."""
    database = engine_of(sqlite_url)
    tasks, _ = prepared(database, broker_url)
    with database.begin() as connection:
        tasks.enqueue(connection, "note", 1)
    database.dispose()
    child = os.fork()
    if child == 0:
        try:
            own, _ = prepared(engine_of(sqlite_url), broker_url)
            own.specs.clear()
            own.task("note")(lambda number: signal.pause())
            own.worker().run()
        finally:
            os._exit(3)
    cleaner = tasks.cleaner()
    try:
        until(lambda: count(database, made.task, made.task.c.start_time.is_not(None)) == 1)
        until(lambda: len(queues(broker_engine)) == 1)
        assert [cleaner._gone() for _ in range(2)] == [0, 0]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    until(lambda: cleaner._gone() == 1)
    with database.connect() as connection:
        left = connection.execute(select(made.task.c.lease_until - made.task.c.start_time)).scalar_one()
    assert left < 60_000_000                # 5 s from now on; it was a minute
    assert (count(database, made.worker), cleaner._gone()) == (0, 0)
    with database.begin() as connection:
        connection.execute(made.task.update().values(lease_until=0))
    assert cleaner.step()["retried"] == 1
    database.dispose()


def test_a_broker_that_starts_again_has_lost_all_queues_and_no_worker(sqlite_url, made, monkeypatch, caplog):
    """Its address is the same. The worker renews its lease, says again that it is there, and joins again."""
    monkeypatch.setattr("xump.sql.broker_wake.REOPEN_SECONDS", 0.05)
    monkeypatch.setattr("xump.sql.worker.BEAT_SECONDS", 0.05)
    database, port = engine_of(sqlite_url), free_port()
    with xump.Engine() as engine:
        with Broker(engine, amqp=f"127.0.0.1:{port}") as broker:
            tasks, ran = prepared(database, url_of(broker))
            worker, cleaner = tasks.worker(poll=FAR, retry_time=FAR), tasks.cleaner()
            thread = threading.Thread(target=worker.run)
            thread.start()
            until(lambda: len(queues(engine)) == 1)
            assert cleaner._gone() == 0
        assert cleaner._gone() == 0         # the broker does not say
    with xump.Engine() as engine, Broker(engine, amqp=f"127.0.0.1:{port}"):
        until(lambda: len(queues(engine)) == 1)
        cleaner._gone()
        until(lambda: count(database, made.worker) == 1)
        with tasks.waking(), database.begin() as connection:
            tasks.enqueue(connection, "note", 1)
        until(lambda: ran)
        worker.stop()
        thread.join()
    assert "look by themselves" in caplog.text
    database.dispose()


def test_what_is_wrong_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="amqp://"):
        Wake.queue("http://127.0.0.1", "wake")
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(ConfigurationError, match="pip install pika"):
        Wake.queue("amqp://127.0.0.1", "wake")
