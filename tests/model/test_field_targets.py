"""Targets that the message names: a selector with a place in many lines, refused in some of them and welcome in others. The
compiled engine against the model, over graphs where many names are waited for and few have room.

A program is a seed. `XUMP_STEPS` is how many steps are made at the least (8,000 unless told, of which this takes a sixth).
"""

import random

import pytest

from tests.model.lockstep import AtRandom, World
from tests.model.steps import STEPS
from xump import INFINITE, always, bounce_to, deliver, field, match, move_to, overflow

STEPS_PER_RUN = 40
TARGETS = [f"t{number}" for number in range(12)]    # more than a selector has places in a list
SOURCES = ["s0", "s1"]


def waiting(engine, name):
    return [message.address for message in engine.queues[name].browse(state="ready")]


def built(engine, targets, limit, *, credit, selectors=1):
    engine.create_queue("q")
    for name in targets:
        engine.create_queue(name, limit=limit)
    return [engine.create_selector("q", when=always, do=move_to(field("address")), credit=credit) for _ in range(selectors)]


@pytest.mark.parametrize("selectors", [1, 2, 3])
def test_a_credit_takes_the_oldest_message_that_has_room_whatever_it_names(engine, selectors):
    movers = built(engine, TARGETS, 1, credit=0, selectors=selectors)
    engine.publish_many("q", [(name,) for name in TARGETS for _ in range(2)])
    for count in range(1, 13):
        movers[count % selectors].grant(1)
        assert [name for name in TARGETS if waiting(engine, name)] == TARGETS[:count]
        engine.check()
    for name in reversed(TARGETS):      # each has room once more, and nobody has credit
        assert engine.queues[name].purge() == 1
        engine.check()
    assert waiting(engine, "q") == []   # purging paid for them


def test_who_becomes_able_stands_in_the_lines_where_others_were_refused_before(engine):
    first, late = built(engine, TARGETS, 1, credit=INFINITE, selectors=2)
    late.disable()
    engine.publish_many("q", [(name,) for name in TARGETS for _ in range(3)])
    late.enable()
    assert first.blocked and late.blocked
    first.disable()
    for count, name in enumerate(TARGETS, 1):
        engine.queues[name].purge()
        assert late.outstanding == 0 and engine.stats()["selectors"][late.id]["served"] == count
        engine.check()


def test_a_queue_that_was_waited_for_gets_its_messages_and_nobody_else_s(engine):
    mover, = built(engine, TARGETS, 1, credit=20)
    engine.publish_many("q", [(name,) for name in TARGETS for _ in range(2)])
    engine.delete_queue("t3")
    assert waiting(engine, "q").count("t3") == 2    # what t3 held came back
    engine.create_queue("t3", limit=1)
    assert waiting(engine, "t3") == ["t3"] and waiting(engine, "q") == TARGETS and mover.blocked
    engine.check()


def test_an_older_message_for_a_full_queue_goes_before_one_that_its_overflow_selector_could_take(engine):
    engine.create_queue("q")
    engine.create_queue("full", limit=1)
    engine.create_queue("out")
    engine.create_selector("full", when=overflow, do=move_to(field("reply_to")), credit=1)
    mover = engine.create_selector("q", when=always, do=move_to(field("address")), credit=1)
    engine.publish("full", "x")
    engine.publish("q", "full")
    engine.publish("q", "full", reply_to="out")
    assert waiting(engine, "q") == ["full", "full"] and mover.blocked


def test_who_is_paid_by_what_makes_the_room_has_not_left_the_line(engine):
    """It spent its last credit on another queue while it stood first."""
    for name, limit in (("q", None), ("later", None), ("full", 1), ("free", None)):
        engine.create_queue(name, limit=limit)
    first = engine.create_selector("q", when=always, do=move_to(field("address")), credit=2)
    second = engine.create_selector("later", when=always, do=move_to("full"), credit=1)
    engine.publish_many("q", [("full",), ("full",), ("free",)])
    engine.publish("later", "later")
    assert (first.available, second.blocked) == (0, True)
    engine.queues["full"].purge()
    assert waiting(engine, "full") == ["full"] and second.blocked


