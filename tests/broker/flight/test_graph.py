"""The calls over Flight that are no streams."""

import subprocess
import sys
import time

import pytest

from xump.broker import purging
from xump.errors import Conflict, StoreNotFound

TOPOLOGY = {"version": 1, "queues": {"jobs": {"limit": 5}, "audit": {}},
            "selectors": [{"source": "jobs", "when": "always", "do": {"copy_to": "audit"}, "name": "audited"}]}


def test_queues_are_created_purged_and_deleted(engine, client):
    client.create_queue("jobs", limit=5)
    client.create_queue("jobs", limit=5)
    assert engine.queues["jobs"].limit == 5
    with pytest.raises(Conflict):
        client.create_queue("jobs", limit=6)
    engine.publish_many("jobs", [("x",)] * 4)
    assert client.queues() == [{"name": "jobs", "store": "ram", "ready": 4, "delayed": 0, "outstanding": 0, "history": 0,
                                "entering": 0}]
    assert (client.purge("jobs", upto=1), client.purge("jobs")) == (1, 3)
    assert (client.delete_queue("jobs"), client.delete_queue("jobs")) == (True, False)


@pytest.fixture
def slices(engine, monkeypatch):
    """How many messages each call has deleted, of slices of 10."""
    counts, whole = [], type(engine)._purge

    def counted(*arguments):
        found = whole(*arguments)
        counts.append(found[0])
        return found

    monkeypatch.setattr(purging, "SLICE", 10)
    monkeypatch.setattr(type(engine), "_purge", counted)
    return counts


def test_a_large_queue_is_purged_and_deleted_by_slices(engine, client, slices):
    jobs = engine.create_queue("jobs")
    engine.publish_many("jobs", [("x",)] * 95)
    assert client.purge("jobs", upto=35) == 35 and jobs.ready == 60
    assert client.purge("jobs") == 60 and jobs.ready == 0
    assert max(slices) == 10 and sum(slices) == 95
    engine.publish_many("jobs", [("x",)] * 30)
    assert client.delete_queue("jobs") and max(slices) == 10 and sum(slices) == 125


def test_a_topology_is_applied_and_read(engine, client):
    client.apply(TOPOLOGY)
    engine.publish("jobs", "x")
    assert engine.queues["audit"].ready == 1
    assert client.topology() == engine.topology()
    assert client.stats()["queues"]["audit"]["ready"] == 1
    assert client.stats()["selectors"].keys() == engine.stats()["selectors"].keys()
    client.sync()


def test_the_clock_is_that_of_the_broker(client):
    before = time.time_ns()
    assert before <= client.clock() <= time.time_ns()


def test_stores_are_not_opened_from_afar(client, tmp_path):
    with pytest.raises(StoreNotFound, match="the operator of the broker opens stores"):
        client.apply({"version": 1, "stores": {"mine": {"type": "ring", "path": str(tmp_path / "x")}}})
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_is_said(client):
    with pytest.raises(ValueError, match="no action 'dance'; there are ping"):
        client._ask("dance")
    with pytest.raises(ValueError, match="no option 'x' here; there are name"):
        client._ask("delete_queue", x=1)
    with pytest.raises(ValueError, match="name=5"):
        client._ask("delete_queue", name=5)


def test_who_speaks_amqp_only_needs_no_pyarrow():
    code = ("import sys, xump.broker; assert not [name for name in sys.modules if name.startswith('pyarrow')]; "
            "xump.broker.Client, xump.broker.AsyncClient; assert 'pyarrow.flight' in sys.modules; print('so')")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "so\n"
