"""Stage, commit, abort: what was committed enters whole, in order, once; what was not leaves nothing."""

import threading
import time

import pyarrow as pa
import pytest
from pyarrow import flight

import xump
from xump.broker import Broker, Client, Limits
from xump.broker.flight import decisions, staging
from xump.broker.flight.attempts import STAGED, Attempt
from xump.broker.flight.entering import Entering
from xump.errors import Conflict, QueueNotFound, StoreFull, TransactionError

from tests.broker.flight.conftest import until


def rows(*addresses):
    return pa.record_batch({"address": list(addresses)})


def addresses(queue):
    return [message.address for message in queue.browse()]


@pytest.fixture(params=["ram", "ring", "lmdb"])
def jobs(request, engine, tmp_path):
    """A queue. In a file it waits for no disk, which may stand still for longer than a client waits for its answer."""
    if request.param != "ram":
        engine.create_store("disk", request.param, path=str(tmp_path / "store"), durability="process")
    return engine.create_queue("jobs", store="ram" if request.param == "ram" else "disk")


def staged(engine):
    return [name for name in list(engine.queues) if name.startswith("xump.staging/")]


def test_winners_enter_in_order_and_others_are_dropped(engine, jobs, client):
    parts = [client.stage("run", part, 0, "jobs", [rows(f"{part}a"), rows(f"{part}b", f"{part}c")]) for part in range(3)]
    client.stage("run", 1, 7, "jobs", rows("loser"))
    other = client.stage("other", 0, 0, "jobs", rows("other"))
    assert parts[0] == ("run", 0, 0, 3, False)
    assert addresses(jobs) == []
    done = client.commit("run", "jobs", [parts[2], parts[0], parts[1]])
    assert done == (9, False, True, None)
    assert addresses(jobs) == ["2a", "2b", "2c", "0a", "0b", "0c", "1a", "1b", "1c"]
    assert staged(engine) == ["xump.staging/jobs/other/0-0"]
    assert client.commit("other", "jobs", [other]).rows == 1
    assert staged(engine) == []


def test_a_commit_is_done_once(engine, jobs, client):
    part = client.stage("run", 0, 0, "jobs", rows("a", "b"))
    assert client.commit("run", "jobs", [part]) == (2, False, True, None)
    assert client.commit("run", "jobs", [part]) == (2, True, True, None)
    assert addresses(jobs) == ["a", "b"]
    assert client.abort("run", "jobs") == "committed"
    with pytest.raises(TransactionError, match="run 'run' was committed at 20"):
        client.stage("run", 0, 1, "jobs", rows("late"))


def test_a_version_is_committed_once_whatever_its_run(engine, jobs, client):
    key = ("app", 5)
    part = client.stage("one", 0, 0, "jobs", rows("a", "b"), key=key)
    client.commit("one", "jobs", [part], key=key)
    again = client.stage("two", 0, 0, "jobs", iter([rows("a", "b"), rows("c")]), key=key)
    assert again == ("two", 0, 0, 3, True)
    done = client.commit("two", "jobs", [again], key=key)
    assert (done.rows, done.again, done.entered) == (2, True, True)
    assert "3 rows were given now, and 2 were committed before" in done.warning
    assert addresses(jobs) == ["a", "b"]
    assert client.abort("one", "jobs") == "committed"
    for call in (lambda: client.stage("three", 0, 0, "jobs", rows("x"), key=("app", 4)),
                 lambda: client.commit("three", "jobs", [], key=("app", 4))):
        with pytest.raises(TransactionError, match="version 4 of 'app' is before the last one that was committed, 5"):
            call()
    part = client.stage("four", 0, 0, "jobs", rows("d"), key=("app", 6))
    assert client.commit("four", "jobs", [part], key=("app", 6)) == (1, False, True, None)
    assert addresses(jobs) == ["a", "b", "d"]


