"""What docs/zeromq.md says in its table "who survives what", done to processes: SIGKILL in the middle of work."""

import os
import signal
import threading

import pytest

from tests.zeromq.proxy import free_endpoint
from tests.zeromq.test_sockets import HOST, Command
from xump.zeromq import Client, LazyPirate, MajordomoBroker, PirateBroker, Worker

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
        client = LazyPirate(broker.endpoints[0], timeout=20.0, retries=0, context=context)
    else:
        broker = serve(MajordomoBroker(HOST, context=context, **QUICK))
        client = Client(broker.endpoints[0], timeout=20.0, retries=0, context=context)
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
