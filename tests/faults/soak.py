"""Soak: millions of numbered messages through one store, whose process is killed again and again, and what became of each number.

A worker publishes numbers, which are copied into one queue and moved into another one, takes them and acks them. It says in
memory that outlives it what it has begun and what is confirmed, of each number in each of the two queues. Whoever kills it opens
its files, and looks for every number that may still be there. The store lives through all sessions; each but the last ends by
SIGKILL.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import xump
from xump import INFINITE, always, copy_to, deliver, move_to

OPTIONS = {
    "ring": {"segment_bytes": 1 << 20, "min_bytes": 0, "max_bytes": 1 << 27},
    "lmdb": {"max_bytes": 1 << 28},
}
BODY = bytes(range(92))         # behind the number, 8 bytes
SOURCE = "jobs"
PLACES = ["work", "copies"]     # where each number comes to
AT_ONCE = [1, 1, 10, 100, 1000]
BACKLOG = 20_000                # messages in a queue, above which the worker only takes
SESSION = 1_000, 2_000_000      # numbers of a session, at least and at most
WARM = 100_000                  # numbers of a session after which its memory must not grow
GROWTH = 1.15, 16 << 20         # what a worker's memory may come to at its end, by the factor and more
PATIENCE = 300.0                # seconds without a new number after which a worker is stuck

NEVER, BEGUN, THERE, ENDING, ENDED = range(5)
"""What is known of a number in a queue: not published; its publish, or its ack, has begun (either may be); confirmed."""


@dataclass
class Sums:
    """What a soak came to."""

    numbers: int = 0
    never: int = 0
    """Publishes that a kill cut off before they were durable."""
    doubtful: int = 0
    """Numbers in a queue of which a kill left open whether they were there."""
    back: int = 0
    """Of those, the ones that came back."""
    kills: int = 0
    first_rss: int = 0
    last_rss: int = 0
    """Of a worker, when it was warm and at its end, in the session that grew most, in bytes."""
    violations: list[str] = field(default_factory=list)


class Board:
    """Memory that outlives a worker: a byte for each number in each place, how far the numbers are, and the worker's memory."""

    HEAD = struct.Struct("<QQQQ")

    def __init__(self, total: int) -> None:
        self.head = mmap.mmap(-1, self.HEAD.size)
        self.states = [mmap.mmap(-1, total + 1) for _ in PLACES]

    def say(self, *values: int) -> None:
        """(next number, RSS when warm, RSS now, whether the session is over)"""
        self.HEAD.pack_into(self.head, 0, *values)

    def said(self) -> tuple[int, ...]:
        return self.HEAD.unpack_from(self.head)

    def mark(self, place: int, numbers: list[int], state: int) -> None:
        states = self.states[place]
        for number in numbers:
            states[number] = state

    def mark_range(self, first: int, end: int, state: int) -> None:
        for states in self.states:
            states[first:end] = bytes([state]) * (end - first)


def rss() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def number_of(message: xump.Message) -> int:
    """Raises if the body is not as it was published."""
    if message.body[8:] != BODY:
        raise AssertionError(f"a wrong payload: {message}")
    return int.from_bytes(message.body[:8], "little")


def opened(path: Path, kind: str, durability: str) -> xump.Engine:
    engine = xump.Engine()
    engine.create_store("s", kind, path=str(path), durability=durability, **OPTIONS[kind])
    with engine.building():
        for name in (SOURCE, *PLACES):
            if name not in engine.queues:
                engine.create_queue(name, store="s")
        engine.create_selector(SOURCE, when=always, do=copy_to("copies"))
        engine.create_selector(SOURCE, when=always, do=move_to("work"), credit=INFINITE)
        for name in PLACES:
            engine.create_selector(name, when=always, do=deliver(name), credit=5_000)
    return engine


