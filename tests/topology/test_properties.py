"""Each property of queues and selectors: described, written as TOML, applied, drawn; and a contradiction is told."""

import tomllib

import pytest

import tests.model.vocabulary       # noqa: F401  it registers a rewriter
import xump
from xump import Conflict, always, deliver, field
from xump._queue_properties import QUEUE_DEFAULTS
from xump.topology import check, drawing, picture

QUEUES = {      # a value that is not the default; how a topology has it; what a drawing says of it
    "limit": (5, "5", "limit 5"),
    "history_limit": (7, "7", "keeps 7"),
    "auto_delete": (True, "true", "deletes itself"),
    "dead_letter": ("dead", '"dead"', "dead letters"),
    "rewriter": (["test stamp", "x"], '["test stamp", "x"]', "dead letters by test stamp"),
    "delivery_limit": (3, "3", "delivered at most 3 times"),
    "retry_delay": ([1, 0.5], "[1, 0.5]", "retry after 1, 0.5 s"),
    "ttl": (60, "60", "ttl 60 s"),
    "priority": (9, "9", "priority 9"),
    "group": (field("headers.customer"), '{field = "headers.customer"}', "by headers.customer"),
    "dedup": (0.25, "0.25", "dedup 0.25 s"),
    "dedup_limit": (10, "10", None),        # says nothing without `dedup`
    "limit_bytes": (1000, "1000", "limit 1,000 bytes"),
    "when_full": ("drop_oldest", '"drop_oldest"', "drops the oldest"),
    "unmatched": ("keep", '"keep"', "keeps the unmatched"),
    "transit": (True, "true", "transit"),
}


@pytest.fixture
def engine():
    with xump.Engine() as engine:
        yield engine


@pytest.fixture
def other():
    with xump.Engine() as engine:
        yield engine


def test_every_property_is_here():
    assert set(QUEUES) == set(QUEUE_DEFAULTS) - {"store", "staged"}     # no topology has a staged queue


@pytest.mark.parametrize("name", QUEUES)
def test_a_property_of_a_queue(engine, other, name):
    value, written, shown = QUEUES[name]
    file = f"version = 1\n[queues.q]\n{name} = {written}\n[queues.plain]\n"
    engine.create_queue("q", **{name: value})
    engine.create_queue("plain")
    described = engine.topology()
    assert described == tomllib.loads(file) | {"stores": {}, "selectors": []}
    assert described["queues"]["plain"] == {}
    other.apply(tomllib.loads(file))
    other.apply(described)
    assert other.topology() == described and getattr(other.queues["q"], name) == value == getattr(engine.queues["q"], name)
    with pytest.raises(Conflict, match=name):
        other.apply({"version": 1, "queues": {"q": {}}})
    with pytest.raises(Conflict, match=f"exists with {name}="):
        other.create_queue("q")
    if shown is not None:
        escaped = drawing.mermaid_text(shown)
        assert escaped in drawing.to_mermaid(engine, counts=False) and shown in drawing.to_dot(engine, counts=False)
        assert name == "dead_letter" or shown in picture.to_svg(engine, counts=False)


@pytest.mark.parametrize("seconds", [60, 0.5])
def test_the_ack_timeout_of_a_selector(engine, other, seconds):
    file = f"""
        version = 1
        [queues.q]
        [[selectors]]
        source = "q"
        when = "always"
        do = {{deliver = "d"}}
        ack_timeout = {seconds}
        name = "worker"
    """
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), ack_timeout=seconds, name="worker")
    assert engine.topology() == tomllib.loads(file) | {"stores": {}}
    other.apply(tomllib.loads(file))
    other.apply(engine.topology())
    assert other.selectors["worker"].ack_timeout == seconds and len(other.selectors) == 1
    contradiction = tomllib.loads(file.replace(f"ack_timeout = {seconds}", ""))
    with pytest.raises(Conflict, match="ack_timeout"):
        other.apply(contradiction)
    assert f"ack within {seconds} s" in drawing.to_mermaid(engine) and f"ack within {seconds} s" in drawing.to_dot(engine)
    assert check(engine.topology()) == []


@pytest.mark.parametrize(("key", "value", "shown"), [("rank", -3, "rank -3"), ("ahead", 5, "5 ahead")])
def test_rank_and_ahead_of_a_selector(engine, other, key, value, shown):
    engine.create_queue("q")
    engine.create_selector("q", when=always, do=deliver("d"), name="worker", **{key: value})
    described = engine.topology()
    assert described["selectors"] == [{"source": "q", "name": "worker", "when": "always", "do": {"deliver": "d"}, key: value}]
    other.apply(described)
    other.apply(described)
    assert getattr(other.selectors["worker"], key) == value and other.topology() == described and len(other.selectors) == 1
    described["selectors"][0][key] = value + 1
    with pytest.raises(Conflict, match=key):
        other.apply(described)
    described["selectors"][0][key] = "many"
    with pytest.raises(Conflict, match="whole number"):
        other.apply(described)
    assert shown in drawing.to_mermaid(engine) and shown in drawing.to_dot(engine)


def test_windows_that_selectors_share(engine, other):
    engine.create_queue("q")
    window = engine.create_window(5, name="client")
    engine.create_selector("q", when=always, do=deliver("d"), name="worker", window=window)
    window.resize(7)
    described = engine.topology()
    assert described["windows"] == {"client": {"credit": 7}} and described["selectors"][0]["window"] == "client"
    other.apply(described)
    other.apply(described)
    assert other.selectors["worker"].window is other.windows["client"] and other.topology() == described
    engine.apply(described | {"windows": {"client": {"credit": 5}}})        # what it was created with is right, too
    assert check(described) == []
    assert "window client" in drawing.to_mermaid(engine)
    for credit, text in ((9, "exists with credit=7; the topology says credit=9"), (-1, "from 0"), ("many", "whole number")):
        with pytest.raises(Conflict, match=text):
            other.apply(described | {"windows": {"client": {"credit": credit}}})
    with pytest.raises(Conflict, match="neither in the topology nor in the engine"):
        xump.Engine().apply({name: value for name, value in described.items() if name != "windows"})
    described["selectors"][0]["window"] = 3
    with pytest.raises(Conflict, match="name of a window"):
        other.apply(described)


def test_a_window_goes_with_a_topology_that_is_refused(engine):
    with pytest.raises(Conflict):
        engine.apply({"version": 1, "windows": {"w": {"credit": 1}}, "selectors": [
            {"source": "none", "when": "always", "do": {"deliver": "d"}, "window": "w"}]})
    assert not engine.windows


def test_the_queue_of_replies_is_no_part_of_it(engine):
    engine.create_queue("q")
    with pytest.raises(xump.RequestTimeout):
        engine.request("q", timeout=0)
    assert list(engine.topology()["queues"]) == ["q"]