def test_what_an_earlier_batch_of_an_application_left_goes_with_the_next_commit(engine, jobs, client):
    client.stage("one", 0, 0, "jobs", rows("a"), key=("app", 1))
    client.stage("later", 0, 0, "jobs", rows("a"), key=("app", 3))
    part = client.stage("two", 0, 0, "jobs", rows("b"), key=("app", 2))
    client.commit("two", "jobs", [part], key=("app", 2))
    assert staged(engine) == ["xump.staging/jobs/later/0-0"]


def test_an_application_commits_into_two_queues_side_by_side(engine, jobs, client):
    """Each queue has versions of its own."""
    other = engine.create_queue("other", store=jobs.store.name)
    parts = [client.stage(f"for {queue.name}", 0, 0, queue.name, rows(queue.name), key=("app", 1)) for queue in (jobs, other)]
    for queue, part in zip((jobs, other), parts, strict=True):
        assert client.commit(part.run, queue.name, [part], key=("app", 1)) == (1, False, True, None)
        assert addresses(queue) == [queue.name]
    assert staged(engine) == []


def test_an_abort_drops_the_run_for_good(engine, jobs, client):
    part = client.stage("run", 0, 0, "jobs", rows("a"))
    assert client.abort("run", "jobs") == "aborted"
    assert client.abort("run", "jobs") == "aborted"
    assert staged(engine) == []
    for call in (lambda: client.commit("run", "jobs", [part]), lambda: client.stage("run", 0, 1, "jobs", rows("b"))):
        with pytest.raises(TransactionError, match="run 'run' was aborted at 20"):
            call()
    assert addresses(jobs) == []


def test_of_an_abort_and_a_commit_at_the_same_time_the_first_one_decides(engine, jobs, flying):
    """Whichever that is, both are told the same, and nothing is left."""
    said = []
    with Client(flying.flight.url) as one, Client(flying.flight.url) as two:
        for number in range(20):
            part = one.stage(f"run {number}", 0, 0, "jobs", rows("a", "b"))
            ready, came = threading.Barrier(2), []

            def abort(run=part.run, ready=ready, came=came):
                ready.wait()
                came.append(two.abort(run, "jobs"))

            aborting = threading.Thread(target=abort)
            aborting.start()
            ready.wait()
            before = jobs.ready
            try:
                assert one.commit(part.run, "jobs", [part]).rows == 2
                committed = True
            except TransactionError as error:
                assert f"run '{part.run}' was aborted at" in str(error)
                committed = False
            aborting.join()
            assert came == ["committed" if committed else "aborted"]
            assert jobs.ready == before + 2 * committed
            assert staged(engine) == []
            said += came
    assert len(said) == 20


def test_an_empty_run_is_committed(engine, jobs, client):
    empty = client.stage("run", 0, 0, "jobs", [])
    assert empty == ("run", 0, 0, 0, False)
    assert client.commit("run", "jobs", [empty]) == (0, False, True, None)
    assert client.commit("run", "jobs", []).again


def test_a_winner_that_is_not_there(engine, jobs, client):
    part = client.stage("run", 0, 0, "jobs", rows("a"))
    for wrong in (part._replace(partition=1, attempt=1), part._replace(rows=2)):
        with pytest.raises(TransactionError, match="nothing was published"):
            client.commit("run", "jobs", [part, wrong] if wrong.attempt else [wrong])
    assert client.commit("run", "jobs", [part]).rows == 1
    assert addresses(jobs) == ["a"]


def test_a_stream_that_is_not_sealed_leaves_nothing(engine, jobs, flying):
    client = flight.connect(flying.flight.url)
    command = b'{"stage": {"run": "run", "partition": 0, "attempt": 0, "target": "jobs"}}'
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(command), rows("x").schema)
    writer.write_batch(rows("x"))
    until(lambda: staged(engine))
    writer.close()
    until(lambda: not (staged(engine) or len(flying.flight.calls)))


