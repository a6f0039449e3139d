"""A store that no process has open, to look at: the commands `xump browse` and `xump stats` use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from xump.durability.opening import open_store
from xump.engine import Engine
from xump.store_types import Store, factory_of


@contextmanager
def viewing(path: str, type: str, told: Callable[[int], None] | None = None) -> Iterator[Engine]:
    """An engine with the queues of a store that nobody has open, held, to look at: nothing on the disk changes, whatever is done.
    What was outstanding is ready, as if the store had been opened. Raises StoreLocked, StoreCorrupt, OSError; NotImplementedError
    for a type that cannot do that. O(bytes)."""
    factory: Any = factory_of(type)
    backend = factory.view(path)
    with Engine() as engine:
        store = Store(path, type, {"path": path}, backend)
        open_store(engine, store, told)
        engine._stores[store.name] = store
        yield engine
