"""A queue with a lease lasts as long as somebody renews it."""

import time

import pytest

from tests.broker.flight.test_publish import rows
from xump import Engine
from xump.broker import Broker, Client
from xump.errors import QueueNotFound


def test_a_queue_whose_lease_ends_is_deleted(engine, flying, client):
    engine.create_queue("leased")
    engine.create_queue("other")
    client.lease("leased", 60)
    client.publish("leased", rows(*"ab" * 6000))            # more than a slice
    flying.flight.look_after(time.monotonic() + 50)
    assert "leased" in engine.queues
    client.lease("leased", 100)
    flying.flight.look_after(time.monotonic() + 90)
    assert "leased" in engine.queues
    flying.flight.look_after(time.monotonic() + 110)
    assert list(engine.queues) == ["other"]
    flying.flight.look_after(time.monotonic() + 1000)       # nothing is left of it


def test_a_queue_that_was_made_again_has_no_lease(engine, flying, client):
    engine.create_queue("leased")
    client.lease("leased", 1000)
    client.delete_queue("leased")
    engine.create_queue("leased")
    flying.flight.look_after(time.monotonic() + 10)
    assert not flying.flight.leases_of(flying.vhosts["/"])._ends
    flying.flight.look_after(time.monotonic() + 2000)
    assert "leased" in engine.queues


def test_a_lease_is_counted_anew_by_the_next_broker(tmp_path):
    for there in (True, False):
        with Engine() as engine:
            engine.create_store("disk", "ring", path=str(tmp_path / "store"))
            with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
                if there:
                    engine.create_queue("leased", store="disk")
                    with Client(broker.flight.url) as client:
                        client.lease("leased", 60)
                broker.flight.look_after(time.monotonic() + (50 if there else 70))
                assert ("leased" in engine.queues) is there


@pytest.mark.parametrize("seconds", [0, 0.5, -1, "60", True, 1e12])
def test_what_is_no_lease(engine, client, seconds):
    engine.create_queue("leased")
    with pytest.raises(ValueError, match="expected 1 to"):
        client.lease("leased", seconds)
    with pytest.raises(QueueNotFound):
        client.lease("nowhere", 60)
