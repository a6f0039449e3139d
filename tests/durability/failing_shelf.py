"""Stores whose disk refuses to be written or read, for a while: logs in memory, as in `log_in_memory.py`."""

from collections.abc import Iterator

from tests.durability.log_in_memory import LOGS, Shelf
from xump import Engine
from xump.store_types import register_store


class FailingShelf(Shelf):
    """`unwritable` and `unreadable` have names of stores; `unreadable` also (name, id) of single messages."""

    unwritable, unreadable = set(), set()

    def write(self, group):
        if self.name in self.unwritable:
            raise OSError("the disk says no")
        super().write(group)

    def fetch(self, queue, id, position):
        if not self.unreadable.isdisjoint({self.name, (self.name, id)}):
            raise OSError("the disk says no")
        return super().fetch(queue, id, position)


register_store("failing shelf", FailingShelf)


def opened(*queues, type="failing shelf", clock=None, **options):
    """An engine with stores `l` and `r`; queues as "name store"."""
    engine = Engine() if clock is None else Engine(clock=clock)
    for name in "lr":
        engine.create_store(name, type, path=name, **options)
    with engine.building():
        for queue in queues:
            name, _, store = queue.partition(" ")
            engine.create_queue(name, store=store or "ram")
    return engine


def emptied() -> Iterator[None]:
    """For a fixture: the stores are empty and well, before the test and after it."""
    LOGS.clear()
    yield
    FailingShelf.unwritable.clear()
    FailingShelf.unreadable.clear()
