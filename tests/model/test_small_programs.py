"""The compiled engine against the model in small worlds: two to four queues with hardly any room, one or two conditions that many
selectors share, actions whose targets name their own queue.

`test_state_machine.py` and `test_store_programs.py` seldom draw two selectors with the same condition, or a message that names
the queue it is in. Here all do: what can go wrong between selectors that are equal, or between a queue and itself, goes wrong
here first. Each program draws how often each call is made, too: some only publish and switch selectors, some only take and nack.
And it draws which features of time, order, duplicates and bounds it uses (`drawing.py`).

A program is a seed. `XUMP_STEPS` is how many steps are made at the least (8,000 unless told, of which each mix of stores takes a
quarter).
"""

import random

import pytest

from tests.model.drawing import Drawing, features_drawn
from tests.model.lockstep import AtRandom, World
from tests.model.steps import STEPS
from tests.model.vocabulary import WINDOWS
from xump import INFINITE, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, overflow, where
from xump.durability import opening

STEPS_PER_RUN = 100
NAMES = ["a", "b", "c", "d"]
ADDRESSES = ["a", "b", "c", "", "zzz"]      # three of them name queues
CONDITIONS = [always, match("eq", "a"), match("eq", "b"), match("prefix", ""), match("eq", "a", field="reply_to"), where("n > 0"),
              match("eq", "b") & where("n > 0"), match("topic", "*")]
MIXES = {
    "ram": ((), False), "lmdb": (("lmdb",), False), "ring": (("ring",), False), "all": (("ring", "lmdb"), False),
    "ring, every call": (("ring",), True), "all, every call": (("lmdb", "ring"), True),
}


