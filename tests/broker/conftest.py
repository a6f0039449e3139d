"""A broker for each test, with an engine that is checked when the test ends."""

import pika
import pytest

import xump
from xump.broker import Broker


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        yield engine
        engine.check()


@pytest.fixture
def broker(engine):
    with Broker(engine, amqp="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def channel(broker):
    with pika.BlockingConnection(pika.ConnectionParameters(*broker.address)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
