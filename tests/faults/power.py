"""Power loss: chains of sessions whose every write is recorded, and the states that a disk may be in when the power goes.

A `Chain` goes on in this process, which must have been started under the shim. After every event of a session it builds the
state of a killed process, and some that a power failure may leave; opens each that it has not seen yet; and asks the oracle.
The next session goes on from one of them. `Judge` says how stores are opened; `forgets` makes a canary.
"""

from __future__ import annotations

import copy
import random
import re
import shutil
import traceback
import warnings
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import xump
from tests.faults import shim
from tests.faults.disk import Disk, State
from tests.faults.oracle import Moment, Observed, Violation, check_bodies, check_pair, emptied, matching, seen
from tests.faults.programs import BEGUN, DURABILITIES, DURABLE, MIXES, OPTIONS, THREADS_MS, Program, Recorded, kind_of, threadless
from tests.faults.shim import Event, Kind
from tests.model.seen import differences
from xump.errors import StoreCorrupt

SESSIONS, STEPS = 4, 40     # of a chain; of a session
DRAWN_MAX = 10              # states drawn after one event
EVENTS_TOLD = 40            # those before a violation that does not come again
EMPTIED = 0.3               # of the states are emptied by a consumer, too

CANARIES: dict[str, Callable[[random.Random, Event], bool]] = {
    "half of the fsyncs": lambda chance, event: event.kind in (Kind.SYNC, Kind.SYNC_DIRECTORY) and chance.random() < 0.5,
    "fsyncs of directories": lambda chance, event: event.kind == Kind.SYNC_DIRECTORY,
}
"""What a disk may be made to forget, so that the checker must find violations."""


@dataclass
class Window:
    """The moments that a state may be: from the last call that was confirmed to the last one that had begun."""

    begun: int = 0
    killed: int = 0
    """After a kill: from here on."""
    lost: int = 0
    """After a power loss: from here on."""

    def mark(self, value: int) -> None:
        number, what = divmod(value, 3)
        if what == BEGUN:
            self.begun = number
            return
        self.killed = number
        if what == DURABLE:
            self.lost = number


@dataclass
class Counts:
    """What a chain came to."""

    states: int = 0
    killed: int = 0
    emptied: int = 0
    sessions: int = 0
    lost_whole: int = 0
    """Stores that a power failure left unreadable, where the docs allow that."""
    mixed: int = 0
    """And those that it left as no single moment."""
    violations: list[str] = field(default_factory=list)
    digest: int = 0
    """Of all that was done to the disk, but for the bytes: equal if a chain was the same."""
    evidence: Callable[[], str] | None = None
    """Tells of the first violation: the calls, the events, and what was found beside the moments."""


