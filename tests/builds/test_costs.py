"""A call costs what it causes, not what there is; see `costs.py`."""

import pytest

from tests.builds.costs import CASES, LITTLE, MUCH, costs


@pytest.fixture(scope="module")
def counted():
    return costs()


@pytest.mark.parametrize("name", CASES)
def test_the_cost_does_not_grow_with_what_there_is(counted, name):
    """A logarithm may: there is 16 times as much, four levels more of a tree."""
    little, much = counted[name]
    assert much <= 2 * little + 100, f"{little:.0f} blocks beside {LITTLE:,}, {much:.0f} beside {MUCH:,}"
