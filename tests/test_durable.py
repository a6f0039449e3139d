"""Durable queues under an engine: nothing that was made durable is lost and nothing that was durably settled comes back, whatever
mix of stores a message went through, wherever it was cut off.

The stores here are logs in memory that know what was synced (`Shelf`). A test decides when each of them commits; a crash leaves
what was synced, and any number of the groups that were written since.
"""

import random

import pytest

from xump import INFINITE, Engine, always, copy_to, deliver, match, move_to
from xump.store import register_store, store_types
from xump_ext import records

SALT = 7
LOGS = {}


class Shelf:
    """A store in memory: a list of groups, and how many of them are synced."""

    type = "shelf"
    durable = True
    cut = 0

    def __init__(self, name, *, path, durability="group", bytes_max=1 << 40):
        self.name, self.path, self.durability, self.group_ms, self.salt = name, path, durability, 1e9, SALT
        self.groups, self.synced = LOGS.setdefault(path, [[], 0])
        self.bytes_max = bytes_max
        self.end = sum(map(len, self.groups))

    def scan(self):
        data = b"".join(self.groups)
        assert records.whole_groups(data, 0, SALT)[2] == "whole"
        if data:
            yield 0, data

    def write(self, group):
        assert group.position == self.end
        self.groups.append(bytes(group))
        self.end += len(group)

    def sync(self):
        LOGS[self.path][1] = len(self.groups)

    def fetch(self, queue, id, position):
        return position, b"".join(self.groups)[position : position + 4096]

    def room(self):
        return self.bytes_max - self.end

    def oldest(self):
        return None

    def release(self, position):
        raise AssertionError("nothing was given")

    def close(self):
        pass


if "shelf" not in store_types():
    register_store("shelf", Shelf)


@pytest.fixture(autouse=True)
def empty_shelves():
    LOGS.clear()


def crashed(chance):
    """What a crash leaves of every store."""
    for log in LOGS.values():
        groups, synced = log
        del groups[chance.randint(synced, len(groups)) :]
        log[1] = len(groups)


class World:
    """An engine whose queues are in several stores, and what its application knows."""

    STORES = ("ram", "left", "right")

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.published = set()  # bodies
        self.confirmed = set()  # bodies whose publish is durable
        self.acked = set()      # bodies that were acked
        self.gone = set()       # acked, and all stores were synced since
        self.doubled = set()    # bodies that a crash between two stores left in both
        self.number = 0
        count = self.chance.randint(2, 5)
        self.places = [self.chance.choice(self.STORES) for _ in range(count)]
        self.places[0] = self.chance.choice(self.STORES[1:])
        self.credits = [self.chance.choice([INFINITE, 1, 3, 100]) for _ in range(count)]
        self.history = [self.chance.choice([0, 0, 2]) for _ in range(count)]
        self.open()

    def open(self):
        self.engine = Engine()
        for name in self.STORES[1:]:
            self.engine.create_store(name, "shelf", path=name)
        self.engine.check()
        self.in_hands = []

    def build(self):
        """A chain of MOVEs, a dead letter queue, and a copy on the way."""
        engine = self.engine
        with engine.building():
            engine.create_queue("dead", store=self.places[-1])
            engine.create_queue("copies", store=self.places[1])
            for number, place in enumerate(self.places):
                engine.create_queue(f"q{number}", store=place, history_limit=self.history[number], dead_letter="dead")
            for number, credit in enumerate(self.credits[:-1]):
                engine.create_selector(f"q{number}", when=always, do=move_to(f"q{number + 1}"), credit=credit)
            engine.create_selector("q0", when=match("eq", "copy"), do=copy_to("copies"))
            engine.create_selector(f"q{len(self.places) - 1}", when=always, do=deliver("d"), credit=self.chance.choice([2, 50]))
        engine.check()

    def step(self):
        what = self.chance.choice(["publish"] * 4 + ["take"] * 3 + ["ack"] * 4 + ["nack", "commit", "commit", "sync", "reject"])
        getattr(self, what)()
        self.engine.check()

    def publish(self):
        self.number += 1
        body = b"%d" % self.number
        self.engine.publish("q0", self.chance.choice(["copy", "plain"]), body, {"n": self.number})
        self.published.add(body)

    def take(self):
        self.in_hands += self.engine.take(self.chance.randint(1, 4))

    def pick(self):
        return self.in_hands.pop(self.chance.randrange(len(self.in_hands))) if self.in_hands else None

    def ack(self):
        delivery = self.pick()
        if delivery is not None:
            body = delivery.message.body
            assert body not in self.gone - self.doubled, f"message {body} was durably acked, and delivered again"
            delivery.ack()
            self.acked.add(body)

    def nack(self):
        delivery = self.pick()
        if delivery is not None:
            delivery.nack()

    def reject(self):
        delivery = self.pick()
        if delivery is not None:
            delivery.reject("no")

    def commit(self):
        """One store alone."""
        self.engine.stores[self.chance.choice(self.STORES[1:])].committer.sync(None)

    def sync(self):
        self.engine.sync()
        self.confirmed |= self.published
        self.gone |= self.acked

    def found(self):
        """Bodies by queue."""
        return {name: [message.body for message in queue.browse()] for name, queue in self.engine.queues.items()}

    def end(self, close):
        """A crash, or an orderly end; what is there afterwards."""
        if close:
            self.engine.close()
            self.confirmed |= self.published
            self.gone |= self.acked
        else:
            for store in self.engine.stores.values():
                if store.committer is not None:
                    store.committer.stop()
            crashed(self.chance)
        self.open()

    def verify(self):
        chain = {name: bodies for name, bodies in self.found().items() if name != "copies"}
        held = [body for bodies in chain.values() for body in bodies]
        lost = self.confirmed - self.acked - set(held)
        assert not lost, f"confirmed, not acked, and in no queue: {sorted(lost)}"
        live = [message.body for name, queue in self.engine.queues.items() if name not in ("copies", "dead")
                for message in queue.browse(state="ready")]
        self.doubled |= {body for body in live if live.count(body) > 1}
        back = set(live) & (self.gone - self.doubled)
        assert not back, f"durably acked, and ready again: {sorted(back)}"
        self.acked -= set(live) - self.gone             # what was not durable was lost with the process
        self.published &= set(held) | self.acked
        if len({place for place in self.places if place != "ram"}) == 1:
            assert len(live) == len(set(live)), f"in two places of one store: {sorted(live)}"


@pytest.mark.parametrize("seed", range(400))
def test_nothing_is_lost_wherever_it_is_cut(seed):
    world = World(seed)
    for _ in range(world.chance.randint(1, 4)):
        world.build()
        for _ in range(world.chance.randint(0, 40)):
            world.step()
        world.end(close=world.chance.random() < 0.3)
        world.verify()
    world.engine.close()
