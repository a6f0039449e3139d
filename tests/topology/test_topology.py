"""A topology out of an engine and into another one: round trips, what is recognised, and that what is wrong changes nothing."""

import functools
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xump
from xump import (
    INFINITE, Conflict, always, bounce_to, copy_to, default, deliver, discard, field, match, move_to, overflow, topology, where,
)
from xump.topology import drawing, graph, network
from xump.topology.codec import (
    decode_action, decode_condition, decode_credit, encode_action, encode_condition, encode_credit,
)


def to_toml(mapping):
    """A line for each key; what is inside it is inline."""
    return "".join(f"{key} = {_inline(value)}\n" for key, value in mapping.items())


def _inline(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline(key)} = {_inline(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    assert isinstance(value, (int, float))
    return repr(value)


def through_toml(mapping):
    read = tomllib.loads(to_toml(mapping))
    assert read == mapping
    return read


class Shelf:
    """A store type for tests: it claims to outlive its process, and can fail to open."""

    durable = False
    opened: list[str] = []

    def __init__(self, name, path="", depth=1, broken=False):
        if broken:
            raise OSError("no such shelf")
        self.name = name
        Shelf.opened.append(name)

    def close(self):
        Shelf.opened.remove(self.name)


xump.register_store("shelf", Shelf)


@pytest.fixture
def engine(clock):
    with xump.Engine(clock=clock) as engine:
        yield engine
        if not engine.closed:
            engine.check()
    assert Shelf.opened == []


@pytest.fixture
def other(clock):
    with xump.Engine(clock=clock) as engine:
        yield engine
        if not engine.closed:
            engine.check()


def one_of_everything(engine):
    engine.create_store("cold", "shelf", path=Path("cold.xump"), depth=3)
    engine.create_queue("dead", history_limit=None)
    engine.create_queue("jobs", store="cold", limit=100, history_limit=10, dead_letter="dead", delivery_limit=3)
    engine.create_queue("wolf", auto_delete=True)
    engine.create_selector("jobs", when=always, do=move_to("wolf"), credit=10, name="to the wolf")
    engine.create_selector("jobs", when=match("topic", "a.*.#") & where("size > 100"), do=copy_to(field("headers.to")))
    engine.create_selector("jobs", when=where({"n": [1, 1.5, True, "x", b"\0"]}), do=bounce_to("dead"), credit=INFINITE)
    engine.create_selector("jobs", when=default, do=deliver(field("address"), queue="wolf"), enabled=False)
    engine.create_selector("jobs", when=overflow, do=discard)
    engine.create_selector("wolf", when=match("prefix", "x", "headers.kind"), do=deliver("wolf"), credit=0)


# ---- round trips

def test_a_description_is_plain_and_leaves_defaults_out(engine):
    one_of_everything(engine)
    assert engine.topology() == {
        "version": 1,
        "stores": {"cold": {"type": "shelf", "path": "cold.xump", "depth": 3}},
        "queues": {
            "dead": {"history_limit": "all"},
            "jobs": {"store": "cold", "limit": 100, "history_limit": 10, "dead_letter": "dead", "delivery_limit": 3},
            "wolf": {"auto_delete": True},
        },
        "selectors": [
            {"source": "jobs", "name": "to the wolf", "when": "always", "do": {"move_to": "wolf"}, "credit": 10},
            {"source": "jobs", "when": {"all": [{"match": "topic", "pattern": "a.*.#"}, {"where": "size > 100"}]},
             "do": {"copy_to": {"field": "headers.to"}}},
            {"source": "jobs", "when": {"where": {"n": [1, 1.5, True, "x", {"hex": "00"}]}}, "do": {"bounce_to": "dead"},
             "credit": "INFINITE"},
            {"source": "jobs", "when": "default", "do": {"deliver": {"field": "address"}, "queue": "wolf"}, "enabled": False},
            {"source": "jobs", "when": "overflow", "do": "discard"},
            {"source": "wolf", "when": {"match": "prefix", "pattern": "x", "field": "headers.kind"}, "do": {"deliver": "wolf"},
             "credit": 0},
        ],
    }


def test_an_empty_engine(engine, other):
    described = engine.topology()
    assert described == {"version": 1, "stores": {}, "queues": {}, "selectors": []}
    other.apply(described)
    assert other.topology() == described


def test_through_toml_into_another_engine(engine, other):
    one_of_everything(engine)
    other.apply(through_toml(engine.topology()))
    assert other.topology() == engine.topology()
    assert [(s.source.name, s.when, s.do, s.credit, s.enabled, s.name) for s in other.selectors.values()] == [
        (s.source.name, s.when, s.do, s.credit, s.enabled, s.name) for s in engine.selectors.values()]


def test_apply_is_idempotent(engine):
    one_of_everything(engine)
    before = engine.topology()
    engine.apply(before)
    engine.apply(through_toml(before))
    assert engine.topology() == before


def test_the_state_of_now_is_described_and_recognised(engine, other):
    queue = engine.create_queue("q")
    made = [engine.create_selector("q", when=always, do=deliver("d"), credit=2, name=name) for name in ("named", None)]
    first = engine.topology()
    for selector in made:
        selector.grant(3)
        selector.disable()
    now = engine.topology()
    assert [(selector["credit"], selector["enabled"]) for selector in now["selectors"]] == [(5, False), (5, False)]
    for description in (now, first, now):
        engine.apply(description)
    assert engine.topology() == now, "recognised as it is now, and as it was created"
    other.apply(now)
    queue.publish("x")
    assert other.topology() == now


@pytest.mark.parametrize("name", ["one", None])
def test_a_description_from_between_is_of_the_same_selector(name):
    with xump.Engine() as engine:
        engine.create_queue("jobs")
        selector = engine.create_selector("jobs", when=always, do=deliver("w"), credit=3, name=name)
        saved = [engine.topology()]
        for change in (lambda: selector.grant(4), selector.disable, selector.enable):
            change()
            saved.append(engine.topology())
        selector.disable()
        for description in (saved[0], saved[1], saved[-1]):
            engine.apply(description)
            assert list(engine.selectors.values()) == [selector]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans()), max_size=6),
       st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6))
