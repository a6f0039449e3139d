"""The table "Who survives what" of docs/zeromq.md, cell by cell: the failure comes, and the client has its answer or not.

Here a request is in the hands of a worker (or server) when the failure comes. `yes` in the table means that the client has its
answer in the end; `no` that it has none after all its tries.
"""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from tests.patience import PATIENCE
from tests.zeromq.proxy import Cable, free_endpoint
from xump import Engine
from xump.errors import RequestTimeout
from xump.zeromq import Client, LazyPirate, MajordomoBroker, Pair, PirateBroker, Replies, Worker, idempotent
from xump.zeromq.freelance import Addressed, FreelanceServer, OneAtATime, Shotgun
from xump.zeromq.server import Server

FAST = {"heartbeat": 0.1, "liveness": 5}
FAILURES = (
    "worker dies", "worker hangs", "worker comes back", "broker restarts", "client restarts", "network cut", "machine fails")


def bound(make):
    """A server on a port that one before it had: libzmq gives it back a little later."""
    while True:
        try:
            return make()
        except zmq.ZMQError as error:
            assert error.errno == zmq.EADDRINUSE


class World:
    """What all systems need: threads that end, and servers that end as if they were killed, without a word."""

    patient = True
    """Whether clients ask for as long as it may take: they do where the table says that there is an answer in the end."""
    serves_itself = True
    """Whether servers do the work: then they end only when it is done."""

    def __init__(self, ends):
        self.ends, self.context = ends, zmq.Context()
        ends.callback(self.context.destroy, linger=0)
        self.taken, self.go_on = threading.Event(), threading.Event()

    def work(self, body):
        """The first request is taken, and waits until the failure has come."""
        if not self.taken.is_set():
            self.taken.set()
            assert self.go_on.wait(60)
        return [b"done", *body]

    def run(self, server):
        left = threading.Event()

        def serve():
            with ThreadPoolExecutor(2) as server._hands:
                Server.run(server)
                left.set()

        thread = threading.Thread(target=serve)
        thread.start()

        def end():
            server.stop()
            left.wait()
            if self.serves_itself:
                self.go_on.set()            # what is done now nobody hears of
            thread.join()
            server.engine.close()
            server.close()
        self.ends.callback(end)
        return end

    def raw(self, kind, endpoint):
        socket = self.context.socket(kind)
        socket.linger, socket.rcvtimeo = 0, 60_000
        socket.connect(endpoint)
        return socket


class Broker(World):
    """Systems with a broker and workers."""

    serves_itself = False
    protocol, ready, options = "mdp2", [b"MDPW02", b"\1", b"s"], {}
    timeout = 0.4

    def __init__(self, ends):
        super().__init__(ends)
        self.front, self.back = free_endpoint(), free_endpoint()
        self.cable = Cable(self.front)
        ends.callback(self.cable.close)
        self.start()

    @property
    def worker_end(self):
        return self.front

    def start(self):
        self.kill = self.run(bound(lambda: MajordomoBroker(self.front, context=self.context, **FAST, **self.options)))

    def add_worker(self):
        worker = Worker(self.worker_end, b"s", protocol=self.protocol, back_off=(0.05, 0.1), context=self.context, **FAST)
        thread = threading.Thread(target=worker.run, args=(self.work,))
        thread.start()
        end = ExitStack()                   # to close it again does nothing
        for step in (worker.close, thread.join, worker.stop, self.go_on.set):
            end.callback(step)
        self.ends.callback(end.close)
        return end.close

    def bad_worker(self):
        """One that takes a request; returns its socket."""
        socket = self.raw(zmq.REQ if self.protocol == "simple" else zmq.DEALER, self.worker_end)
        self.ends.callback(socket.close)
        socket.send_multipart(self.ready)
        return socket

    def take(self, socket):
        while len(socket.recv_multipart()) < 3:
            pass                            # heartbeats

    @property
    def tries(self):
        """How often clients ask: where there is no answer, one comes to nothing as surely as many. Where there is, it may have to
        wait for the disk, as Titanic's does."""
        return {"timeout": self.timeout, "retries": int(PATIENCE / self.timeout) if self.patient else 5}

    def client(self):
        return Client(self.cable.endpoint, context=self.context, **self.tries)

    def ask(self, client):
        return client.request(b"s", b"x")[0]

    def after_client_restart(self, client):
        """What a new client has of the request of the first one."""
        return

    def answered(self, failure):
        with self.client() as client:
            if failure == "worker comes back":
                self.go_on.set()
                end = self.add_worker()
                assert self.ask(client) == b"done"
                end()
                self.add_worker()
                return self.is_answered(client)
            bad = self.bad_worker() if failure in ("worker dies", "worker hangs") else None
            if bad is None:
                self.add_worker()
            answers = []
            asking = threading.Thread(target=lambda: answers.append(self.is_answered(client)))
            asking.start()
            if bad is not None:
                self.take(bad)
                if failure == "worker dies":
                    bad.close()
                self.go_on.set()
                self.taken.set()
                self.add_worker()
            else:
                assert self.taken.wait(60)
            if failure == "client restarts":
                self.go_on.set()
                asking.join()
                return self.after_client_restart(client) == b"done"
            if failure == "network cut":
                self.cable.cut()
                self.go_on.set()
                self.cable.mend()
            elif failure in ("broker restarts", "machine fails"):
                self.kill()
                if failure == "broker restarts":
                    self.start()
                self.go_on.set()        # not before: a reply into a connection that is just being closed is lost
            asking.join()
            return answers == [True]

    def is_answered(self, client):
        try:
            return self.ask(client) == b"done"
        except RequestTimeout:
            return False


