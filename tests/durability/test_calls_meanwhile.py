"""A call that lacks room gives the engine up while its store is cleaned. Random programs: other calls are made in that time, the
clock goes on, queues and selectors go and come; every law holds after each call, those that were made meanwhile included."""

import random

import pytest

from xump import INFINITE, Engine, InvariantError, XumpError, always, default, deliver, discard, field, match, move_to, overflow

SEGMENT = 1 << 16
OPTIONS = {"lmdb": {"max_bytes": 1 << 20}, "ring": {"segment_bytes": SEGMENT, "min_bytes": 0, "max_bytes": 7 * SEGMENT}}
SIZES = {"lmdb": [100, 4_000, 12_000, 60_000], "ring": [0, 100, 1_000, 4_000, 12_000]}
NAMES = "abcd"
PROGRAMS, STEPS = 30, 120
NS = 1e-9


class Program:
    """`rooms`: how often a store made room."""

    RULES = ["publish"] * 5 + ["fill"] * 3 + ["publish_many"] * 2 + ["take"] * 4 + ["get"] + ["answer"] * 5 + ["transact"] * 2 + [
        "tick", "purge", "delete_message", "switch", "grant", "create_selector", "delete_selector", "hold", "delete_queue"]

    def __init__(self, seed, kind, path):
        self.chance = random.Random(seed)
        choice = self.chance.choice
        self.time, self.held, self.rooms, self.is_inside, self.sizes = 10_000, [], 0, False, SIZES[kind]
        self.engine = Engine(clock=lambda: self.time, dead_letter="dead")
        self.engine.create_store("s", kind, path=path, durability=choice(["process", "group"]), **OPTIONS[kind])
        self.properties = [
            {"name": name, "store": choice(["ram", "s", "s"]), "limit": choice([None, None, 3]), "ttl": choice([None, 30 * NS]),
             "dedup": choice([None, 50 * NS]), "retry_delay": choice([None, 5 * NS]), "delivery_limit": choice([None, 2]),
             "dead_letter": choice([None, "dead"]), "priority": choice([None, 5]),
             "group": choice([None, None, field("headers.k")])} for name in NAMES]
        self.engine.create_queue("dead", store=choice(["ram", "s"]))
        self.create_queues()
        [committer] = self.engine._committers()
        self.make_room, committer.make_room = committer.make_room, self.make_room_and_more

    def create_queues(self):
        for properties in self.properties:
            self.engine.create_queue(**properties)

    def make_room_and_more(self, wanted):
        self.make_room(wanted)
        self.time += self.chance.choice([0, 50])
        self.rooms += 1
        if not self.is_inside:
            self.is_inside = True
            try:
                for _ in range(self.chance.randint(0, 3)):
                    self.step()
            finally:
                self.is_inside = False

    def step(self):
        self.time += self.chance.choice([1, 1, 10, 30])
        try:
            getattr(self, self.chance.choice(self.RULES))()
        except InvariantError:
            raise           # of a step within this one
        except XumpError:
            pass            # there is no room, or what it names has gone
        self.engine.check()

    def run(self):
        for _ in range(STEPS):
            self.step()
        self.engine.sync()
        self.engine.check()
        self.engine.close()

    def name(self):
        return self.chance.choice(NAMES)

    def message(self):
        return self.chance.choice("xy"), bytes(self.chance.choice(self.sizes))

    def terms(self):
        chances = {"ttl": [100 * NS, 20 * NS, 5 * NS], "delay": [10 * NS, 100 * NS], "priority": [0, 4]}
        return {term: self.chance.choice(values) for term, values in chances.items() if self.chance.random() < 0.3}

    def publish(self):
        self.engine.publish(self.name(), *self.message(), {"k": self.chance.choice("12")},
                            message_id=self.chance.choice([None, "m"]), **self.terms())

    def fill(self):
        name, message = self.name(), self.message()
        for _ in range(25):
            self.engine.publish(name, *message)

    def publish_many(self):
        self.engine.publish_many(self.name(), [self.message() for _ in range(self.chance.randint(1, 6))], **self.terms())

    def take(self):
        begun = self.time
        deliveries = self.engine.take(self.chance.randint(1, 3))
        assert all(delivery.message.expires is None or delivery.message.expires >= begun for delivery in deliveries)
        self.held += deliveries

    def get(self):
        self.held += filter(None, [self.engine.get(self.chance.choice([*NAMES, "dead"]))])

    def answer(self):
        if self.held:
            delivery = self.held.pop(self.chance.randrange(len(self.held)))
            self.chance.choice([delivery.ack, delivery.nack, delivery.reject])()

    def transact(self):
        with self.engine.transaction() as transaction:
            for _ in range(min(len(self.held), self.chance.randint(0, 2))):
                transaction.ack(self.held.pop())
            for _ in range(self.chance.randint(1, 3)):
                transaction.publish(self.name(), *self.message(), **self.terms())

    def tick(self):
        self.engine.tick()

    def purge(self):
        self.engine.queues[self.chance.choice([*NAMES, "dead"])].purge()

    def delete_message(self):
        queue = self.engine.queues[self.name()]
        for message in list(queue.browse(limit=20))[::3]:
            queue.delete(message.id)

    def hold(self):
        queue = self.engine.queues[self.name()]
        self.chance.choice([queue.hold, queue.release])()

    def selector(self):
        return self.engine.selectors[self.chance.choice(list(self.engine.selectors) or [0])]

    def switch(self):
        self.chance.choice([self.selector().enable, self.selector().disable])()

    def grant(self):
        selector = self.selector()
        if selector.credit is not INFINITE:
            selector.grant(self.chance.choice([1, 3]))

    def create_selector(self):
        at = self.chance.randrange(len(NAMES))
        onwards = [move_to(name) for name in NAMES[at + 1 :]]
        if len(self.engine.selectors) < 8:
            self.engine.create_selector(
                NAMES[at], when=self.chance.choice([always, always, default, overflow, match("eq", "x")]),
                do=self.chance.choice([deliver("w"), discard, *onwards, *onwards]), credit=self.chance.choice([1, 3, INFINITE]))

    def delete_selector(self):
        self.selector().delete()

    def delete_queue(self):
        self.engine.delete_queue(self.name())
        self.create_queues()


@pytest.mark.parametrize("kind", ["ring", "lmdb"])
def test_calls_that_are_made_while_a_store_is_cleaned_for_another(tmp_path, kind):
    rooms = 0
    for seed in range(PROGRAMS):
        program = Program(f"{kind} {seed}", kind, tmp_path / f"{seed}")
        program.run()
        rooms += program.rooms
    assert rooms > PROGRAMS
