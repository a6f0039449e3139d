"""Changes of the maps of queues and stores: planned, checked, and then carried out together."""

from typing import Any

from xump._meta import Changes
from xump.queue import Queue
from xump.store_types import Store
from xump_ext.engine.stores import EngineStores
from xump_ext.log.journal import Journal

def change_map(core: EngineStores, owner: Queue | Store, changes: Changes) -> None:
    """Changes the map of a queue or store: (name, value) each, None for a name that goes; all of them, or none."""

class MapChanges:
    """Changes that one call makes, of any number of maps."""

    @property
    def journal(self) -> Journal | None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def largest(self) -> int: ...
    def found(self, owner: Queue | Store) -> tuple[Any, ...]: ...
    def __new__(cls, core: EngineStores, given: list[tuple[Any, Changes]]) -> MapChanges: ...
