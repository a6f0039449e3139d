"""More or fewer calls in between change nothing: a random program on two models, of which one is told each moment at which
something falls due, and the other one only that time has passed. Whatever can be seen of them is the same after each step, and
the laws hold. The same on two compiled engines, with queues in RAM.

A program is a seed. `XUMP_STEPS` is how many steps are made at the least (8,000 unless told, of which this takes a quarter).
"""

import random

import pytest

from tests.model.engine import ModelEngine
from tests.model.pair import Compiled
from tests.model.seen import differences, seen_of as seen_of_engine
from tests.model.steps import STEPS
from tests.model.stores import reopened
from tests.model.vocabulary import ACTIONS, ADDRESSES, CONDITIONS, CREDITS, QUEUES
from xump import INFINITE, always, copy_to, deliver, field, move_to, overflow
from xump.errors import XumpError

STEPS_PER_RUN = 60
PARTS = 4
NAMES = QUEUES[:4]
NANOSECOND = 1e-9       # moments lie close together


class Keeping(ModelEngine):
    keeps_what_waited = True


class Half:
    """A model with a clock of its own."""

    is_model = True

    def __init__(self, **options):
        self.now = 1_000
        self.model = Keeping(clock=lambda: self.now, **options)
        self.model.stores += ["lmdb", "ring"]
        self.deliveries, self.blocks = [], []

    def called(self, call):
        """What the call gives, or the class of its error."""
        try:
            return call(self)
        except (XumpError, ValueError, KeyError) as error:
            return type(error)

    def tick_at_each_moment(self, end):
        while (moment := self.model.next_due) is not None and moment <= end:
            self.now = max(self.now, moment)
            self.model.tick()

    def reopen(self, crashed):
        self.model = reopened(self.model, crashed)
        self.model.__class__ = Keeping
        self.deliveries = []


class CompiledHalf(Half):
    """A compiled engine with a clock of its own."""

    is_model = False

    def __init__(self, **options):
        self.now = 1_000
        self.model = Compiled(clock=lambda: self.now, **options)
        self.deliveries, self.blocks = [], []

    def reopen(self, crashed):
        """Its queues are in RAM."""


def seen_of(half):
    """All that there is, in words that do not depend on objects."""
    model = half.model
    if not half.is_model:
        return {"seen": seen_of_engine(model), "taken": [(d.queue.name, d.id, repr(d).split()[-1]) for d in half.deliveries]}
    return {
        "stats": model.stats(), "now": (model.time, model.next_due, model.sequence, model.served_count),
        "offers": [(e.queue.name, e.id) for e in model.offers], "taken": [(d.queue.name, d.id) for d in model.taken],
        "publishers": [publisher.id for publisher in model.publishers],
        "queues": {name: [entry_seen(e) for e in queue.entries] for name, queue in model.queues.items()},
        "lines": {name: [s.id for s in queue.waiting_list] for name, queue in model.queues.items()},
        "windows": {name: queue.window for name, queue in model.queues.items()},
    }


def entry_seen(e):
    return (e.message, e.state, e.sequence, e.since, e.due, e.retrying, e.routed, e.kept, e.parked, e.marked, e.waited, e.dead,
            e.delivery_count, e.redelivered is True, e.nack_number, e.answer_by, e.selector and e.selector.id)


