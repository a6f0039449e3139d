"""Opens a store to look at it without changing it. The commands `xump browse` and `xump stats` use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from xump.durability.opening import open_store
from xump.engine import Engine
from xump.store_types import Store, factory_of


@contextmanager
def viewing(path: str, type: str, told: Callable[[int], None] | None = None) -> Iterator[Engine]:
    """A context manager that gives an engine with the queues of a store, held. Nothing on the disk changes.

    No process may have the store open. Messages that were outstanding are ready, as if the store had been opened. Calls `told`
    with the number of bytes read so far. Raises StoreLocked, StoreCorrupt, OSError, and NotImplementedError for a type of store
    that cannot be viewed. O(bytes of the store).
    """
    factory: Any = factory_of(type)
    backend = factory.view(path)
    with Engine() as engine:
        store = Store(path, type, {"path": path}, backend)
        open_store(engine, store, told, looking=True)
        engine._stores[store.name] = store
        store._engine = engine
        yield engine
