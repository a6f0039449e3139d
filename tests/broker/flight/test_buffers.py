"""Memory that batches leave is kept for the next ones, and given back when nothing more comes."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, resource
import xump.broker.flight
from xump.broker.flight.buffers import MIMALLOC, Buffers

assert MIMALLOC not in os.environ
library, pages = ctypes.CDLL(None), 256
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        batches = [library.malloc(pages * 4096) for _ in range(16)]
        for batch in batches:
            ctypes.memset(batch, 1, pages * 4096)
        for batch in reversed(batches):
            library.free(batch)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

buffers = Buffers()
buffers.keep()
faults(1)
assert faults(8) < 16 * pages, "what was freed was not kept"
before = resident()
buffers.give_back()
assert resident() < before - 8 * pages, "what was kept was not given back"
buffers.keep_none()
assert faults(8) > 4 * 16 * pages, "it is still kept"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_memory_of_batches_is_kept_and_given_back():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
