"""The state machine finds defects that are compiled into the core; see `canaries.py`."""

import pytest

from tests.canaries import CANARIES, caught


@pytest.mark.parametrize("name", CANARIES)
def test_the_machine_finds_it(name):
    assert caught(name), f"not found: {CANARIES[name]}"
