"""The tests find defects that are compiled into the core; see `canaries.py`."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.builds.canaries import CANARIES, SLOW, caught

QUICK = [name for name in CANARIES if name not in SLOW]


@pytest.fixture(scope="module")
def hunts():
    """One a core at once: each is a compiler and then a hunt, in processes of their own."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {name: pool.submit(caught, name) for name in QUICK}


@pytest.mark.parametrize("name", QUICK)
def test_it_is_found(hunts, name):
    assert hunts[name].result(), f"not found: {CANARIES[name].defect}"
