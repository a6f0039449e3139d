"""Random programs over an engine and its model, and the moments that they go through.

A `Recorded` world makes each call on both, says before and after it which call it was (`shim.mark`), and keeps what its stores
have to bring back if all ends there: a **moment**. A `Program` chooses the calls, of every kind. A seed makes a program.

    session     an engine's life: it opens its stores, calls, and closes them or not; then, perhaps, another one
    chain       sessions over the same files, each on what the one before left when the power went
"""

from __future__ import annotations

import copy
import random
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import xump
from tests.faults import shim
from tests.model.drawing import Drawing, features_drawn
from tests.model.engine import ModelEngine
from tests.model.lockstep import World
from tests.model.stores import reopened
from tests.model.test_store_programs import NAMES, Flow
from tests.model.values import TIME_MIN
from xump.durability.committer import Committer
from xump.store_types import factory_of
from xump_ext.store import Report

BEGUN, RETURNED, DURABLE = range(3)     # what a mark says of a call: mark = 3 * number + this

MIXES = {
    "ring": ("ring",), "lmdb": ("lmdb",), "ring and lmdb": ("ring", "lmdb"), "ring and ring": ("ring", "ring2"),
    "lmdb and lmdb": ("lmdb", "lmdb2"),
}
OPTIONS = {
    "lmdb": {"max_bytes": 1 << 25},
    "ring": {"segment_bytes": 1 << 16, "min_bytes": 0, "max_bytes": 1 << 23},
}
# How the stores of a chain are durable, and how long groups gather; most calls are confirmed one by one.
DURABILITIES = [("sync", 0)] * 5 + [("group", 60_000)] * 2 + [
    ("group", 1), ("group", 30), ("process", 0), ("process", 0), ("none", 60_000)]
THREADS_MS = 1, 30      # with these, the stores' threads write, too, whenever they come to it
BODY_BYTES = [0, 8, 8, 8, 100, 100, 100, 700, 700, 5_000, 5_000, 20_000]


def threadless() -> AbstractContextManager:
    """Stores that are opened in here have no threads of their own: their `Recorded` world does what these would do, at the same
    moments and in the same order each time."""
    return patch.object(Committer, "_start", lambda committer: None)


class Over(Exception):
    """A store was full: the program ends in the middle of a call."""


def kind_of(store: str) -> str:
    """Stores are named by their types; the second one of a type has a 2."""
    return store.rstrip("2")


def copied(model: ModelEngine) -> ModelEngine:
    """A copy that goes its own way, of all but what never changes."""
    lasting = [entry.message for queue in model.queues.values() for entry in queue.entries]
    lasting += [part for selector in model.selectors.values() for part in (selector.when, selector.do)]
    made = copy.deepcopy(model, {id(part): part for part in lasting})
    made.watches, made.outlets = [], []         # nobody is told of what a copy does
    return made


def opened_now(moment: ModelEngine) -> ModelEngine:
    """A copy whose time begins with its first call, as that of an engine which opens the store now: the clock may have gone back
    since that moment."""
    made = copied(moment)
    made.time = TIME_MIN
    return made


def tended(verb: str, store: str, folder: Path) -> Report:
    """What `check`, `compact` or `repair` of a store in a folder says."""
    return getattr(factory_of(kind_of(store)), verb)(str(folder / store))


