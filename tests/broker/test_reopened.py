"""A store is reopened, and messages in it have expired meanwhile: they are dead letters all the same, wherever those go."""

import time
from contextlib import contextmanager

import pika
import pytest

from tests.broker.test_serve import serve  # noqa: F401 — a fixture
from xump import Engine, always, deliver
from xump.broker import Broker
from xump.durability import awaiting_broker
from xump_ext.amqp.dead_letters import EXCHANGES

HOUR = 3600 * 10**9
COUNT = 3


@contextmanager
def opened(path, clock=time.time_ns):
    with Engine(hop_limit=1024, clock=clock) as engine:
        engine.create_store("broker", "ring", path=path)
        yield engine
        engine.check()


@contextmanager
def connected(broker):
    with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
        yield connection.channel()


@pytest.fixture(params=["", "news"])
def path(request, tmp_path):
    """A store with messages that have expired by now, whose dead letters go to an exchange: the default one, or another."""
    path = str(tmp_path / "broker.xump")
    with opened(path, lambda: time.time_ns() - HOUR) as engine, Broker(engine, amqp="127.0.0.1:0", store="broker") as broker:
        with connected(broker) as channel:
            channel.confirm_delivery()
            channel.queue_declare("dead", durable=True)
            if request.param:
                channel.exchange_declare(request.param, "fanout", durable=True)
                channel.queue_bind("dead", request.param)
            channel.queue_declare("jobs", durable=True, arguments={
                "x-message-ttl": 60_000, "x-dead-letter-exchange": request.param, "x-dead-letter-routing-key": "dead"})
            for _ in range(COUNT):
                channel.basic_publish("", "jobs", b"job")
    return path


def counts(engine):
    return engine.queues["jobs"].ready, engine.queues["dead"].ready


def test_a_topology_before_the_broker(path):
    with opened(path) as engine:
        engine.apply({"version": 1, "queues": {"programs": {}}})
        with Broker(engine, amqp="127.0.0.1:0", store="broker"):
            assert counts(engine) == (0, COUNT)


def test_a_building_block_before_the_broker(path):
    with opened(path) as engine:
        with engine.building():
            engine.create_queue("programs")
        engine.tick()
        assert engine.queues["jobs"].held and not engine.queues["dead"].held
        with Broker(engine, amqp="127.0.0.1:0", store="broker"):
            assert counts(engine) == (0, COUNT)


def test_a_store_that_is_opened_beside_a_broker(tmp_path):
    """Its exchanges are there: a queue of the program need not wait."""
    path = str(tmp_path / "program.xump")
    with opened(path) as engine:
        engine.create_queue("jobs", store="broker", dead_letter=EXCHANGES + "news")
        engine.publish("jobs", "job")
    with Engine(hop_limit=1024) as engine, Broker(engine, amqp="127.0.0.1:0"):
        engine.create_store("broker", "ring", path=path)
        with engine.building():
            pass
        assert not engine.queues["jobs"].held


def test_xump_serve(path, serve):  # noqa: F811 — the fixture
    served = serve("--store", "ring", "--path", path)
    assert served.connect().channel().queue_declare("dead", passive=True).method.message_count == COUNT


def test_a_program_without_a_broker_is_told_and_may_release_it(path):
    with opened(path) as engine:
        with engine.building():
            engine.create_selector("jobs", when=always, do=deliver("worker"))
        with pytest.warns(UserWarning, match="'jobs'.*those of a broker, until that has started"):
            assert engine.take(1, "worker") == []
        engine.queues["jobs"].release()
        assert engine.queues["jobs"].ready == 0


def test_a_broker_of_another_store_leaves_it_held(path, caplog):
    with opened(path) as engine:
        with Broker(engine, amqp="127.0.0.1:0"):
            assert engine.queues["jobs"].held
        assert "queue 'jobs' in store 'broker' is held" in caplog.text
        with Broker(engine, amqp="127.0.0.1:0", store="broker"):
            assert counts(engine) == (0, COUNT)


def test_a_hold_of_the_program_outlasts_the_start_of_the_broker(path):
    with opened(path) as engine:
        jobs = engine.queues["jobs"]
        jobs.hold()
        with Broker(engine, amqp="127.0.0.1:0", store="broker"):
            assert jobs.held and counts(engine) == (COUNT, 0)
            jobs.release()
            assert counts(engine) == (0, COUNT)


@pytest.mark.usefixtures("no_garbage")
def test_a_queue_that_was_deleted_while_it_waited(path, caplog):
    with opened(path) as engine:
        engine.delete_queue("jobs")
        for store in ("ram", "broker"):
            with Broker(engine, amqp="127.0.0.1:0", store=store):
                assert "jobs" not in engine.queues
        assert not caplog.text


def test_a_queue_of_the_program_waits_for_any_broker(tmp_path):
    path = str(tmp_path / "program.xump")
    with opened(path) as engine:
        engine.create_queue("jobs", store="broker", dead_letter=EXCHANGES + "news")
        engine.publish("jobs", "job")
    with opened(path) as engine:
        with engine.building():
            pass
        assert engine.queues["jobs"].held
        with Broker(engine, amqp="127.0.0.1:0"):
            assert not engine.queues["jobs"].held
    assert awaiting_broker.EXCHANGES == EXCHANGES
