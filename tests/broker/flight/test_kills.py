"""A broker that is killed between stage and commit, in a commit, and between the steps in which rows enter."""

import os
import re
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from benchmarks.ports import free_port
from tests.broker.flight.conftest import until
from xump.broker import Client
from xump.broker.answers import BrokerUnreachable
from xump.errors import StoreFull

TOPOLOGY = """\
version = 1
[queues.jobs]
store = "broker"
[queues.narrow]
store = "broker"
limit = 1500
"""


class Process:
    """`xump serve` with a store on disk, on a port of its own that stays the same."""

    def __init__(self, folder, store, *options):
        self.folder, self.store, self.options, self.port = folder, store, options, free_port()
        (folder / "network.toml").write_text(TOPOLOGY)
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "xump", "serve", str(self.folder / "network.toml"), "--store", self.store, "--path",
             str(self.folder / "store"), "--amqp", "127.0.0.1:0", "--flight", f"127.0.0.1:{self.port}", *self.options],
            stdout=subprocess.PIPE, text=True, env=os.environ)
        line = self.process.stdout.readline()
        self.url = re.fullmatch(r"xump serve: AMQP on \S+, Flight on (grpc://127\.0\.0\.1:\d+)\n", line)[1]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def served(request, tmp_path):
    """A broker; a test may name the store, and options of the command."""
    served = Process(tmp_path, *getattr(request, "param", ("ring",)))
    yield served
    served.kill()


BOTH = pytest.mark.parametrize("served", [("ring",), ("lmdb",)], indirect=True, ids=["ring", "lmdb"])


@pytest.fixture
def client(served):
    with Client(served.url, timeout=20) as client:
        yield client


def part_of(number, rows=5_000):
    return pa.table({"address": [f"{number}/{row}" for row in range(rows)], "body": [bytes(50)] * rows})


def entered(client, queue="jobs"):
    return client.browse(queue, columns=["address"]).read_all().column("address").to_pylist()


def expected(*parts, rows=5_000):
    return [f"{part}/{row}" for part in parts for row in range(rows)]


@BOTH
def test_between_stage_and_commit(served, client):
    parts = [client.stage("run", number, 0, "jobs", part_of(number), key=("app", 1)) for number in range(2)]
    served.kill()
    with pytest.raises(BrokerUnreachable):
        client.commit("run", "jobs", parts, key=("app", 1), timeout=0.2)
    served.start()
    assert entered(client) == []
    assert client.commit("run", "jobs", parts, key=("app", 1)) == (10_000, False, True, None)
    served.kill()
    served.start()
    assert client.commit("run", "jobs", parts, key=("app", 1)).again
    assert entered(client) == expected(0, 1)


def test_a_stream_that_was_open(served, client):
    sent = threading.Event()

    def batches():
        yield part_of(0)
        sent.set()
        gone.wait()
        yield part_of(1)

    gone = threading.Event()
    errors = []

    def stage():
        try:
            client.stage("run", 0, 0, "jobs", batches())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=stage)
    thread.start()
    sent.wait()
    served.kill()
    served.start()
    gone.set()
    thread.join()
    assert [type(error) for error in errors] == [BrokerUnreachable]
    assert [name for name in client.stats()["queues"] if name.startswith("xump.staging/")] == []
    assert client.stage("run", 0, 0, "jobs", part_of(0)).rows == 5_000


@pytest.mark.parametrize("served, after_rows", [(("ring",), None), (("ring",), 1), (("ring",), 8_000), (("lmdb",), 1)],
                         indirect=["served"], ids=str)
def test_in_a_commit(served, client, after_rows):
    """The client asks again by itself, and what it asked for happens once."""
    parts = [client.stage("run", number, 0, "jobs", part_of(number)) for number in range(3)]
    done = []
    commit = threading.Thread(target=lambda: done.append(client.commit("run", "jobs", parts, timeout=60)))
    with Client(served.url) as other:
        commit.start()
        if after_rows is not None:
            until(lambda: other.stats()["queues"]["jobs"]["ready"] >= after_rows)
    served.kill()
    served.start()
    commit.join()
    assert (done[0].rows, done[0].entered) == (15_000, True)
    assert entered(client) == expected(0, 1, 2)
    assert client.abort("run", "jobs") == "committed"


@BOTH
def test_between_the_steps(served, client):
    part = client.stage("run", 0, 0, "narrow", part_of(0))
    assert not client.commit("run", "narrow", [part]).entered
    seen = []
    for _ in range(2):
        served.kill()
        served.start()
        until(lambda: client.stats()["queues"]["narrow"]["ready"] >= 1500)
        with client.take("narrow", credit=1500) as taken:
            batch = next(taken.batches)
            seen += batch.column("address").to_pylist()
            taken.ack(batch)
    until(lambda: not client.stats()["selectors"])
    with client.take("narrow", credit=1500) as taken:
        for batch in taken:
            seen += batch.column("address").to_pylist()
            taken.ack(batch)
            if len(seen) >= 5_000:
                break
    assert seen == expected(0)
    assert client.abort("run", "narrow") == "committed"


def test_what_a_producer_had_sent(served, client):
    batches = [part_of(number, 100).to_batches()[0] for number in range(60)]
    killed = threading.Event()

    def kill():
        until(lambda: Client(served.url).stats()["queues"]["jobs"]["ready"] > 500)
        served.kill()
        served.start()
        killed.set()

    killer = threading.Thread(target=kill)
    killer.start()

    def held_back():
        for number, batch in enumerate(batches):
            if number == 20:
                killed.wait()
            yield batch

    with pytest.raises(BrokerUnreachable):
        client.publish("jobs", held_back(), producer="p", sequence=0)
    killer.join()
    client.publish("jobs", batches, producer="p", sequence=0)
    assert entered(client) == expected(*range(60), rows=100)


@pytest.mark.parametrize(
    "served", [("ring", "--staging-bytes", "2000", "--staging-seconds", "50")], indirect=True, ids=["bounds"])
def test_the_bounds_of_the_command(served, client):
    with pytest.raises(StoreFull, match="beyond its staging_bytes, 2000"):
        client.stage("run", 0, 0, "jobs", part_of(0))
