"""A broker in a process of its own, which a test kills; and a wire to it, which a test cuts when a commit passes."""

import socket
import subprocess
import sys
import threading

from benchmarks.ports import free_port

TOPOLOGY = """
[stores.disk]
type = "ring"
path = "{folder}/disk.xump"
[queues.q]
store = "disk"
history_limit = 1000000
"""


class Process:
    """`xump serve`; it comes back on the same port."""

    def __init__(self, folder):
        self._folder = folder
        self._file = folder / "network.toml"
        self._file.write_text(f"version = 1\n{TOPOLOGY.format(folder=folder)}")
        self.port = free_port()
        self.start()

    def start(self):
        listens = "--amqp", "127.0.0.1:0", "--flight", f"127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "xump", "serve", str(self._file), *listens],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        for line in self._process.stdout:
            said += line
            if self.url in line:
                return
        raise AssertionError(f"the broker has ended: {said}")

    @property
    def url(self):
        return f"grpc://127.0.0.1:{self.port}"

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


PROGRAM = """
import sys
from xump import Engine
from xump.broker import Broker

with Engine() as engine:
    engine.create_store("disk", "ring", path={path!r}, durability="none", group_ms=60_000)
    if "q" not in engine.queues:
        engine.create_queue("q", store="disk", history_limit=None)
    with Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:{port}") as broker:
        print(broker.flight.url, flush=True)
        for line in sys.stdin:
            if line == "sync\\n":
                engine.sync()
            else:
                engine.publish_many("q", [(line.strip(),)] * 10)
            print("done", flush=True)
"""


class Embedded(Process):
    """A program with an engine, whose store writes only when it is told to."""

    def start(self):
        program = PROGRAM.format(path=f"{self._folder}/disk.xump", port=self.port)
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == f"{self.url}\n"

    def say(self, word):
        """`sync`, or the address of ten messages."""
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def kill(self):
        super().kill()
        self._process.stdin.close()


class Wire:
    """Passes connections on to a port of this machine. When a commit of a client passes for the first time, or each time,
    `at_commit` is called with the function that sends it on; no answer comes back meanwhile, and after that the connection is
    cut."""

    def __init__(self, port, at_commit, each=False):
        self._target, self._at_commit, self._each = port, at_commit, each
        self._once = threading.Lock()
        self._seen = False
        self.error = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listening]
        self._threads = []
        self.url = f"grpc://127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, target, *arguments):
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def close(self):
        for one in self._open:
            hang_up(one)
        for thread in self._threads:
            thread.join(60)
        for one in self._open:
            one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._open += [client, broker]
            mute = threading.Event()
            self._start(self._ask, client, broker, mute)
            self._start(self._answer, broker, client, mute)

    def _ask(self, client, broker, mute):
        try:
            while data := received(client):
                if b'"winners"' in data and (self._each or self._is_first()):
                    mute.set()
                    self._at_commit(lambda data=data: sent(broker, data))
                    break
                if not sent(broker, data):
                    break
        except BaseException as error:      # of the test's own function: told at the end
            self.error = error
        hang_up(client)
        hang_up(broker)

    def _answer(self, broker, client, mute):
        while data := received(broker):
            if not mute.is_set() and not sent(client, data):
                break
        hang_up(client)
        hang_up(broker)

    def _is_first(self):
        with self._once:
            first, self._seen = not self._seen, True
            return first


def received(end):
    """The next bytes; none, if the other side is gone."""
    try:
        return end.recv(1 << 16)
    except OSError:
        return b""


def sent(end, data):
    """Whether the other side was there to be sent something."""
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def hang_up(end):
    """End a connection, or a wait for one; whatever waits for it hears of that."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return      # it has ended already