def test_as_few_are_created_as_can_be(there, described):
    """Selectors of which credit and `enabled` have changed since; each stands for at most one that is described."""
    with xump.Engine() as engine:
        engine.create_queue("q")
        could_be = []
        for first, now, was_enabled, is_enabled in there:
            selector = engine.create_selector("q", when=always, do=discard, credit=first, enabled=was_enabled)
            selector.grant(now - first)
            (selector.enable if is_enabled else selector.disable)()
            could_be.append({(credit, enabled) for credit in (first, now) for enabled in (was_enabled, is_enabled)})
        alike = {"source": "q", "when": "always", "do": "discard"}
        engine.apply({"version": 1, "selectors": [{**alike, "credit": credit, "enabled": enabled}
                                                  for credit, enabled in described]})
        created = len(engine.selectors) - len(there)
        assert created == len(described) - most_pairs(tuple(described), tuple(map(frozenset, could_be)))


@functools.cache
def most_pairs(items, sets):
    """How many of the items can each have a set of their own that they are in."""
    if not items:
        return 0
    first, rest = items[0], items[1:]
    return max([most_pairs(rest, sets)] + [
        1 + most_pairs(rest, sets[:at] + sets[at + 1:]) for at, one in enumerate(sets) if first in one])


def test_apply_adds_and_takes_nothing_away(engine, other):
    other.create_queue("b")
    other.create_selector("b", when=always, do=discard)
    one_of_everything(engine)
    engine.apply(other.topology())
    assert list(engine.queues) == ["dead", "jobs", "wolf", "b"]
    assert len(engine.selectors) == 7


