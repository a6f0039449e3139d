"""`topology.check`: what is allowed in a description, but is probably a mistake."""

from itertools import pairwise

import pytest

import xump
from xump import topology


def cellar(name, path):
    """A type of stores that nobody should open."""
    raise OSError(f"{name!r} was opened")


xump.register_store("cellar", cellar)

SELECTOR = {"source": "jobs", "when": "always", "do": "discard"}

FINE = {
    "version": 1,
    "stores": {"cold": {"type": "cellar", "path": "p"}},
    "queues": {"jobs": {"store": "cold", "limit": 5, "dead_letter": "dead"}, "dead": {}, "wolf": {"auto_delete": True}},
    "selectors": [
        {"source": "jobs", "when": "always", "do": {"move_to": "wolf"}, "credit": 5},
        {"source": "jobs", "when": "overflow", "do": {"move_to": "dead"}},
        {"source": "wolf", "when": "always", "do": {"deliver": "wolf"}, "credit": 5},
    ],
}


def with_(**changes):
    description = {**FINE, "queues": FINE["queues"] | changes.get("queues", {})}
    return description | {"selectors": FINE["selectors"] + changes.get("selectors", [])}


def test_what_is_fine():
    """And nothing was opened."""
    assert topology.check(FINE) == []
    with pytest.raises(OSError, match="'cold' was opened"), xump.Engine() as engine:
        engine.apply(FINE)


@pytest.mark.parametrize(("description", "said"), [
    (with_(queues={"x": {}}), "queue 'x' stands alone"),
    (with_(queues={"x": {"dead_letter": "y"}}, selectors=[SELECTOR | {"source": "x"}]), "queue 'y', which is not described"),
    (with_(queues={"x": {"dead_letter": "x"}}), "queue 'x' is its own dead letter queue"),
    (with_(selectors=[SELECTOR | {"source": "wolf", "when": "overflow"}]), "selector 4 waits for queue 'wolf' to overflow"),
    (with_(queues={"dead": {"when_full": "drop_oldest"}}), "queue 'dead' drops its oldest messages when it is full, which never"),
    (with_(selectors=[{"source": "wolf", "when": "default", "do": {"move_to": "jobs"}}]),
     "queues 'jobs', 'wolf': a cycle of finite credit (selector 1, selector 4)"),
    (with_(selectors=[{"source": "wolf", "when": "default", "do": {"bounce_to": "jobs"}, "credit": "INFINITE"}]),
     "queues 'jobs', 'wolf': a cycle of finite credit (selector 1)"),
    (with_(selectors=[{"source": "dead", "when": "always", "do": {"move_to": "dead"}, "name": "round"}]),
     "queue 'dead': a cycle of finite credit (selector 4 ('round'))"),
    (with_(selectors=[SELECTOR | {"do": {"deliver": "d", "queue": "dead"}}]),
     "selector 4 stamps the destination 'd' on what it puts into queue 'dead'"),
])
def test_findings(description, said):
    [sentence] = topology.check(description)
    assert said in sentence
    with topology.sketch(description) as engine:
        assert len(engine.queues) == len(description["queues"])


def test_findings_that_are_none():
    bounded = {"dead": {"when_full": "drop_oldest", "limit_bytes": 1000}, "wolf": {"limit_bytes": 10, "auto_delete": True}}
    assert topology.check(with_(queues=bounded, selectors=[{"source": "wolf", "when": "overflow", "do": "discard"}])) == []
    anywhere = SELECTOR | {"do": {"move_to": {"field": "reply_to"}}}
    assert topology.check(with_(queues={"x": {}}, selectors=[anywhere])) == []
    assert topology.check(with_(selectors=[{"source": "dead", "when": "always", "do": {"copy_to": "dead"}}])) == []
    round_ = [{"source": a, "when": "always", "do": {"move_to": b}, "credit": "INFINITE"} for a, b in ("xy", "yx", "yz")]
    assert topology.check({"version": 1, "queues": {"x": {}, "y": {}, "z": {}}, "selectors": round_}) == []
    assert topology.check(with_(selectors=[SELECTOR | {"do": {"deliver": "d", "queue": "wolf"}}])) == []


def test_faults_come_first_and_what_they_could_refute_is_not_said():
    said = topology.check(with_(queues={"x": {}, "y": {"dead_letter": "z"}}, selectors=[SELECTOR | {"do": "nothing"}]))
    assert len(said) == 2
    assert said[0].startswith('selector 4: do = "nothing"')
    assert "dead letter" in said[1]


def test_long_chains_cost_little():
    names = [f"q{n}" for n in range(3000)]
    chain = [{"source": a, "when": "always", "do": {"move_to": b}} for a, b in pairwise(names)]
    assert topology.check({"version": 1, "queues": {name: {} for name in names}, "selectors": chain}) == []
