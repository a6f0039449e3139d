"""An engine whose laws hold at the end of the test; operators that stop."""

import pytest

from xump import (
    Engine,
)


@pytest.fixture
def engine():
    with Engine() as engine:
        yield engine
        engine.check()