class Dense(Drawing, AtRandom):
    """A small graph of selectors that are alike, and what is done with it."""

    CALLS = ["publish", "publish_annexed", "publish_many", "take", "conclude", "link", "on_selector", "on_queue",
             "delete_selector", "transact",
             "block", "delete_queue", "queue", "reopen", "sync", "wait", "set_meta"]
    MORE_CALLS = {"get": "get", "room": "publish_waiting give_up", "requests": "request reply end_request",
                  "delay": "publish_batch", "retry": "iterate", "deadline": "iterate", "ttl": "publish_batch iterate",
                  "window": "resize delete_window", "outlet": "outlet on_outlet drain drain drain",
                  "staged": "stage stage adopt adopt enter enter meddle"}

    def __init__(self, seed, stores, written):
        self.chance = random.Random(seed)
        choice = self.chance.choice
        self.features = features_drawn(self.chance)
        self.world = World(choice([2, 4, 64]), choice([None, None, "a", "d"]), stores, written, choice([0, 1, 1]))
        self.stores = ["ram", *stores]
        self.draw_graph()
        calls = list(self.CALLS)
        for feature in sorted(self.features):
            calls += [*self.MORE_CALLS.get(feature, "").split(), "wait"]
        self.RULES = [call for call in calls for _ in range(choice([0, 1, 1, 3, 6]))] + ["publish", "link"]
        for name in self.names:
            self.queue(name)
        self.world.build()
        for _ in range(self.links):
            self.link()
        self.world.build()

    # ---- what is drawn

    def draw_graph(self):
        choice = self.chance.choice
        self.names = self.targets = NAMES[: self.chance.randint(2, 4)]
        self.conditions = self.chance.sample(CONDITIONS, self.chance.randint(1, 2))
        self.limits = choice([[None], [1], [0, 1], [1, 2, None]])
        self.credits = choice([[INFINITE], [1], [0, 1, 9], [1, 2, INFINITE]])
        self.links = self.chance.randint(1, 5)

    def name(self):
        return self.chance.choice(self.names)

    def action(self, source):
        """Half of the targets are the selector's own queue, or named by a field, which may name it."""
        choice = self.chance.choice
        target = choice([source, self.name(), self.name(), field("address"), field("address"), field("reply_to")])
        kind = choice([move_to] * 5 + [copy_to, copy_to, bounce_to, deliver, deliver, discard])
        if kind is discard:
            return discard
        return deliver(choice(["d", field("address")])) if kind is deliver else kind(target)

    def message(self):
        choice = self.chance.choice
        headers = {"n": choice([0, 1])}
        if "group" in self.features:
            headers["to"] = choice(["a", "b", ""])
        return choice(ADDRESSES), self.body(), headers, choice([None, None, "a", "b"]), self.message_id()

    def destinations(self):
        return self.chance.choice([None, None, "d", "a", ["a", "d"]])

    # ---- calls

    def queue(self, name=None):
        choice = self.chance.choice
        if self.is_transit():
            self.world.create_queue(name or self.name(), None, 0, self.chance.random() < 0.2, choice([None, None, *self.names]),
                                    None, transit=True)
            return
        if self.is_staged():
            self.world.create_queue(name or self.name(), None, 0, False, None, None, choice(self.stores), staged=True)
            return
        self.world.create_queue(name or self.name(), choice(self.limits), choice([0, 0, 1, None]), self.chance.random() < 0.1,
                                choice([None, None, *self.names]), choice([None, None, 1, 2]), choice(self.stores),
                                **self.queue_terms())

    def link(self):
        choice, source = self.chance.choice, self.name()
        passes = source in self.world.engine.queues and self.world.engine.queues[source].transit
        if len(self.world.engine.selectors) < 9:
            role = self.chance.random()
            when = default if role < 0.08 else overflow if role < 0.16 else choice(self.conditions)
            do, credit = self.action(source), choice(self.credits)
            if passes and self.chance.random() < 0.9:       # it has no others
                target = choice([self.name(), self.name(), field("address"), field("reply_to")])
                do = choice([copy_to(target)] * 4 + [discard])
            starts = ["current"] if passes else ["current", "current", "tail", "head", 1, 2]
            start = choice(starts) if do.verb == "copy" else "current"
            terms = self.selector_terms(do, credit) if when is not overflow else {}
            if "window" in terms and terms["window"] not in self.world.engine.windows:
                self.world.create_window(terms["window"], choice([0, 1, 1, 2, 3]))
            self.world.create_selector(source, when, do, credit, self.chance.random() < 0.75, start, None,
                                       self.ack_timeout(do, credit), **terms)

    def publish(self):
        address, body, headers, reply_to, message_id = self.message()
        self.world.publish(self.name(), address, headers, reply_to, body, message_id, **self.terms())

    def publish_annexed(self):
        choice = self.chance.choice
        self.world.publish_annexed(self.name(), choice(ADDRESSES), choice([0, 1]), choice(["", "a", "b"]))

    def publish_waiting(self):
        address, body, headers, reply_to, message_id = self.message()
        self.world.publish_waiting(self.name(), address, headers, reply_to, body, message_id, **self.terms())

    def publish_many(self):
        self.world.publish_many(
            self.name(), [self.message() for _ in range(self.chance.randint(0, 4))], **self.shared_terms(), **self.asking())

    def publish_batch(self):
        self.world.publish_batch(
            self.name(), [(*self.message(), self.terms(row=True)) for _ in range(self.chance.randint(0, 4))])

    def take(self):
        self.world.take(self.chance.randint(1, 3), self.destinations())

    def get(self):
        self.world.get(self.name())

    def iterate(self):
        self.world.iterate(self.destinations(), self.verdicts())

    def request(self):
        self.world.request(self.name(), self.chance.choice(ADDRESSES), {})

    def reply(self):
        self.world.conclude(self.chance.randint(0, 50), ("reply", {"body": b"r"}))

    def conclude(self):
        self.world.conclude(self.chance.randint(0, 50), self.verdict())

    def transact(self):
        operations = [self.operation(self.name(), self.chance.choice(ADDRESSES)) for _ in range(self.chance.randint(1, 3))]
        self.world.transact(operations, self.chance.random() < 0.1)

    def on_selector(self):
        verb = self.chance.choice([("enable",), ("enable",), ("disable",), ("grant", 1), ("grant", -1), ("pay", 1), ("pay", 0)])
        self.world.on_selector(self.chance.choice([*self.world.engine.selectors, 1]), *verb)

    def resize(self):
        name = self.chance.choice(WINDOWS)
        if name in self.world.engine.windows:
            self.world.on_window(name, "resize", self.chance.choice([0, 1, 1, 2, 5]))

    def outlet(self):
        if len(self.world.outlets) < 2:
            self.world.outlet(self.chance.choice([["d"], ["d", "a"], ["a", "b"], []]))

    def on_outlet(self):
        choice = self.chance.choice
        self.world.on_outlet(choice([0, 1]), *choice([("add", choice("dab")), ("add", choice("dab")), ("discard", choice("dab")),
                                                      ("discard", choice("dab")), ("close",)]))

    def drain(self):
        self.world.drain(self.chance.choice([0, 1]), self.chance.choice([0, 1, 2, 20]))

    def delete_window(self):
        self.world.on_window(self.chance.choice(WINDOWS), "delete")

    def on_queue(self):
        verb = self.chance.choice([("hold",), ("release",), ("release",), ("purge",), ("purge", 1), ("delete", 1), ("delete", 2)])
        if (name := self.name()) in self.world.engine.queues:
            self.world.on_queue(name, *verb)

    def set_meta(self):
        self.world.set_meta(*self.meta_change(self.name()))

    def delete_selector(self):
        self.world.delete_selector(self.chance.choice([*self.world.engine.selectors, 1]), self.chance.random() < 0.5)

    def delete_queue(self):
        self.world.delete_queue(self.name())

    def block(self):
        """A `building()` block begins or ends."""
        self.world.build()

    def sync(self):
        self.chance.choice([self.world.sync, self.world.wait_to_be_told])()

    def reopen(self):
        self.world.reopen(self.chance.random() < 0.5)
        if self.chance.random() < 0.8 and not self.world.blocks:
            self.world.build()
            for _ in range(self.chance.randint(0, 3)):
                self.link()
            self.world.build()


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("mix", MIXES)
def test_the_engine_does_what_the_model_does_in_small_worlds(mix, monkeypatch):
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    for seed in range(max(1, STEPS // 4 // STEPS_PER_RUN)):
        Dense(f"{mix} {seed}", *MIXES[mix]).run(STEPS_PER_RUN)