def test_what_comes_back_with_the_room_that_it_leaves_has_its_turn(engine):
    """Of two in the waiting list, the first one has lost the message that it waits for, and gets another."""
    engine.create_queue("q")
    engine.create_queue("later")
    engine.create_queue("full", limit=1)
    gone = engine.create_selector("q", when=always, do=move_to(field("address")), credit=1)
    stays = engine.create_selector("q", when=always, do=move_to(field("address")), credit=1)
    second = engine.create_selector("later", when=always, do=move_to("full"), credit=1)
    engine.publish_many("q", [("full",), ("full",)])
    engine.publish("later", "later")
    engine.queues["q"].delete(2)
    gone.delete()
    assert waiting(engine, "full") == ["full"] and stays.outstanding == 1 and second.blocked


# ---- any such graph: the engine and the model

class Names(AtRandom):
    """A graph with more names than room, and what is done with it."""

    RULES = (["publish"] * 6 + ["take"] * 3 + ["conclude", "on_target"] * 4 + ["on_selector"] * 5 + ["on_source", "delete"] * 2
             + ["create_queue", "delete_queue", "link", "delete_selector", "build"])

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.world = World(self.chance.choice([3, 64]), None)
        self.limits = self.chance.choice([[1], [0, 1, 1, 2], [1, 2, None]])
        self.names = TARGETS[: self.chance.choice([2, 4, 12])]
        for name in SOURCES:
            self.world.create_queue(name, None, 0, False, None, None)
        for name in self.names:
            self.create_queue(name)
        for _ in range(self.chance.randint(2, 6)):
            self.link()

    def create_queue(self, name=None):
        choice = self.chance.choice
        self.world.create_queue(name or choice(self.names), choice(self.limits), 0, False, choice([None, None, "s0"]), None)

    def link(self):
        choice = self.chance.choice
        if len(self.world.engine.selectors) > 9:
            return
        source, when, do = choice(["s0", "s0", "s1"]), choice([always, always, match("prefix", "t1")]), move_to(field("address"))
        kind, replies = self.chance.random(), field("reply_to")
        if kind < 0.15:
            source, do = choice(self.names), choice([deliver("d"), move_to("s1"), move_to(replies)])
        elif kind < 0.3:
            fixed = move_to(choice(self.names))
            do = choice([fixed, bounce_to(replies), deliver("d"), deliver("d", queue=field("address"))])
        elif kind < 0.37:
            source, when, do = choice(self.names), overflow, choice([move_to("s1"), move_to(replies)])
        credit, enabled = choice([0, 1, 1, 2, 5, INFINITE]), self.chance.random() < 0.9
        self.world.create_selector(source, when, do, credit, enabled, "current", None)

    def publish(self):
        choice = self.chance.choice
        addresses = [choice([*self.names, "nowhere"]) for _ in range(self.chance.randint(1, 8))]
        self.world.publish_many(choice(SOURCES), [(address, b"", {}, choice([None, *self.names])) for address in addresses])

    def take(self):
        self.world.take(self.chance.randint(1, 2), None)

    def conclude(self):
        self.world.conclude(self.chance.randint(0, 50), self.chance.choice(["ack", "ack", "nack", "drop"]))

    def on_selector(self):
        verb, *arguments = self.chance.choice([("grant", 1), ("grant", 3), ("enable",), ("enable",), ("disable",)])
        self.world.on_selector(self.chance.choice([*self.world.engine.selectors, 1]), verb, *arguments)

    def on_target(self):
        name = self.chance.choice(self.names)
        if name in self.world.engine.queues:
            self.world.on_queue(name, *self.chance.choice([("purge",), ("purge",), ("hold",), ("release",), ("delete", 1)]))

    def on_source(self):
        self.world.on_queue(self.chance.choice(SOURCES), self.chance.choice(["hold", "release", "release", "purge"]))

    def delete(self):
        name = self.chance.choice(SOURCES)
        ready = [message.id for message in self.world.engine.queues[name].browse()]
        self.world.on_queue(name, "delete", self.chance.choice([*ready, 1]))

    def delete_queue(self):
        self.world.delete_queue(self.chance.choice(self.names))

    def delete_selector(self):
        self.world.delete_selector(self.chance.choice([*self.world.engine.selectors, 1]))

    def build(self):
        """A block in which nobody is stopped who could go on at its end."""
        self.world.build()
        for _ in range(self.chance.randint(1, 4)):
            getattr(self, self.chance.choice(["publish", "publish", "conclude", "link", "create_queue", "delete_queue"]))()
            self.world.compare()
        self.world.build()


@pytest.mark.parametrize("part", range(4))
def test_the_engine_does_what_the_model_does_where_messages_name_their_targets(part):
    for seed in range(max(1, STEPS // 24 // STEPS_PER_RUN)):
        Names(f"{part} {seed}").run(STEPS_PER_RUN)