class Recorded(World):
    """A world whose stores lie in a folder, and which says what it does."""

    def __init__(self, folder: Path, stores, durability, hop_limit=64, dead_letter=None, model=None, moments=()):
        self.now = 10_000 if model is None else model.clock() + 1
        self.options = {"clock": lambda: self.now, "hop_limit": hop_limit, "dead_letter": dead_letter}
        self.stores, self.places, self.durability = stores, [folder], durability
        self.written = durability[0] in ("process", "none")
        self.model = ModelEngine(**self.options) if model is None else opened_now(model)
        self.model.clock = self.options["clock"]
        self.model.stores = ["ram", *stores]
        for moment in moments:          # of the session before: whatever is left of it goes on at this session's time
            moment.clock = self.options["clock"]
        self.moments = [*moments, reopened(copied(self.model), True)]
        """What is there after each call, after a crash."""
        self.confirmed = len(self.moments) - 1
        """The last moment that is durable for sure."""
        self.journal = [f"Recorded(..., {stores!r}, {durability!r}, {hop_limit!r}, {dead_letter!r})"]
        self.forget()
        self.engine = None
        self.bodies = 0
        self.open()

    # ---- what is said of each call

    def begin(self):
        shim.mark(3 * len(self.moments) + BEGUN)

    def end(self, durable, crashed=True, said=True):
        """A call is over, whatever came of it. What it did survives the process where every call is written."""
        self.moments.append(reopened(copied(self.model), crashed))
        number = len(self.moments) - 1
        if not said:
            return
        if durable or self.durability[0] == "sync":
            self.confirmed = number
        if durable or self.durability[0] in ("sync", "process"):
            shim.mark(3 * number + (DURABLE if durable or self.durability[0] == "sync" else RETURNED))

    def both(self, call, note, any_error=False):
        self.begin()

        def called(engine, side):
            try:
                return call(engine, side)
            except xump.StoreFull as error:     # the model knows no room
                raise Over from error
        done = super().both(called, note, any_error)
        self.work()
        self.end(note == "sync()" or (note.startswith("commit(") and len(self.stores) == 1))
        return done

    def work(self):
        """The stores that have no threads do in turn what those would do at once; one that nobody waits for goes on gathering."""
        chance = random.Random(self.now)
        while due := [committer for committer in self.engine._committers() if committer._thread is None and (
                committer._hurry.is_set() or (committer._calls.hurry and committer.wakeup.is_set()))]:
            chance.choice(due)._round()

    def commit(self, store):
        """One store alone writes and syncs what it has: if all ends then, it is ahead of the other one."""
        def commit(engine, side):
            errors = []
            for committer in engine._committers() if side else ():
                if committer.name == store:
                    committer.flush(errors)
            if errors:
                raise errors[0]
        self.both(commit, f"commit({store!r})")

    def wait_to_be_told(self):
        self.begin()
        super().wait_to_be_told()
        self.end(not self.written)

    # ---- opening and closing

    def options_of(self, store):
        name, group_ms = self.durability
        return OPTIONS[kind_of(store)] | {"durability": name, "group_ms": group_ms}

    def open(self):
        self.engine = xump.Engine(**self.options)
        for store in self.stores:
            self.begin()
            self.engine.create_store(store, kind_of(store), path=str(self.places[0] / store), **self.options_of(store))
            self.end(store == self.stores[-1], said=store == self.stores[-1])
        self.watch()

    def close(self):
        """In order; the next session opens what is there."""
        while self.blocks:
            self.build()
        self.begin()
        self.engine.close()
        self.forget()
        self.model = reopened(self.model, False)
        self.end(self.durability[0] != "none", crashed=False)

    def reopen(self, crash=False, tend=None):
        self.journal.append(f"reopen({tend})")
        self.close()
        for store in self.stores if tend is not None else ():
            self.begin()
            tended(tend, store, self.places[0])
            self.end(False, crashed=False)
        self.open()

    # ---- calls with bodies of their own

    def body(self, size):
        """No two are alike."""
        self.bodies += 1
        tag = b"%d.%d " % (self.now, self.bodies)
        return (tag + bytes([self.bodies & 255]) * size)[: max(size, len(tag))]

    def publish(self, queue, address, headers, reply_to, size=8, message_id=None, **terms):
        super().publish(queue, address, headers, reply_to, self.body(size), message_id, **terms)

    def body_of_its_own(self):
        return self.body(100)