def test_unnamed_selectors_are_counted(engine):
    engine.create_queue("q")
    engine.create_selector("q", when=where({"a": 1, "b": 2}), do=discard)
    alike = {"source": "q", "when": {"where": {"b": 2, "a": 1}}, "do": "discard"}
    for _ in range(2):
        engine.apply({"version": 1, "selectors": [alike, alike]})
        assert len(engine.selectors) == 2
    engine.apply({"version": 1, "selectors": [alike]})
    assert len(engine.selectors) == 2
    engine.apply({"version": 1, "selectors": [{**alike, "credit": 7}, {**alike, "when": {"where": {"b": 2, "a": True}}}]})
    assert len(engine.selectors) == 4
    engine.apply({"version": 1, "selectors": [{**alike, "name": "n"}]})
    assert len(engine.selectors) == 5, "an unnamed one is never taken for a named one"


def test_an_unnamed_one_with_a_callable_is_nobodys_likeness(engine):
    class Anything:
        def __call__(self, message):
            return True

        def __eq__(self, other):
            return True

        def __hash__(self):
            return hash("a = 1")

    engine.create_queue("q")
    engine.create_selector("q", when=where(Anything()), do=discard)
    engine.apply({"version": 1, "selectors": [{"source": "q", "when": {"where": "a = 1"}, "do": "discard"}]})
    assert len(engine.selectors) == 2


def test_no_message_meets_half_a_graph(engine):
    engine.create_queue("q").publish("waits")
    engine.apply({"version": 1, "queues": {"copies": {}}, "selectors": [
        {"source": "q", "when": "always", "do": "discard"},
        {"source": "q", "when": "always", "do": {"copy_to": "copies"}},
    ]})
    assert engine.queues["copies"].ready == 1
    assert engine.queues["q"].ready == 0


def test_inside_a_building_block_routing_starts_at_its_end(engine):
    queue = engine.create_queue("q")
    queue.publish("waits")
    with engine.building():
        engine.apply({"version": 1, "selectors": [{"source": "q", "when": "always", "do": "discard"}]})
        assert queue.ready == 1
    assert queue.ready == 0


def test_from_another_engine_in_one_call(engine, other):
    """The order of selectors may name queues that come later: queues are made first."""
    selector = {"source": "b", "when": "always", "do": {"move_to": "a"}}
    engine.apply({"version": 1, "selectors": [selector], "queues": {"a": {}, "b": {}}})
    other.apply(engine.topology())
    assert list(other.queues) == ["a", "b"]


def test_what_cannot_be_described_is_named(engine):
    engine.create_store("shop", "shelf", path=object())
    engine.create_queue("q")
    engine.create_selector("q", when=where(callable), do=discard, name="called")
    engine.create_selector("q", when=match("eq", "a") & where(lambda message: True), do=discard)
    refused = r"store 'shop': option path.*selector 1 \('called', of queue 'q'\).*selector 2 \(of queue 'q'\)"
    with pytest.raises(Conflict, match=refused):
        engine.topology()


def test_calls_on_a_closed_engine(engine):
    engine.close()
    for call in (engine.topology, engine.to_mermaid, engine.to_dot, lambda: engine.apply({"version": 1})):
        with pytest.raises(xump.Closed):
            call()


# ---- what is wrong changes nothing

def state_of(engine):
    return engine.topology(), engine.stats(), list(engine.stores), list(Shelf.opened), [
        (message.id, message.address) for queue in engine.queues.values() for message in queue.browse()]


SELECTOR = {"source": "jobs", "when": "always", "do": "discard"}

