"""Calls to the disk that fail: the Nth of a kind, once or from then on, while a fixed program makes, fills, closes, compacts and
opens its stores.

Whatever fails, an error that comes out is one of Xump's and names the path; the engine stays in order and serves its queues in
RAM; `close` gives the files up; and when the disk is well again the stores open with all that was confirmed, at one moment of the
model.
"""

from __future__ import annotations

import errno
import random
import shutil
import warnings
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import lmdb

import xump
from tests.faults import shim
from tests.faults.oracle import Moment, Observed, Violation, check_pair, emptied, matching, seen
from tests.faults.power import shown
from tests.faults.programs import MIXES, OPTIONS, THREADS_MS, Program, Recorded, copied, kind_of, tended, threadless
from tests.faults.repairs import Repair
from tests.faults.shim import Kind
from tests.model.engine import ModelEngine
from tests.model.stores import reopened

STEPS = 12
DISK = xump.StoreFailed, xump.StoreFull, xump.StoreCorrupt, OSError, lmdb.Error
KINDS = (Kind.OPEN, Kind.WRITE, Kind.TRUNCATE, Kind.ALLOCATE, Kind.SYNC, Kind.RENAME, Kind.LINK, Kind.UNLINK, Kind.MKDIR,
         Kind.RMDIR, Kind.READ, Kind.CLOSE)
HOWS: dict[Kind, tuple[int | str, ...]] = dict.fromkeys(KINDS, (errno.EIO, errno.ENOSPC)) | {
    Kind.WRITE: (errno.EIO, errno.ENOSPC, "short"), Kind.UNLINK: (errno.EIO,), Kind.RMDIR: (errno.EIO,), Kind.READ: (errno.EIO,),
    Kind.CLOSE: (errno.EIO,)}


@dataclass(frozen=True)
class Fault:
    kind: Kind
    how: int | str
    forever: bool

    def __str__(self) -> str:
        how = self.how if isinstance(self.how, str) else errno.errorcode[self.how]
        return f"{self.kind.name} {how} {'for ever' if self.forever else 'once'}"


def all_faults() -> list[Fault]:
    return [Fault(kind, how, forever) for kind in KINDS for how in HOWS[kind] for forever in (False, True)]


class Failed(Exception):
    """The disk's error, on its way past the comparison with the model, which has no disk."""


class Watched(Recorded):
    """A world on a disk that fails, which knows what it is about to do. A store may fail in its own thread, at any moment: then
    the program ends with the call during which it did, or before the next one."""

    def __init__(self, holder: list[Watched], *arguments, **options) -> None:
        holder.append(self)
        self.phase = "making"
        super().__init__(*arguments, **options)

    def both(self, call, note, any_error=False):
        self.look_round(note)

        def called(engine, side):
            try:
                done = call(engine, side)
            except DISK as error:
                raise Failed(note) from error
            if side:
                self.look_round(note)
            return done
        return super().both(called, note, any_error)

    def look_round(self, note):
        """Raises `Failed` if a store has failed, of which no call has told."""
        for committer in self.engine._committers():
            if (error := committer.outcome()) is not None:
                raise Failed(note) from error

    def hear(self, error):
        if isinstance(error, DISK):
            raise Failed("wait_to_be_told()") from error
        super().hear(error)


def turned_down(world: Watched) -> bool:
    """Whether a COPY found no room in a store whose disk was full: the model, which has no disk, goes another way then."""
    try:
        modelled, found = world.model.stats()["selectors"], world.engine.stats()["selectors"]
    except (xump.Closed, AttributeError):       # it is closed, or was never opened
        return False
    return any(modelled[id]["dropped"] != found[id]["dropped"] for id in modelled.keys() & found.keys())


def ends(world: Watched) -> list[ModelEngine]:
    """What is there if a world ends now: by a crash, or in order."""
    return [reopened(copied(world.model), crashed) for crashed in (True, False)]


class RepairAttempt:
    """The repair of a damaged store, with one fault, and then once more on a disk that is well."""

    def __init__(self, store: str, folder: Path) -> None:
        self.repair = Repair("errors", store, folder)
        self.expected = self.repair.prepare()
        self.problems: list[str] = []

    def run(self, fault: Fault, nth: int) -> bool:
        self.problems = []
        live = self.repair.folder / "live"
        shutil.rmtree(live, ignore_errors=True)
        shutil.copytree(self.repair.folder / "base", live)
        with shim.recording(live, None):
            shim.inject((fault.kind,), nth, fault.forever, fault.how)
            try:
                tended("repair", self.repair.store, live)
            except Exception as error:
                self.problems += faults_of("repairing", error, live)
            came = shim.failures() > 0
        try:
            self.repair.compare(live, self.expected)
        except (Violation, xump.XumpError, OSError) as error:
            self.problems.append(f"after it, repairing: {shown(f'{type(error).__name__}: {error}')}")
        return came