class Program(Drawing, Flow):
    """A graph in which messages go forward as a rule, and calls of all kinds. Half of the programs use time, order, duplicates or
    bounds."""

    CALLS = (["publish"] * 8 + ["take"] * 5 + ["conclude"] * 5 + ["transact", "on_queue", "sync"] * 2 + [
             "publish_many", "publish_batch", "take_batch", "ack_many", "grant", "pay", "switch", "replay", "hold_for_a_while",
             "link", "delete", "delete_selector", "delete_queue", "reopen", "meddle", "set_meta"]
             + ["stage", "adopt", "enter"] * 2 + ["commit"] * 3)
    MORE_CALLS = ["wait"] * 4 + ["tick", "get", "get"]      # no loop over deliveries: that is many calls

    def __init__(self, chance: random.Random, open_world, queues=None):
        """`open_world()` opens the world. `queues`: those of an earlier session."""
        self.chance = chance
        self.features = features_drawn(chance) - {"requests", "room"} if chance.random() < 0.5 else set()
        self.RULES = self.CALLS + (self.MORE_CALLS if self.features else [])
        self.world = open_world()
        stores = self.world.stores
        choice = chance.choice
        places = [choice(["ram", *stores, *stores]) for _ in NAMES]
        if "ram" not in places[1:]:
            places[0] = choice(stores)
        if len(stores) == 2:            # most messages go from one to the other
            places[1:3] = chance.sample(stores, 2)
        self.queues = queues or [
            ((name, choice([None, None, None, 2]), choice([0, 0, 2, None]), False, choice([None, None, *NAMES]),
              choice([None, None, 2]), place), self.queue_terms()) for name, place in zip(NAMES, places, strict=True)]
        self.graph = [self.drawn_link(at) for at in (0, 0, 1, 1, 2, 3)]
        self.build(self.graph)

    def build(self, graph):
        self.world.build()
        for properties, terms in self.queues:
            if properties[0] not in self.world.engine.queues:
                self.world.create_queue(*properties, **terms)
        for source, when, do, credit in graph:
            self.world.create_selector(source, when, do, credit, True, "current", None, self.ack_timeout(do, credit))
        self.world.build()

    def run(self, steps, left_out=()):
        """Returns whether it came to its end. A step that is left out changes no other: each draws for itself."""
        salt = self.chance.random()
        try:
            for step in range(steps):
                self.chance.seed(f"{salt} {step}")
                if step not in left_out:
                    getattr(self, self.chance.choice(self.RULES))()
            self.world.compare()
        except Over:
            return False
        return True

    def publish(self):
        chance = self.chance
        for _ in range(chance.randint(1, 3)):
            self.world.publish(chance.choice("aaabc"), chance.choice("xxy"), self.headers(), chance.choice([None, "b"]),
                               chance.choice(BODY_BYTES), self.message_id(), **self.terms())

    def headers(self):
        return {"to": self.chance.choice(["a", "b", ""])} if "group" in self.features else {}

    def messages(self):
        chance = self.chance
        return [(chance.choice("xy"), self.world.body(chance.choice(BODY_BYTES)), self.headers(), None, self.message_id())
                for _ in range(chance.randint(1, 5))]

    def publish_many(self):
        self.world.publish_many(self.chance.choice("ab"), self.messages(), **self.shared_terms())

    def publish_batch(self):
        self.world.publish_batch(self.chance.choice("ab"), [(*row, self.terms(row=True)) for row in self.messages()])

    def conclude(self):
        self.world.conclude(self.chance.randint(0, 50), self.verdict())

    def staged_body(self):
        return self.world.body(self.chance.choice(BODY_BYTES))

    def transact(self):
        operations = [self.operation(self.chance.choice(NAMES), "x") for _ in range(self.chance.randint(1, 3))]
        self.world.transact(operations, self.chance.random() < 0.1)

    def get(self):
        self.world.get(self.chance.choice(NAMES))

    def take_batch(self):
        self.world.take_batch(self.chance.randint(1, 3), None, self.chance.choice(["ack", "nack", None]))

    def ack_many(self):
        self.world.ack_many([self.chance.randint(0, 50) for _ in range(3)])

    def commit(self):
        self.world.commit(self.chance.choice(self.world.stores))

    def selector(self):
        return self.chance.choice(sorted(self.world.engine.selectors) or [1])

    def grant(self):
        self.world.on_selector(self.selector(), "grant", self.chance.randint(0, 2))

    def pay(self):
        self.world.on_selector(self.selector(), "pay", 1)

    def switch(self):
        self.world.on_selector(self.selector(), self.chance.choice(["enable", "enable", "disable"]))

    def replay(self):
        if len(self.world.engine.selectors) < 8:
            self.world.create_selector("a", xump.always, xump.copy_to("c"), 1, True, "head", None)

    def hold_for_a_while(self):
        self.world.build()
        self.publish()
        self.delete()
        self.world.build()

    def reopen(self):
        self.world.reopen(tend=self.chance.choice([None, "compact", "compact", "repair"]))
        self.build(self.graph)
