"""Majordomo beside majortomo's broker (PyPI) and a bare ROUTER to DEALER proxy. `python -m benchmarks.zeromq`.

Brokers, workers and the client are processes; the workers of a broker share one, so that what is compared is not lost in the
work of many processes on few cores. All brokers have the same peers: raw DEALER sockets that speak majortomo's dialect
of MDP 0.2, and answer with what they got, 100 bytes. Peers take whole messages in compiled code, so that most of the time is the
brokers'. The proxy is libzmq's own, in C, with no protocol and nothing to keep: it is the least that two hops cost. It has the
same peers, without the frames of Majordomo.

- *one at a time*: one client, which waits for each reply; one worker.
- *500 at once*: one client keeps 500 requests out; four workers. `broker` is the CPU time of the broker's process. *floor* is the
  least broker in pyzmq: one service, nothing checked, nothing kept, no heartbeats. What it gains on majortomo is all that a
  broker can gain that has pyzmq handle its frames one by one.
- *Titanic*: 1,000 requests are out that are not accepted yet, so many share a write to the disk; until the last reply is on the
  disk. The bar is on the rate of Majordomo with 1,000 out.
- *fail-over*: of a Binary Star with a heartbeat of a second, from SIGKILL to the first reply of the other broker.
- *many*: the broker's machine without sockets, a request and its reply: 10 workers of one service, 1,000 workers of 100
  services, and these with 100,000 requests that wait. The bar is on the last beside the first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count as numbers
from pathlib import Path
from time import perf_counter, perf_counter_ns

import zmq
import zmq.backend

from benchmarks.harness import BODY, Contestant, Table, compare, describe, parser_of, speed_table, take_turns, verdict
from benchmarks.ports import free_port
from xump import Engine
from xump.zeromq import Majordomo
from xump.zeromq.messages import messages

WORKERS = 4
WINDOW, TITANIC_WINDOW = 500, 1000
BAR_ONE, BAR_MANY, BAR_TITANIC = 0.6, 1.5, 0.5
BROKER_US = 50
FLAT = 1.5
"""What the caches of the processor may cost: 100,000 requests do not fit into them."""
SERVICE = b"echo"
TICKS = os.sysconf("SC_CLK_TCK")

MAJORTOMO = "import sys; from majortomo.broker import Broker; Broker(bind=sys.argv[1]).run()"
PROXY = """
import sys, zmq
context = zmq.Context()
front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
for end, where in ((front, sys.argv[1]), (back, sys.argv[2])):
    end.sndhwm = end.rcvhwm = 100_000
    end.bind(where)
zmq.proxy(front, back)
"""
FLOOR = """
import sys, zmq
from collections import deque
from benchmarks.zeromq import light
socket, idle, waiting = zmq.Context().socket(zmq.ROUTER), deque(), deque()
socket.sndhwm = socket.rcvhwm = 100_000
socket.bind(sys.argv[1])
receive, send = light(socket)
while True:
    try:
        frames = receive()
        while True:
            if frames[2] == b"MDPC02":
                waiting.append(frames)
            elif frames[3] == b"\\1":
                idle.append(frames[0])
            else:
                idle.append(frames[0])
                send([frames[4], b"", b"MDPC02", b"\\4", b"echo", frames[6]])
            frames = receive(zmq.NOBLOCK)
    except zmq.Again:
        while idle and waiting:
            request = waiting.popleft()
            send([idle.popleft(), b"", b"MDPW02", b"\\2", request[0], b"", request[5]])
"""
WORKERS_PROGRAM = """
import sys, zmq
from xump.zeromq.messages import messages
endpoint, count, has_protocol = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "mdp"
context, poller, ends = zmq.Context(), zmq.Poller(), {}
for _ in range(count):
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    poller.register(socket, zmq.POLLIN)
    ends[socket] = end = messages(socket)
    if has_protocol:
        end.send([b"", b"MDPW02", b"\\1", b"echo"])
while True:
    for socket, _ in poller.poll():
        end = ends[socket]
        frames = end.receive()
        if has_protocol and frames[2] == b"\\2":
            frames[2] = b"\\4"
        end.send(frames)        # a heartbeat goes back as it came
