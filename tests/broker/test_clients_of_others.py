"""What single clients do: amqp-tools, Celery's tasks for later, kombu's window of a channel, and what the log says once."""

import re
import shutil
import subprocess
import sys
import threading
import time

import pika
import pytest

import xump
from tests.broker.raw_client import CAPABILITIES, Link, table_of
from tests.broker.steps import Connect
from tests.broker.test_clients_that_misbehave import content
from xump.broker import Broker, Users, hash_password
from xump.broker.tables import Typed
from xump.broker.users import User, _Everywhere, PERMISSIONS


# ---- amqp-tools, as Debian has them

@pytest.fixture
def tool(broker):
    if shutil.which("amqp-publish") is None:
        pytest.skip("amqp-tools are not installed: apt-get install amqp-tools")

    def run(name, *options, text=None):
        """What it prints, and its exit code."""
        url = "amqp://guest:guest@{}:{}".format(*broker.address)
        done = subprocess.run(
            [f"amqp-{name}", f"--url={url}", *options], input=text, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr, done.returncode

    return run


def test_amqp_tools(tool, engine):
    assert tool("declare-queue", "--queue=jobs", "--durable") == ("jobs\n", 0)
    assert tool("publish", "--routing-key=jobs", "--body=one", "--persistent", "--content-type=text/plain") == ("", 0)
    assert tool("publish", "--routing-key=jobs", text="two\n") == ("", 0)
    assert engine.queues["jobs"].ready == 2
    assert tool("get", "--queue=jobs") == ("one", 0)
    assert tool("consume", "--queue=jobs", "--count=1", "cat") == ("two\n", 0)
    assert tool("get", "--queue=jobs")[1] == 2                  # it is empty
    assert tool("delete-queue", "--queue=jobs") == ("0\n", 0)
    said, code = tool("get", "--queue=jobs")
    assert code and "NOT_FOUND - no queue 'jobs' in vhost '/'" in said


# ---- kombu over py-amqp

def connected(broker, product):
    link = Link("a", broker.address, [])
    link.socket.sendall(b"AMQP\0\0\x09\x01")
    link.read_until({"connection.start"})
    properties = table_of({"product": product}) | {"capabilities": Typed("F", CAPABILITIES)}
    link.send(0, "connection.startok", mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US",
              client_properties=properties)
    link.read_until({"connection.tune"})
    link.send(0, "connection.tuneok", channel_max=10, frame_max=4096, heartbeat=0)
    link.send(0, "connection.open", virtual_host="/")
    link.read_until({"connection.openok"})
    link.send(1, "channel.open")
    link.read_until({"channel.openok"})
    return link


@pytest.mark.parametrize(("client", "server", "delivered"), [
    ("py-amqp", "Xump", 3), ("py-amqp", "RabbitMQ", 1), ("pika", "Xump", 1)])
def test_what_qos_of_consumers_means_to_whom(engine, client, server, delivered):
    """kombu takes a server that is not called RabbitMQ at its word: prefetch is the channel's, for consumers that are there."""
    with Broker(engine, amqp="127.0.0.1:0", product=server) as broker:
        link = connected(broker, client)
        link.send(1, "queue.declare", queue="jobs")
        link.read_until({"queue.declareok"})
        for _number in range(5):
            link.write(b"".join(content(b"x")))
        link.send(1, "basic.qos", prefetch_count=1)
        link.read_until({"basic.qosok"})
        link.send(1, "basic.consume", queue="jobs", consumer_tag="c")
        link.read_until({"basic.deliver"})
        link.send(1, "basic.qos", prefetch_count=3)
        link.read_until({"basic.qosok"})
        while engine.queues["jobs"].ready != 5 - delivered:
            time.sleep(0.01)
        link.send(1, "queue.declare", queue="jobs", passive=True)
        link.read_until({"queue.declareok"})
        assert link.last["message_count"] == 5 - delivered
        link.socket.close()


def test_what_the_broker_is_called(engine):
    for product, version in (("Xump", xump.__version__), ("RabbitMQ", "3.13.0")):
        with Broker(engine, amqp="127.0.0.1:0", product=product) as broker:
            with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
                said = connection._impl.server_properties
                assert (said["product"], said["version"]) == (product, version)
                assert set(said["capabilities"]) >= {
                    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
                    "connection.blocked", "authentication_failure_close", "per_consumer_qos", "direct_reply_to"}


LATER = """
import sys
import threading
import celery
from celery.contrib.testing import worker
app = celery.Celery("later", broker=sys.argv[1], backend="rpc://", set_as_current=False)
app.conf.update(worker_prefetch_multiplier=1, task_acks_late=True, broker_heartbeat=2)

@app.task
def add(one, two):
    return one + two

with worker.start_worker(app, perform_ping_check=False, pool="solo", concurrency=1):
    later = [add.apply_async((number, 1), countdown=1) for number in range(20)]
    print(add.delay(100, 1).get(timeout=30), [result.get(timeout=30) for result in later])
"""
"""A process of its own: Celery keeps connections open until that ends, and sets the level of the root logger."""


def test_tasks_of_celery_for_later_beyond_the_prefetch(broker):
    """A worker takes all tasks for later that there are, though it works on few at a time. They do not hold up one for now."""
    pytest.importorskip("celery")
    url = "amqp://guest:guest@{}:{}//".format(*broker.address)
    done = subprocess.run([sys.executable, "-c", LATER, url], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == [f"101 {list(range(1, 21))}"], done.stderr


# ---- users

def user(name, password, **options):
    everything = _Everywhere({permission: re.compile("") for permission in PERMISSIONS})
    return User(name, hash_password(password, 2), everything, **options)


def test_a_secret_that_is_updated_is_looked_at(engine):
    users = Users({"anna": user("anna", "secret")})
    with Broker(engine, amqp="127.0.0.1:0", users=users) as broker:
        parameters = pika.ConnectionParameters(*broker.address, credentials=pika.PlainCredentials("anna", "secret"))
        with pika.BlockingConnection(parameters) as connection:
            connection.update_secret("secret", "it is time")
            assert connection.channel().is_open
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="New secret was refused for user 'anna'"):
                connection.update_secret("wrong", "it is time")


def test_a_client_has_what_its_user_may_do_now(engine):
    """Users who were changed while their clients were connected: from the next method on, also for what goes straight."""
    nothing = {"/": dict.fromkeys(PERMISSIONS, re.compile("^$"))}
    with Broker(engine, amqp="127.0.0.1:0", users=Users({"anna": user("anna", "secret")})) as broker:
        engine.create_queue("jobs")
        parameters = pika.ConnectionParameters(*broker.address, credentials=pika.PlainCredentials("anna", "secret"))
        with pika.BlockingConnection(parameters) as connection:
            channel, other = connection.channel(), connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "jobs", b"x")
            change(broker, Users({"anna": User("anna", hash_password("other", 2), nothing)}))
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="exchange 'amq.default' in vhost '/' refused"):
                channel.basic_publish("", "jobs", b"x")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="access to queue 'jobs' in vhost '/' refused"):
                other.basic_get("jobs")
            change(broker, Users({"anna": user("anna", "other")}))
            connection.channel().basic_get("jobs")


