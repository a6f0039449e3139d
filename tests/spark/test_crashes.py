"""Whatever dies between stage and commit: each row is in the queue once, or none is."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException

from tests.spark.conftest import ROOT, Served, numbers, rows
from tests.spark.cut import Process, Wire
from tests.spark.piping import pipe
from xump.broker import Client
from xump.broker.answers import BrokerUnreachable

WAIT = 120


@pytest.fixture
def process(tmp_path):
    made = Process(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def wired():
    """Makes wires."""
    wires = []

    def make(port, at_commit, each=False):
        wires.append(Wire(port, at_commit, each))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()
        assert wire.error is None


def seen(process):
    """The numbers in the queue, and the queues that messages are entering."""
    with Client(process.url) as client:
        found = client.browse("q", columns=["headers"], headers={"n": "int64"}).read_all().column("headers").to_pylist()
        entering = [one for one in client.queues() if one["entering"]]
    return [one["n"] for one in found], entering


def settled(process):
    """The numbers in the queue, once nothing is entering."""
    found, _ = until(process, lambda found, entering: not entering)
    return found


def until(process, is_so):
    """Look until `is_so` is true of it, and return that. The broker may be on its way back meanwhile."""
    deadline = time.monotonic() + WAIT
    last = "nothing"
    while time.monotonic() < deadline:
        try:
            last = seen(process)
            if is_so(*last):
                return last
        except BrokerUnreachable as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"the last that was seen: {last}")


def write(frame, url, **options):
    frame.write.format("xump").mode("append").option("endpoint", url).options(**options).save("q")


def test_a_worker_that_dies_in_the_middle_of_its_partition(spark, served):
    def die_once(batches):
        for number, batch in enumerate(batches):
            if number == 1 and TaskContext.get().partitionId() == 1 and TaskContext.get().attemptNumber() == 0:
                os._exit(1)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        frame = rows(spark, 10_000, 2)
        write(frame.mapInArrow(die_once, frame.schema), served.url)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert numbers(served.queue) == list(range(10_000))
    assert [name for name in served.engine.queues if name.startswith("xump.staging/")] == []


def test_a_task_that_fails_for_good_leaves_nothing(spark, served):
    def fail(batches):
        yield next(batches)
        raise OSError("no more")

    frame = rows(spark, 100, 2)
    with pytest.raises(PySparkException, match="no more"):
        write(frame.mapInArrow(fail, frame.schema), served.url)
    assert (served.queue.ready, list(served.engine.queues)) == (0, ["q"])


def test_tasks_that_end_out_of_order(spark, served):
    """Partition 0 waits for partition 1."""
    folder = served.folder

    def in_turn(batches):
        done = f"{folder}/one is done"
        if TaskContext.get().partitionId() == 0:
            deadline = time.monotonic() + WAIT
            while not os.path.exists(done) and time.monotonic() < deadline:
                time.sleep(0.01)
        yield from batches
        if TaskContext.get().partitionId() == 1:
            open(done, "w").close()

    frame = rows(spark, 1_000, 2)
    write(frame.mapInArrow(in_turn, frame.schema), served.url)
    assert numbers(served.queue) == list(range(1_000))


def test_the_answer_to_a_commit_is_lost(spark, process, wired):
    def lose(send):
        send()
        until(process, lambda found, entering: len(found) == 1000)

    wire = wired(process.port, lose)
    write(rows(spark, 1000), wire.url)
    assert settled(process) == list(range(1000))


def test_the_broker_is_killed_before_the_commit_reaches_it(spark, process, wired):
    def restart(send):
        process.kill()
        process.start()

    write(rows(spark, 1000), wired(process.port, restart).url)
    assert settled(process) == list(range(1000))


@pytest.mark.parametrize("pause", [0, 0.005, 0.05])
def test_the_broker_is_killed_in_the_commit(spark, process, wired, pause):
    def restart(send):
        send()
        time.sleep(pause)       # not waited for: it is killed at some step of the commit
        process.kill()
        process.start()

    write(rows(spark, 20_000), wired(process.port, restart).url)
    assert settled(process) == list(range(20_000))


@pytest.mark.parametrize("sent", [False, True])
def test_the_broker_does_not_come_back_in_time(spark, process, wired, sent):
    """The job fails; what was decided stays, what was not is gone, and running it again with its version publishes it once."""
    def kill(send):
        if sent:
            send()
            until(process, lambda found, entering: len(found) == 1000)
        process.kill()

    key = {"txnAppId": "job", "txnVersion": 1}
    with pytest.raises((PySparkException, Py4JJavaError), match="version 1 of 'job' was committed: run it again"):
        write(rows(spark, 1000), wired(process.port, kill).url, timeoutMs=3000, **key)
    process.start()
    assert len(seen(process)[0]) == (1000 if sent else 0)
    write(rows(spark, 1000), process.url, **key)
    assert settled(process) == list(range(1000))


@pytest.mark.parametrize("sent", [False, True])
def test_a_commit_that_raises_is_followed_by_an_abort(spark, process, wired, sent):
    """The broker lives, and no answer to a commit comes. What was decided stays, whatever Spark asks for then; what was not is
    dropped at once."""
    def lose(send):
        if sent:
            send()
            until(process, lambda found, entering: len(found) == 1000)

    text = "not known whether the rows were committed: if they were, running the job again publishes them twice"
    with pytest.raises((PySparkException, Py4JJavaError), match=text):
        write(rows(spark, 1000), wired(process.port, lose, each=True).url, timeoutMs=2000)
    assert seen(process) == (list(range(1000)) if sent else [], [])


@pytest.mark.parametrize("sent", [False, True])
def test_a_commit_of_a_stream_that_raises(spark, process, wired, tmp_path, sent):
    def lose(send):
        if sent:
            send()
            until(process, lambda found, entering: len(found) == 1000)

    source, checkpoint = f"{tmp_path}/source", f"{tmp_path}/checkpoint"
    rows(spark, 1000).write.parquet(source)
    with pytest.raises(PySparkException, match="not known whether version 0 of '.*' was committed: run it again"):
        pipe(spark, source, checkpoint, wired(process.port, lose, each=True).url, "q", timeoutMs=2000)
    assert len(seen(process)[0]) == (1000 if sent else 0)
    assert seen(process)[1] == []
    pipe(spark, source, checkpoint, process.url, "q")
    assert sorted(settled(process)) == list(range(1000))


@pytest.mark.parametrize("sent", [False, True])
def test_the_driver_is_killed(spark, process, wired, tmp_path, sent):
    """Before or after its commit. A restarted query goes on, and drops what the first one has left. The Python worker that
    commits is of another group, and asks again for a while, so nothing of that passes either."""
    def kill(send):
        if sent:
            send()
            until(process, lambda found, entering: len(found) == 1000)
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)

    given = f"{tmp_path}/source", f"{tmp_path}/checkpoint"
    rows(spark, 1000).write.parquet(given[0])
    url = wired(process.port, kill, each=True).url
    driver = subprocess.Popen([sys.executable, "-m", "tests.spark.piping", *given, url, "q"], start_new_session=True, cwd=ROOT,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert driver.wait(WAIT) == -signal.SIGKILL
    found, entering = seen(process)
    assert (len(found), entering) == (1000 if sent else 0, [])
    pipe(spark, *given, process.url, "q")
    assert sorted(settled(process)) == list(range(1000))


def test_a_speculative_loser_is_dropped(spark, served):
    """An attempt beside the winner of its partition was staged, and is not named by the commit."""
    import pyarrow

    table = pyarrow.table({"address": ["a"], "body": [b"b"]})
    with Client(served.url) as client:
        winner = client.stage("run", 0, 1, "q", table)
        client.stage("run", 0, 2, "q", table)
        assert client.commit("run", "q", [winner]).rows == 1
    assert (served.queue.ready, list(served.engine.queues)) == (1, ["q"])


@pytest.fixture
def small(tmp_path):
    made = Served(tmp_path, max_bytes=16 << 20)
    yield made
    made.close()


def test_a_ring_that_is_nearly_full(spark, small):
    """The job fails where its rows have no room, and leaves nothing; fewer rows enter."""
    wide = rows(spark, 40_000).selectExpr("address", "cast(repeat('x', 400) AS binary) AS body", "headers")
    with pytest.raises(PySparkException, match=r"the store of queue 'xump\.staging/.*' is full: .* bytes are left"):
        write(wide, small.url)
    assert (small.queue.ready, list(small.engine.queues)) == (0, ["q"])
    write(wide.limit(4_000), small.url)
    assert numbers(small.queue) == list(range(4_000))
