"""What docs/zeromq.md says in its table "who survives what", done to processes: SIGKILL in the middle of work."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.zeromq.proxy import free_endpoint
from tests.zeromq.test_sockets import HOST, Command
from xump import Engine
from xump.zeromq import Client, LazyPirate, MajordomoBroker, PirateBroker, Worker

KILLS = int(os.environ.get("XUMP_KILLS", "3"))
BEATS = ["--heartbeat", "0.1", "--liveness", "5"]
QUICK = {"heartbeat": 0.1, "liveness": 5}


class Sleepy:
    """A worker in a process that takes a request, says so, and never answers."""

    def __init__(self, endpoint, protocol, tmp_path):
        self.taken = tmp_path / "taken"
        os.mkfifo(self.taken)
        self.command = Command(
            "worker", endpoint, "s", "--protocol", protocol, *BEATS, "--", "sh", "-c",
            f"cat > /dev/null; echo > {self.taken}; exec cat {tmp_path}/fifo")

    def kill(self):
        assert self.taken.read_text() == "\n"         # the pipe opens when the worker has its request
        assert self.command.end(signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.parametrize("protocol", ["mdp", "mdp2", "ppp"])
def test_the_request_of_a_killed_worker_is_done_by_the_next(protocol, context, serve, work, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    if protocol == "ppp":
        broker = serve(PirateBroker(HOST, HOST, context=context, **QUICK))
        client = LazyPirate(broker.endpoints[0], timeout=60.0, retries=0, context=context)
    else:
        broker = serve(MajordomoBroker(HOST, context=context, **QUICK))
        client = Client(broker.endpoints[0], timeout=60.0, retries=0, context=context)
    backend = broker.endpoints[-1]
    sleepy, answers = Sleepy(backend, protocol, tmp_path), []
    ask = (b"x",) if protocol == "ppp" else (b"s", b"x")
    with client:
        thread = threading.Thread(target=lambda: answers.append(client.request(*ask)))
        thread.start()
        sleepy.kill()
        work(Worker(backend, b"s", protocol=protocol, context=context, **QUICK), lambda body: [b"next", *body])
        thread.join()
        assert client.tries == 1
    assert answers == [[b"next", b"x"]]
    with open(os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK), "wb"):
        """The orphan of the killed worker, which waits at the pipe, sees its end."""


@pytest.mark.parametrize("system", ["majordomo", "paranoid-pirate"])
def test_a_broker_is_killed_and_comes_back_and_clients_and_workers_with_it(system, context, work):
    ends = [free_endpoint() for _ in range(2)]
    ends = ends[:1] if system == "majordomo" else ends
    first = Command(system, *ends, *BEATS)
    protocol = "mdp2" if system == "majordomo" else "ppp"
    work(Worker(ends[-1], b"s", protocol=protocol, back_off=(0.05, 0.1), context=context, **QUICK))
    ask = (b"s",) if system == "majordomo" else ()
    kind = Client if system == "majordomo" else LazyPirate
    with kind(ends[0], timeout=0.5, retries=100, context=context) as client:
        assert client.request(*ask, b"1") == [b"1"]
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        second = Command(system, *ends, *BEATS)
        for number in range(2, 10):
            assert client.request(*ask, b"%d" % number) == [b"%d" % number]
    assert second.end() == 0


WORKER = """
import sys
from xump.zeromq import Worker
Worker(sys.argv[1], b"s", heartbeat=0.1, liveness=5, back_off=(0.02, 0.1)).run(lambda body: [b"done", *body])
"""

ONCE = """
import sys
from xump import Engine
from xump.zeromq import Replies, Worker, idempotent
engine = Engine()
engine.create_store("disk", "ring", path=sys.argv[2], min_bytes=0)
engine.create_queue("ledger", store="disk", unmatched="keep")
@idempotent(Replies(engine, "replies", store="disk"), with_transaction=True)
def once(body, tx):
    tx.publish("ledger", "", body[0])
    return b"done " + body[0]
Worker(sys.argv[1], b"s", heartbeat=0.1, liveness=5, back_off=(0.02, 0.1)).run(once)
"""


def killed_in_turn(text, words, ask):
    """A worker is killed whenever some requests more were answered, and another one started. `ask(number)` asks once."""
    number = 0
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", text, *words])
        for more in range(5):
            ask(number + more)
        number += 5
        asked = threading.Thread(target=ask, args=(number,))        # this one may be at work when the worker is killed
        asked.start()
        process.kill()
        process.wait()
        process = subprocess.Popen([sys.executable, "-c", text, *words])
        asked.join()
        process.kill()
        process.wait()
        number += 1
    return number


def test_workers_are_killed_again_and_again_and_each_request_is_answered(context, serve):
    broker = serve(MajordomoBroker(HOST, context=context, **QUICK))
    answers = {}
    with Client(broker.endpoints[0], timeout=2.0, retries=1000, context=context) as client:
        def ask(number):
            answers[number] = client.request(b"s", b"%d" % number)

        count = killed_in_turn(WORKER, broker.endpoints, ask)
    assert answers == {number: [b"done", b"%d" % number] for number in range(count)}


def test_a_service_that_does_each_request_once_is_killed_again_and_again(context, serve, tmp_path):
    broker = serve(MajordomoBroker(HOST, context=context, **QUICK))
    path, answers = str(tmp_path / "ring"), {}
    with Client(broker.endpoints[0], timeout=0.5, retries=1000, context=context) as client:
        def ask(number):
            answers[number] = client.request(b"s", b"identity %d" % number, b"%d" % number)

        count = killed_in_turn(ONCE, [*broker.endpoints, path], ask)
    assert answers == {number: [b"done %d" % number] for number in range(count)}
    with Engine() as engine:
        engine.create_store("disk", "ring", path=path)
        assert sorted(int(message.body) for message in engine.queues["ledger"].browse()) == list(range(count)), "each once"
