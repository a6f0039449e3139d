"""An engine among threads that are switched often."""

import pytest

from tests.engine.threads.crew import Watched


@pytest.fixture
def engine():
    with Watched() as engine:
        yield engine
        if not engine.closed:
            engine.check()