def test_a_stream_that_lost_rows_is_not_sealed(engine, jobs, flying):
    client = flight.connect(flying.flight.url)
    command = b'{"stage": {"run": "run", "partition": 0, "attempt": 0, "target": "jobs"}}'
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(command), rows("x").schema)
    writer.write_batch(rows("x"))
    writer.write_metadata(pa.py_buffer(b'{"seal": 2}'))
    with pytest.raises(flight.FlightServerError, match="1 rows came, and 2 were sent"):
        writer.close()
    assert staged(engine) == []


def test_a_stream_that_goes_on_after_its_seal_adds_nothing(engine, jobs, flying):
    client = flight.connect(flying.flight.url)
    command = b'{"stage": {"run": "run", "partition": 0, "attempt": 0, "target": "jobs"}}'
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), rows("x").schema)
    writer.write_batch(rows("x"))
    writer.write_metadata(pa.py_buffer(b'{"seal": 1}'))
    assert answers.read().to_pybytes() == b'{"rows": 1}'
    writer.write_batch(rows("y"))
    with pytest.raises(flight.FlightServerError, match="sealed, and takes no more rows"):
        writer.close()
    assert engine.queues["xump.staging/jobs/run/0-0"].ready == 1


def test_an_attempt_has_a_number_of_its_own(engine, jobs, client):
    client.stage("run", 0, 0, "jobs", rows("a"))
    with pytest.raises(Conflict, match="attempt 0 of partition 0 of run 'run' is staged already"):
        client.stage("run", 0, 0, "jobs", rows("b"))
    assert engine.queues["xump.staging/jobs/run/0-0"].ready == 1


def test_a_target_without_room_is_decided_all_the_same(engine, client):
    jobs = engine.create_queue("jobs", limit=2)
    part = client.stage("run", 0, 0, "jobs", rows("a", "b", "c"))
    done = client.commit("run", "jobs", [part])
    assert (done.rows, done.again, done.entered) == (3, False, False)
    assert "queue 'jobs' has no room: 1 rows enter as soon as it has" in done.warning
    assert jobs.stable_id == 0
    assert client.browse("jobs").read_all().num_rows == 0
    jobs.purge()
    until(lambda: not (jobs.entering))
    assert client.browse("jobs").read_all().column("address").to_pylist() == ["c"]


@pytest.fixture
def line(monkeypatch):
    """The publishers in line for room, the first one first."""
    came = []
    for name in ("_enter_later", "_publish_later"):
        later = getattr(xump.Engine, name)
        monkeypatch.setattr(xump.Engine, name, lambda self, *given, later=later: came.append(later(self, *given)) or came[-1])
    return lambda: [one for one in came if one.waits]


def test_what_enters_stands_in_line_for_room(engine, client, line, monkeypatch):
    """It looks for no room, and other publishers that came later are let in later."""
    jobs = engine.create_queue("jobs", limit=1)
    jobs.publish("first")
    parts = [client.stage(run, 0, 0, "jobs", rows(f"{run}1", f"{run}2")) for run in "ab"]
    entered = []
    enter = xump.Engine.enter
    monkeypatch.setattr(xump.Engine, "enter", lambda self, *given: entered.append(enter(self, *given)) or entered[-1])
    assert not client.commit("a", "jobs", parts[:1]).entered
    until(lambda: len(line()) == 1)
    later = threading.Thread(target=client.publish, args=("jobs", rows("later")))
    later.start()
    until(lambda: len(line()) == 2)
    assert entered == [0]
    for address, others in (("a1", 2), ("later", 1), ("a2", 0)):
        engine.get("jobs").ack()
        assert addresses(jobs) == [address]         # let in by that call
        until(lambda others=others: len(line()) == others)
    later.join()
    until(lambda: entered == [0, 0, 0])             # after `a1` there was no room for `a2`, and after `a2` nothing was left
    assert not client.commit("b", "jobs", parts[1:]).entered
    for address in ("b1", "b2"):
        until(lambda: len(line()) == 1)
        engine.get("jobs").ack()
        assert addresses(jobs) == [address]
    assert client.commit("b", "jobs", parts[1:]).entered
    assert jobs.entering == 0 and not line()