class Judge:
    """Opens states, and remembers what each gave."""

    def __init__(self, world: Recorded, folder: Path, chance: random.Random, counts: Counts) -> None:
        self.world, self.folder, self.chance, self.counts = world, folder, chance, counts
        self.moments = [Moment(model) for model in world.moments]
        self.observed: dict[int, Observed] = {}

    def verdict(self, state: State, first: int, last: int, killed: bool) -> list[Moment]:
        """The moments in a window that a state matches, [] where there are two stores. Raises `Violation`."""
        key = state.key()
        if key not in self.observed:
            self.observed[key] = self.opened(state)
            self.counts.states += 1
            self.counts.killed += killed
        observed = self.observed[key]
        window = first, last, killed
        if window not in observed.known:
            try:
                observed.known[window] = self._judged(observed, self.moments[first : last + 1], killed)
            except Violation as violation:
                observed.known[window] = violation
        found = observed.known[window]
        if isinstance(found, Violation):
            raise found
        return found

    def _judged(self, observed: Observed, moments: list[Moment], killed: bool) -> list[Moment]:
        lenient = not killed and self.may_be_lost()
        if observed.error is not None:
            if lenient and isinstance(observed.error, StoreCorrupt):
                self.counts.lost_whole += 1
                return []
            raise Violation("".join(traceback.format_exception(observed.error)))
        check_bodies(observed.seen)
        try:
            if len(self.world.stores) == 1:
                return matching(observed, moments)
            check_pair(observed, moments, apart=not killed and self.world.durability[0] in ("process", "none"))
        except Violation:
            if not lenient:
                raise
            self.counts.mixed += 1
            return []
        return [moment for moment in moments if moment.seen() == observed.seen and moment.emptied() == observed.emptied]

    def evidence(self, state: State, first: int, last: int, events: Sequence[Event] = ()) -> str:
        """What tells of a violation, if that never comes again."""
        observed = self.observed.get(state.key(), Observed()).seen
        lines = ["the calls:", *map(shown, self.world.journal), "the events before it:", *map(told_of, events)]
        for number in sorted({first, last}):
            lines += [f"found, beside moment {number}:", differences(self.moments[number].seen(), observed or {})]
        return "\n".join(map(shown, lines))

    def may_be_lost(self) -> bool:
        """Whether a power failure may cost the whole store (docs/stores.md)."""
        name = self.world.durability[0]
        return name == "none" or (name == "process" and any(kind_of(store) == "lmdb" for store in self.world.stores))

    def opened(self, state: State) -> Observed:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        state.write(self.folder)
        observed = Observed()
        try:
            with xump.Engine(**self.world.options) as engine:
                for store in self.world.stores:
                    engine.create_store(store, kind_of(store), path=str(self.folder / store), durability="sync",
                                        **OPTIONS[kind_of(store)])
                observed.seen = seen(engine)
                if self.chance.random() < EMPTIED:
                    self.counts.emptied += 1
                    observed.emptied = emptied(engine)
            left = sorted({path.name for path in self.folder.iterdir()} - set(self.world.stores))
            if left:
                raise Violation(f"left over after opening: {left}")
        except Exception as error:
            observed.error = error
        return observed


def drawn_states(disk: Disk, chance: random.Random) -> list[tuple[State, bool]]:
    """What may be there now: (state, whether a kill leaves it)."""
    drawn = 0
    if not disk.is_settled():
        changes = len(disk.pending) + sum(len(file.pending) for file in disk.files.values())
        drawn = min(DRAWN_MAX, 1 + 2 * changes)
    return [(disk.as_it_is(), True), *((disk.after_power_loss(chance), False) for _ in range(drawn))]


class Steps:
    """The steps of a chain's programs, (session, step): which it makes, which are left out, and which calls they came to."""

    def __init__(self, left_out: Collection[tuple[int, int]] = ()) -> None:
        self.left_out = left_out
        self.made: list[tuple[int, int]] = []
        self.journals: list[list[str]] = []

    def of(self, session: int, number: int) -> list[int]:
        """Notes the steps of a session; returns those to leave out."""
        self.made += [(session, step) for step in range(number) if (session, step) not in self.left_out]
        return [step for number, step in self.left_out if number == session]


