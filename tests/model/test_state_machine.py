"""The compiled engine against the model: a Hypothesis state machine that uses every call, compared after each step.

Once with all queues in RAM, and over each mix of stores, which are closed in order, or end by a crash, and are opened again.

`XUMP_STEPS` is how many steps are made at the least (20,000 unless told, a tenth of that over each mix of stores); `make soak`
makes a million, and says how far it is.
"""

import itertools
import os
import sys

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.model.lockstep import World
from tests.model.vocabulary import ACTIONS, ADDRESSES, CONDITIONS, CREDITS, DESTINATIONS, QUEUES, STARTS
from xump.durability import opening

STEPS = int(os.environ.get("XUMP_STEPS", "20000"))
STEPS_PER_RUN = 60
STEPS_PER_LINE = 20_000
count_step = itertools.count(1).__next__

queues = st.sampled_from([*QUEUES[:4] * 3, *QUEUES, "missing"])
headers = st.fixed_dictionaries({}, optional={"n": st.integers(0, 4), "to": st.sampled_from(QUEUES)})
addresses = st.sampled_from(ADDRESSES)
replies = st.sampled_from([None, None, *QUEUES])
destinations = st.sampled_from([None, *DESTINATIONS])
ids = st.integers(1, 12)
verdicts = st.sampled_from(["ack", "ack", "ack", "nack", "drop", "reject"])
messages = st.tuples(addresses, st.just(b"m"), headers, replies)
properties = {
    "limit": st.sampled_from([None, None, None, 0, 1, 2, 3]), "history_limit": st.sampled_from([0, 0, 0, 1, 3, None]),
    "auto_delete": st.sampled_from([False] * 6 + [True]), "dead_letter": st.sampled_from([None, None, *QUEUES]),
    "delivery_limit": st.sampled_from([None, None, 1, 2]),
}
operations = st.one_of(
    st.tuples(st.just("publish"), queues, addresses, headers), st.tuples(st.just("ack"), st.integers(0, 50)))


class Machine(RuleBasedStateMachine):
    """Rules only draw; what they do is in `World`."""

    @initialize(hop_limit=st.sampled_from([2, 4, 6, 64]), dead_letter=st.sampled_from([None, "q4", "q3"]),
                first=st.lists(st.fixed_dictionaries(properties), min_size=3, max_size=4))
    def start(self, hop_limit, dead_letter, first):
        self.world = World(hop_limit, dead_letter)
        for name, chosen in zip(QUEUES, first, strict=False):
            self.world.create_queue(name, **chosen)

    @rule(name=st.sampled_from(QUEUES), chosen=st.fixed_dictionaries(properties))
    def create_queue(self, name, chosen):
        self.world.create_queue(name, **chosen)

    @rule(source=queues, when=st.sampled_from(CONDITIONS), do=st.sampled_from(ACTIONS), credit=st.sampled_from(CREDITS),
          enabled=st.sampled_from([True] * 5 + [False]), start=st.sampled_from(STARTS), name=st.sampled_from([None] * 9 + ["n1"]))
    def create_selector(self, source, when, do, credit, enabled, start, name):
        self.world.create_selector(source, when, do, credit, enabled, "current" if do.consuming else start, name)

    @rule(source=queues, do=st.sampled_from(ACTIONS), credit=st.sampled_from(CREDITS))
    def create_worker(self, source, do, credit):
        self.world.create_selector(source, CONDITIONS[0], do, credit, True, "current", None)

    @rule(source=queues, when=st.sampled_from(CONDITIONS), do=st.sampled_from(ACTIONS), start=st.sampled_from(STARTS))
    def create_wrongly(self, source, when, do, start):
        self.world.create_selector(source, when, do, 1, True, start, None)

    @rule(id=ids)
    def delete_selector(self, id):
        self.world.delete_selector(id)

    @rule(name=queues)
    def delete_queue(self, name):
        self.world.delete_queue(name)

    @rule(queue=queues, address=addresses, headers=headers, reply_to=replies)
    def publish(self, queue, address, headers, reply_to):
        self.world.publish(queue, address, headers, reply_to)

    @rule(queue=queues, address=addresses, headers=headers, reply_to=replies)
    def publish_more(self, queue, address, headers, reply_to):
        self.world.publish(queue, address, headers, reply_to)

    @rule(queue=queues, messages=st.lists(messages, max_size=4))
    def publish_many(self, queue, messages):
        self.world.publish_many(queue, messages)

    @rule(queue=queues, messages=st.lists(messages, max_size=4))
    def publish_batch(self, queue, messages):
        self.world.publish_batch(queue, messages)

    @rule(n=st.integers(0, 3), destination=destinations, verdict=st.sampled_from(["ack", "ack", "nack", None]))
    def take_batch(self, n, destination, verdict):
        self.world.take_batch(n, destination, verdict)

    @rule(n=st.integers(0, 3), destination=destinations)
    def take(self, n, destination):
        self.world.take(n, destination)

    @rule(destination=destinations, verdicts=st.lists(verdicts, min_size=1, max_size=5))
    def iterate(self, destination, verdicts):
        self.world.iterate(destination, verdicts)

    @rule(index=st.integers(0, 50), verdict=verdicts)
    def conclude(self, index, verdict):
        self.world.conclude(index, verdict)

    @rule(indexes=st.lists(st.integers(0, 50), max_size=3))
    def ack_many(self, indexes):
        self.world.ack_many(indexes)

    @rule(operations=st.lists(operations, max_size=4), fail=st.sampled_from([False] * 4 + [True]))
    def transact(self, operations, fail):
        self.world.transact(operations, fail)

    @rule(id=ids, n=st.integers(-2, 3))
    def grant(self, id, n):
        self.world.on_selector(id, "grant", n)

    @rule(id=ids, n=st.integers(0, 2))
    def pay(self, id, n):
        self.world.on_selector(id, "pay", n)

    @rule(id=ids, verb=st.sampled_from(["enable", "enable", "disable"]))
    def switch(self, id, verb):
        self.world.on_selector(id, verb)

    @rule(name=queues, verb=st.sampled_from(["hold", "release", "release", "purge"]))
    def on_queue(self, name, verb):
        self.world.on_queue(name, verb)

    @rule(name=queues, verb=st.sampled_from(["fetch", "delete"]), id=st.integers(0, 8))
    def on_message(self, name, verb, id):
        self.world.on_queue(name, verb, id)

    @rule(name=queues, start=st.sampled_from(["head", "current", 1, 3]), limit=st.sampled_from([None, 0, 2]),
          state=st.sampled_from([None, "ready", "history", "outstanding"]), reverse=st.booleans())
    def browse(self, name, start, limit, state, reverse):
        self.world.browse(name, start, state, limit, reverse)

    @rule()
    @precondition(lambda self: len(self.world.journal) % 3 == 0)
    def build(self):
        self.world.build()

    @rule(nanoseconds=st.integers(-500, 2000))
    def tick(self, nanoseconds):
        self.world.wait(nanoseconds)

    @invariant()
    def compare(self):
        if (step := count_step()) % STEPS_PER_LINE == 0 and "XUMP_STEPS" in os.environ:
            print(f"{step:>9,} of {STEPS:,} steps", file=sys.stderr, flush=True)
        if hasattr(self, "world"):
            self.world.compare()

    def teardown(self):
        if hasattr(self, "world"):
            try:
                while self.world.blocks:
                    self.world.build()
                self.world.compare()
            finally:
                self.world.close()