def test_what_waits_for_room_in_the_store_enters_when_there_is_some(engine, flying, client, durable, line, monkeypatch):
    jobs = engine.create_queue("jobs", store=durable)
    part = client.stage("run", 0, 0, "jobs", rows("a", "b", "c"))
    [committer] = engine._committers()
    with monkeypatch.context() as patch:
        patch.setattr(Entering, "_step", lambda *_: None)
        patch.setattr(staging, "COMMIT_SECONDS", 0.01)
        assert client._ask("commit", run="run", target="jobs", winners=[[0, 0, part.rows]])["longer"]
    engine.sync()
    with committer._turn:               # its thread does not say how much room there really is
        committer._port.has_room(0)
        entering = flying.flight.staging_of(flying.vhosts["/"])._entering
        flying.loop.call_soon_threadsafe(entering._step, "jobs")
        until(line)
    until(lambda: jobs.entering == 0)
    assert addresses(jobs) == ["a", "b", "c"] and not line()


def test_the_end_of_the_broker_leaves_the_line(engine, line):
    jobs = engine.create_queue("jobs", limit=1)
    jobs.publish("first")
    for session in range(2):
        with (Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker,
              Client(broker.flight.url) as client):
            if not session:
                assert not client.commit("a", "jobs", [client.stage("a", 0, 0, "jobs", rows("1", "2"))]).entered
            until(line)
        assert not line() and jobs.entering == 2
    jobs.purge()
    assert engine.enter("jobs", 1) == 1


def test_much_enters_step_by_step(engine, jobs, client):
    parts = [client.stage("run", part, 0, "jobs", pa.table({"body": [bytes(100)] * 30_000})) for part in range(2)]
    assert client.commit("run", "jobs", parts) == (60_000, False, True, None)
    assert jobs.ready == 60_000


def test_steps_are_smaller_while_other_clients_call(engine, jobs, flying, client, monkeypatch):
    steps = []
    enter = xump.Engine.enter
    monkeypatch.setattr(xump.Engine, "enter", lambda self, queue, count: steps.append(count) or enter(self, queue, count))
    rows_in = pa.table({"body": [bytes(100)] * 5_000})

    def commit(run):
        steps.clear()
        client.commit(run, "jobs", [client.stage(run, 0, 0, "jobs", rows_in)])
        return max(steps)

    engine.create_queue("other")
    with Client(flying.flight.url) as another:
        assert another.publish("other", rows("a")).rows == 1
        taken = another.take("other", credit=10)
        assert next(iter(taken)).num_rows == 1            # the call stays open
        assert commit("busy") == 500
        taken.close()
    until(lambda: not flying.flight.calls.busy())
    assert commit("alone") == 1000


def test_staging_is_bounded(engine):
    engine.create_queue("jobs")
    limits = Limits(staging_bytes=20_000)
    with (Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=limits) as broker,
          Client(broker.flight.url) as client):
        body = pa.record_batch({"body": [bytes(15_000)]})
        part = client.stage("run", 0, 0, "jobs", body)
        with pytest.raises(StoreFull, match="beyond its staging_bytes, 20000"):
            client.stage("run", 1, 0, "jobs", body)
        assert staged(engine) == ["xump.staging/jobs/run/0-0"]
        client.commit("run", "jobs", [part])
        client.stage("next", 0, 0, "jobs", body)


def test_a_run_that_nobody_goes_on_with_is_dropped(engine, flying, client):
    engine.create_queue("jobs")
    part = client.stage("run", 0, 0, "jobs", rows("a"))
    staging = flying.flight.staging_of(flying.vhosts["/"])
    alive = staging._alive["jobs", "run"]
    staging.look_after(alive + 86_399)
    assert staged(engine) == ["xump.staging/jobs/run/0-0"]
    staging.look_after(alive + 86_401)      # a sum of floats may be a little less than its parts
    assert staged(engine) == []
    with pytest.raises(TransactionError, match="run 'run' was dropped at 20.* no sign of life for 86400 seconds"):
        client.commit("run", "jobs", [part])


