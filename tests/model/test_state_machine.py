"""The compiled engine against the model: a Hypothesis state machine that uses every call, compared after each step.

Once with all queues in RAM, and over each mix of stores, which are closed in order, or end by a crash, and are opened again.

`XUMP_STEPS` is how many steps are made at the least (8,000 unless told, a tenth of that over each mix of stores); `make soak`
makes a million, and says how far it is.
"""

import itertools
import os
import sys

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.model.drawing import seconds
from tests.model.lockstep import World
from tests.model.steps import STEPS
from tests.model.vocabulary import DESTINATIONS, QUEUES, VOCABULARY
from xump import always
from xump._queue_properties import QUEUE_DEFAULTS
from xump.durability import opening
from xump.topology import schema
from xump.workloads.calls import UNLIMITED, Calls
from xump.workloads.strategies import topologies

STEPS_PER_RUN = 60
STEPS_PER_LINE = 20_000
count_step = itertools.count(1).__next__

calls = Calls(VOCABULARY)
graphs = st.one_of(st.none(), st.none(), st.none(), topologies(vocabulary=VOCABULARY))
"""One in four machines begins with a chain, a diamond, a pack or another shape, instead of queues alone."""


class Machine(RuleBasedStateMachine):
    """Rules only draw; what they do is in `World`."""

    @initialize(hop_limit=st.sampled_from([2, 4, 6, 64]), dead_letter=st.sampled_from([None, "q4", "q3"]),
                first=st.lists(calls.properties, min_size=3, max_size=4), graph=graphs, pace=st.sampled_from([1, 1, 0]))
    def start(self, hop_limit, dead_letter, first, graph, pace):
        self.world = World(hop_limit, dead_letter, pace=pace)
        if graph is not None:
            self.build_graph(graph)
        else:
            for name, chosen in zip(QUEUES, first, strict=False):
                self.world.create_queue(name, **chosen)

    def build_graph(self, topology):
        """In stores too, where there are some; which queue lies where depends on the number of selectors."""
        description = schema.read(topology)
        assert not description.faults
        self.world.build()
        for place, (name, item) in enumerate(description.queues.items(), len(description.selectors)):
            told = {key: value for key, value in item.properties.items() if key in UNLIMITED or value != QUEUE_DEFAULTS[key]}
            self.create_queue_at(name, told, place)
        for item in description.selectors:
            self.world.create_selector(item.source, item.when, item.do, item.credit, True, "current", None)
        self.world.build()

    def create_queue_at(self, name, chosen, place):
        self.world.create_queue(name, **chosen)

    def at(self, drawn):
        """Terms as they are given: moments are drawn as so many ns from now, and of two that say the same the first counts."""
        now = self.world.now + self.world.pace
        given = {name: now + value if name in ("at", "expires") else value for name, value in drawn.items()}
        for name, other in (("delay", "at"), ("ttl", "expires")):
            if name in given:
                given.pop(other, None)
        return given

    @rule(name=calls.names, chosen=calls.properties)
    def create_queue(self, name, chosen):
        self.world.create_queue(name, **chosen)

    @rule(source=calls.queues, when=calls.conditions, do=calls.actions, credit=calls.credits,
          enabled=st.sampled_from([True] * 5 + [False]), start=calls.starts, name=st.sampled_from([None] * 9 + ["n1"]))
    def create_selector(self, source, when, do, credit, enabled, start, name):
        self.world.create_selector(source, when, do, credit, enabled, "current" if do.consuming else start, name)

    @rule(source=calls.queues, do=calls.actions, credit=calls.credits, ack_timeout=st.sampled_from([None, 4, 20]),
          rank=st.sampled_from([0, 0, -1, 3]), ahead=st.sampled_from([None, 1, 2]),
          window=st.sampled_from([None, None, *VOCABULARY.windows]))
    def create_worker(self, source, do, credit, ack_timeout, rank, ahead, window):
        delivers = do.verb == "deliver" and do.queue is None
        finite = delivers and isinstance(credit, int)
        self.world.create_selector(source, always, do, credit, True, "current", None,
                                   seconds(ack_timeout) if ack_timeout and finite else None,
                                   rank=rank if do.consuming else 0, ahead=ahead if delivers else None,
                                   window=window if finite and window in self.world.engine.windows else None)

    @rule(name=calls.windows, credit=st.sampled_from([0, 1, 2, 3]))
    def create_window(self, name, credit):
        self.world.create_window(name, credit)

    @rule(name=calls.windows, verb=st.sampled_from(["resize", "resize", "delete"]),
          credit=st.sampled_from([-1, 0, 1, 2, 4]))
    def on_window(self, name, verb, credit):
        if name in self.world.engine.windows or verb == "delete":
            self.world.on_window(name, verb, *([credit] if verb == "resize" else []))

    @rule(source=calls.queues, when=calls.conditions, do=calls.actions, start=calls.starts,
          ack_timeout=st.sampled_from([None, None, 0, 4e-9]), rank=st.sampled_from([0, 32_767, -32_769]),
          ahead=st.sampled_from([None, 0, 1]), window=st.sampled_from([None, *VOCABULARY.windows]))
    def create_wrongly(self, source, when, do, start, ack_timeout, rank, ahead, window):
        self.world.create_selector(source, when, do, 1, True, start, None, ack_timeout, rank=rank, ahead=ahead, window=window)

    @rule(id=calls.ids, recall=st.booleans())
    def delete_selector(self, id, recall):
        self.world.delete_selector(id, recall)

    @rule(name=calls.queues)
    def delete_queue(self, name):
        self.world.delete_queue(name)

    @rule(queue=calls.queues, address=calls.addresses, headers=calls.headers, reply_to=calls.replies)
    def publish(self, queue, address, headers, reply_to):
        self.world.publish(queue, address, headers, reply_to)

    @rule(queue=calls.queues, address=calls.addresses, n=st.integers(0, 4), to=st.sampled_from(["", *QUEUES]))
    def publish_annexed(self, queue, address, n, to):
        self.world.publish_annexed(queue, address, n, to)

    @rule(queue=calls.queues, address=calls.addresses, headers=calls.headers, reply_to=calls.replies, body=calls.bodies,
          message_id=calls.message_ids, drawn=calls.terms)
    def publish_more(self, queue, address, headers, reply_to, body, message_id, drawn):
        self.world.publish(queue, address, headers, reply_to, body, message_id, **self.at(drawn))

    @rule(queue=calls.queues, address=calls.addresses, headers=calls.headers, message_id=calls.message_ids, drawn=calls.terms)
    def publish_waiting(self, queue, address, headers, message_id, drawn):
        self.world.publish_waiting(queue, address, headers, None, b"m", message_id, **self.at(drawn))

    @rule(index=calls.indexes)
    def give_up(self, index):
        self.world.give_up(index)

    @rule(queue=calls.queues, address=calls.addresses, headers=calls.headers)
    def request(self, queue, address, headers):
        self.world.request(queue, address, headers)

    @rule(index=calls.indexes)
    def end_request(self, index):
        self.world.end_request(index)

    @rule(adopter=calls.queues, names=st.lists(calls.queues, max_size=3), meta=st.sampled_from([None, {"m": b"1"}, {"m": None}]),
          off=st.sampled_from([0] * 9 + [1]))
    def adopt(self, adopter, names, meta, off):
        """Of those that are drawn, one in ten times also what is not staged."""
        queues = self.world.engine.queues
        staged = [name for name in dict.fromkeys(names) if name in queues and queues[name].staged]
        self.world.adopt(adopter, names if off else staged, meta, off)

    @rule(adopter=calls.queues, n=st.integers(1, 4))
    def enter(self, adopter, n):
        self.world.enter(adopter, n)

    @rule(queue=calls.queues, messages=st.lists(calls.messages, max_size=4), drawn=calls.terms, outcomes=st.booleans())
    def publish_many(self, queue, messages, drawn, outcomes):
        shared = {name: value for name, value in self.at(drawn).items() if name != "correlation_id"}
        self.world.publish_many(queue, messages, **shared, **({"outcomes": True} if outcomes else {}))

    @rule(queue=calls.queues, messages=st.lists(st.tuples(calls.messages, calls.row_terms), max_size=4))
    def publish_batch(self, queue, messages):
        self.world.publish_batch(queue, [(*message, self.at(drawn)) for message, drawn in messages])

    @rule(n=st.integers(0, 3), destination=calls.destinations, verdict=st.sampled_from(["ack", "ack", "nack", None]))
    def take_batch(self, n, destination, verdict):
        self.world.take_batch(n, destination, verdict)

    @rule(n=st.integers(0, 3), destination=calls.destinations)
    def take(self, n, destination):
        self.world.take(n, destination)

    @rule(destinations=st.lists(st.sampled_from(DESTINATIONS), max_size=2, unique=True))
    def outlet(self, destinations):
        if len(self.world.outlets) < 3:
            self.world.outlet(destinations)

    @rule(index=st.integers(0, 2), verb=st.sampled_from(["add", "add", "discard", "close"]), name=st.sampled_from(DESTINATIONS))
    def on_outlet(self, index, verb, name):
        self.world.on_outlet(index, verb, *([] if verb == "close" else [name]))

    @rule(index=st.integers(0, 2), n=st.sampled_from([0, 1, 3, 20]))
    def drain(self, index, n):
        self.world.drain(index, n)

    @rule(queue=calls.queues)
    def get(self, queue):
        self.world.get(queue)

    @rule(destination=calls.destinations,
          verdicts=st.lists(st.one_of(calls.verdicts, st.sampled_from([0, 7])), min_size=1, max_size=5))
    def iterate(self, destination, verdicts):
        self.world.iterate(destination, verdicts)

    @rule(index=calls.indexes, verdict=calls.verdicts)
    def conclude(self, index, verdict):
        self.world.conclude(index, verdict)

    @rule(indexes=st.lists(calls.indexes, max_size=3))
    def ack_many(self, indexes):
        self.world.ack_many(indexes)

    @rule(operations=st.lists(calls.operations, max_size=4), fail=st.sampled_from([False] * 4 + [True]))
    def transact(self, operations, fail):
        work = [(*operation[:-1], self.at(operation[-1])) if operation[0] == "publish" else operation for operation in operations]
        self.world.transact(work, fail)

    @rule(id=calls.ids, n=st.integers(-2, 3))
    def grant(self, id, n):
        self.world.on_selector(id, "grant", n)

    @rule(id=calls.ids, n=st.integers(0, 2))
    def pay(self, id, n):
        self.world.on_selector(id, "pay", n)

    @rule(id=calls.ids, verb=st.sampled_from(["enable", "enable", "disable"]))
    def switch(self, id, verb):
        self.world.on_selector(id, verb)

    @rule(name=calls.queues, verb=st.sampled_from([("hold",), ("release",), ("release",), ("purge",), ("purge", 2)]))
    def on_queue(self, name, verb):
        self.world.on_queue(name, *verb)

    @rule(name=calls.queues, verb=st.sampled_from(["fetch", "delete"]), id=st.integers(0, 8))
    def on_message(self, name, verb, id):
        self.world.on_queue(name, verb, id)

    @rule(owner=calls.owners, changes=calls.map_changes)
    def set_meta(self, owner, changes):
        self.world.set_meta(owner, changes)

    @rule(name=calls.queues, start=st.sampled_from(["head", "current", 1, 3]), limit=st.sampled_from([None, 0, 2]),
          state=st.sampled_from([None, "ready", "delayed", "history", "outstanding"]), reverse=st.booleans())
    def browse(self, name, start, limit, state, reverse):
        self.world.browse(name, start, state, limit, reverse)

    @rule()
    @precondition(lambda self: len(self.world.journal) % 3 == 0)
    def build(self):
        self.world.build()

    @rule(nanoseconds=st.one_of(st.sampled_from([0, 1, 3, 10, 10, 400, -20]), st.integers(-500, 2000)))
    def wait(self, nanoseconds):
        self.world.wait(nanoseconds)

    @rule()
    def tick(self):
        self.world.tick()

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
                first=st.lists(st.tuples(calls.properties, st.integers(0, 5)), min_size=4, max_size=5), graph=graphs,
                pace=st.sampled_from([1, 1, 0]))
    def start(self, hop_limit, dead_letter, first, graph, pace):
        self.world = World(hop_limit, dead_letter, self.stores, self.written, pace)
        if graph is not None:
            self.build_graph(graph)
        else:
            for name, (chosen, place) in zip(QUEUES, first, strict=False):
                self.create_queue_at(name, chosen, place)

    @rule(name=calls.names, chosen=calls.properties, place=st.integers(0, 5))
    def create_queue(self, name, chosen, place):
        self.create_queue_at(name, chosen, place)

    def create_queue_at(self, name, chosen, place):
        """One in three queues is in RAM."""
        in_memory = place % 3 == 0 or (chosen.get("transit") and place % 5)     # a transit queue in a store is refused
        self.world.create_queue(name, **chosen, store="ram" if in_memory else self.stores[place % len(self.stores)])

    @rule(place=st.integers(0, 1), changes=calls.map_changes)
    def set_meta_of_a_store(self, place, changes):
        self.world.set_meta(("store", self.stores[place % len(self.stores)]), changes)

    @rule(told=st.booleans())
    def sync(self, told):
        self.world.wait_to_be_told() if told else self.world.sync()

    @rule(crash=st.booleans(), workers=st.lists(
        st.tuples(calls.queues, calls.actions, calls.credits), max_size=3))
    def reopen(self, crash, workers):
        self.world.reopen(crash)
        self.world.compare()
        if workers and not self.world.blocks:
            self.world.build()
            for source, do, credit in workers:
                self.world.create_selector(source, always, do, credit, True, "current", None)
            self.world.build()


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