class Majordomo(Broker):
    pass


class Idempotent(Broker):
    def __init__(self, ends):
        super().__init__(ends)
        self.engine = Engine()
        self.done = []

        @idempotent(Replies(self.engine, "replies"))
        def work(body):
            self.done.append(body)
            return World.work(self, body)
        self.work = work

    def ask(self, client):
        return client.request(b"s", b"the identity", b"x")[0]

    def after_client_restart(self, client):
        with self.client() as other:
            answer = self.ask(other)
        assert len(self.done) == 1, "done once"
        return answer


class Titanic(Broker):
    def __init__(self, ends, folder):
        self.options = {"titanic": str(folder / "ring")}
        super().__init__(ends)
        self.uuid = None

    def ask(self, client):
        if self.uuid is None:
            self.uuid = client.request(b"titanic.request", b"s", b"x")[1]
        return self.after_client_restart(client)

    def after_client_restart(self, client):
        while (reply := client.request(b"titanic.reply", self.uuid)) == [b"300"]:
            pass
        return reply[1] if len(reply) > 1 else None


class Paranoid(Broker):
    protocol, ready = "ppp", [b"\1"]

    @property
    def worker_end(self):
        return self.back

    def start(self):
        self.kill = self.run(bound(lambda: PirateBroker(self.front, self.back, context=self.context, **FAST)))

    def client(self):
        return LazyPirate(self.cable.endpoint, context=self.context, **self.tries)

    def ask(self, client):
        return client.request(b"x")[0]


class Simple(Paranoid):
    protocol = "simple"

    def start(self):
        self.kill = self.run(bound(lambda: PirateBroker(self.front, self.back, paranoid=False, context=self.context)))

    def add_worker(self):
        socket, stop = self.raw(zmq.REQ, self.back), threading.Event()
        socket.rcvtimeo = 20

        def run():
            socket.send(b"\1")
            while not stop.is_set():
                try:
                    address, _, *body = socket.recv_multipart()
                    socket.send_multipart([address, b"", *self.work(body)])
                except zmq.Again:
                    continue
            socket.close()
        thread = threading.Thread(target=run)
        thread.start()

        def end():
            self.go_on.set()
            stop.set()
            thread.join()
        self.ends.callback(end)
        return end


class Star(Broker):
    """Majordomo as a pair."""

    def start(self):
        if not hasattr(self, "links"):
            self.links, self.other = [free_endpoint(), free_endpoint()], free_endpoint()
            self.kill = self.start_one(0, self.front)
            passive = threading.Event()
            self.start_one(1, self.other, passive)
            assert passive.wait(60)
        else:
            self.start_one(0, self.front)       # the primary again

    def start_one(self, at, end, passive=None):
        pair = Pair(("primary", "backup")[at], self.links[at], self.links[1 - at], heartbeat=1.0)
        server = bound(lambda: MajordomoBroker(end, context=self.context, pair=pair, **FAST))
        if passive is not None:
            server.star.changed = lambda state: passive.set()
        return self.run(server)

    @property
    def worker_end(self):
        return self.front

    def add_worker(self):
        front = self.front
        try:
            self.front = [front, self.other]
            return super().add_worker()
        finally:
            self.front = front

    def client(self):
        return Client(self.cable.endpoint, self.other, context=self.context, **self.tries)


