"""The compiled engine against the model over durable stores that are full again and again (`full.py`): flows of messages of
kilobytes through a few queues in RAM, in a ring and in lmdb, until nothing fits any more.

A program is a seed. `XUMP_STEPS` is how many steps are made at the least.
"""

import random

import pytest

from tests.model.full import FullWorld
from tests.model.drawing import WAITS, Drawing, features_drawn
from tests.model.steps import STEPS
from tests.model.test_store_programs import NAMES, Flow
from xump import INFINITE, always, copy_to, default, deliver, discard, match, move_to, overflow
from xump.durability import opening

STEPS_PER_RUN = 60
MIXES = {
    "ring, every call": (("ring",), True), "lmdb, every call": (("lmdb",), True), "both, every call": (("ring", "lmdb"), True),
    "ring": (("ring",), False), "lmdb": (("lmdb",), False), "both": (("lmdb", "ring"), False),
}
SIZES = {"ring": [0, 100, 1_000, 4_000, 12_000, 20_000], "lmdb": [100, 4_000, 12_000, 40_000, 70_000, 130_000]}


class FullFlow(Drawing, Flow):
    """Messages come until there is no room, some go on, some end; then more come. Half of the programs use time, order,
    duplicates or bounds."""

    RULES = (["publish"] * 4 + ["fill"] * 4 + ["brim"] * 2 + ["publish_many", "publish_batch", "ask"] * 2 + ["take"] * 5
             + ["conclude"] * 6 + ["reopen"] * 2 + ["transact"] * 3 + ["thin"] * 2 + [
             "on_queue", "purge", "empty", "sync", "link", "delete", "delete_selector", "delete_queue", "set_meta", "stage",
             "adopt", "enter", "enter", "switch", "switch", "get", "copy", "overflow"])
    MORE_RULES = ["wait"] * 8 + ["tick", "publish_waiting", "publish_waiting", "publish_waiting", "give_up"]

    def __init__(self, seed, stores, written):
        self.chance = random.Random(seed)
        choice = self.chance.choice
        self.features = features_drawn(self.chance) - {"requests", "transit"} if choice([False, True]) else set()
        self.RULES = self.RULES + (self.MORE_RULES if self.features else [])
        # Rewriters tell the model which messages find room as they expire. So those programs have no dead letter queue of the
        # engine, which has no rewriter.
        self.ends = choice([False, True])
        if not self.ends:
            self.features -= {"ttl", "queue ttl"}
        expires = bool(self.features & {"ttl", "queue ttl"})
        self.world = FullWorld(64, None if self.ends else choice([None, "d", "a"]), stores, written, 1, expires)
        self.sizes = [size for store in stores for size in SIZES[store]]
        self.usual = choice(self.sizes)
        places = [choice(["ram", *stores, *stores]) for _ in NAMES]
        places[1] = choice(stores)
        self.queues = [(name, choice([None, None, None, 3]), choice([0, 0, 2, None]), False, choice([None, None, *NAMES]),
                        choice([None, None, 2]), place) for name, place in zip(NAMES, places, strict=True)]
        self.graph = [self.drawn_link(at) for at in (0, 0, 1, 1, 2, 3)]
        self.build(self.graph)

    def drawn_link(self, at):
        """Never upstream: a message comes to no hop limit."""
        choice = self.chance.choice
        if at == 3 or self.chance.random() < 0.25:
            do = choice([deliver("d")] * 7 + [discard])
        else:
            do = choice([move_to] * 6 + [copy_to])(choice(NAMES[at + 1 :]))
        return NAMES[at], choice([always, always, always, match("eq", "x"), default]), do, choice([INFINITE, INFINITE, 1, 3])

    def build(self, graph):
        self.world.build()
        for name, *properties in self.queues:
            if name not in self.world.engine.queues:
                self.world.create_queue(name, *properties, **self.queue_terms())
        for source, when, do, credit in graph:
            self.world.create_selector(source, when, do, credit, True, "current", None, self.ack_timeout(do, credit))
        self.world.build()

    def queue_terms(self):
        terms = super().queue_terms()
        if self.ends:
            terms.setdefault("rewriter", "test bounce")
        return terms | {"limit_bytes": 10_000 * terms["limit_bytes"]} if "limit_bytes" in terms else terms

    def size(self):
        return self.chance.choice([self.usual, self.usual, *self.sizes])

    def message(self):
        return self.chance.choice("xxy"), self.size(), {}, self.chance.choice([None, "b"]), self.message_id()

    def target(self):
        return self.chance.choice("aaabbc")

    def publish(self):
        for _ in range(self.chance.randint(1, 3)):
            address, size, headers, reply_to, message_id = self.message()
            self.world.publish(self.target(), address, headers, reply_to, size, message_id, **self.terms())

    def publish_waiting(self):
        address, size, headers, reply_to, message_id = self.message()
        self.world.publish_waiting(self.target(), address, headers, reply_to, size, message_id, **self.terms())

    def fill(self):
        """Until the store of the queue is full, or the queue is in RAM."""
        name, size = self.target(), self.size()
        for _ in range(20):
            met = self.world.met["publish was refused"]
            self.world.publish(name, self.chance.choice("xxy"), {}, None, size)
            if self.world.met["publish was refused"] > met:
                return

    def brim(self):
        """Until the last few bytes are used."""
        name = self.target()
        for size in (*sorted(self.sizes, reverse=True), 50):
            for _ in range(6):
                met = self.world.met["publish was refused"]
                self.world.publish(name, "x", {}, None, size)
                if self.world.met["publish was refused"] > met:
                    break

    def publish_many(self):
        self.world.publish_many(self.target(), [self.message() for _ in range(self.chance.randint(1, 6))], **self.shared_terms())

    def publish_batch(self):
        self.world.publish_batch(
            self.target(), [(*self.message(), self.terms(row=True)) for _ in range(self.chance.randint(1, 6))])

    def ask(self):
        self.world.publish_many(self.target(), [self.message() for _ in range(self.chance.randint(1, 9))], outcomes=True)

    def staged_body(self):
        return self.size()

    def wait(self):
        """Time does not go back: a call that needs none does not read the clock, so the engine may not know how late it was."""
        self.world.wait(max(0, self.chance.choice(WAITS)))

    def transact(self):
        answers = [(self.chance.choice(["ack", "ack", "ack", "nack", "reject"]), self.chance.randint(0, 50))
                   for _ in range(self.chance.randint(0, 4))]
        published = [("publish", self.target(), "x", {}, self.terms() | {"message_id": self.message_id()})
                     for _ in range(self.chance.randint(0, 2))]
        meta = [self.meta_operation(self.chance.choice(NAMES))] if self.chance.random() < 0.2 else []
        self.world.transact([*answers, *published, *meta], self.chance.random() < 0.1)

    def conclude(self):
        self.world.conclude(self.chance.randint(0, 50), self.verdict())

    def purge(self):
        self.world.on_queue(self.chance.choice(NAMES), "purge")

    def empty(self):
        """All that is ready goes."""
        for name in NAMES:
            self.world.on_queue(name, "purge")

    def thin(self):
        """Messages end here and there, which leaves gaps in the log."""
        name, step = self.chance.choice(sorted(self.world.engine.queues)), self.chance.choice([2, 3, 5])
        for message in list(self.world.engine.queues[name].browse())[::step]:
            self.world.on_queue(name, "delete", message.id)

    def switch(self):
        self.world.on_selector(self.chance.choice(sorted(self.world.engine.selectors) or [1]),
                               self.chance.choice(["enable", "enable", "disable"]))

    def get(self):
        self.world.get(self.chance.choice(NAMES))

    def copy(self):
        """Once more, from the start."""
        at = self.chance.randint(0, 2)
        if len(self.world.engine.selectors) < 8:
            self.world.create_selector(NAMES[at], always, copy_to(self.chance.choice(NAMES[at + 1 :])), 1, True, "head", None)

    def overflow(self):
        at = self.chance.randint(0, 2)
        do = self.chance.choice([move_to(self.chance.choice(NAMES[at + 1 :])), discard, deliver("d")])
        self.world.create_selector(NAMES[at], overflow, do, self.chance.choice([1, INFINITE]), True, "current", None)


