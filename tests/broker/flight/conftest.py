"""A broker with its Flight listener, and clients."""

import time

import pytest

from xump.broker import Broker, Client


@pytest.fixture
def flying(engine):
    """A broker over the test's engine."""
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def client(flying):
    with Client(flying.flight.url, timeout=30) as client:
        yield client


@pytest.fixture(params=["ring", "lmdb"])
def durable(request, engine, tmp_path):
    """The name of a durable store in the test's engine."""
    engine.create_store("disk", request.param, path=str(tmp_path / "store"))
    return "disk"


def until(condition):
    """Wait until it is so."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