class Worker:
    """What a worker does: `run` publishes the numbers of one session, and takes and acks."""

    def __init__(self, path: Path, kind: str, durability: str, board: Board, chance: random.Random) -> None:
        self.engine = opened(path, kind, durability)
        self.board, self.chance = board, chance
        self.waits_for_sync = durability == "group"
        self.published: list[tuple[int, int]] = []      # ranges, and of each place the numbers, which no sync has confirmed
        self.acked: list[list[int]] = [[] for _ in PLACES]

    def run(self, first: int, end: int) -> None:
        number, warm, engine = first, 0, self.engine
        while number < end or any(engine.queues[name].ready for name in PLACES):
            if number < end and all(engine.queues[name].ready < BACKLOG for name in PLACES) and self.chance.random() < 0.6:
                more = min(self.chance.choice(AT_ONCE), end - number)
                self.publish(number, number + more)
                number += more
            else:
                if number == end and self.chance.random() < 0.01:
                    break           # what is left is for the next session
                self.take(self.chance.randrange(len(PLACES)), self.chance.choice(AT_ONCE))
            if self.chance.random() < 0.05:
                self.sync()
            if not warm and number - first >= WARM:
                gc.collect()
                warm = rss()
            self.board.say(number, warm, 0, 0)
        self.sync()
        gc.collect()
        self.board.say(number, warm, rss(), 1)

    def publish(self, first: int, end: int) -> None:
        self.board.mark_range(first, end, BEGUN)
        bodies = [number.to_bytes(8, "little") + BODY for number in range(first, end)]
        if len(bodies) == 1:
            self.engine.publish(SOURCE, "x", bodies[0])
        else:
            self.engine.publish_many(SOURCE, [("x", body) for body in bodies])
        self.published.append((first, end))
        self.confirm()

    def take(self, place: int, n: int) -> None:
        deliveries = self.engine.take(n, PLACES[place])
        if self.chance.random() < 0.02:
            for delivery in deliveries:
                delivery.nack()
            return
        numbers = [number_of(delivery.message) for delivery in deliveries]
        self.board.mark(place, numbers, ENDING)
        if deliveries:
            self.engine.ack(deliveries)
        self.acked[place] += numbers
        self.confirm()

    def confirm(self) -> None:
        """A kill takes nothing of what has returned, unless it waits for a group."""
        if not self.waits_for_sync:
            self.confirmed()

    def sync(self) -> None:
        self.engine.sync()
        self.confirmed()

    def confirmed(self) -> None:
        for first, end in self.published:
            for states in self.board.states:
                part = bytearray(states[first:end])
                states[first:end] = bytes(part).replace(bytes([BEGUN]), bytes([THERE]))
        self.published.clear()
        for place, numbers in enumerate(self.acked):
            self.board.mark(place, numbers, ENDED)
            numbers.clear()