class Moments:
    """A program: rules draw, and both halves do the same."""

    RULES = (["publish"] * 10 + ["publish_many", "transact"] * 2 + ["take", "answer"] * 4 + ["get", "iterate", "link"] * 2
             + ["on_selector"] * 3
             + ["on_queue", "build", "reply", "delete", "delete_selector", "delete_queue", "queue", "wait_for_room",
                "request", "reopen", "back"])

    def __init__(self, seed, half):
        self.chance = random.Random(seed)
        options = {"hop_limit": self.choice(3, 6, 64), "dead_letter": self.choice(None, "q3")}
        self.halves = [half(**options), half(**options)]
        self.stores = ["ram", "ram", "lmdb", "ring"] if half.is_model else ["ram"]
        self.journal = [f"Moments({seed!r}, {half.__name__})", repr(options)]
        self.building = False
        for name in NAMES:
            self.queue(name)
        for _ in range(4):
            self.link()

    def choice(self, *options):
        return self.chance.choice(options)

    def span(self, *odds):
        """A duration or None: `odds` are ns, of which one is drawn."""
        drawn = self.choice(*odds)
        return None if drawn is None else drawn * NANOSECOND

    def both(self, note, call):
        self.journal.append(note)
        late, early = [half.called(call) for half in self.halves]
        assert late == early, f"{late!r} or {early!r}\n" + "\n".join(self.journal)

    def run(self, steps):
        for _ in range(steps):
            end = self.halves[0].now + self.choice(0, 1, 1, 2, 5, 20)
            self.halves[0].now = end
            self.halves[1].tick_at_each_moment(end)
            self.halves[1].now = end
            self.journal.append(f"now {end}")
            getattr(self, self.chance.choice(self.RULES))()
            for half in self.halves:
                half.model.tick()       # a call that was refused may not have got so far
                half.model.check()
            late, early = [seen_of(half) for half in self.halves]
            assert late == early, differences(late, early) + "\n" + "\n".join(self.journal)

    # ---- what is drawn

    def name(self):
        return self.chance.choice(NAMES)

    def selector(self):
        return self.chance.choice([*self.halves[0].model.selectors, 1])

    def terms(self):
        """Of a publish."""
        now = self.halves[0].now
        terms = {
            "delay": self.span(None, None, None, 0, 3, 10), "ttl": self.span(None, None, 0, 4, 12),
            "priority": self.choice(0, 0, 1, 7), "correlation_id": self.choice(None, "c"),
        }
        if terms["delay"] is None and self.chance.random() < 0.1:
            terms["at"] = now + self.choice(-3, 5)
        if terms["ttl"] is None and self.chance.random() < 0.1:
            terms["expires"] = now + self.choice(-1, 0, 9)
        return {name: value for name, value in terms.items() if value is not None}

    def message(self):
        headers = {"n": self.choice(0, 1, 2, 3), "to": self.choice(*QUEUES)}
        return (self.choice(*ADDRESSES), b"x" * self.choice(0, 1, 3), headers, self.choice(None, *NAMES),
                self.choice(None, None, "m1", "m2"))

    # ---- calls

    def queue(self, name=None):
        name = name or self.name()
        properties = {
            "store": self.choice(*self.stores), "limit": self.choice(None, None, 0, 1, 2, 4),
            "history_limit": self.choice(0, 0, 2), "dead_letter": self.choice(None, None, *NAMES),
            "delivery_limit": self.choice(None, None, 2), "retry_delay": self.choice(None, None, 0, 3e-9, [0, 2e-9, 6e-9]),
            "ttl": self.span(None, None, None, 0, 5, 15), "priority": self.choice(None, None, 1, 5),
            "group": self.choice(None, None, field("headers.to"), field("address")),
            "dedup": self.span(None, None, 0, 6, 30), "dedup_limit": self.choice(1, 2, 100),
            "limit_bytes": self.choice(None, None, None, 3), "when_full": self.choice("refuse", "drop_oldest", "drop_to_fit"),
            "unmatched": self.choice("drop", "drop", "keep"), "auto_delete": self.chance.random() < 0.1,
        }
        self.both(f"create_queue({name!r}, **{properties})", lambda half: half.model.create_queue(name, **properties).name)

    def link(self):
        if len(self.halves[0].model.selectors) > 9:
            return
        do = self.choice(*ACTIONS, *[deliver("d"), move_to("q1"), copy_to("q2")] * 4)
        finite = do.verb == "deliver" and do.queue is None
        properties = {
            "when": self.choice(*[always] * 6, *[overflow] * 3, *CONDITIONS), "do": do,
            "credit": self.choice(*CREDITS, INFINITE),
            "enabled": self.chance.random() < 0.7,
            "start": "current" if do.consuming else self.choice("current", "tail", "head", 2),
            "ack_timeout": self.span(None, 4, 12) if finite else None,
        }
        source = self.name()
        self.both(f"create_selector({source!r}, **{properties})",
                  lambda half: half.model.create_selector(source, **properties).id)

    def publish(self):
        queue, terms = self.name(), self.terms()
        address, body, headers, reply_to, message_id = self.message()
        self.both(f"publish({queue!r}, {address!r}, {body!r}, {headers}, {reply_to!r}, {message_id!r}, **{terms})",
                  lambda half: half.model.publish(
                      queue, address, body, headers, reply_to=reply_to, message_id=message_id, **terms))

    def wait_for_room(self):
        queue, terms = self.name(), self.terms()
        self.both(f"publish_waiting({queue!r}, **{terms})", lambda half: half.model.publish_waiting(queue, **terms).id)

    def publish_many(self):
        queue, messages, terms = self.name(), [self.message() for _ in range(self.chance.randint(0, 4))], self.terms()
        self.both(f"publish_many({queue!r}, {messages}, **{terms})",
                  lambda half: half.model.publish_many(queue, messages, **terms))

    def take(self):
        n, destination = self.chance.randint(0, 3), self.choice(None, "d", ["d", "d0", "q1"])
        self.both(f"take({n}, {destination!r})", lambda half: self.keep(half, half.model.take(n, destination)))

    def get(self):
        queue = self.name()
        self.both(f"get({queue!r})", lambda half: self.keep(half, filter(None, [half.model.get(queue)])))

    def keep(self, half, deliveries):
        deliveries = list(deliveries)
        half.deliveries += deliveries
        return [(d.queue.name, d.id, d.delivery_count, d.redelivered is True, d.group) for d in deliveries]

    def iterate(self):
        verbs = [self.answer_drawn() for _ in range(self.chance.randint(1, 4))]

        def run(half):
            seen = []
            for (verb, given), delivery in zip(verbs, half.model.deliveries(), strict=False):
                seen.append((delivery.queue.name, delivery.id))
                getattr(delivery, verb)(**given)
            return seen
        self.both(f"iterate({verbs})", run)

    def answer_drawn(self):
        return self.choice(("ack", {}), ("ack", {}), ("nack", {}), ("nack", {"delay": 0}), ("nack", {"delay": 4e-9}),
                           ("nack", {"requeue": False}), ("reject", {"reason": "bad"}))

    def answer(self):
        index, (verb, given) = self.chance.randint(0, 50), self.choice(self.answer_drawn(), ("extend", {"seconds": 5e-9}))

        def run(half):
            if half.deliveries:
                getattr(half.deliveries[index % len(half.deliveries)], verb)(**given)
        self.both(f"answer({index}, {verb}, {given})", run)

    def reply(self):
        def run(half):
            for delivery in half.deliveries:
                if delivery.message.reply_to is not None:
                    delivery.reply(b"reply")
        self.both("reply()", run)

    def transact(self):
        work = [(self.name(), self.message(), self.terms()) for _ in range(self.chance.randint(0, 2))]
        index, (verb, given) = self.chance.randint(0, 50), self.answer_drawn()

        def run(half):
            with half.model.transaction() as tx:
                for queue, (address, body, headers, reply_to, message_id), terms in work:
                    tx.publish(queue, address, body, headers, reply_to=reply_to, message_id=message_id, **terms)
                if half.deliveries:
                    getattr(tx, verb)(half.deliveries[index % len(half.deliveries)], **given)
            return tx.ids
        self.both(f"transact({work}, {index}, {verb}, {given})", run)

    def on_queue(self):
        name, verb = self.name(), self.choice("hold", "release", "release", "purge")
        self.both(f"{name}.{verb}()", lambda half: getattr(half.model.queues[name], verb)())

    def delete(self):
        name, id = self.name(), self.chance.randint(1, 9)
        self.both(f"{name}.delete({id})", lambda half: half.model.queues[name].delete(id))

    def on_selector(self):
        id, verb = self.selector(), self.choice(("enable",), ("enable",), ("disable",), ("grant", 1), ("grant", -1), ("pay", 1))
        self.both(f"selector {id}: {verb}", lambda half: getattr(half.model.selectors[id], verb[0])(*verb[1:]))

    def delete_selector(self):
        id = self.selector()
        self.both(f"delete_selector({id})", lambda half: half.model.delete_selector(id))

    def delete_queue(self):
        name = self.name()
        self.both(f"delete_queue({name!r})", lambda half: half.model.delete_queue(name))

    def request(self):
        queue = self.name()
        self.both(f"request_waiting({queue!r})", lambda half: half.model.request_waiting(queue).answer)

    def build(self):
        self.building = not self.building
        for half in self.halves:
            if self.building:
                half.blocks.append(half.model.building())
                half.blocks[-1].__enter__()
            else:
                half.blocks.pop().__exit__(None, None, None)
        self.journal.append(f"building: {self.building}")

    def reopen(self):
        if not self.building:
            crashed = self.chance.random() < 0.5
            self.journal.append(f"reopen({crashed})")
            for half in self.halves:
                half.model.tick()       # what is due when a store is closed waits for its release
                half.reopen(crashed)
            if self.chance.random() < 0.7:
                self.build()
                for _ in range(4):
                    self.link()
                self.build()

    def back(self):
        """The clock runs backwards, after both have seen how far it was."""
        for half in self.halves:
            half.model.tick()
            half.now -= 15
        self.journal.append("back")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("half", [Half, CompiledHalf])
def test_a_late_tick_does_what_a_tick_at_every_moment_does(half, part):
    for seed in range(max(1, STEPS // 4 // PARTS // STEPS_PER_RUN)):
        Moments(f"{part} {seed}", half).run(STEPS_PER_RUN)
