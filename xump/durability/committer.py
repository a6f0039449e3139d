"""Who writes the groups of a durable store, and when (`xump_ext.store` is the contract).

    sync      each call writes and syncs what it changed before it returns; calls that come meanwhile share the next fsync
    group     a thread writes and syncs what came in up to `group_ms`; `sync` does it at once
    process   each call writes what it changed before it returns, without an fsync
    none      a thread writes what came in up to `group_ms`, without an fsync

One writes at a time. Sealing a group enters the engine, which is quick; the CRCs, the write and the fsync hold nothing that
anybody needs: publishers, other stores and queues in RAM go on. A store whose write or fsync failed is given up: it has all
that was reported durable, and nobody knows what else. Ctrl-C and SIGTERM wait until the disk has answered.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from xump.errors import Closed, StoreFailed
from xump_ext.engine.signals import DeferredSignals

if TYPE_CHECKING:
    from xump_ext.engine.stores import StorePort
    from xump_ext.log.group import Group
    from xump_ext.store import Backend

logger = logging.getLogger("xump")


_here = threading.local()
"""`changed`: while this thread writes for a store, those that its own calls of the engine have changed meanwhile."""


def uninterrupted() -> AbstractContextManager[None]:
    """A block that writes files: Ctrl-C and SIGTERM wait until it has ended. Their handlers run in the main thread alone."""
    return DeferredSignals() if threading.current_thread() is threading.main_thread() else nullcontext()


class Committer:
    """Writes for one store: takes groups from the engine's port, and gives them to the back-end (`xump_ext.store` draws it).

    `others` gives the committers of all stores of the engine.
    """

    def __init__(self, name: str, backend: Backend, port: StorePort, others: Callable[[], list[Committer]]) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._backend = backend
        self._port = port
        self._others = others
        self._syncs = backend.durability in ("sync", "group")
        self._turn = threading.Lock()
        self._written = 0
        self._on_its_way = 0            # bytes of a group that is being written
        self._told = False              # whether a program has heard that the store was given up
        self._unsynced = False          # something was written, and not synced
        self._went_on = False           # others may stand behind fences that are open now
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._asking = threading.Lock()
        self._asked: list[queue.SimpleQueue[BaseException | None]] = []     # who waits for a sync, until a time
        self._each_call = backend.durability in ("sync", "process")
        port.connect(self, self._each_call)
        if not self._each_call:
            self._thread = threading.Thread(target=self._run, name=f"xump store {name}", daemon=True)
            self._thread.start()

    # ---- who wants something written

    def changed(self) -> None:
        """A call has changed something in the store. With `sync` and `process` it is written when this returns."""
        if self.error is not None:
            self._refuse()
        elif self._each_call:
            self._commit_call()
        else:
            self._changed.set()

    def _commit_call(self) -> None:
        changed: set[Committer] | None = getattr(_here, "changed", None)
        if changed is not None:     # the call is this module's own, made while it writes: that comes first
            changed.add(self)
            return
        group = self._port.open_group
        with self._writing():
            if self._written < group:       # else somebody who came earlier has taken it along
                self._write(self._syncs)

    def _run(self) -> None:
        while not self._closing.is_set() and self.error is None:
            self._changed.wait()
            self._hurry.wait(self._backend.group_ms / 1000)
            self._hurry.clear()
            self._changed.clear()
            if self._port.waiting:       # else somebody writes it already, whose turn is not worth waiting for
                self._commit_for_others()

    def _commit_for_others(self) -> None:
        """What was gathered is written, if it can be; who cares for this store hears at its next call that it could not."""
        told = self._told
        try:
            with self._writing():
                if self.error is None:
                    self._write(self._syncs)
        except Exception as error:
            logger.error("%s", error, exc_info=not isinstance(error, StoreFailed))
            self._told = told

    def sync(self, deadline: float | None) -> bool:
        """Make durable what was gathered; False when the deadline, of `time.monotonic`, came first. Nobody can be called
        back from a disk: with a deadline another thread goes there."""
        if deadline is None:
            with self._writing():
                self._write(True)
            return True
        done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        with self._asking:
            self._asked.append(done)
            first = len(self._asked) == 1
        if first:       # else somebody waits for the turn already, and will answer this one, too
            threading.Thread(target=self._sync_for_all, name=f"xump sync {self.name}", daemon=True).start()
        try:
            error = done.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
        except queue.Empty:
            return False
        if error is not None:
            raise error
        return True

    def _sync_for_all(self) -> None:
        """One that syncs for those who have asked when its turn has come."""
        asked: list[queue.SimpleQueue[BaseException | None]] = []
        error: BaseException | None = None
        try:
            with self._writing():
                with self._asking:
                    asked, self._asked = self._asked, []
                self._write(True)
        except BaseException as raised:
            error = raised
        for done in asked:
            done.put(error)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """It is our turn. What the calls that are made meanwhile change in stores, and what stood behind fences of this one, is
        written afterwards: nobody waits for two."""
        changed: set[Committer] = set()
        try:
            with self._turn, uninterrupted():
                _here.changed = changed
                try:
                    yield
                finally:
                    _here.changed = None
                    if self._went_on:
                        self._went_on = False
                        changed |= self._fenced_others()
        finally:
            for committer in changed:
                if committer._each_call:
                    committer._commit_for_others()
                else:
                    committer._changed.set()

    def _fenced_others(self) -> set[Committer]:
        """Stores that have something behind fences, of this one perhaps."""
        return {committer for committer in self._others() if committer is not self and committer.fenced}

    # ---- writing

    def check(self) -> None:
        """Raises StoreFailed when the store was given up."""
        if self.error is not None:
            self._told = True
            what = (f"store {self.name!r} was given up: {self.error or type(self.error).__name__}; close the engine, see to the "
                    "disk, and open it anew")
            raise StoreFailed(what) from self.error

    def crowded(self) -> None:
        """Much came in: the thread need not wait any longer. If it does not keep up, who brings more writes it. What room there
        was when the last group was written, others may have taken from the disk: the store is asked again."""
        if self.error is None:
            self._port.has_room(self._backend.room() - self._on_its_way)
        changed: set[Committer] | None = getattr(_here, "changed", None)
        if changed is None and self._hurry.is_set():
            self.make_room(0)
        else:
            self._hurry.set()

    def make_room(self, wanted: int) -> None:
        """A call lacks room for so many bytes: what was gathered is written, and the log cleaned."""
        if getattr(_here, "changed", None) is not None:     # as `_crowded`: called from inside a turn
            return
        with self._writing():
            if self.error is None:
                self._write(self._syncs, wanted=wanted)

    def _refuse(self) -> None:
        """A call has changed something here; one of a committer's own is not to blame for it."""
        if getattr(_here, "changed", None) is None:
            self.check()

    def _write(self, sync: bool, last: bool = False, wanted: int | None = None) -> None:
        """The open group, if there is anything in it; the turn is ours. `wanted`: a call lacks room for so many bytes, so the log is
        cleaned in any case."""
        self.check()
        try:
            group = self._port.seal(last)
            self._put(group, sync)
            if not last and (group is not None or wanted is not None or self._port.refused):
                self._clean(wanted or 0)
        except BaseException as error:
            self._fail(error)
            self._told = True
            if isinstance(error, (OSError, StoreFailed)):
                self.check()
            raise

    def _put(self, group: Group | None, sync: bool) -> None:
        """A group into the store; synced, with all before, if anything is not."""
        if group is not None:
            self._on_its_way = len(group)
            group.finish()
            self._backend.write(group)
            self._on_its_way = 0
            self._unsynced = True
        if sync and self._unsynced:
            self._backend.sync()
            self._unsynced = False
        if group is not None:
            self._written = group.number
            self._port.written(group, not self._syncs)
            self._went_on = True
        if sync:
            self._port.synced(self._written)
        if group is not None:
            self._port.has_room(self._backend.room())

    def _clean(self, wanted: int) -> None:
        """Live records in the oldest part of the log are written once more; then that is free."""
        while (part := self._backend.oldest(self._port.demand._replace(wanted_bytes=wanted))) is not None:
            _, end, data = part
            try:
                self._port.copy_forward(data)
            except Closed:
                return      # it is given again when the store is opened
            self._put(self._port.seal(), self._backend.durability != "none")
            self._backend.release(end)
            self._port.has_room(self._backend.room())

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._port.failed()
        self._went_on = True        # nobody waits for it any more
        self._port.connect(self, True)      # each call that changes something more is told

    # ---- the end

    def stop(self) -> None:
        """No thread writes any more."""
        self._closing.set()
        self._hurry.set()
        self._changed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def fenced(self) -> bool:
        """Whether something waits for other stores; what waits for a failed one waits no more."""
        return self.error is None and self._port.fenced > 0

    def flush(self, errors: list[BaseException]) -> None:
        """Makes durable what can be, while the engine is being closed."""
        try:
            if self.error is None:
                with self._writing():
                    self._write(True)
        except Exception as error:
            errors.append(error)

    def finish(self, errors: list[BaseException]) -> None:
        """The last group, which says exactly what was handed out, then the store is closed. A failed store is closed as it is."""
        try:
            if self.error is None:
                with self._writing():
                    self._write(self._backend.durability != "none", last=True)
            elif not self._told:
                self.check()
        except Exception as error:
            errors.append(error)
        finally:
            close_backend(self._backend, errors)

    def give_up(self, reason: str) -> None:
        """What was gathered is not to be trusted: the store keeps what it has."""
        self.error = self.error or StoreFailed(reason)


def close_backend(backend: Any, errors: list[BaseException]) -> None:
    """Closes a store; what that raises, which is the store's own, holds up nobody: it is added to the errors."""
    try:
        backend.close()
    except BaseException as error:
        errors.append(error)