def test_a_user_who_is_none_any_more_is_disconnected(engine):
    """And nobody else; one who is not logged in yet is told nothing."""
    with Broker(engine, amqp="127.0.0.1:0", users=Users({name: user(name, "secret") for name in ("anna", "bert")})) as broker:
        connections = [pika.BlockingConnection(pika.ConnectionParameters(
            *broker.address, credentials=pika.PlainCredentials(name, "secret"))) for name in ("anna", "bert")]
        beginning = Link("a", broker.address, [])
        beginning.write(b"AMQP\0\0\x09\x01")
        beginning.send(0, "connection.startok", mechanism="PLAIN", response=b"\0anna\0secret", locale="en_US")
        assert beginning.read_until({"connection.tune"})
        change(broker, Users({"bert": user("bert", "secret")}))
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="user 'anna' was deleted") as raised:
            connections[0].channel()
        assert raised.value.reply_code == 320
        assert not beginning.read_until({"connection.openok"})
        beginning.socket.close()
        assert connections[1].channel().is_open
        connections[1].close()


def change(broker, users):
    """In the loop of the broker, as SIGHUP does."""
    done = threading.Event()
    broker.loop.call_soon_threadsafe(lambda: (broker.change_users(users), done.set()))
    assert done.wait(60)


def test_who_may_publish_under_another_name(engine):
    users = Users({"anna": user("anna", "secret", impersonates=True), "bert": user("bert", "secret")})
    with Broker(engine, amqp="127.0.0.1:0", users=users) as broker:
        for name in ("anna", "bert"):
            parameters = pika.ConnectionParameters(*broker.address, credentials=pika.PlainCredentials(name, "secret"))
            with pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("jobs")
                if name == "bert":
                    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="user_id property set to 'carl'"):
                        channel.basic_publish("", "jobs", b"x", pika.BasicProperties(user_id="carl"))
                else:
                    channel.basic_publish("", "jobs", b"x", pika.BasicProperties(user_id="carl"))
    assert engine.queues["jobs"].ready == 1


@pytest.mark.parametrize("response", [b"x\0guest\0guest", b"guest", b"\0guest", b"\0guest\0guest\0"])
def test_a_response_of_plain_that_is_none(broker, response):
    link = Link("a", broker.address, [])
    link.connect(Connect(response=response))
    assert link.said == [["a", "the socket is closed"]]
    link.socket.close()


# ---- what the log says

def test_that_nothing_is_durable_is_said_once(broker, caplog):
    with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs")
        assert "durable" not in caplog.text
        channel.exchange_declare("news", durable=True)
        channel.queue_declare("more", durable=True)
    said = [record.getMessage() for record in caplog.records if "durable" in record.getMessage()]
    assert said == ["exchange 'news' was declared durable, and the broker has no store on disk: durable queues and exchanges of "
                    "virtual host '/' end with the process"]


def test_that_messages_may_take_too_many_hops_is_said(caplog):
    with xump.Engine() as engine, Broker(engine, amqp="127.0.0.1:0"):
        assert "the engine of virtual host '/' has hop_limit=64" in caplog.text
    caplog.clear()
    with xump.Engine(hop_limit=1024) as engine, Broker(engine, amqp="127.0.0.1:0"):
        assert "hop_limit" not in caplog.text
