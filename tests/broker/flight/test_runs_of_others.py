"""A staged row belongs to its target, and only the broker touches it."""

import pyarrow as pa
import pytest
from pyarrow import flight

from xump.broker.answers import AccessRefused
from xump.errors import Conflict

from tests.broker.flight.conftest import until
from tests.broker.flight.test_publish import rows

STAGED = "xump.staging/jobs/run/0-0"


@pytest.fixture
def part(engine, client):
    """An attempt that is staged for one of two queues."""
    for name in ("jobs", "other"):
        engine.create_queue(name)
    return client.stage("run", 0, 0, "jobs", rows("a", "b"), key=("app", 1))


@pytest.mark.parametrize("decide", [lambda c: c.abort("run", "other"), lambda c: c.commit("run", "other", []),
                                    lambda c: c.commit("run", "other", [], key=("app", 1))])
def test_a_run_of_the_same_name_for_another_queue_touches_nothing(engine, client, part, decide):
    decide(client)
    assert client.commit("run", "jobs", [part], key=("app", 1)) == (2, False, True, None)
    assert engine.queues["jobs"].ready == 2


def test_numbers_are_of_a_target(engine, client, part):
    other = client.stage("run", 0, 0, "other", rows("c"))
    with pytest.raises(Conflict, match="attempt 0 of partition 0 of run 'run' is staged already"):
        client.stage("run", 0, 0, "jobs", rows("d"))
    client.commit("run", "other", [other])
    client.commit("run", "jobs", [part], key=("app", 1))
    assert [engine.queues[name].ready for name in ("jobs", "other")] == [2, 1]


@pytest.mark.parametrize("call", [
    lambda c: c.browse(STAGED), lambda c: c.publish(STAGED, rows("forged")), lambda c: c.purge(STAGED),
    lambda c: c.delete_queue(STAGED), lambda c: c.lease(STAGED, 60), lambda c: c.take(STAGED), lambda c: c.offsets(STAGED),
    lambda c: c.create_queue("xump.staging/jobs/run/1-0"), lambda c: c.create_queue("dead", dead_letter=STAGED),
    lambda c: c.stage("forged", 0, 0, STAGED, rows("x")),
    lambda c: c.apply({"version": 1, "selectors": [{"source": "jobs", "when": "always", "do": {"copy_to": STAGED}}]})])
def test_nobody_touches_what_is_staged(engine, client, part, call):
    """Not even who may do everything."""
    with pytest.raises(AccessRefused, match="is for staged messages, which the broker keeps to itself"):
        call(client)
    assert client.commit("run", "jobs", [part], key=("app", 1)).rows == 2


def test_what_is_staged_is_not_shown(engine, flying, client, part):
    assert engine.queues[STAGED].ready == 2
    assert [one["name"] for one in client.queues()] == list(client.stats()["queues"]) == ["jobs", "other"]
    assert [one.descriptor.path for one in flight.connect(flying.flight.url).list_flights()] == [[b"jobs"], [b"other"]]
    assert list(client.topology()["queues"]) == ["jobs", "other"]


@pytest.mark.parametrize("staged", [False, True])
def test_a_queue_that_somebody_else_has_made_takes_no_rows(engine, client, staged):
    """And is not deleted."""
    engine.create_queue("jobs")
    foreign = engine.create_queue(STAGED, staged=staged)
    with pytest.raises(Conflict, match="was not made by staging: have it deleted, or stage with another number"):
        client.stage("run", 0, 0, "jobs", rows("a"))
    assert (foreign.ready, STAGED in engine.queues) == (0, True)


def test_runs_are_remembered_while_something_is_staged(engine, flying, client):
    """To ask about others, as often as one likes, leaves nothing."""
    engine.create_queue("jobs")
    staging = flying.flight.staging_of(flying.vhosts["/"])
    for number in range(5):
        client._ask("stage", run=f"run {number}", partition=0, attempt=0, target="jobs")
    assert staging._alive == {}
    with pytest.raises(TypeError):
        client.stage("broken", 0, 0, "jobs", pa.record_batch({"at": [1.5]}))
    until(lambda: staging._alive == {})
    client.stage("run", 0, 0, "jobs", rows("a"))
    assert list(staging._alive) == [("jobs", "run")]


@pytest.mark.parametrize("seal", [b"true", b"1.0", b'"1"', b"2"])
def test_a_seal_is_a_whole_number(engine, flying, seal):
    engine.create_queue("jobs")
    client = flight.connect(flying.flight.url)
    command = b'{"stage": {"run": "run", "partition": 0, "attempt": 0, "target": "jobs"}}'
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), rows("a").schema)
    writer.write_batch(rows("a"))
    writer.write_metadata(pa.py_buffer(b'{"seal": ' + seal + b"}"))
    assert answers.read() is None
    with pytest.raises(flight.FlightServerError, match="1 rows came, and .* were sent"):
        writer.close()