class Soak:
    """The sessions of one store in a folder."""

    def __init__(self, kind: str, total: int, seed: str, folder: Path, told: Callable[[int], None] = lambda number: None,
                 session: tuple[int, int] = SESSION) -> None:
        self.kind, self.total, self.told, self.bounds = kind, total, told, session
        self.path = folder / "store"
        self.chance = random.Random(f"soak {kind} {seed}")
        self.board, self.sums = Board(total), Sums()
        self.open: list[set[int]] = [set() for _ in PLACES]     # what was there after the last kill

    def run(self) -> Sums:
        number = 0
        while number < self.total and not self.sums.violations:
            low, high = self.bounds
            end = min(self.total, number + int(low * (high / low) ** self.chance.random()))
            last = end == self.total
            number = self.session(number, end, killed=not last)
            self.told(number)
        self.sums.numbers = number
        if not self.sums.violations:
            self.finish()
        return self.sums

    def session(self, first: int, end: int, killed: bool) -> int:
        """Returns the number with which the next one begins."""
        durability, seed = self.chance.choice(["process", "process", "group", "sync"]), self.chance.random()
        if durability == "sync":
            end = min(end, first + 20_000) if killed else end
        if not killed:
            durability = "process"
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                Worker(self.path, self.kind, durability, self.board, random.Random(seed)).run(first, end)
                status = 0
                if killed:
                    signal.pause()
            finally:
                os._exit(status)
        ended = self.watch(pid, first, self.chance.randint(first, end) if killed else end + 1)
        number, warm, now, over = self.board.said()
        number = max(number, first)
        while number < end and self.board.states[0][number] != NEVER:       # a publish may have begun behind it
            number += 1
        if over and warm:
            if now - warm > self.sums.last_rss - self.sums.first_rss or not self.sums.first_rss:
                self.sums.first_rss, self.sums.last_rss = warm, now
            if now > warm * GROWTH[0] + GROWTH[1]:
                self.violation(first, f"its memory grew from {warm:,} to {now:,} bytes")
        self.sums.kills += killed
        if ended is not None:
            self.violation(first, ended)
        else:
            self.judge(first, number)
        self.board.say(0, 0, 0, 0)
        return number

    def watch(self, pid: int, first: int, until: int) -> str | None:
        """Kills it a little after it came to a number, or when it is over; None unless it ended by itself."""
        seen, since = first, time.monotonic()
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            number, _, _, over = self.board.said()
            if done:
                return None if status == 0 and over else f"the worker ended with status {status}"
            if number >= until or (over and until <= self.total):
                time.sleep(self.chance.random() * 0.01)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return None
            if number != seen:
                seen, since = number, time.monotonic()
                self.told(number)
            elif time.monotonic() - since > PATIENCE:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return f"the worker stood still for {PATIENCE:.0f} seconds at {number}"
            time.sleep(0.001)

    def judge(self, first: int, end: int) -> None:
        """What is in the files after a session that published from `first` to `end`."""
        with opened_to_look(self.path, self.kind) as engine:
            engine.check()
            there = [Counter(number_of(message) for message in engine.queues[name].browse(state="ready")) for name in PLACES]
            for message in engine.queues[SOURCE].browse(state="ready"):     # one that was under way is in both, soon
                for numbers in there:
                    numbers[number_of(message)] += 1
        for name, states, numbers, old in zip(PLACES, self.board.states, there, self.open, strict=True):
            twice = [number for number, count in numbers.items() if count > 1]
            if twice:
                self.violation(first, f"twice in {name!r}: {twice[:10]}")
            for number in [*range(first, end), *old]:
                state, here = states[number], number in numbers
                if (state == THERE and not here) or (state in (NEVER, ENDED) and here):
                    said = {NEVER: "never published", THERE: "confirmed", ENDED: "acked"}[state]
                    self.violation(first, f"number {number} in {name!r} was {said}, and is {'there' if here else 'not there'}")
                    return
                if state in (BEGUN, ENDING):
                    self.sums.doubtful += 1
                    self.sums.back += here
                self.sums.never += state == BEGUN and not here and name == PLACES[0]
                states[number] = THERE if here else ENDED
            unknown = set(numbers) - set(old) - set(range(first, end))
            if unknown:
                self.violation(first, f"{name!r} has {sorted(unknown)[:10]} again, which had gone before the session")
            old.clear()
            old.update(numbers)

    def finish(self) -> None:
        """Takes all that is left; then the queues are empty, and every number has ended."""
        with opened(self.path, self.kind, "process") as engine:
            for place, name in enumerate(PLACES):
                while deliveries := engine.take(1_000, name):
                    self.board.mark(place, [number_of(delivery.message) for delivery in deliveries], ENDED)
                    engine.ack(deliveries)
            left = {name: engine.queues[name].ready for name in (SOURCE, *PLACES)}
            engine.check()
        if any(left.values()):
            self.violation(self.total, f"cannot be taken: {left}")
        for name, states in zip(PLACES, self.board.states, strict=True):
            found = Counter(states[: self.total])
            if found != {ENDED: self.total}:
                self.violation(self.total, f"at the end, numbers in {name!r} by their states: {dict(found)}")

    def violation(self, first: int, said: str) -> None:
        self.sums.violations.append(f"{self.kind}, the session that began with number {first}: {said}")

    def close(self) -> None:
        for memory in (self.board.head, *self.board.states):
            with suppress(BufferError):
                memory.close()


def opened_to_look(path: Path, kind: str) -> xump.Engine:
    """Its queues are held: nothing goes on."""
    engine = xump.Engine()
    engine.create_store("s", kind, path=str(path), durability="sync", **OPTIONS[kind])
    return engine
