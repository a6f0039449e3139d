"""Names of queues that go from one durable store to another.

A queue may be deleted from one store, and another one made in a second store under its name. If the machine stops when the second
store has the new queue on the disk and the first one has not yet deleted the old one, both bring a queue of this name, and no
engine can open the two. So a name goes to another durable store only when its deletion is durable in the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xump.durability.closing import sync_stores
from xump.errors import StoreFailed

if TYPE_CHECKING:
    from xump._graph import Graph


def free_names(engine: Graph, names: Iterable[str], into: str) -> None:
    """Return when no durable store but `into`, in which queues of these names are to be, may bring such a queue after a crash.

    Raises `StoreFailed` if a store has lost such a queue and cannot write that. O(stores × names); and a sync of a store that
    has just lost one, or of all stores, if messages of that queue are on their way to another.
    """
    if into in engine._stores and engine._stores[into].journal is None:     # in RAM
        return
    for name in names:
        for store in list(engine._stores.values()):
            if store.journal is None or store.committer is None or store.name == into or not store.journal.is_leaving(name):
                continue
            store.committer.sync(None)
            if store.journal.is_leaving(name):      # the end of the queue waits behind fences
                sync_stores([committer for committer in engine._committers() if committer.error is None], None)
            if store.journal.is_leaving(name):
                raise StoreFailed(
                    f"queue {name!r} was deleted from store {store.name!r}, which cannot write that: it has messages on their "
                    "way to a store that has failed; choose another name, or close the engine, check the disk, and open the "
                    "stores again")
