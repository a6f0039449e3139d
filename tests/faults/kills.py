"""Kills: a process that works on its stores is killed, opened again, and killed again.

A `Victim` is a forked process that plays a program. It says in memory that outlives it which calls it has begun and which have
returned. After a random call, and a random while, it gets SIGKILL. Then the same program, with the same seed, is played to its
end beside it, on a copy of the files of before: so the judge knows the moments that the victim went through. The next session of
a chain goes on from what the victim left.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import struct
import time
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch

import xump
from tests.faults.disk import State
from tests.faults.oracle import Violation
from tests.faults.power import Counts, Judge, Steps, Window, shown
from tests.faults.programs import DURABILITIES, MIXES, Program, Recorded
from tests.faults.worker import drawn_from
from tests.patience import polls

SESSIONS, STEPS = 6, 30         # of a chain; of a session
WHILE_MAX = 0.002               # seconds between the call after which the victim is killed and the kill
PATIENCE = 120.0                # seconds after which a victim that does not go on is a violation
MARKS = struct.Struct("<Q")


class Stuck(Exception):
    """A victim did not go on."""


class Victim:
    """A forked process that plays, until it is killed."""

    def __init__(self, play: Callable[[], None]) -> None:
        self.marks = mmap.mmap(-1, 1 << 16)     # how many marks there are, whether it is over, then each of the marks
        self.window = Window()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                with patch("tests.faults.shim.mark", self._mark), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    play()
                MARKS.pack_into(self.marks, 8, 1)
                signal.pause()
            finally:
                os._exit(1)

    def _mark(self, value: int) -> None:
        number, = MARKS.unpack_from(self.marks)
        MARKS.pack_into(self.marks, 8 * (number + 2), value)
        MARKS.pack_into(self.marks, 0, number + 1)

    def count(self) -> int:
        return int(MARKS.unpack_from(self.marks)[0])

    def kill(self, after: int, then: float) -> Window:
        """Kills it when it has said so much, or is over; returns the moments that its files may be."""
        for _ in polls(PATIENCE, 0.0002):
            if self.count() >= after or MARKS.unpack_from(self.marks, 8)[0]:
                break
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                raise Stuck(f"the victim ended after {self.count()} marks")
        else:
            raise Stuck(f"the victim went on for {PATIENCE} seconds, after {self.count()} marks")
        time.sleep(then)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for number in range(self.count()):
            self.window.mark(MARKS.unpack_from(self.marks, 8 * (number + 2))[0])
        self.marks.close()
        return self.window


class KilledChain:
    """Sessions over the same files, each of which is killed. `folder` is for all that it writes."""

    def __init__(self, seed: str, mix: str, folder: Path, left_out: Collection[tuple[int, int]] = ()) -> None:
        self.seed, self.mix, self.folder = seed, mix, folder
        self.steps = Steps(left_out)
        self.chance = random.Random(f"{seed} {mix} kills")
        choice = self.chance.choice
        self.durability = choice(DURABILITIES)
        self.bounds = {"hop_limit": choice([3, 8]), "dead_letter": choice([None, "d", "a"])}
        self.counts = Counts()
        self.state, self.model, self.queues = State({}, {}), None, None

    def run(self, sessions: int = SESSIONS) -> Counts:
        for number in range(sessions):
            try:
                if not self.session():
                    break
            except (Violation, Stuck, AssertionError) as error:
                self.counts.violations.append(f"seed {self.seed!r}, mix {self.mix!r}, durability {self.durability}, session "
                                              f"{number}: {shown(str(error))}")
                break
        return self.counts

    def session(self) -> bool:
        """One session; returns whether the chain can go on from what it left."""
        seed = self.chance.random()
        live, beside = self.folder / "live", self.folder / "beside"
        for folder in (live, beside):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self.state.write(folder)
        victim = Victim(lambda: self.played(live, seed) and None)
        window = victim.kill(self.chance.randint(1, 6 * STEPS), self.chance.random() * WHILE_MAX)
        world = self.played(beside, seed)
        self.steps.journals.append(world.journal)
        with suppress(xump.XumpError):
            world.engine.close()
        world.forget()      # the collector of garbage does not see cycles through deliveries
        self.counts.sessions += 1
        self.counts.killed += 1
        judge = Judge(world, self.folder / "state", self.chance, self.counts)
        self.state = State.of(live)
        try:
            found = judge.verdict(self.state, window.killed, window.begun, True)
        except Violation:
            self.counts.evidence = partial(judge.evidence, self.state, window.killed, window.begun)
            raise
        if not found or any(one.hidden() != found[0].hidden() for one in found):
            return False
        self.model = found[-1].model
        return True

    def played(self, folder: Path, seed: float) -> Recorded:
        """A session of the program; the same each time, in each folder."""
        chance = random.Random(seed)

        def open_world() -> Recorded:
            return Recorded(folder, MIXES[self.mix], self.durability, **self.bounds, model=self.model)
        with drawn_from(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = Program(chance, open_world, self.queues)
            self.queues = program.queues
            number = chance.randint(1, STEPS)
            left_out = self.steps.of(self.counts.sessions, number) if folder.name == "beside" else [
                step for session, step in self.steps.left_out if session == self.counts.sessions]
            program.run(number, left_out)
            return program.world
