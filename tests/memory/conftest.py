"""What the tests of memory share."""

import subprocess

import pytest

from tests.memory.test_allocation_failures import SHIM, SHIM_SOURCE


@pytest.fixture(scope="session")
def shim():
    """The library that makes allocations fail, compiled once for each source."""
    source = SHIM.with_suffix(".c")
    if not SHIM.exists() or source.read_text() != SHIM_SOURCE:
        SHIM.parent.mkdir(exist_ok=True)
        source.write_text(SHIM_SOURCE)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", SHIM, source, "-ldl"], check=True)
    return SHIM
