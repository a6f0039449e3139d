"""The compiled engine against the model, over durable stores that are closed, or end by a crash, and are opened again: programs
that take messages far, through durable queues and RAM, to your program.

`test_state_machine.py` uses every call; this one few, so that much is under way when all begins anew. A program is
a seed. `XUMP_STEPS` is how many steps are made at the least (8,000 unless told, of which each mix of stores takes a twelfth).
"""

import random

import pytest

from tests.model.drawing import Drawing, Maps, Staging, features_drawn
from tests.model.lockstep import AtRandom, World
from tests.model.steps import STEPS
from xump import INFINITE, always, bounce_to, copy_to, default, deliver, discard, match, move_to
from xump.durability import opening

STEPS_PER_RUN = 40
NAMES = ["a", "b", "c", "d"]
MIXES = {
    "lmdb": (("lmdb",), False), "ring": (("ring",), False), "lmdb and ring": (("lmdb", "ring"), False),
    "lmdb, every call": (("lmdb",), True), "ring, every call": (("ring",), True), "both, every call": (("ring", "lmdb"), True),
}


class Flow(Maps, Staging, AtRandom):
    """A graph in which messages go forward as a rule, and what is done with it."""

    RULES = (["publish"] * 8 + ["take"] * 5 + ["conclude"] * 5 + ["reopen"] * 3 + ["transact", "on_queue", "sync"] * 2 + [
             "link", "delete", "delete_selector", "delete_queue", "set_meta", "stage", "stage", "adopt", "enter", "enter",
             "meddle"])
    targets = NAMES

    def __init__(self, seed, stores, written):
        self.chance = random.Random(seed)
        choice = self.chance.choice
        self.world = World(choice([3, 64]), choice([None, "d", "a"]), stores, written)
        places = [choice(["ram", *stores, *stores]) for _ in NAMES]
        places[0] = choice(stores)
        self.queues = [(name, choice([None, None, None, 2]), choice([0, 0, 2, None]), False, choice([None, None, *NAMES]),
                        choice([None, None, 2]), place) for name, place in zip(NAMES, places, strict=True)]
        self.graph = [self.drawn_link(at) for at in (0, 0, 1, 1, 2, 3)]
        self.build(self.graph)

    def drawn_link(self, at):
        choice = self.chance.choice
        when = choice([always, always, always, match("eq", "x"), default])
        do = choice([move_to] * 6 + [bounce_to, copy_to])(choice(NAMES[at + 1 :] * 4 + NAMES))
        if at == 3 or self.chance.random() < 0.2:
            do = choice([deliver("d")] * 6 + [discard])
        return NAMES[at], when, do, choice([INFINITE, INFINITE, 1, 3])

    def build(self, graph):
        self.world.build()
        for properties in self.queues:
            if properties[0] not in self.world.engine.queues:
                self.world.create_queue(*properties)
        for source, when, do, credit in graph:
            self.world.create_selector(source, when, do, credit, True, "current", None)
        self.world.build()

    def publish(self):
        for _ in range(self.chance.randint(1, 3)):
            self.world.publish(self.chance.choice("aaabc"), self.chance.choice("xxy"), {}, self.chance.choice([None, "b"]))
        if self.chance.random() < 0.3:
            self.world.publish_annexed(self.chance.choice("aaabc"), self.chance.choice("xxy"), 1, self.chance.choice(["", "b"]))

    def take(self):
        self.world.take(self.chance.randint(1, 2), None)

    def conclude(self):
        self.world.conclude(self.chance.randint(0, 50), self.chance.choice(["ack", "ack", "nack", "nack", "drop", "reject"]))

    def transact(self):
        published = [("publish", self.chance.choice(NAMES), "x", {}) for _ in range(self.chance.randint(0, 2))]
        self.world.transact([*published, ("ack", self.chance.randint(0, 50)), self.meta_operation(self.chance.choice(NAMES))],
                            self.chance.random() < 0.1)

    def delete(self):
        self.world.on_queue(self.chance.choice(NAMES), "delete", self.chance.randint(1, 9))

    def on_queue(self):
        self.world.on_queue(self.chance.choice(NAMES), self.chance.choice(["purge", "hold", "release", "release"]))

    def link(self):
        if len(self.world.engine.selectors) < 8:
            self.build([self.drawn_link(self.chance.randint(0, 3))])

    def set_meta(self):
        self.world.set_meta(*self.meta_change(self.chance.choice(NAMES)))

    def delete_selector(self):
        self.world.delete_selector(self.chance.randint(1, 7))

    def delete_queue(self):
        self.world.delete_queue(self.chance.choice(NAMES))
        self.build([])

    def sync(self):
        self.chance.choice([self.world.sync, self.world.wait_to_be_told])()

    def reopen(self):
        """The same program begins again; or its queues only, which are not held any more then, too; or they stay held."""
        self.world.reopen(self.chance.random() < 0.5)
        self.world.compare()
        again = self.chance.random()
        if again < 0.9:
            self.build(self.graph if again < 0.8 else [])


class TimedFlow(Drawing, Flow):
    """The same with time, order, duplicates and bounds."""

    RULES = Flow.RULES + ["wait"] * 8 + ["tick", "get", "get", "iterate", "iterate"]

    def __init__(self, seed, stores, written):
        self.features = features_drawn(random.Random(seed + " features"))
        super().__init__(seed, stores, written)

    def build(self, graph):
        self.world.build()
        for name, *properties in self.queues:
            if name not in self.world.engine.queues:
                self.world.create_queue(name, *properties, **self.queue_terms())
        for source, when, do, credit in graph:
            self.world.create_selector(source, when, do, credit, True, "current", None, self.ack_timeout(do, credit))
        self.world.build()

    def publish(self):
        for _ in range(self.chance.randint(1, 3)):
            self.world.publish(self.chance.choice("aaabc"), self.chance.choice("xxy"), {}, self.chance.choice([None, "b"]),
                               self.body(), self.message_id(), **self.terms())

    def conclude(self):
        self.world.conclude(self.chance.randint(0, 50), self.verdict())

    def transact(self):
        operations = [self.operation(self.chance.choice(NAMES), "x") for _ in range(self.chance.randint(1, 3))]
        self.world.transact(operations, self.chance.random() < 0.1)

    def get(self):
        self.world.get(self.chance.choice(NAMES))

    def iterate(self):
        self.world.iterate(None, self.verdicts())


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("mix", MIXES)
def test_flows(mix, monkeypatch):
    """Most contents are read back from the stores."""
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    for seed in range(max(1, STEPS // 12 // STEPS_PER_RUN)):
        Flow(f"{mix} {seed}", *MIXES[mix]).run(STEPS_PER_RUN)


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("mix", MIXES)
def test_flows_in_time(mix, monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    for seed in range(max(1, STEPS // 12 // STEPS_PER_RUN)):
        TimedFlow(f"{mix} {seed}", *MIXES[mix]).run(STEPS_PER_RUN)
