"""Workloads are reproducible, fit their graphs, and keep the laws; the model does the same with them as the engine."""

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xump
from tests.conftest import Clock
from tests.model.engine import ModelEngine
from xump.topology import refusals, schema
from xump.workloads import LOAD, PROFILES, SHAPES, TIGHT, Traffic, drawn_topology, drawn_workload, play
from xump.workloads.calls import UNLIMITED, Calls
from xump.workloads.shapes import entrances
from xump.workloads.strategies import topologies, workloads


class Recorded:
    """An engine of which the deliveries are written down, by destination, queue and id."""

    def __init__(self, engine):
        self.engine = engine
        self.taken = []

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def take(self, n):
        taken = self.engine.take(n)
        self.taken += [(one.destination, one.queue.name, one.id, one.message.address, one.redelivered) for one in taken]
        return taken


def built(engine, topology):
    """As `apply` does it, for the model too."""
    with engine.building():
        description = schema.read(topology)
        for item in description.queues.values():
            engine.create_queue(item.name, **item.properties)
        for item in description.selectors:
            terms = {} if item.do.verb == "copy_to" else {"credit": item.credit}
            engine.create_selector(item.source, when=item.when, do=item.do, **terms)
    return Recorded(engine)


@settings(max_examples=60)
@given(workloads())
def test_the_laws_hold_after_any_workload(workload):
    with xump.Engine(clock=Clock()) as engine:
        played = play(engine, workload, 60)
        engine.check()
        assert played.published + played.refused >= 60 or not entrances(workload.topology)


@settings(max_examples=25)
@given(workloads())
def test_the_model_delivers_the_same(workload):
    said = []
    for engine_class in (xump.Engine, ModelEngine):
        engine = built(engine_class(clock=Clock()), workload.topology)
        said.append((play(engine, workload, 15, has_topology=True), engine.taken))
        engine.check()
        engine.close()
    assert said[0] == said[1]


@settings(max_examples=40)
@given(topologies(), st.sampled_from(PROFILES))
def test_a_topology_is_one_that_an_engine_takes(topology, profile):
    assert not refusals(topology)
    assert entrances(topology)
    assert next(Traffic(topology, random.Random(1), profile)).address is not None


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_delivers_what_goes_in(shape):
    """Some of it, for each of ten seeds but a few: a filter may match nothing."""
    delivered = []
    for seed in range(10):
        with xump.Engine() as engine:
            delivered.append(play(engine, drawn_workload(random.Random(seed), shape, "uniform"), 50).delivered)
    assert sum(count > 0 for count in delivered) >= 7


def test_the_same_seed_gives_the_same():
    runs = []
    for _ in range(2):
        workload = drawn_workload(random.Random(5))
        engine = built(xump.Engine(clock=Clock()), workload.topology)
        runs.append((workload, play(engine, workload, 100, has_topology=True), engine.taken))
        engine.close()
    assert runs[0] == runs[1]


@pytest.mark.parametrize("pattern", ["a.*.c", "#.x", "flight.#", "*"])
def test_addresses_fit_the_patterns(pattern):
    topology = {"version": 1, "queues": {"q": {}, "hit": {}}, "selectors": [
        {"source": "q", "when": {"match": "topic", "pattern": pattern}, "do": {"copy_to": "hit"}}]}
    for profile in PROFILES:
        with xump.Engine() as engine:
            engine.apply(topology)
            engine.publish_many("q", islice(Traffic(topology, random.Random(1), profile), 500))
            assert engine.queues["hit"].ready > 50


def test_headers_fit_the_filters():
    topology = {"version": 1, "queues": {"q": {}, "hit": {}}, "selectors": [
        {"source": "q", "when": {"where": "region = 'EU' AND amount > 50"}, "do": {"copy_to": "hit"}}]}
    with xump.Engine() as engine:
        engine.apply(topology)
        engine.publish_many("q", islice(Traffic(topology, random.Random(1)), 500))
        assert engine.queues["hit"].ready > 5


def test_zipf_is_steep_and_uniform_is_flat():
    topology = {"version": 1, "queues": {"q": {}}, "selectors": [
        {"source": "q", "when": {"match": "eq", "pattern": f"a{number}"}, "do": "discard"} for number in range(100)]}
    most = {}
    for profile in ("uniform", "zipf"):
        traffic = Traffic(topology, random.Random(1), profile)
        addresses = [next(traffic).address for _ in range(4_000)]
        most[profile] = max(addresses.count(address) for address in set(addresses))
    assert most["zipf"] > 5 * most["uniform"]


def test_wrong_names_say_which_there_are():
    with pytest.raises(ValueError, match=r"no shape 'tree'; use one of random, wolfpack"):
        drawn_topology(random.Random(1), "tree")
    with pytest.raises(ValueError, match=r"no profile 'normal'; use one of uniform, zipf, adversarial"):
        Traffic({}, random.Random(1), "normal")


# ---- the vocabulary, and single calls

def test_a_vocabulary_names_queues_and_destinations():
    for seed in range(40):
        topology = drawn_topology(random.Random(seed), vocabulary=TIGHT)
        assert not refusals(topology)
        assert set(topology["queues"]) <= set(TIGHT.queues)
        assert {selector["do"]["deliver"] for selector in topology["selectors"] if "deliver" in selector["do"]} <= set(
            TIGHT.destinations)


def test_what_a_queue_rarely_has_comes_in_some_graph():
    drawn = [table for seed in range(200) for table in drawn_topology(random.Random(seed))["queues"].values()]
    assert {name for table in drawn for name in table} == set(LOAD.special)


@pytest.mark.parametrize("stores", [("ring",), ("lmdb",), ("ring", "lmdb")], ids="+".join)
def test_queues_lie_in_ram_and_in_stores(stores, tmp_path):
    used = set()
    for seed in range(6):
        workload = drawn_workload(random.Random(seed), "chain", stores=stores)
        used |= {table.get("store", "ram") for table in workload.topology["queues"].values()}
        with xump.Engine(clock=Clock()) as engine:
            (tmp_path / str(seed)).mkdir()
            play(engine, workload, 40, folder=str(tmp_path / str(seed)))
            engine.check()
            assert {name: queue.store.name for name, queue in engine.queues.items() if name in workload.topology["queues"]} == {
                name: table.get("store", "ram") for name, table in workload.topology["queues"].items()}
    assert used == {"ram", *stores}


@pytest.mark.parametrize("name", ["terms", "row_terms", "messages", "properties", "operations", "map_changes", "verdicts"])
def test_each_pool_is_used(name):
    """Of the pools that a call is drawn from, each value and each keyword comes."""
    calls, seen = Calls(TIGHT), set()

    @settings(max_examples=300, derandomize=True, database=None)
    @given(getattr(calls, name))
    def drawn(value):
        seen.update(value if isinstance(value, dict) else [repr(value)])

    drawn()
    assert len(seen) >= 4
    if name == "terms":
        assert seen == set(TIGHT.terms)
    if name == "properties":
        assert seen == {*UNLIMITED, *TIGHT.special, "transit", "staged", "rewriter"}