"""


def free_endpoint() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def ours(endpoint: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "xump", "zeromq", "majordomo", endpoint, *more]


def light(socket: zmq.Socket[bytes]) -> tuple[Callable[..., list[bytes]], Callable[[list[bytes]], None]]:
    """How the floor receives and sends: frame by frame, which costs half of `recv_multipart` and `send_multipart`."""
    recv, give, more = socket.recv, partial(zmq.backend.Socket.send, socket), int(zmq.SNDMORE)

    def receive(flags: int = 0) -> list[bytes]:
        frame = recv(flags, copy=False)
        frames = [frame.bytes]
        while frame.more:
            frame = recv(copy=False)
            frames.append(frame.bytes)
        return frames

    def send(frames: list[bytes]) -> None:
        for frame in frames[:-1]:
            give(frame, more)
        give(frames[-1], 0)

    return receive, send


class Peers:
    """A broker and its workers, in processes, and a client of theirs."""

    def __init__(self, ends: ExitStack, broker: list[str], endpoint: str, backend: str | None, workers: int) -> None:
        self.has_protocol = backend is None
        self._ends = ends
        self.broker = self.start(broker)
        self.start(
            [sys.executable, "-c", WORKERS_PROGRAM, backend or endpoint, str(workers), "mdp" if self.has_protocol else "bare"])
        self.client = ends.enter_context(zmq.Context.instance().socket(zmq.DEALER))
        self.client.linger, self.client.rcvtimeo = 0, 60_000
        self.client.sndhwm = self.client.rcvhwm = 100_000
        self.client.connect(endpoint)
        self._messages = messages(self.client)
        for _ in range(workers * 50):          # until all workers are there, most likely
            self.ask()
            self.receive()

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._ends.callback(process.wait)
        self._ends.callback(process.kill)
        return process

    def receive(self) -> list[bytes]:
        frames = self._messages.receive(wait=True)
        assert frames is not None
        return frames

    def ask(self, service: bytes = SERVICE, *body: bytes) -> None:
        self._messages.send([*([b"", b"MDPC02", b"\2", service] if self.has_protocol else [b""]), *(body or (BODY,))])

    def cpu(self) -> float:
        """Seconds of CPU that the broker has taken."""
        words = Path(f"/proc/{self.broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS


@contextmanager
def peers(name: str, workers: int, *more: str) -> Iterator[Peers]:
    endpoint = free_endpoint()
    backend = free_endpoint() if name == "proxy" else None
    command = {
        "xump": ours(endpoint, *more),
        "majortomo": [sys.executable, "-c", MAJORTOMO, endpoint],
        "floor": [sys.executable, "-c", FLOOR, endpoint],
        "proxy": [sys.executable, "-c", PROXY, endpoint, backend or ""],
    }[name]
    with ExitStack() as ends:
        yield Peers(ends, command, endpoint, backend, workers)


def one_at_a_time(name: str, count: int) -> float:
    """Nanoseconds a request."""
    with peers(name, 1) as to:
        began = perf_counter_ns()
        for _ in range(count):
            to.ask()
            to.receive()
        return (perf_counter_ns() - began) / count


def at_once(name: str, count: int, window: int = WINDOW) -> dict[str, float]:
    """Nanoseconds a request, and those of the broker's CPU."""
    with peers(name, WORKERS) as to:
        cpu, began = to.cpu(), perf_counter_ns()
        for _ in range(window):
            to.ask()
        for _ in range(count - window):
            to.receive()
            to.ask()
        for _ in range(window):
            to.receive()
        return {"": (perf_counter_ns() - began) / count, "CPU of the broker": (to.cpu() - cpu) * 1e9 / count}


def by_titanic(count: int, data: str | None) -> dict[str, float]:
    """Nanoseconds a request, until it is accepted, and until all replies are on the disk."""
    with tempfile.TemporaryDirectory(dir=data) as folder, peers("xump", WORKERS, "--titanic", f"{folder}/ring") as to:
        cpu, began = to.cpu(), perf_counter_ns()
        for _ in range(TITANIC_WINDOW):
            to.ask(b"titanic.request", SERVICE, BODY)
        uuids = []
        for number in range(count):
            uuids.append(to.receive()[-1])
            if number < count - TITANIC_WINDOW:
                to.ask(b"titanic.request", SERVICE, BODY)
        accepted = perf_counter_ns() - began
        for uuid in uuids[-WORKERS:]:           # workers reply in the order in which they were asked
            while True:
                to.ask(b"titanic.reply", uuid)
                if to.receive()[3] == b"200":
                    break
        return {"accepted": accepted / count, "done": (perf_counter_ns() - began) / count,
                "CPU of the broker": (to.cpu() - cpu) * 1e9 / count}


def fail_over() -> float:
    """Seconds from the death of the active broker to the first reply of the other."""
    ends, links = [free_endpoint(), free_endpoint()], [free_endpoint(), free_endpoint()]
    with ExitStack() as stack:
        brokers = []
        for at, role in enumerate(("primary", "backup")):
            brokers.append(subprocess.Popen(
                ours(ends[at], "--role", role, "--link", links[at], "--binary-star", links[1 - at]), stdout=subprocess.PIPE))
            stack.callback(brokers[at].wait)
            stack.callback(brokers[at].kill)
            assert brokers[at].stdout is not None
        for broker in brokers:
            for _ in range(2):                  # it is ready; it is active, or passive
                broker.stdout.readline()        # type: ignore[union-attr]
        other = stack.enter_context(zmq.Context.instance().socket(zmq.DEALER))
        other.linger, other.rcvtimeo = 0, 10
        other.connect(ends[1])
        time.sleep(0.5)                         # between two heartbeats
        brokers[0].send_signal(signal.SIGKILL)
        began = perf_counter()
        while True:
            other.send_multipart([b"", b"MDPC02", b"\2", b"mmi.service", b"echo"])
            try:
                other.recv_multipart()
            except zmq.Again:
                continue
            return perf_counter() - began


