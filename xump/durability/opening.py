"""Opens a durable store for an engine: its queues come back, held, and a committer writes for it from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xump._queue_properties import check_read
from xump.durability.committer import Committer
from xump.durability.names import free_names
from xump.errors import Conflict, RewriterNotFound
from xump.queue import Queue
from xump.rewriters import load_own
from xump_ext.engine.stores import StorePort
from xump_ext.message.rewriter import rewriter_names, stand_in
from xump_ext.recovery.log_reader import Recovery

if TYPE_CHECKING:
    from xump._graph import Graph
    from xump.store_types import Store

RESIDENT_BYTES_MAX = 64 << 20
"""Contents of messages that were written stay in memory up to this size, for each store; others are read on demand."""


def open_store(engine: Graph, store: Store, told: Callable[[int], None] | None = None, *, looking: bool = False) -> list[Queue]:
    """Read a store that was just opened, and create its queues in the engine. Returns the queues but the staged ones, held
    until they are released.

    Calls `told` with the number of bytes read so far. Raises `Conflict` if the engine has a queue of the same name,
    `RewriterNotFound` unless it is opened for looking only, and `StoreCorrupt`; then the engine has not changed, and the store is
    closed. O(bytes of the store).
    """
    backend = store.backend
    try:
        journal = engine._open_journal(backend, store.name, RESIDENT_BYTES_MAX)
    except BaseException:
        backend.close()
        raise
    queues: list[Queue] = []
    read = 0

    def create(number: int, name: str, properties: dict[str, Any]) -> None:
        check_read(properties)
        if properties["rewriter"] is not None:
            _find_rewriter(store.name, name, properties["rewriter"][0], looking)
        queue = Queue.__new__(Queue)
        queue._name(engine, name, store)
        engine._create_recovered(queue, properties, journal, number)
        queues.append(queue)

    try:
        recovery = Recovery(journal, create)
        for _, records in backend.scan():
            recovery.feed(records)
            if told is not None:
                read += memoryview(records).nbytes
                told(read)
        taken = sorted(set(recovery.names()) & set(engine.queues))
        if taken:
            other = engine.queues[taken[0]].store.name
            raise Conflict(f"store {store.name!r} has a queue {taken[0]!r}, and so has the engine, in store {other!r}; open the "
                           "store in another engine, or delete the engine's queue first")
        free_names(engine, recovery.names(), store.name)
        journal.open_at(backend.end, backend.room())
        engine._recover(recovery)
        held = [queue for queue in queues if queue not in recovery.empty and not queue.staged]
        committer = Committer(store.name, backend, StorePort(engine, journal), engine._committers, engine._patience)
    except BaseException:
        try:
            engine._drop_store(journal, queues)
        finally:
            backend.close()
        raise
    store.journal = journal
    store.committer = committer
    return held


def _find_rewriter(store: str, queue: str, rewriter: str, looking: bool) -> None:
    load_own(rewriter)
    if rewriter in rewriter_names():
        return
    if not looking:
        raise RewriterNotFound(
            f"store {store!r}: queue {queue!r} has its dead letters rewritten by {rewriter!r}, which is not registered in this "
            f"process: call xump.register_rewriter({rewriter!r}, ...) before you open the store")
    stand_in(rewriter)
