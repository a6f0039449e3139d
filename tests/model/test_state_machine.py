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

from tests.model.drawing import seconds
from tests.model.lockstep import World
from tests.model.vocabulary import (
    ACTIONS, ADDRESSES, CONDITIONS, CREDITS, DESTINATIONS, MAP_NAMES, MAP_VALUES, QUEUES, REWRITERS, STARTS, WINDOWS,
)
from xump import field
from xump.durability import opening

STEPS = int(os.environ.get("XUMP_STEPS", "20000"))
STEPS_PER_RUN = 60
STEPS_PER_LINE = 20_000
count_step = itertools.count(1).__next__

queues = st.sampled_from([*QUEUES[:4] * 3, *QUEUES, "missing"])
headers = st.fixed_dictionaries({}, optional={"n": st.integers(0, 4), "to": st.sampled_from(QUEUES)})
addresses = st.sampled_from(ADDRESSES)
replies = st.sampled_from([None, None, *QUEUES])
destinations = st.sampled_from([None, *DESTINATIONS, DESTINATIONS])
ids = st.integers(1, 12)
indexes = st.integers(0, 50)
spans = st.sampled_from([0, 1, 3, 8, 20, 400]).map(seconds)
delays = st.sampled_from([0, 2, 6, 300]).map(seconds)
verdicts = st.sampled_from([
    "ack", "ack", "ack", "nack", "drop", "reject", ("nack", {"delay": seconds(5)}), ("nack", {"delay": 0}),
    ("extend", {"seconds": seconds(9)}), ("reply", {"body": b"r"}),
])
message_ids = st.sampled_from([None, None, "m1", "m2"])
bodies = st.sampled_from([b"", b"m", b"mmm"])
plain = {
    "limit": st.sampled_from([None, None, None, 0, 1, 2, 3]), "history_limit": st.sampled_from([0, 0, 0, 1, 3, None]),
    "auto_delete": st.sampled_from([False] * 6 + [True]), "dead_letter": st.sampled_from([None, None, *QUEUES]),
    "delivery_limit": st.sampled_from([None, None, 1, 2]),
}
timed = {
    "ttl": spans, "retry_delay": st.one_of(delays, st.lists(delays, min_size=1, max_size=3)), "priority": st.sampled_from([1, 5]),
    "group": st.sampled_from([field("address"), field("headers.to")]), "dedup": spans, "dedup_limit": st.sampled_from([1, 2]),
    "limit_bytes": st.sampled_from([0, 1, 4]), "when_full": st.just("drop_oldest"), "unmatched": st.just("keep"),
    "rewriter": st.sampled_from(REWRITERS),
}
kept = st.one_of(st.fixed_dictionaries(plain), st.fixed_dictionaries(plain, optional=timed))
"""Half of the queues go by age alone, and know no time."""
passing = st.fixed_dictionaries({
    "limit": st.just(None), "history_limit": st.just(0), "auto_delete": plain["auto_delete"], "dead_letter": plain["dead_letter"],
    "delivery_limit": st.just(None), "transit": st.just(True), "rewriter": st.sampled_from([None, None, *REWRITERS])})
waiting = st.fixed_dictionaries({name: st.just(value) for name, value in {
    "limit": None, "history_limit": 0, "auto_delete": False, "dead_letter": None, "delivery_limit": None,
    "staged": True}.items()})
properties = st.integers(0, 7).flatmap(lambda drawn: passing if drawn == 6 else waiting if drawn == 7 else kept)
moments = st.sampled_from([-3, 0, 1, 4, 12, 300])
terms = st.one_of(st.just({}), st.fixed_dictionaries({}, optional={
    "delay": delays, "at": moments, "ttl": spans, "expires": moments, "priority": st.sampled_from([1, 7]),
    "correlation_id": st.sampled_from(["c", "request-1"])}))
row_terms = st.one_of(st.just({}), st.fixed_dictionaries({}, optional={
    "at": moments, "expires": moments, "priority": st.sampled_from([1, 7]), "correlation_id": st.just("c")}))
owners = st.one_of(queues, st.just(("store", "ram")))
map_changes = st.one_of(
    st.dictionaries(st.sampled_from(MAP_NAMES), st.sampled_from(MAP_VALUES), max_size=2), st.sampled_from(MAP_NAMES))
messages = st.tuples(addresses, bodies, headers, replies, message_ids)
operations = st.one_of(
    st.tuples(st.just("publish"), queues, addresses, headers, terms), st.tuples(st.just("ack"), indexes),
    st.tuples(st.just("nack"), indexes, st.sampled_from([{}, {"delay": seconds(4)}, {"requeue": False}])),
    st.tuples(st.just("reject"), indexes),
    st.tuples(st.just("set_meta"), owners, st.sampled_from(MAP_NAMES), st.sampled_from([None, *MAP_VALUES])))


