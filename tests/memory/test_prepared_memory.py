"""Memory that is ready before it is needed is used as any other, and costs nothing until then."""

import pytest

from xump import Engine
from xump_ext.memory.slab import memory_bytes, prepare_memory


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