class DurableMachine(Machine):
    """Queues in RAM and in durable stores. Graphs are built quickly, since they end with their engine."""

    stores = ()
    written = False

    @initialize(hop_limit=st.sampled_from([4, 64]), dead_letter=st.sampled_from([None, "q4", "q3"]),
                first=st.lists(st.tuples(st.fixed_dictionaries(properties), st.integers(0, 5)), min_size=4, max_size=5))
    def start(self, hop_limit, dead_letter, first):
        self.world = World(hop_limit, dead_letter, self.stores, self.written)
        for name, (chosen, place) in zip(QUEUES, first, strict=False):
            self.world.create_queue(name, **chosen, store=place_of(self.stores, place))

    @rule(name=st.sampled_from(QUEUES), chosen=st.fixed_dictionaries(properties), place=st.integers(0, 5))
    def create_queue(self, name, chosen, place):
        self.world.create_queue(name, **chosen, store=place_of(self.stores, place))

    @rule()
    def sync(self):
        self.world.sync()

    @rule(crash=st.booleans(), workers=st.lists(
        st.tuples(queues, st.sampled_from(ACTIONS), st.sampled_from(CREDITS)), max_size=3))
    def reopen(self, crash, workers):
        self.world.reopen(crash)
        self.world.compare()
        if workers and not self.world.blocks:
            self.world.build()
            for source, do, credit in workers:
                self.world.create_selector(source, CONDITIONS[0], do, credit, True, "current", None)
            self.world.build()


def place_of(stores, number):
    """One in three queues is in RAM."""
    return "ram" if number % 3 == 0 else stores[number % len(stores)]


def run(machine, steps):
    run_state_machine_as_test(machine, settings=settings(
        max_examples=max(1, steps // STEPS_PER_RUN), stateful_step_count=STEPS_PER_RUN, deadline=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
        derandomize="XUMP_STEPS" not in os.environ, database=None, print_blob=True,
    ))


def test_the_engine_does_what_the_model_does():
    run(Machine, STEPS)


MIXES = {
    "lmdb": (("lmdb",), False), "ring": (("ring",), False), "lmdb and ring": (("lmdb", "ring"), False),
    "lmdb, every call": (("lmdb",), True), "ring, every call": (("ring",), True), "both, every call": (("ring", "lmdb"), True),
}


@pytest.mark.filterwarnings("ignore:held since their store was opened")
@pytest.mark.parametrize("mix", MIXES)
def test_the_engine_does_what_the_model_does_over_stores(mix, monkeypatch):
    """Most contents are read back from the stores."""
    monkeypatch.setattr(opening, "RESIDENT_BYTES_MAX", 500)
    stores, written = MIXES[mix]
    run(type("DurableMachine", (DurableMachine,), {"stores": stores, "written": written}), STEPS // 10)