CORNERS = (
    "publish was refused", "publish_many was refused", "publish_batch was refused", "a copy or a dead letter found no room",
    "a selector waits for a store", "a store was full in the middle of a batch",
    "a full store is lost in a crash and opened again")
"""What programs of each mix must come to."""


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("mix", MIXES)
def test_flows_through_full_stores(mix, monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    FullWorld.met.clear()
    seeds = range(max(1, STEPS // 6 // STEPS_PER_RUN))
    for seed in seeds:
        FullFlow(f"{mix} {seed}", *MIXES[mix]).run(STEPS_PER_RUN)
    assert FullWorld.met["undecided"] <= 1 + len(seeds) // 50
    assert not [corner for corner in CORNERS if not FullWorld.met[corner]], FullWorld.met


def test_a_move_drops_nothing_where_its_own_record_takes_the_room_of_the_overflow(monkeypatch):
    """The queue and the target of its overflow selector are in one store. The room was there when the MOVE asked for it."""
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    world = FullWorld(64, None, ("lmdb",), False)
    for name, limit, history, letters, terms in (
            ("a", None, 2, None, {}), ("b", None, 2, None, {}), ("c", 3, None, "b", {"when_full": "drop_oldest"}),
            ("d", 3, 0, None, {})):
        world.create_queue(name, limit, history, False, letters, 2, "lmdb", **terms)
    world.create_selector("a", always, move_to("b"), 1, True, "current", None)
    world.create_selector("b", always, move_to("c"), INFINITE, True, "current", None)
    world.publish_many("c", [("x", 100, {}, None, None), ("y", 12_000, {}, "b", None)])
    world.publish_waiting("c", "x", {}, "b", 4_000)
    world.create_selector("c", overflow, move_to("d"), INFINITE, True, "current", None)
    world.publish("a", "x", {}, None, 70_000)
    world.compare()
    assert world.model.queue_by_name["c"].dropped == {} and world.engine.queues["d"].ready == 1
    world.close()