def test_a_run_is_dropped_though_there_is_no_room_to_say_so(engine, flying, client, durable):
    jobs = engine.create_queue("jobs", store=durable)
    part = client.stage("run", 0, 0, "jobs", rows("a"))
    staging = flying.flight.staging_of(flying.vhosts["/"])
    [committer] = engine._committers()
    with committer._turn, engine.not_waiting():
        committer._port.has_room(0)
        staging.look_after(staging._alive["jobs", "run"] + 86_401)
    assert staged(engine) == [] and not jobs.meta and not staging._alive
    engine.sync()
    with pytest.raises(TransactionError, match="is not staged for 'jobs'"):
        client.commit("run", "jobs", [part])


def test_a_partition_has_one_winner(engine, jobs, client):
    parts = [client.stage("run", 0, attempt, "jobs", rows("a")) for attempt in range(2)]
    for given in (parts, [parts[0], parts[0]]):
        with pytest.raises(ValueError, match="a partition has one winner"):
            client.commit("run", "jobs", given)
    assert len(staged(engine)) == 2
    assert client.commit("run", "jobs", parts[1:]).rows == 1
    assert addresses(jobs) == ["a"]


def test_a_commit_has_the_key_of_what_was_staged(engine, jobs, client):
    part = client.stage("run", 0, 0, "jobs", rows("a"), key=("app", 7))
    for key in (None, ("app", 8)):
        with pytest.raises(TransactionError, match="give both the same. Nothing was published"):
            client.commit("run", "jobs", [part], key=key)
    assert client.commit("run", "jobs", [part], key=("app", 7)).rows == 1


def test_what_waits_for_a_target_is_not_for_its_successor(engine, flying, client):
    """A queue of the same name: what is staged, or comes, for the first one never enters the second."""
    jobs = engine.create_queue("jobs")
    part = client.stage("run", 0, 0, "jobs", rows("a"))
    staging = flying.flight.staging_of(flying.vhosts["/"])
    attempt, _ = staging.stage({"run": "open", "partition": 0, "attempt": 0, "target": "jobs"})
    staging.begin(attempt)
    assert Attempt.read("", engine.queues["xump.staging/jobs/run/0-0"].meta[STAGED]).incarnation == jobs.incarnation
    engine.delete_queue("jobs")
    jobs = engine.create_queue("jobs")
    with pytest.raises(TransactionError, match="queue 'jobs', for which run 'run' is staged, was deleted"):
        client.commit("run", "jobs", [part])
    with pytest.raises(TransactionError, match="run 'open' is staged, was deleted"):
        staging.add(attempt, rows("b"), 100)
    staging.end(attempt)
    staging.look_after(time.monotonic())
    assert (jobs.ready, jobs.entering, staged(engine)) == (0, 0, [])


def test_what_waits_for_a_target_that_is_deleted_is_dropped(engine, jobs, flying, client):
    engine.create_queue("other")
    client.stage("run", 0, 0, "jobs", rows("a"))
    client.stage("run", 1, 0, "other", rows("b"))
    engine.delete_queue("jobs")
    staging = flying.flight.staging_of(flying.vhosts["/"])
    staging.look_after(staging._alive["jobs", "run"])
    assert staged(engine) == ["xump.staging/other/run/1-0"]


@pytest.mark.parametrize("wrong, error", [
    ({"run": "a/b"}, ValueError), ({"run": ""}, ValueError), ({"run": "x" * 201}, ValueError), ({"partition": -1}, ValueError),
    ({"key": ("", 1)}, ValueError), ({"key": ("app", -1)}, ValueError), ({"target": "nowhere"}, QueueNotFound),
    ({"target": "exchange"}, ValueError), ({"target": "staged"}, ValueError)], ids=str)
