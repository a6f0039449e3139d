"""What the tests of memory share."""

import pytest

from tests.memory.failing_malloc import compiled


@pytest.fixture(scope="session")
def shim():
    """The library that makes allocations fail."""
    return compiled()
