"""Power loss, and failing calls, while a damaged store is repaired: the damage is still there, or the repair is done, and a
second repair comes to the same end as one that nobody disturbed. The damaged bytes are in quarantine then, whatever happened."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import xump
from tests.faults import shim
from tests.faults.disk import Disk, State
from tests.faults.oracle import Observed, Violation, emptied, seen
from tests.faults.power import Counts, drawn_states, shown
from tests.faults.programs import OPTIONS, tended
from tests.faults.shim import Event
from xump import always, copy_to, deliver

FILES = {"ring": "ring", "lmdb": "lmdb/data.mdb"}
OUTSIDE = 300       # chances to hit a record that is in use


class Repair:
    """One store, one damage, one repair; `counts` as for a chain."""

    def __init__(self, seed: str, store: str, folder: Path,
                 forgets: Callable[[random.Random, Event], bool] | None = None) -> None:
        self.seed, self.store, self.folder, self.forgets = seed, store, folder, forgets
        self.chance = random.Random(f"repair {seed} {store}")
        self.counts = Counts()
        self.damaged = b""      # the bytes that repair has to put aside

    def prepare(self) -> Observed:
        """A damaged store in the folder `base`; returns what an undisturbed repair leaves."""
        base = self.folder / "base"
        base.mkdir(parents=True)
        self.make(base)
        self.damage(base)
        return self.undisturbed(base)

    def run(self, sessions: int = 1) -> Counts:
        """Repairs once, whatever is asked for."""
        expected, live = self.prepare(), self.folder / "live"
        shutil.copytree(self.folder / "base", live)
        disk = Disk(State.of(live))
        disk.lies_in(live)
        with shim.recording(live, self.folder / "record"):
            tended("repair", self.store, live)
        self.counts.sessions += 1
        known: set[int] = set()
        forgot = False
        for number, event in enumerate(shim.read(self.folder / "record")):
            if self.forgets is not None and self.forgets(self.chance, event):
                forgot = True
                continue
            if not disk.take(event):
                continue
            for state, killed in drawn_states(disk, self.chance):
                if state.key() not in known:
                    known.add(state.key())
                    self.counts.states += 1
                    self.counts.killed += killed
                    how = "killed" if killed else "power lost"
                    self.judge(state, expected, f"{how} after event {number} ({event.kind.name})")
        if not forgot:
            disk.audit(live)
        return self.counts

    def opened(self, folder: Path) -> Observed:
        with xump.Engine(clock=lambda: 2_000) as engine:
            engine.create_store(self.store, self.store, path=str(folder / self.store), durability="sync", **OPTIONS[self.store])
            observed = Observed(seen(engine))
            observed.emptied = emptied(engine)
            return observed

    # ---- before

    def make(self, folder: Path) -> None:
        """Messages that are ready, outstanding, settled, in the history; closed in order or not."""
        engine = xump.Engine(clock=lambda: 1_000)
        engine.create_store(self.store, self.store, path=str(folder / self.store), durability="sync", **OPTIONS[self.store])
        with engine.building():
            engine.create_queue("a", store=self.store, history_limit=3)
            engine.create_queue("b", store=self.store)
            engine.create_selector("a", when=always, do=copy_to("b"))
            engine.create_selector("a", when=always, do=deliver("worker"), credit=4)
        for number in range(self.chance.randint(4, 20)):
            engine.publish("a", f"{number}", self.chance.randbytes(self.chance.choice([20, 300, 6_000])))
            if self.chance.random() < 0.4:
                engine.ack(engine.take(1, "worker"))
        self.bodies = [message.body for queue in engine.queues.values() for message in queue.browse(state="ready")]
        engine.close()

    def damage(self, folder: Path) -> None:
        """Flips a bit of a body, in a record that counts: not in one that LMDB or the ring has left behind."""
        path = folder / FILES[self.store]
        whole = path.read_bytes()
        for _ in range(OUTSIDE):
            body = self.chance.choice(self.bodies)
            at = self.chance.choice(found(whole, body)) + len(body) // 2
            data = bytearray(whole)
            data[at] ^= 1 << self.chance.randrange(8)
            path.write_bytes(data)
            if tended("check", self.store, folder).damage:
                start = at - len(body) // 2
                self.damaged = bytes(data[start : start + len(body)])
                return
        raise AssertionError("no record that counts was hit")

    def undisturbed(self, base: Path) -> Observed:
        copy = self.folder / "undisturbed"
        shutil.copytree(base, copy)
        tended("repair", self.store, copy)
        expected = self.opened(copy)
        shutil.rmtree(copy)
        return expected

    # ---- after

    def judge(self, state: State, expected: Observed, when: str) -> None:
        folder = self.folder / "state"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        state.write(folder)
        try:
            self.compare(folder, expected)
        except (Violation, xump.XumpError, OSError) as error:
            self.counts.violations.append(f"seed {self.seed!r}, repair of {self.store}, {when}: "
                                          f"{shown(f'{type(error).__name__}: {error}')}")

    def compare(self, folder: Path, expected: Observed) -> None:
        damage = tended("check", self.store, folder).damage
        if damage:
            tended("repair", self.store, folder)
            if tended("check", self.store, folder).damage:
                raise Violation("damaged after a repair")
        now = self.opened(folder)
        self.counts.emptied += 1
        if (now.seen, now.emptied) != (expected.seen, expected.emptied):
            raise Violation(f"not what an undisturbed repair leaves: {now.seen} {now.emptied}\ninstead of: {expected.seen} "
                            f"{expected.emptied}")
        if not any(self.damaged in path.read_bytes() for path in folder.glob(f"{self.store}.quarantine-*")):
            raise Violation("the damaged bytes are not in quarantine")


def found(whole: bytes, part: bytes) -> list[int]:
    places, at = [], whole.find(part)
    while at >= 0:
        places.append(at)
        at = whole.find(part, at + 1)
    return places
