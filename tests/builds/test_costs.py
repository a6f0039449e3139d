"""A call costs what it causes, not what there is; see `costs.py`."""

import pytest

from tests.builds.costs import CASES, LITTLE, MUCH, costs, counted


@pytest.fixture(scope="module")
def found():
    return costs()


@pytest.mark.parametrize("name", CASES)
def test_the_cost_does_not_grow_with_what_there_is(found, name):
    """A logarithm may: there is 16 times as much, four levels more of a tree."""
    little, much = found[name]
    assert much <= 2 * little + 100, f"{little:.0f} blocks beside {LITTLE:,}, {much:.0f} beside {MUCH:,}"


def test_the_cost_of_any_workload_is_linear_in_its_messages():
    run = counted("tests.builds.workload_costs", "--counted", "law")
    assert run.returncode == 0, run.stderr
    assert "workloads, of order" in run.stdout


def test_a_cost_of_higher_order_is_found():
    run = counted("tests.builds.workload_costs", "--counted", "law", "--planted")
    assert run.returncode != 0
    assert "AssertionError: order " in run.stderr
