"""What the tests of Arrow share."""

import pyarrow
import pytest

POOLS = []
"""Buffers give their memory back to the pool that they are from, so each pool lives as long as the process."""


@pytest.fixture
def own_pool():
    """Arrow allocates from a pool of this test's: what an earlier one left for the garbage collector is not counted with it."""
    usual = pyarrow.default_memory_pool()
    POOLS.append(pyarrow.proxy_memory_pool(usual))
    pyarrow.set_memory_pool(POOLS[-1])
    yield
    pyarrow.set_memory_pool(usual)