def machine(services: int, workers: int, waiting: int, count: int) -> float:
    """Nanoseconds a request in the machine alone: it comes, a worker gets one, and replies."""
    sent: list[list[bytes]] = []
    moments = numbers(1)
    with Engine() as engine:
        broker = Majordomo(engine, sent.append, heartbeat=1e6)
        names = [b"s%d" % number for number in range(services)]
        for number in range(waiting):
            broker.handle([b"c", b"MDPC02", b"\1", names[number % services], BODY], 0.0)
        for number in range(workers):
            broker.handle([b"w%d" % number, b"MDPW02", b"\1", names[number % services]], 0.0)
        broker.pump(0.0)
        if not waiting:
            for name in names:
                for _ in range(workers // services):
                    broker.handle([b"c", b"MDPC02", b"\1", name, BODY], 0.0)
            broker.pump(0.0)
        began = perf_counter_ns()
        for number in range(count):
            out = sent.pop(0) if len(sent) < 2000 else sent.pop()
            while out[0][:1] != b"w":
                out = sent.pop()
            moment = float(next(moments))
            broker.handle([out[0], b"MDPW02", b"\4", *out[3:]], moment)
            broker.handle([b"c", b"MDPC02", b"\1", names[number % services], BODY], moment)
            broker.pump(moment)
        return (perf_counter_ns() - began) / count


def bars(name: str, figure: float, bar: float, unit: str, table: Table) -> None:
    table.print(name, f"{figure:.1f} {unit}", f"{bar:g} {unit}", verdict(figure <= bar))


def main() -> None:
    """Parse the command line and run."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", help="a folder on the disk for Titanic's store")
    options = parser.parse_args()
    count = 2_000 if options.quick else 20_000
    names: tuple[str, ...] = ("proxy", "majortomo", "xump")
    if find_spec("majortomo") is None:
        names = ("proxy", "xump")
        print("  left out: majortomo's broker; the package majortomo is not installed")
    describe("pyzmq", *names[1:-1])

    print("  one at a time: one client, one worker")
    times = take_turns({name: partial(one_at_a_time, name, count // 2) for name in names}, options.rounds)
    table = speed_table()
    compare(table, times, "proxy", names[1:-1], None)
    compare(table, times, "proxy", ["xump"], BAR_ONE)

    print(f"  {WINDOW} at once: one client, {WORKERS} workers")
    contestants: dict[str, Contestant] = {name: partial(at_once, name, count) for name in names}
    contestants["floor"] = partial(at_once, "floor", count)
    contestants["xump, 1,000 at once"] = partial(at_once, "xump", count, TITANIC_WINDOW)
    contestants["Titanic"] = partial(by_titanic, count, options.data)
    times = take_turns(contestants, options.rounds)
    table = speed_table()
    if "majortomo" in times:
        compare(table, times, "majortomo", ["proxy", "floor"], None)
        compare(table, times, "majortomo", ["xump"], BAR_MANY)
    else:
        compare(table, times, "proxy", ["floor", "xump"], None)
    compare(table, times, "xump, 1,000 at once", ["Titanic, done"], BAR_TITANIC)
    compare(table, times, "xump, 1,000 at once", ["Titanic, accepted"], None)

    print("  the broker's CPU, the fail-over, and many of everything")
    limits = Table(46, "figure", "bar", "", width=12)
    cpu = sorted(times["xump, CPU of the broker"])
    bars("CPU of the broker, a request", cpu[len(cpu) // 2] / 1000, BROKER_US, "us", limits)
    if "majortomo, CPU of the broker" in times:
        cpu = sorted(times["majortomo, CPU of the broker"])
        limits.print("the same of majortomo", f"{cpu[len(cpu) // 2] / 1000:.1f} us", "", "")
    seconds = sorted(fail_over() for _ in range(1 if options.quick else options.rounds))
    bars("fail-over, heartbeat of a second", seconds[len(seconds) // 2], 2.0, "s", limits)
    flat: dict[str, Contestant] = {
        "10 workers, 1 service": partial(machine, 1, 10, 0, count),
        "1,000 workers, 100 services": partial(machine, 100, 1000, 0, count),
        "the same, 100,000 waiting": partial(machine, 100, 1000, 100_000, count)}
    times = take_turns(flat, options.rounds)
    first, *others = flat
    table = speed_table()
    compare(table, times, first, others, 1 / FLAT)


if __name__ == "__main__":
    main()