class Machine(RuleBasedStateMachine):
    """Rules only draw; what they do is in `World`."""

    @initialize(hop_limit=st.sampled_from([2, 4, 6, 64]), dead_letter=st.sampled_from([None, "q4", "q3"]),
                first=st.lists(properties, min_size=3, max_size=4), pace=st.sampled_from([1, 1, 0]))
    def start(self, hop_limit, dead_letter, first, pace):
        self.world = World(hop_limit, dead_letter, pace=pace)
        for name, chosen in zip(QUEUES, first, strict=False):
            self.world.create_queue(name, **chosen)

    def at(self, drawn):
        """Terms as they are given: moments are drawn as so many ns from now, and of two that say the same the first counts."""
        now = self.world.now + self.world.pace
        given = {name: now + value if name in ("at", "expires") else value for name, value in drawn.items()}
        for name, other in (("delay", "at"), ("ttl", "expires")):
            if name in given:
                given.pop(other, None)
        return given

    @rule(name=st.sampled_from(QUEUES), chosen=properties)
    def create_queue(self, name, chosen):
        self.world.create_queue(name, **chosen)

    @rule(source=queues, when=st.sampled_from(CONDITIONS), do=st.sampled_from(ACTIONS), credit=st.sampled_from(CREDITS),
          enabled=st.sampled_from([True] * 5 + [False]), start=st.sampled_from(STARTS), name=st.sampled_from([None] * 9 + ["n1"]))
    def create_selector(self, source, when, do, credit, enabled, start, name):
        self.world.create_selector(source, when, do, credit, enabled, "current" if do.consuming else start, name)

    @rule(source=queues, do=st.sampled_from(ACTIONS), credit=st.sampled_from(CREDITS), ack_timeout=st.sampled_from([None, 4, 20]),
          rank=st.sampled_from([0, 0, -1, 3]), ahead=st.sampled_from([None, 1, 2]),
          window=st.sampled_from([None, None, *WINDOWS]))
    def create_worker(self, source, do, credit, ack_timeout, rank, ahead, window):
        delivers = do.verb == "deliver" and do.queue is None
        finite = delivers and isinstance(credit, int)
        self.world.create_selector(source, CONDITIONS[0], do, credit, True, "current", None,
                                   seconds(ack_timeout) if ack_timeout and finite else None,
                                   rank=rank if do.consuming else 0, ahead=ahead if delivers else None,
                                   window=window if finite and window in self.world.engine.windows else None)

    @rule(name=st.sampled_from(WINDOWS), credit=st.sampled_from([0, 1, 2, 3]))
    def create_window(self, name, credit):
        self.world.create_window(name, credit)

    @rule(name=st.sampled_from(WINDOWS), verb=st.sampled_from(["resize", "resize", "delete"]),
          credit=st.sampled_from([-1, 0, 1, 2, 4]))
    def on_window(self, name, verb, credit):
        if name in self.world.engine.windows or verb == "delete":
            self.world.on_window(name, verb, *([credit] if verb == "resize" else []))

    @rule(source=queues, when=st.sampled_from(CONDITIONS), do=st.sampled_from(ACTIONS), start=st.sampled_from(STARTS),
          ack_timeout=st.sampled_from([None, None, 0, 4e-9]), rank=st.sampled_from([0, 32_767, -32_769]),
          ahead=st.sampled_from([None, 0, 1]), window=st.sampled_from([None, *WINDOWS]))
    def create_wrongly(self, source, when, do, start, ack_timeout, rank, ahead, window):
        self.world.create_selector(source, when, do, 1, True, start, None, ack_timeout, rank=rank, ahead=ahead, window=window)

    @rule(id=ids, recall=st.booleans())
    def delete_selector(self, id, recall):
        self.world.delete_selector(id, recall)

    @rule(name=queues)
    def delete_queue(self, name):
        self.world.delete_queue(name)

    @rule(queue=queues, address=addresses, headers=headers, reply_to=replies)
    def publish(self, queue, address, headers, reply_to):
        self.world.publish(queue, address, headers, reply_to)

    @rule(queue=queues, address=addresses, n=st.integers(0, 4), to=st.sampled_from(["", *QUEUES]))
    def publish_annexed(self, queue, address, n, to):
        self.world.publish_annexed(queue, address, n, to)

    @rule(queue=queues, address=addresses, headers=headers, reply_to=replies, body=bodies, message_id=message_ids, drawn=terms)
    def publish_more(self, queue, address, headers, reply_to, body, message_id, drawn):
        self.world.publish(queue, address, headers, reply_to, body, message_id, **self.at(drawn))

    @rule(queue=queues, address=addresses, headers=headers, message_id=message_ids, drawn=terms)
    def publish_waiting(self, queue, address, headers, message_id, drawn):
        self.world.publish_waiting(queue, address, headers, None, b"m", message_id, **self.at(drawn))

    @rule(index=indexes)
    def give_up(self, index):
        self.world.give_up(index)

    @rule(queue=queues, address=addresses, headers=headers)
    def request(self, queue, address, headers):
        self.world.request(queue, address, headers)

    @rule(index=indexes)
    def end_request(self, index):
        self.world.end_request(index)

    @rule(adopter=queues, names=st.lists(queues, max_size=3), meta=st.sampled_from([None, {"m": b"1"}, {"m": None}]),
          off=st.sampled_from([0] * 9 + [1]))
    def adopt(self, adopter, names, meta, off):
        """Of those that are drawn, one in ten times also what is not staged."""
        queues = self.world.engine.queues
        staged = [name for name in dict.fromkeys(names) if name in queues and queues[name].staged]
        self.world.adopt(adopter, names if off else staged, meta, off)

    @rule(adopter=queues, n=st.integers(1, 4))
    def enter(self, adopter, n):
        self.world.enter(adopter, n)

    @rule(queue=queues, messages=st.lists(messages, max_size=4), drawn=terms, outcomes=st.booleans())
    def publish_many(self, queue, messages, drawn, outcomes):
        shared = {name: value for name, value in self.at(drawn).items() if name != "correlation_id"}
        self.world.publish_many(queue, messages, **shared, **({"outcomes": True} if outcomes else {}))

    @rule(queue=queues, messages=st.lists(st.tuples(messages, row_terms), max_size=4))
    def publish_batch(self, queue, messages):
        self.world.publish_batch(queue, [(*message, self.at(drawn)) for message, drawn in messages])

    @rule(n=st.integers(0, 3), destination=destinations, verdict=st.sampled_from(["ack", "ack", "nack", None]))
    def take_batch(self, n, destination, verdict):
        self.world.take_batch(n, destination, verdict)

    @rule(n=st.integers(0, 3), destination=destinations)
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

    @rule(queue=queues)
    def get(self, queue):
        self.world.get(queue)

    @rule(destination=destinations, verdicts=st.lists(st.one_of(verdicts, st.sampled_from([0, 7])), min_size=1, max_size=5))
    def iterate(self, destination, verdicts):
        self.world.iterate(destination, verdicts)

    @rule(index=indexes, verdict=verdicts)
    def conclude(self, index, verdict):
        self.world.conclude(index, verdict)

    @rule(indexes=st.lists(indexes, max_size=3))
    def ack_many(self, indexes):
        self.world.ack_many(indexes)

    @rule(operations=st.lists(operations, max_size=4), fail=st.sampled_from([False] * 4 + [True]))
    def transact(self, operations, fail):
        work = [(*operation[:-1], self.at(operation[-1])) if operation[0] == "publish" else operation for operation in operations]
        self.world.transact(work, fail)

    @rule(id=ids, n=st.integers(-2, 3))
    def grant(self, id, n):
        self.world.on_selector(id, "grant", n)

    @rule(id=ids, n=st.integers(0, 2))
    def pay(self, id, n):
        self.world.on_selector(id, "pay", n)

    @rule(id=ids, verb=st.sampled_from(["enable", "enable", "disable"]))
    def switch(self, id, verb):
        self.world.on_selector(id, verb)

    @rule(name=queues, verb=st.sampled_from([("hold",), ("release",), ("release",), ("purge",), ("purge", 2)]))
    def on_queue(self, name, verb):
        self.world.on_queue(name, *verb)

    @rule(name=queues, verb=st.sampled_from(["fetch", "delete"]), id=st.integers(0, 8))
    def on_message(self, name, verb, id):
        self.world.on_queue(name, verb, id)

    @rule(owner=owners, changes=map_changes)
    def set_meta(self, owner, changes):
        self.world.set_meta(owner, changes)

    @rule(name=queues, start=st.sampled_from(["head", "current", 1, 3]), limit=st.sampled_from([None, 0, 2]),
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
                first=st.lists(st.tuples(properties, st.integers(0, 5)), min_size=4, max_size=5), pace=st.sampled_from([1, 1, 0]))
    def start(self, hop_limit, dead_letter, first, pace):
        self.world = World(hop_limit, dead_letter, self.stores, self.written, pace)
        for name, (chosen, place) in zip(QUEUES, first, strict=False):
            self.create_queue_at(name, chosen, place)

    @rule(name=st.sampled_from(QUEUES), chosen=properties, place=st.integers(0, 5))
    def create_queue(self, name, chosen, place):
        self.create_queue_at(name, chosen, place)

    def create_queue_at(self, name, chosen, place):
        """One in three queues is in RAM."""
        in_memory = place % 3 == 0 or (chosen.get("transit") and place % 5)     # a transit queue in a store is refused
        self.world.create_queue(name, **chosen, store="ram" if in_memory else self.stores[place % len(self.stores)])

    @rule(place=st.integers(0, 1), changes=map_changes)
    def set_meta_of_a_store(self, place, changes):
        self.world.set_meta(("store", self.stores[place % len(self.stores)]), changes)

    @rule(told=st.booleans())
    def sync(self, told):
        self.world.wait_to_be_told() if told else self.world.sync()

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
