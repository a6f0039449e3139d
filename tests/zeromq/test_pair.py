"""Pairs of brokers in processes of their own: killed, stopped, and with cables that are cut between them."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
import zmq

from tests.zeromq.hosts import hosts
from tests.zeromq.proxy import Cable, free_endpoint
from tests.zeromq.test_sockets import HOST, Asked
from xump.cli.main import main
from xump.errors import RequestTimeout
from xump.zeromq import Client, LazyPirate, Worker

BEAT = 1.0
"""Of the link, in seconds. A server that gets no turn for two of them is right to end, so they are long beside those of a busy
machine."""
KILLS = int(os.environ.get("XUMP_KILLS", "2"))


class Pair:
    """Two brokers with a link, through cables, and how to reach them."""

    def __init__(self, ends, system="majordomo", more=()):
        self._system, self._more, self._ends = system, list(more), ends
        ports = [free_endpoint() for _ in range(6)]
        self.fronts, self.backs, self.links = ports[:2], ports[2:4], ports[4:]
        self.cables = [Cable(self.links[1]), Cable(self.links[0])]      # through which the primary, the backup, hear the other
        for cable in self.cables:
            ends.callback(cable.close)
        self.processes = [None, None]
        for at in (0, 1):
            self.start(at)
        self.await_state(0, "active")
        self.await_state(1, "passive")

    def await_state(self, at, state):
        """Until a server says that it is in a state."""
        assert self.processes[at].stdout.readline().split()[-1] == state

    def start(self, at):
        ends = [self.fronts[at], *([self.backs[at]] if "pirate" in self._system else [])]
        process = subprocess.Popen(
            [sys.executable, "-m", "xump", "zeromq", self._system, *ends, "--role", ("primary", "backup")[at], "--link",
             self.links[at], "--binary-star", self.cables[at].endpoint, "--link-heartbeat", str(BEAT), *self._more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._ends.callback(self._end, process)
        assert "ready" in process.stdout.readline()
        self.processes[at] = process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def kill(self, at):
        self.processes[at].kill()
        self.processes[at].wait()

    @property
    def workers_at(self):
        return self.backs if "pirate" in self._system else self.fronts


@pytest.fixture
def pair():
    with ExitStack() as ends:
        yield lambda *given, **options: Pair(ends, *given, **options)


def ask_forever(context, endpoints, **options):
    return Client(*endpoints, timeout=0.3, retries=10_000, context=context, **options)


def serves(context, endpoint, *, tries):
    """Whether a broker serves a client that comes to it alone, and asks so often. Only for what is known not to change."""
    with Client(endpoint, timeout=0.2, retries=tries - 1, context=context) as client:
        try:
            return client.request(b"mmi.service", b"s") in ([b"200"], [b"404"])
        except RequestTimeout:
            return False


def test_clients_and_workers_of_a_pair_go_on_when_the_active_one_dies_again_and_again(context, pair, work):
    two, done = pair(), []

    def function(body):
        done.append(body[0])
        return [b"done", *body]

    work(Worker(two.fronts, b"s", heartbeat=0.5, liveness=4, back_off=(0.05, 0.1), context=context), function)
    with ask_forever(context, two.fronts) as client:
        number = 0
        for kill in range(KILLS):
            for _ in range(20):
                assert client.request(b"s", b"%d" % number) == [b"done", b"%d" % number]
                number += 1
            active = kill % 2
            two.kill(active)
            assert client.request(b"s", b"after %d" % kill) == [b"done", b"after %d" % kill]
            two.await_state(1 - active, "active")
            two.start(active)
            two.await_state(active, "passive")
    assert set(done) == {b"%d" % n for n in range(number)} | {b"after %d" % n for n in range(KILLS)}


def test_a_cut_link_alone_changes_nothing_and_the_backup_takes_over_when_clients_do_not_reach_the_primary(context, work):
    with ExitStack() as ends:
        two = hosts(ends)
        processes = [
            two.start(at, [sys.executable, "-m", "xump", "zeromq", "majordomo", two.fronts[at], "--role", role, "--link",
                           two.links[at], "--binary-star", two.peers[at], "--link-heartbeat", str(BEAT), "--insecure"])
            for at, role in enumerate(("primary", "backup"))]
        said = [[process.stdout.readline().split()[-1] for _ in range(2)][1] for process in processes]
        assert said == ["active", "passive"]
        work(Worker(two.fronts, b"s", heartbeat=0.5, liveness=4, back_off=(0.05, 0.1), context=context))
        with Client(*two.fronts, timeout=60.0, context=context) as client:
            assert client.request(b"s", b"1") == [b"1"]
            two.cut_link()
            silent = threading.Event()
            threading.Timer(2.2 * BEAT, silent.set).start()
            while not silent.is_set():                          # both count their peer as silent by now
                assert client.request(b"s", b"x") == [b"x"]
            assert [process.poll() for process in processes] == [None, None]
        two.cut_off(0)
        with ask_forever(context, two.fronts) as client:
            assert client.request(b"s", b"2") == [b"2"]
        assert processes[1].stdout.readline().split()[-1] == "active"


def test_a_server_that_stood_still_while_its_peer_took_over_ends(context, pair, work):
    two = pair()
    work(Worker(two.fronts, b"s", heartbeat=0.5, liveness=4, context=context))
    with ask_forever(context, two.fronts) as client:
        assert client.request(b"s", b"1") == [b"1"]
        two.processes[0].send_signal(signal.SIGSTOP)
        assert client.request(b"s", b"2") == [b"2"]
        two.processes[0].send_signal(signal.SIGCONT)
        _, error = two.processes[0].communicate()
        assert two.processes[0].returncode == 1
        assert "stood still" in error
        assert client.request(b"s", b"3") == [b"3"]
        assert two.processes[1].poll() is None


def test_of_two_that_became_active_apart_one_ends_when_they_meet(context, pair, work):
    """What the link is for: without it, clients on both sides make both servers active. Who hears of the other ends, and says
    why: one of them, or both at once."""
    two = pair()
    work(Worker(two.fronts, b"s", heartbeat=0.5, liveness=4, context=context))
    assert serves(context, two.fronts[0], tries=1000)
    for cable in two.cables:
        cable.cut()
    assert serves(context, two.fronts[1], tries=1000)           # a client that reaches the backup alone
    for cable in two.cables:
        cable.mend()
    while all(process.poll() is None for process in two.processes):
        serves(context, two.fronts[0], tries=1)
    for process in two.processes:
        if process.poll() is not None:
            assert process.returncode == 1
            assert "is active, and so is its peer" in process.communicate()[1]


def test_titanic_as_a_pair_the_store_goes_over_with_the_active_one(context, pair, work, tmp_path):
    two = pair(more=["--titanic", str(tmp_path / "ring")])
    accepted = {}
    with ask_forever(context, two.fronts) as client:
        for turn in range(KILLS):
            for number in range(10 * turn, 10 * turn + 10):
                status, uuid = client.request(b"titanic.request", b"s", b"%d" % number)
                assert status == b"200"
                accepted[uuid] = number
            two.kill(turn % 2)
            assert client.request(b"mmi.service", b"titanic.request") == [b"200"]
            two.await_state(1 - turn % 2, "active")
            two.start(turn % 2)
            two.await_state(turn % 2, "passive")
        work(Worker(two.fronts, b"s", heartbeat=0.5, liveness=4, context=context))
        for uuid, number in accepted.items():
            while (reply := client.request(b"titanic.reply", uuid)) == [b"300"]:
                pass
            assert reply == [b"200", b"%d" % number]


@pytest.mark.parametrize("system", ["simple-pirate", "paranoid-pirate"])
def test_pirates_as_a_pair(system, context, pair, work, raw):
    two = pair(system)
    if system == "paranoid-pirate":
        work(Worker(two.backs, protocol="ppp", heartbeat=0.5, liveness=4, context=context))
        with LazyPirate(*two.fronts, timeout=0.3, retries=10_000, context=context) as client:
            assert client.request(b"1") == [b"1"]
            two.kill(0)
            assert client.request(b"2") == [b"2"]
    else:
        two.kill(0)
        with LazyPirate(*two.fronts, timeout=0.3, retries=10_000, context=context) as client:
            asked, worker = Asked(lambda: client.request(b"1")), raw(zmq.REQ, two.backs[1])
            worker.send(b"\1")
            address, _, body = worker.recv_multipart()
            worker.send_multipart([address, b"", body + b"!"])
            while asked.thread.is_alive():          # the client may have asked again meanwhile
                worker.rcvtimeo = 100
                try:
                    address, _, body = worker.recv_multipart()
                    worker.send_multipart([address, b"", body + b"!"])
                except zmq.Again:
                    continue
            assert asked.end() == [b"1!"]


# ---- the command line

@pytest.mark.parametrize(("system", "more"), [("majordomo", []), ("simple-pirate", [HOST])], ids=["majordomo", "simple-pirate"])
def test_a_pair_without_links_of_its_own(system, more):
    """The link follows from the endpoints: each server is told that of the other, and its role."""
    primary, backup = free_endpoint(), free_endpoint()
    with ExitStack() as ends:
        said = []
        for own, peer, role in ((primary, backup, "primary"), (backup, primary, "backup")):
            process = ends.enter_context(subprocess.Popen(
                [sys.executable, "-m", "xump", "zeromq", system, own, *more, "--binary-star", peer, "--role", role,
                 "--link-heartbeat", "0.1"], stdout=subprocess.PIPE, text=True))
            ends.callback(process.kill)
            said.append(process.stdout)
        assert [out.readline().startswith(f"xump: {system} is ready at tcp://127.") for out in said] == [True, True]
        assert [out.readline() for out in said] == [f"xump: {system} is active\n", f"xump: {system} is passive\n"]


@pytest.mark.parametrize("words", [
    [HOST, "--binary-star", "tcp://127.0.0.1:5555", "--role", "primary"],
    ["tcp://127.0.0.1:5555", "--binary-star", "inproc://x", "--role", "primary"],
    ["tcp://127.0.0.1:5555", "--binary-star", "tcp://127.0.0.1:x", "--role", "backup"],
], ids=["a port that is not known", "inproc", "no port"])
def test_a_link_that_does_not_follow_must_be_given(words, capsys):
    assert main(["zeromq", "majordomo", *words]) == 2
    assert "no link follows from the endpoint" in capsys.readouterr().err


def test_a_pair_needs_a_role(capsys):
    assert main(["zeromq", "majordomo", HOST, "--binary-star", "tcp://127.0.0.1:5555"]) == 2
    assert "--role primary or backup" in capsys.readouterr().err
