"""The state machine finds defects that are compiled into the core; see `canaries.py`."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.builds.canaries import CANARIES, caught


@pytest.fixture(scope="module")
def hunts():
    """All at once: each is a compiler and then a state machine, in processes of their own."""
    with ThreadPoolExecutor() as pool:
        yield {name: pool.submit(caught, name) for name in CANARIES}


@pytest.mark.parametrize("name", CANARIES)
def test_the_machine_finds_it(hunts, name):
    assert hunts[name].result(), f"not found: {CANARIES[name]}"
