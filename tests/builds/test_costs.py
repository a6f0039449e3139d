"""A call costs what it causes, not what there is; see `costs.py`."""

import math

import pytest

from tests.builds.costs import CASES, LITTLE, MUCH, costs
from tests.builds.workload_costs import described, found_among
from tests.builds.workload_laws import CHECKED, LAWS, MOST, SIZES, excess, kept_laws


@pytest.fixture(scope="module")
def found():
    return costs()


@pytest.mark.parametrize("name", CASES)
def test_the_cost_does_not_grow_with_what_there_is(found, name):
    """A logarithm may: there is 16 times as much, four levels more of a tree."""
    little, much = found[name]
    assert much <= 2 * little + 100, f"{little:.0f} blocks beside {LITTLE:,}, {much:.0f} beside {MUCH:,}"


@pytest.fixture(scope="module")
def laws():
    return kept_laws()


@pytest.mark.parametrize("law", LAWS)
def test_a_law_holds_on_drawn_workloads(laws, law):
    assert isinstance(laws[law], float), laws[law]


@pytest.mark.parametrize("law", ["nothing", "waiting messages", "delayed messages", "history"])
def test_a_cost_of_higher_order_is_found(law):
    """Of an engine that looks at its backlog at each publish."""
    assert "playing costs" in str(kept_laws(law, "--planted")[law])


def test_a_cost_that_is_known_to_grow_is_found():
    assert "playing costs" in str(kept_laws("members of a window")["members of a window"])


@pytest.mark.parametrize(("cost", "is_found"), [
    (lambda n: 7 * n, False), (lambda n: 1_000_000 + n, False), (lambda n: n * math.log(n), False),
    (lambda n: 100_000 / n, False),
    (lambda n: n**2, True), (lambda n: n**1.5, True), (lambda n: 1_000 * n + n**2, True), (lambda n: 1_000_000 + n**2, True),
    (lambda n: n * 100 if n < 1_000 else n * 150, True),
])
def test_what_the_line_tells_apart(cost, is_found):
    assert (excess([cost(size) for size in (*SIZES, CHECKED)]) > MOST) == is_found


def test_the_search_for_the_dearest_message_makes_it_small():
    found = found_among(100)
    assert found["median cost"] < found["dearest cost"]
    assert found["small cost"] >= 0.8 * found["dearest cost"]
    assert "flowchart" in described(found)