def faults_of(phase: str, error: BaseException, folder: Path) -> list[str]:
    """The faults of an error itself: of its type and its text."""
    told, problems = f"{type(error).__name__}: {error}", []
    if not isinstance(error, xump.XumpError):
        problems.append(f"{phase}: no error of Xump's: {told}")
    if isinstance(error, xump.StoreCorrupt):
        problems.append(f"{phase}: the disk's failure is called damage: {told}")
    if str(folder) not in str(error) and not (isinstance(error, xump.StoreFull) and "the store of queue" in str(error)):
        problems.append(f"{phase}: no path in the error: {told}")
    return problems


class Attempt:
    """The program once, with one fault; `problems` is what should not be."""

    def __init__(self, mix: str, durability: tuple[str, int], folder: Path) -> None:
        self.mix, self.durability, self.folder = mix, durability, folder
        self.problems: list[str] = []
        self.error: BaseException | None = None
        self.note = ""
        self.interrupted: list[ModelEngine] = []
        """What the call that failed may have left: the model had carried it out."""

    def run(self, fault: Fault, nth: int) -> bool:
        """Returns whether the fault came to pass."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        holder: list[Watched] = []
        with warnings.catch_warnings(), shim.recording(self.folder, None):
            warnings.simplefilter("ignore")
            shim.inject((fault.kind,), nth, fault.forever, fault.how)
            with nullcontext() if self.durability[1] in THREADS_MS else threadless():
                self.play(holder)
            came, world = shim.failures() > 0, holder[0]
            apart = turned_down(world)
            if apart:
                self.problems.clear()
            if self.error is not None:
                self.problems += faults_of(world.phase, self.error, self.folder)
                self.interrupted = ends(world)
                self.go_on(world)
            self.close(world)
        if not apart:
            self.reopen(world, may_leave=fault.forever and fault.kind in (Kind.UNLINK, Kind.RMDIR))
        return came

    # ---- the program

    def play(self, holder: list[Watched]) -> None:
        try:
            for _ in self.phases(holder):
                pass
        except Failed as failed:
            self.error, self.note = failed.__cause__, str(failed)
        except DISK as error:
            self.error = error
        except AssertionError as error:
            self.problems.append(f"{holder[0].phase}: {shown(str(error))}")

    def phases(self, holder: list[Watched]) -> Iterator[None]:
        chance = random.Random(f"errors {self.mix}")
        program = Program(chance, lambda: Watched(holder, self.folder, MIXES[self.mix], self.durability))
        program.RULES = [rule for rule in Program.RULES if rule != "reopen"]
        world = holder[0]
        world.phase = "running"
        program.run(STEPS)
        yield
        world.phase = "closing"
        world.close()
        yield
        world.phase = "compacting"
        for store in world.stores:
            tended("compact", store, self.folder)
        yield
        world.phase = "opening"
        world.open()
        program.build(program.graph)
        program.publish()
        yield
        world.phase = "closing"
        world.close()

    # ---- afterwards

    def go_on(self, world: Watched) -> None:
        """While the disk is as it is, queues in RAM work, and the books are right."""
        if world.phase not in ("running", "opening") or world.engine is None:
            return
        while world.blocks:
            for block in world.blocks.pop():
                with suppress(xump.XumpError):
                    block.__exit__(None, None, None)
        try:
            world.engine.create_queue("aside")
            world.engine.publish("aside", "x")
            world.engine.check()
        except xump.XumpError as error:
            self.problems.append(f"{world.phase}: queues in RAM do not go on: {type(error).__name__}: {error}")

    def close(self, world: Watched) -> None:
        try:
            if world.engine is not None:
                world.engine.close()
        except xump.XumpError as error:
            if str(self.folder) not in str(error):
                self.problems.append(f"close: no path in the error: {type(error).__name__}: {error}")
        except Exception as error:
            self.problems.append(f"close: no error of Xump's: {type(error).__name__}: {error}")

    def reopen(self, world: Watched, may_leave: bool) -> None:
        """The disk is well again. `may_leave`: nothing could be removed before."""
        moments = [*world.moments[world.confirmed :], *self.interrupted, *ends(world)]
        observed = Observed()
        try:
            with xump.Engine(**world.options) as engine:
                for store in world.stores:
                    engine.create_store(store, kind_of(store), path=str(self.folder / store), durability="sync",
                                        **OPTIONS[kind_of(store)])
                observed.seen = seen(engine)
                observed.emptied = emptied(engine)
            if len(world.stores) == 1:
                matching(observed, [Moment(model) for model in moments])
            else:
                # A call may return before all that it set going between the stores, which stops where a disk fails.
                check_pair(observed, [Moment(model) for model in moments],
                           earlier=[Moment(model) for model in world.moments[: world.confirmed]])
        except Violation as violation:
            self.problems.append(f"after it, {world.phase}: {shown(str(violation))}")
        except Exception as error:
            self.problems.append(f"after it, {world.phase}: it does not open: {type(error).__name__}: {error}")
        left = sorted({path.name for path in self.folder.iterdir()} - set(world.stores))
        if left and not may_leave:
            self.problems.append(f"after it, {world.phase}: left over: {left}")