def test_wrong_arguments(engine, client, wrong, error):
    engine.create_queue("jobs")
    engine.create_queue("exchange", transit=True)
    engine.create_queue("staged", staged=True)
    given = {"run": "run", "partition": 0, "attempt": 0, "target": "jobs", "batches": rows("a"), **wrong}
    with pytest.raises(error):
        client.stage(**given)
    assert staged(engine) == []


@pytest.mark.parametrize("store", ["ring", "lmdb"])
def test_a_restart_keeps_what_is_sealed_and_goes_on_with_what_was_decided(tmp_path, store):
    path = str(tmp_path / "store")

    def started(engine):
        engine.create_store("disk", store, path=path)
        with engine.building():
            return Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0")

    with xump.Engine() as engine:
        jobs = engine.create_store("disk", store, path=path) and engine.create_queue("jobs", store="disk", limit=2)
        with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker, Client(broker.flight.url) as client:
            part = client.stage("run", 0, 0, "jobs", rows("a", "b", "c", "d"), key=("app", 1))
            assert not client.commit("run", "jobs", [part], key=("app", 1)).entered
            sealed = client.stage("next", 0, 0, "jobs", rows("e"))
        engine.create_queue("xump.staging/broken/0-0", store="disk", staged=True, meta={
            "flight.staged": b'{"run":"broken","partition":0,"attempt":0,"target":"jobs","key":null,"rows":null,"bytes":9}'})
    with xump.Engine() as engine, started(engine) as broker, Client(broker.flight.url) as client:
        jobs = engine.queues["jobs"]
        assert staged(engine) == ["xump.staging/jobs/run/0-0", "xump.staging/jobs/next/0-0"]
        assert (jobs.ready, jobs.entering) == (2, 2)
        assert client.commit("again", "jobs", [part._replace(committed=True)], key=("app", 1)).again
        jobs.purge()
        until(lambda: not (jobs.entering))
        assert addresses(jobs) == ["c", "d"]
        jobs.purge()
        assert client.commit("next", "jobs", [sealed]) == (1, False, True, None)
        assert addresses(jobs) == ["e"]
        engine.check()


def test_a_version_that_is_asked_for_again_is_kept_for_longer(engine, jobs, client, monkeypatch):
    """A job that runs each week with the same version must not publish in the fifth."""
    now = time.time()
    part = client.stage("run", 0, 0, "jobs", rows("a"), key=("app", 1))
    client.commit("run", "jobs", [part], key=("app", 1))
    for week in range(8):
        monkeypatch.setattr(decisions.time, "time", lambda week=week: now + week * 7 * 86_400)
        part = client.stage(f"run {week}", 0, 0, "jobs", rows("a"), key=("app", 1))
        assert client.commit(f"run {week}", "jobs", [part], key=("app", 1)).again
        other = client.stage(f"other {week}", 0, 0, "jobs", rows("b"))
        client.commit(f"other {week}", "jobs", [other])         # what makes room in the map forgets what is old
    assert addresses(jobs).count("a") == 1
    decided = staging.decided("run", decisions.find(jobs.meta, "run", ("app", 1)))
    assert time.strftime("committed at %Y-%m-%d", time.gmtime(now)) in str(decided)


def test_what_was_decided_is_forgotten_within_bounds():
    meta = {}
    for number in range(700):
        for name, value in decisions.changes(meta, f"run {number}", (f"app {number}", 1), "committed", 5).items():
            if value is None:
                del meta[name]
            else:
                meta[name] = value
        for name, value in decisions.changes(meta, f"aborted {number}", None, "aborted", 0).items():
            if value is None:
                del meta[name]
            else:
                meta[name] = value
    assert sum(len(name) + len(value) for name, value in meta.items()) <= decisions.BYTES_MAX
    assert decisions.find(meta, "x", ("app 699", 1)).rows == 5
    assert decisions.find_run(meta, "aborted 699").state == "aborted"
    assert decisions.find_run(meta, "aborted 1") is None