WRONG = [
    ({}, "version is missing"),
    ({"version": 2}, "version is 2"),
    ({"version": True}, "version is true"),
    ({"queue": {}}, "unknown key 'queue' (did you mean 'queues'?); allowed are version, stores, queues, windows, selectors"),
    ({"queues": []}, "queues must be a table of tables, got list"),
    ({"queues": {"": {}}}, "queue '': a queue is named by a text"),
    ({"queues": {"n": 1}}, "queue 'n' must be a table, got int"),
    ({"queues": {"n": {"limits": 1}}}, "queue 'n' has an unknown key 'limits' (did you mean 'limit'?); allowed are store, limit"),
    ({"queues": {"n": {"limit": "1"}}}, "queue 'n': limit must be an int, got str"),
    ({"queues": {"n": {"limit": -1}}}, "queue 'n': limit must be from 0"),
    ({"queues": {"n": {"history_limit": "some"}}}, "history_limit = 'some': allowed are a number and \"all\""),
    ({"queues": {"n": {"auto_delete": 1}}}, "queue 'n': auto_delete must be a bool"),
    ({"queues": {"n": {"dead_letter": 1}}}, "queue 'n': dead_letter must be a str"),
    ({"queues": {"n": {"delivery_limit": 0}}}, "queue 'n': delivery_limit must be from 1"),
    ({"queues": {"n": {"store": "attic"}}}, "queue 'n': no store 'attic'"),
    ({"queues": {"n": {"store": 1}}}, "queue 'n': store must be the name of a store"),
    ({"queues": {"\ud800": {}}}, "has a lone surrogate"),
    ({"queues": {"jobs": {"limit": 5}}}, "queue 'jobs' exists with limit=100; the topology says limit=5"),
    ({"stores": {"cold": {"type": "shelf", "path": "elsewhere"}}}, "store 'cold' exists with type 'shelf'"),
    ({"stores": {"ram": {"type": "shelf"}}}, "store 'ram' is always there"),
    ({"stores": {"n": {"type": "attic"}}}, "no store type 'attic'"),
    ({"stores": {"n": {"type": 1}}}, "store 'n': type must be a text, got int"),
    ({"stores": {"n": {"type": "shelf", "width": 1}}}, "store 'n' of type 'shelf': got an unexpected keyword argument 'width'"),
    ({"stores": {"n": {"type": "shelf", "path": object()}}}, "cannot be written as text"),
    ({"stores": {"n": []}}, "store 'n' must be a table"),
    ({"stores": {"\ud800": {}}}, "has a lone surrogate"),
    ({"selectors": {}}, "selectors must be a list of tables, got dict"),
    ({"selectors": [1]}, "selector 1 must be a table, got int"),
    ({"selectors": [{}]}, "selector 1 has no source; selector 1 has no when; selector 1 has no do"),
    ({"selectors": [SELECTOR | {"colour": 1}]}, "selector 1 has an unknown key 'colour'; allowed are source"),
    ({"selectors": [SELECTOR | {"start": "head"}]}, "a replay happens once"),
    ({"selectors": [SELECTOR | {"source": 1}]}, "source must be the name of a queue, got int"),
    ({"selectors": [SELECTOR | {"source": "attic"}]}, "its source 'attic' is neither in the topology nor in the engine"),
    ({"selectors": [SELECTOR | {"do": {"move_to": "attic"}}]}, "its target 'attic' is neither in the topology nor in the engine"),
    ({"selectors": [SELECTOR | {"enabled": "yes"}]}, "enabled must be true or false"),
    ({"selectors": [SELECTOR | {"name": ""}]}, "a name is a text that is not empty"),
    ({"selectors": [SELECTOR | {"name": 1}]}, "a name is a text that is not empty"),
    ({"selectors": [SELECTOR | {"name": "\ud800"}]}, "has a lone surrogate"),
    ({"selectors": [SELECTOR | {"name": "n"}, SELECTOR | {"name": "n"}]}, "selector 2 ('n') has the name of selector 1"),
    ({"selectors": [SELECTOR | {"name": "to the wolf"}]}, "selector 1 ('to the wolf') exists with other properties"),
    ({"selectors": [SELECTOR | {"credit": "lots"}]}, 'credit = "lots": allowed are a number and "INFINITE"'),
    ({"selectors": [SELECTOR | {"credit": -1}]}, "selector 1: credit must be from 0"),
    ({"selectors": [SELECTOR | {"when": "sometimes"}]}, 'when = "sometimes": unknown "sometimes"; allowed are "always"'),
    ({"selectors": [SELECTOR | {"when": {}}]}, "when = {}: allowed are"),
    ({"selectors": [SELECTOR | {"when": {"match": "eq"}}]}, "a match needs a pattern"),
    ({"selectors": [SELECTOR | {"when": {"match": "like", "pattern": "a"}}]}, "unknown operator 'like'"),
    ({"selectors": [SELECTOR | {"when": {"match": "topic", "pattern": "a*"}}]}, "must be a word of its own"),
    ({"selectors": [SELECTOR | {"when": {"match": "eq", "pattern": 1}}]}, "pattern must be a str"),
    ({"selectors": [SELECTOR | {"when": {"match": "eq", "pattern": "a", "field": "body"}}]}, "unknown field 'body'"),
    ({"selectors": [SELECTOR | {"when": {"match": "eq", "pattern": "a", "where": "b"}}]}, "'where' does not belong there"),
    ({"selectors": [SELECTOR | {"when": {"where": "a >"}}]}, "expected a value"),
    ({"selectors": [SELECTOR | {"when": {"where": 1}}]}, "a filter is a text, or a table"),
    ({"selectors": [SELECTOR | {"when": {"where": {"a": {"octal": "7"}}}}]}, "a table in a filter is bytes"),
    ({"selectors": [SELECTOR | {"when": {"where": {"a": {"hex": "zz"}}}}]}, '{hex = "zz"}: bytes are pairs of hexadecimal'),
    ({"windows": {"w\ud800": {"credit": 1}}, "queues": {"q": {"limit": -1}}}, "queue 'q': limit must be from 0"),
    ({"windows": {"w\ud800": {"credit": 1}}, "queues": {"q": {"limit": -1}}}, "window name has a lone surrogate"),
    ({"selectors": [SELECTOR | {"when": {"all": ["always", {"where": "a = 1"}]}}]}, "always does not combine"),
    ({"selectors": [SELECTOR | {"when": {"all": []}}]}, "all takes a list of one or more"),
    ({"selectors": [SELECTOR | {"do": "discord"}]},
     'do = "discord": unknown "discord" (did you mean "discard"?); allowed are {copy_to = QUEUE}'),
    ({"selectors": [SELECTOR | {"do": {"move": "x"}}]},
     'do = {move = "x"}: unknown "move" (did you mean "move_to"?); allowed are {copy_to = QUEUE}'),
    ({"selectors": [SELECTOR | {"when": {"pattern": ["x", 1.5, True]}}]}, 'when = {pattern = ["x", 1.5, true]}: allowed are '),
    ({"selectors": [SELECTOR | {"do": {"move_to": ""}}]}, "must not be empty"),
    ({"selectors": [SELECTOR | {"do": {"move_to": 1}}]}, "1 is not a name"),
    ({"selectors": [SELECTOR | {"do": {"move_to": "jobs", "queue": "dead"}}]}, "'queue' does not belong there"),
    ({"selectors": [SELECTOR | {"do": {"move_to": {"field": "body"}}}]}, "unknown field 'body'"),
    ({"selectors": [SELECTOR | {"when": "overflow", "do": {"copy_to": "dead"}, "source": "wolf"}]}, "out of its full queue"),
    ({"selectors": [SELECTOR | {"when": "overflow", "do": {"move_to": "wolf"}, "source": "wolf"}]}, "its own queue 'wolf'"),
    ({"selectors": [SELECTOR | {"when": "overflow", "credit": 2}]}, "has an enabled overflow selector already, selector 5"),
    ({"selectors": [SELECTOR | {"when": "default", "credit": 2}, SELECTOR | {"when": "default"}]},
     "selector 2: queue 'jobs' has an enabled default selector already, selector 1"),
    # These open a store first, to see whether it brings the queue.
    ({"stores": {"n": {"type": "shelf"}}, "selectors": [SELECTOR | {"source": "attic"}]}, "its source 'attic' is neither"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_changes_nothing(engine, wrong, said):
    one_of_everything(engine)
    engine.queues["dead"].publish("waits")
    before = state_of(engine)
    right = {"stores": {"new": {}}, "queues": {"new": {}}, "selectors": [SELECTOR]}
    description = {"version": 1} | {key: value | wrong.get(key, {}) if isinstance(wrong.get(key, {}), dict) else wrong[key]
                                    for key, value in right.items() if isinstance(value, dict)} | {"selectors": [SELECTOR]}
    description |= {key: value for key, value in wrong.items() if key not in ("stores", "queues")}
    if not wrong:
        del description["version"]
    with pytest.raises(Conflict) as caught:
        engine.apply(description)
    assert said in str(caught.value)
    assert state_of(engine) == before
    assert engine.create_queue().name == "queue-1"


@pytest.mark.parametrize(("module", "reads", "call"), [
    (network, "_describe_queue", xump.Engine.topology), (graph, "_properties", xump.Engine.to_mermaid),
    (network, "_is_plain", lambda engine: engine.apply({"version": 1}))])
def test_an_engine_that_is_closed_meanwhile(monkeypatch, module, reads, call):
    """By another thread, which runs between two steps of this one."""
    with xump.Engine() as engine:
        for name in "abc":
            engine.create_queue(name)
            engine.create_selector(name, when=always, do=discard)
        real = getattr(module, reads)

        def reading(thing, *more):
            read = real(thing, *more)
            if not engine.closed:
                engine.close()
            return read
        monkeypatch.setattr(module, reads, reading)
        with pytest.raises(xump.Closed):
            call(engine)


def test_everything_that_is_wrong_is_said_at_once(engine):
    with pytest.raises(Conflict) as caught:
        engine.apply({"version": 1, "colour": 1, "queues": {"q": {"limit": "x"}},
                      "selectors": [SELECTOR | {"source": "q"}, SELECTOR]})
    assert str(caught.value) == (
        "the topology is wrong: the topology has an unknown key 'colour'; allowed are version, stores, queues, windows, "
        "selectors, broker; queue 'q': limit must be an int, got str 'x'; "
        "selector 2: its source 'jobs' is neither in the topology nor in the engine")


@pytest.mark.parametrize("nonsense", [None, [], "version = 1", 1])
def test_what_is_no_mapping(engine, nonsense):
    with pytest.raises(TypeError, match="a topology is a mapping"):
        engine.apply(nonsense)
    assert topology.check(nonsense) == [f"a topology is a table (a dict), got {type(nonsense).__name__}"]


def test_a_store_that_cannot_be_opened_undoes_all(engine):
    before = state_of(engine)
    with pytest.raises(OSError, match="no such shelf"):
        engine.apply({"version": 1, "stores": {"good": {"type": "shelf"}, "bad": {"type": "shelf", "broken": True}},
                      "queues": {"q": {"store": "good"}}})
    assert state_of(engine) == before


def test_a_queue_that_cannot_be_created_undoes_all(engine, monkeypatch):
    before = state_of(engine)
    create = engine.create_queue

    def full(name, **properties):
        if name == "second":
            raise xump.StoreFull("no room")
        return create(name, **properties)

    monkeypatch.setattr(engine, "create_queue", full)
    with pytest.raises(xump.StoreFull):
        engine.apply({"version": 1, "stores": {"s": {"type": "shelf"}}, "queues": {"first": {"store": "s"}, "second": {}}})
    assert state_of(engine) == before


def test_a_path_is_the_same_as_its_text(engine):
    engine.create_store("cold", "shelf", path=Path("a"))
    engine.apply({"version": 1, "stores": {"cold": {"type": "shelf", "path": "a"}, "ram": {"type": "ram"}}})
    with pytest.raises(Conflict):
        engine.apply({"version": 1, "stores": {"cold": {"type": "shelf", "path": "b"}}})


# ---- any graph

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
values = st.booleans() | st.integers(-2**63, 2**63 - 1) | st.floats(allow_nan=False) | names | st.binary(max_size=3)
headers = st.dictionaries(names, values | st.lists(values, min_size=1, max_size=3), min_size=1, max_size=3)
terms = st.one_of(
    st.builds(match, st.sampled_from(["eq", "prefix"]), names, st.sampled_from(["address", "reply_to", "headers.a b"])),
    st.sampled_from([match("topic", "a.*.#"), where("a > 1"), where("x = 'it''s' AND sys.size < 5")]),
    st.builds(where, headers),
)
conditions = st.lists(terms, min_size=1, max_size=3).map(lambda parts: parts[0] if len(parts) == 1 else parts[0] & parts[1])
fields = st.sampled_from(["address", "reply_to", "destination", "headers.x.y"]).map(field)


@st.composite
def engines(draw):
    """What to do to an engine, as a list of calls."""
    queues = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    calls = []
    for name in queues:
        properties = draw(st.fixed_dictionaries({}, optional={
            "limit": st.none() | st.integers(0, 2**62), "history_limit": st.none() | st.integers(0, 5),
            "auto_delete": st.booleans(), "dead_letter": st.none() | names, "delivery_limit": st.none() | st.integers(1, 9)}))
        calls.append(("create_queue", (name,), properties))
    one = st.sampled_from(queues)
    targets = one | fields
    actions = st.one_of(st.builds(copy_to, targets), st.builds(move_to, targets), st.builds(bounce_to, targets), st.just(discard),
                        st.builds(deliver, names | fields), st.builds(deliver, names | fields, targets))
    for number in range(draw(st.integers(0, 5))):
        calls.append(("create_selector", (draw(one),), {
            "when": draw(st.just(always) | conditions), "do": draw(actions),
            "credit": draw(st.just(INFINITE) | st.integers(0, 2**61)), "enabled": draw(st.booleans()),
            "name": draw(st.none() | st.just(f"{number} \"é\"\n"))}))
    return calls


def carried_out(calls):
    engine = xump.Engine()
    for name, arguments, keywords in calls:
        getattr(engine, name)(*arguments, **keywords)
    return engine


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(engines(), st.integers(0, 7))
def test_any_graph_goes_through_toml(calls, changed):
    with carried_out(calls) as engine, xump.Engine() as other:
        for selector in list(engine.selectors.values())[:changed]:
            if selector.credit is not INFINITE:
                selector.grant(changed)
            (selector.disable if selector.enabled else selector.enable)()
        described = engine.topology()
        other.apply(through_toml(described))
        assert other.topology() == described
        for again in (engine, other):
            again.apply(described)
            assert again.topology() == described
            again.check()
        assert topology.check(described) == topology.check(through_toml(described))
        assert engine.to_dot().count("->") == other.to_dot().count("->")
        with topology.sketch(described) as sketched:
            assert sketched.topology() == described
            assert drawing.to_mermaid(sketched, counts=False) == drawing.to_mermaid(engine, counts=False)


@settings(max_examples=100, deadline=None)
@given(conditions, st.sampled_from([always, default, overflow]))
def test_conditions_are_decoded_as_they_were_encoded(condition, role):
    for when in (condition, role):
        decoded = decode_condition(through_toml({"when": encode_condition(when)})["when"])
        assert decoded == when
        assert repr(decoded) == repr(when)


@pytest.mark.parametrize("do", [
    discard, copy_to("q"), move_to(field("headers.x")), bounce_to("q"), deliver("d"), deliver(field("address"), queue="q"),
    deliver("d", queue=field("reply_to")),
])
def test_actions_are_decoded_as_they_were_encoded(do):
    assert decode_action(through_toml({"do": encode_action(do)})["do"]) == do


def test_credit_is_decoded_as_it_was_encoded():
    for credit in (0, 1, 2**62, INFINITE):
        assert decode_credit(encode_credit(credit)) == credit
    with pytest.raises(TypeError):
        decode_credit(True)


def nested(levels):
    """A condition in so many lists of one."""
    condition = {"match": "eq", "pattern": "x"}
    for _ in range(levels):
        condition = {"all": [condition]}
    return condition


@pytest.mark.parametrize("part", [
    {"selectors": [SELECTOR | {"when": nested(5_000)}]}, {"selectors": [SELECTOR | {"when": {"wehn": nested(5_000)}}]},
    {"stores": {"s": {"type": "ram", "x": nested(5_000)}}}], ids=["a condition", "no condition", "an option"])
def test_what_nests_too_deeply_is_a_fault(part):
    with xump.Engine() as engine, pytest.raises(xump.Conflict, match="nests tables and lists too deeply"):
        engine.apply({"version": 1, "queues": {"jobs": {}}} | part)


def test_a_version_of_thousands_of_digits_is_a_fault():
    with xump.Engine() as engine, pytest.raises(xump.Conflict, match="version is -0x"):
        engine.apply({"version": -10**5000})
