"""Memory that is ready before it is needed is used as any other, and costs nothing until then."""

import ctypes
import os

import pytest

from xump import Engine
from xump_ext.memory.slab import keep_memory, memory_bytes, prepare_memory, release_memory

pytestmark = pytest.mark.usefixtures("no_garbage")
MIB = 1 << 20
KEPT = 0 if "ASAN_OPTIONS" in os.environ else 60 * MIB         # with the address sanitizer each cell is memory of its own


def test_it_counts_for_nothing_until_messages_use_it():
    before = memory_bytes()
    prepare_memory(8 << 20)
    assert memory_bytes() == before
    with Engine() as engine:
        queue = engine.create_queue("q")
        engine.publish_many("q", (("a", bytes(100)) for _ in range(100_000)))
        assert memory_bytes() > before + 10_000_000
        prepare_memory(8 << 20)         # what was used is replaced
        prepare_memory(8 << 20)
        engine.check()
        assert queue.purge() == 100_000
        engine.check()


@pytest.mark.parametrize(("wrong", "error"), [(-1, OverflowError), ("many", TypeError)])
def test_what_is_no_size(wrong, error):
    with pytest.raises(error):
        prepare_memory(wrong)


@pytest.fixture
def resident():
    """How many bytes this process has from the system. Nothing is ready before and after the test.

    What malloc keeps of freed arrays is given back first: that may be 64 MiB, and depends on what the process has freed before.
    """
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)       # glibc's

    def now():
        give_back(0)
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    none_ready()
    yield now
    none_ready()


def none_ready():
    keep_memory(0)
    release_memory()
    release_memory()


def test_what_messages_have_left_is_kept_until_it_was_not_needed_for_a_while(resident):
    with Engine() as engine:
        queue = engine.create_queue("q")

        def fill():
            engine.publish_many("q", (("a", bytes(100)) for _ in range(500_000)))

        fill()
        queue.purge()
        few = resident()
        keep_memory(256 * MIB)
        for _ in range(3):
            fill()
            queue.purge()
            engine.check()
            release_memory()            # it was needed meanwhile
            assert resident() - few > KEPT
        release_memory()
        assert resident() - few < 30 * MIB
        engine.check()


def test_without_being_asked_nothing_is_kept(resident):
    with Engine() as engine:
        queue = engine.create_queue("q")
        before = resident()
        for _ in range(3):
            engine.publish_many("q", (("a", bytes(100)) for _ in range(500_000)))
            assert resident() - before > 60 * MIB
            queue.purge()
            assert resident() - before < 10 * MIB


def test_no_more_is_prepared_than_was_asked_for(resident):
    before = resident()
    prepare_memory(2 * MIB - 1)
    assert resident() - before < MIB
    prepare_memory(64 * MIB)
    assert KEPT <= resident() - before < 70 * MIB
