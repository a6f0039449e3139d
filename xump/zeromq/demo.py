"""A show of what a pair of brokers survives: `python -m xump.zeromq.demo`, or `make demo-zeromq`.

Three clients ask without a pause, four workers answer, and a pair of Majordomo brokers stands between them, all in processes or
threads of their own. A worker is killed and started again, then the active broker, then another worker. At the end there is a
table of what happened, and a picture of it, an SVG: who was alive when, and how many requests were answered.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from xump.zeromq.majordomo.client import Client
from xump.zeromq.worker import Worker

WORKERS, CLIENTS = 4, 3
LINK_HEARTBEAT = 0.5
SERVICE = b"upper"
STEPS = (
    (0.15, "kill", "worker 1"), (0.30, "start", "worker 1"), (0.40, "kill", "primary"), (0.75, "start", "primary"),
    (0.85, "kill", "worker 2"))
"""When, as a part of the whole; what; whom."""


@dataclass
class Story:
    """The events, in seconds since the beginning."""

    seconds: float
    """How long clients ask."""
    lives: dict[str, list[list[float]]] = field(default_factory=dict)
    """Of each process: from when until when it was alive."""
    steps: list[tuple[float, str]] = field(default_factory=list)
    """The steps that were taken against them."""
    answers: list[tuple[float, float, str]] = field(default_factory=list)
    """Of each request: when it was asked, when it was answered, by whom."""
    wrong: int = 0
    """Answers that were not those of the request."""
    tries: int = 0
    """How often clients asked, again and again among it."""


class Show:
    """The processes, and what they do."""

    def __init__(self, ends: ExitStack, story: Story) -> None:
        self._ends, self._story, self._began = ends, story, time.monotonic()
        self._fronts, self._links = [_free(), _free()], [_free(), _free()]
        self._processes: dict[str, subprocess.Popen[str]] = {}
        for role in ("primary", "backup"):
            self.start(role)
        for _ in range(2):                      # they are ready, and know who is active
            for role in ("primary", "backup"):
                self._line(role)
        for number in range(1, WORKERS + 1):
            self.start(f"worker {number}")
        with Client(*self._fronts, timeout=5.0) as client:
            while client.request(b"xump.workers", SERVICE) != [b"%d" % WORKERS]:
                time.sleep(0.01)
        self._began = time.monotonic()
        for lives in story.lives.values():
            lives[0][0] = 0.0

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def start(self, name: str) -> None:
        """Start a process."""
        if name.startswith("worker"):
            words = ["xump.zeromq.demo", "--worker", name, *self._fronts]
        else:
            at = int(name == "backup")
            words = ["xump", "zeromq", "majordomo", self._fronts[at], "--role", name, "--link", self._links[at],
                     "--binary-star", self._links[1 - at], "--link-heartbeat", str(LINK_HEARTBEAT), "--heartbeat", "0.5"]
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
        self._ends.enter_context(process)
        self._ends.callback(process.kill)
        self._processes[name] = process
        self._story.lives.setdefault(name, []).append([self.now, self._story.seconds])

    def kill(self, name: str) -> None:
        """Kill a process."""
        self._processes[name].kill()
        self._processes[name].wait()
        self._story.lives[name][-1][1] = self.now

    def _line(self, name: str) -> None:
        out = self._processes[name].stdout
        assert out is not None
        out.readline()

    def ask(self, number: int) -> None:
        """Ask as a client until the time is over."""
        story = self._story
        with Client(*self._fronts, timeout=0.4, retries=1000) as client:
            asked = 0
            while (began := self.now) < story.seconds:
                body = b"%d/%d" % (number, asked)
                asked += 1
                answer, worker = client.request(SERVICE, b"request " + body)
                story.wrong += answer != b"REQUEST " + body
                story.answers.append((began, self.now, worker.decode()))
            story.tries += client.tries

    def play(self) -> None:
        """The whole story."""
        clients = [threading.Thread(target=self.ask, args=(number,)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        doing: dict[str, Callable[[str], None]] = {"kill": self.kill, "start": self.start}
        for part, what, whom in STEPS:
            time.sleep(max(0.0, part * self._story.seconds - self.now))
            self._story.steps.append((self.now, f"{what} {whom}"))
            doing[what](whom)
        for client in clients:
            client.join()


def _free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def tell(seconds: float) -> Story:
    """Let it happen."""
    story = Story(seconds)
    with ExitStack() as ends:
        Show(ends, story).play()
    return story


def table(story: Story) -> list[str]:
    """The events, line by line: after each step, until the next, how many answers came, and the longest wait for one."""
    lines = [f"{'seconds':>8}  {'what':18}{'answers':>8}{'longest wait':>14}"]
    moments = [(0.0, "all are there"), *story.steps, (story.seconds, "")]
    for (since, what), (until, _) in itertools.pairwise(moments):
        waits = [answered - asked for asked, answered, _ in story.answers if since <= answered and asked < until]
        count = sum(since <= answered < until for _, answered, _ in story.answers)
        lines.append(f"{since:8.1f}  {what:18}{count:8,}{max(waits, default=0.0):12.2f} s")
    by_worker = Counter(worker for _, _, worker in story.answers)
    lines += [
        f"{len(story.answers):,} requests, {len(story.answers):,} answers, {story.wrong} wrong ones; clients asked again "
        f"{story.tries - len(story.answers)} times",
        "answers by " + ", ".join(f"{worker}: {by_worker[worker]:,}" for worker in sorted(by_worker)),
    ]
    return lines


def picture(story: Story) -> str:
    """An SVG: a bar for each life, a line for each step, and the answers of each twentieth of a second."""
    left, width, row, high = 90, 800, 26, 120
    scale = width / story.seconds
    names = sorted(story.lives, key=lambda name: (name.startswith("worker"), name == "backup", name))
    bottom = 20 + row * len(names) + high + 20
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{bottom + 30}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for at, name in enumerate(names):
        y = 20 + row * at
        color = "#4477aa" if name.startswith("worker") else "#cc6644"
        parts.append(f'<text x="8" y="{y + 15}">{name}</text>')
        parts += [
            f'<rect x="{left + since * scale:.1f}" y="{y + 3}" width="{(until - since) * scale:.1f}" height="{row - 8}" '
            f'fill="{color}"/>' for since, until in story.lives[name]]
    bins = Counter(int(answered * 20) for _, answered, _ in story.answers if answered < story.seconds)
    most = max(bins.values(), default=1)
    parts += [
        f'<rect x="{left + at / 20 * scale:.1f}" y="{bottom - 20 - high * count / most:.1f}" width="{scale / 20:.2f}" '
        f'height="{high * count / most:.1f}" fill="#88aa66"/>' for at, count in sorted(bins.items())]
    parts.append(f'<text x="8" y="{bottom - 20 - high + 12}">{most * 20:,}/s</text>')
    parts.append(f'<text x="8" y="{bottom - 20}">answers</text>')
    for moment, what in story.steps:
        x = left + moment * scale
        parts.append(f'<line x1="{x:.1f}" y1="16" x2="{x:.1f}" y2="{bottom - 20}" stroke="black" stroke-dasharray="3"/>')
        parts.append(f'<text x="{x:.1f}" y="12" text-anchor="middle">{what}</text>')
    parts += [
        f'<text x="{left + second * scale:.1f}" y="{bottom}" text-anchor="middle">{second} s</text>'
        for second in range(int(story.seconds) + 1)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long clients ask; default: 10")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where to put the SVG")
    parser.add_argument("--worker", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("endpoints", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        name = options.worker.encode()
        worker = Worker(options.endpoints, SERVICE, heartbeat=0.5, back_off=(0.2, 1.0))
        worker.run(lambda body: [body[0].upper(), name])
        return
    story = tell(options.seconds)
    print("\n".join(table(story)))
    if options.picture is not None:
        options.picture.write_text(picture(story))
        print(f"the picture is {options.picture}")
    sys.exit(1 if story.wrong else 0)


if __name__ == "__main__":
    main()