class Chain:
    """Sessions over the same files. `folder` is for all that it writes."""

    def __init__(self, seed: str, mix: str, folder: Path, forgets: str | None = None,
                 told: Callable[[Counts], None] = lambda counts: None, left_out: Collection[tuple[int, int]] = ()) -> None:
        self.seed, self.mix, self.folder, self.told = seed, mix, folder, told
        self.steps = Steps(left_out)
        self.ends_at_once = False       # at the first violation
        self.chance = random.Random(f"{seed} {mix}")
        self.forgets = CANARIES[forgets] if forgets else None
        self.counts = Counts()
        choice = self.chance.choice
        self.durability = choice(DURABILITIES)
        self.threads = self.durability[1] in THREADS_MS     # else the same seed does the same each time
        self.bounds = {"hop_limit": choice([3, 8]), "dead_letter": choice([None, "d", "a"])}
        self.disk = self.next = Disk()
        self.state = State({}, {})
        self.moments: list = []         # of the session before, which may still come true: its process was killed
        self.model = None
        self.queues = None

    def run(self, sessions: int = SESSIONS) -> Counts:
        for number in range(sessions):
            if not self.session(number) or self.is_over():
                break
        return self.counts

    def is_over(self) -> bool:
        return self.ends_at_once and bool(self.counts.violations)

    def session(self, number: int) -> bool:
        """One session; returns whether the chain can go on from a state."""
        live, record = self.folder / f"live-{number}", self.folder / "record"
        live.mkdir()
        self.state.write(live)
        self.disk = self.next
        self.disk.lies_in(live)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with shim.recording(live, record), nullcontext() if self.threads else threadless():
                world = self.play(live)
                shim.freeze()
                with suppress(xump.XumpError, OSError):
                    world.engine.close()
                world.forget()      # the collector of garbage does not see cycles through deliveries
        self.counts.sessions += 1
        self.judge(world, shim.read(record), live)
        shutil.rmtree(live)
        return self.model is not None

    def play(self, live: Path) -> Recorded:
        def open_world():
            return Recorded(live, MIXES[self.mix], self.durability, **self.bounds, model=self.model, moments=self.moments)
        if self.model is None and self.chance.random() < 0.25:      # what is left of a store in the making is gone on from
            world = open_world()
            self.steps.journals.append(world.journal)
            return world
        program = Program(random.Random(self.chance.random()), open_world, self.queues)
        self.queues = program.queues
        number = self.chance.randint(1, STEPS)
        if program.run(number, self.steps.of(self.counts.sessions, number)) and self.chance.random() < 0.3:
            program.world.close()
        self.steps.journals.append(program.world.journal)
        return program.world

    def judge(self, world: Recorded, events: list[Event], live: Path) -> None:
        """Walks through the events, and has the states between them judged. Keeps one of those that can be gone on from."""
        judge = Judge(world, self.folder / "state", self.chance, self.counts)
        disk, window, resumable = self.disk, Window(begun=len(self.moments), killed=len(self.moments)), 0
        forgot = False
        self.model = None
        for number, event in enumerate(events):
            self.counts.digest = zlib.crc32(told_of(event).encode(), self.counts.digest)
            if event.kind == Kind.MARK:
                window.mark(event.offset)
                continue
            if self.forgets is not None and self.forgets(self.chance, event):
                forgot = True
                continue
            if not disk.take(event):
                continue
            for state, killed in drawn_states(disk, self.chance):
                first = window.killed if killed else window.lost
                try:
                    found = judge.verdict(state, first, window.begun, killed)
                except Violation as violation:
                    if self.counts.evidence is None:
                        self.counts.evidence = partial(
                            judge.evidence, state, first, window.begun, events[max(0, number - EVENTS_TOLD) : number + 1])
                    self.tell(violation, number, killed, event)
                    if self.is_over():
                        return
                    continue
                resumable += bool(found)
                if found and self.chance.random() < 1 / resumable and all(one.hidden() == found[0].hidden() for one in found):
                    self.go_on(disk if killed else None, state, judge.moments[window.lost : window.begun + 1], found[-1])
            self.told(self.counts)
        if not forgot:
            disk.audit(live)

    def go_on(self, disk: Disk | None, state: State, moments: list[Moment], found: Moment) -> None:
        """The next session goes on from here; after a kill (`disk`) what was not synced may still be lost."""
        self.next = copy.deepcopy(disk) if disk is not None else Disk(state)
        self.state = state
        self.model = found.model
        self.moments = [moment.model for moment in moments] if disk is not None else []

    def tell(self, violation: Violation, number: int, killed: bool, event: Event) -> None:
        how = "killed" if killed else "power lost"
        self.counts.violations.append(
            f"seed {self.seed!r}, mix {self.mix!r}, durability {self.durability}, session {self.counts.sessions}, "
            f"{how} after event {number} ({event.kind.name} {event.name}): {shown(str(violation))}")


def told_of(event: Event) -> str:
    """An event in a line, without what it wrote."""
    if event.kind == Kind.MARK:
        number, what = divmod(event.offset, 3)
        return f"call {number} {('begins', 'has returned', 'is durable')[what]}"
    return f"{event.kind.name} {event.name} at {event.offset}"


def shown(text: str) -> str:
    """Without the long bodies."""
    return re.sub(r"(.{1,4})\1{8,}", r"\1…", text)[:6000]
