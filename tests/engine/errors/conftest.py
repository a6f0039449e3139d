"""The engine on which calls fail."""

import pytest

from tests.engine.errors.life import live


@pytest.fixture
def w():
    w = live()
    yield w
    w.engine.close()
    w.other.close()