class OneServer(Broker):
    """A Lazy Pirate and a server: the server is worker and broker in one."""

    endpoints = 1
    patient = True
    """Whether clients ask for as long as it may take: they do where the table says that there is an answer in the end."""
    serves_itself = True

    def __init__(self, ends):
        World.__init__(self, ends)
        self.fronts = [free_endpoint() for _ in range(self.endpoints)]
        self.cable = Cable(self.fronts[0])
        ends.callback(self.cable.close)
        self.numbered = False
        self.kills = []

    def start(self, at):
        self.kills.append(self.run(bound(lambda: FreelanceServer(
            self.fronts[at], self.work, context=self.context, numbered=self.numbered, threads=self.endpoints,
            identity=self.cable.endpoint if at == 0 else None))))

    def client(self):
        return LazyPirate(self.cable.endpoint, *self.fronts[1:], context=self.context, **self.tries)

    def ask(self, client):
        return client.request(b"x")[0]

    def answered(self, failure):
        for at in range(self.endpoints):
            self.start(at)
        with self.client() as client:
            answers = []
            asking = threading.Thread(target=lambda: answers.append(self.is_answered(client)))
            asking.start()
            assert self.taken.wait(60)
            if failure == "network cut":
                self.cable.cut()
                self.go_on.set()
                self.cable.mend()
            elif failure == "client restarts":
                self.go_on.set()
                asking.join()
                return self.after_client_restart(client) == b"done"
            elif failure == "worker hangs":
                self.ends.callback(self.go_on.set)          # until the end of the test
            else:
                self.kills[0]()
                if failure in ("worker comes back", "broker restarts"):
                    self.start(0)
            asking.join()
            return answers == [True]


class First(OneServer):
    endpoints = 2

    def client(self):
        return OneAtATime(self.cable.endpoint, *self.fronts[1:], context=self.context, timeout=0.4, rounds=100)


class Second(OneServer):
    endpoints = 2

    def __init__(self, ends):
        super().__init__(ends)
        self.numbered = True

    def client(self):
        return Shotgun(self.cable.endpoint, *self.fronts[1:], context=self.context, timeout=60.0)


class Third(OneServer):
    endpoints = 2

    def client(self):
        return Addressed(
            self.cable.endpoint, *self.fronts[1:], context=self.context, ping=0.1, ttl=0.5, timeout=0.4, tries=200)


SYSTEMS = {
    "Lazy Pirate": OneServer, "Simple Pirate": Simple, "Paranoid Pirate": Paranoid, "Majordomo": Majordomo,
    "Idempotent service": Idempotent, "Titanic": Titanic, "Binary Star": Star, "Freelance 1": First, "Freelance 2": Second,
    "Freelance 3": Third,
}


def table():
    """{(system, failure): whether the documentation says yes}."""
    text = (Path(__file__).parents[2] / "docs/zeromq.md").read_text().split("## Who survives what")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in re.findall(r"^\|.*$", text, re.MULTILINE)]
    head, _, *body = rows
    assert tuple(head[1:]) == FAILURES
    return {(row[0], failure): cell.split(":")[0] for row in body for failure, cell in zip(FAILURES, row[1:], strict=True)}


def test_the_table_has_all_systems_and_failures():
    assert set(table()) == {(system, failure) for system in SYSTEMS for failure in FAILURES}
    assert set(table().values()) == {"yes", "no"}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_who_survives_what(system, failure, tmp_path):
    with ExitStack() as ends:
        kind = SYSTEMS[system]
        world = kind(ends, tmp_path) if kind is Titanic else kind(ends)
        world.patient = table()[system, failure] == "yes"
        assert world.answered(failure) == world.patient


def test_a_broker_that_stood_still_hears_its_workers_before_it_takes_them_for_dead():
    """Stopped by its system, say, for longer than it is patient: their heartbeats lie in its socket."""
    now, asked, inside, go_on = [0.0], [], threading.Event(), threading.Event()

    def clock():
        if now[0] == 1.0:
            asked.append(None)
            if len(asked) == 3:             # when it has read, when it has handed out, and when it looks what is due
                inside.set()
                assert go_on.wait(60)
        return now[0]

    with zmq.Context() as context, Engine() as engine:
        broker = MajordomoBroker("inproc://broker", engine=engine, context=context, clock=clock, heartbeat=10.0, liveness=2)
        thread = threading.Thread(target=broker.run)
        thread.start()
        with context.socket(zmq.DEALER) as worker:
            worker.connect("inproc://broker")
            worker.send_multipart([b"MDPW02", b"\1", b"s"])
            while not broker.machine.workers:
                time.sleep(0.001)
            now[0] = 1.0
            broker.wake()
            assert inside.wait(60)
            worker.send_multipart([b"MDPW02", b"\5"])
            now[0] = 1000.0
            go_on.set()
            while len(broker.machine._alive._told) and next(iter(broker.machine._alive._told.values())) < 1000.0:
                time.sleep(0.001)
            assert broker.machine.workers == 1
            broker.stop()
            thread.join()
        broker.close()
