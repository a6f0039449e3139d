"""The half of an `lmdb` store that reads: an open environment, its messages by their keys, and the tools for a closed store.

No transaction outlives a call. So no reader keeps old pages from being used again, and any thread may call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from weakref import WeakSet

import lmdb

from xump_ext.errors import Closed, ForkedError, StoreFailed
from xump_ext.lmdb.walk import wrong_record
from xump_ext.records import entry_key, kinds
from xump_ext.store import Backend, Report

from . import lmdb_files as files, lmdb_repair, paths
from .lmdb_content import named
from .owner import Claim

# A fetch that goes on where the last one ended reads four times as far ahead as that did.
AHEAD_BYTES = (4 << 10, 256 << 10)


class LmdbReader(Backend):
    """An `lmdb` store that is open. `LmdbStore` also writes, `LmdbView` only looks."""

    type = "lmdb"

    def __init__(self, name: str, path: str, claim: Claim, durability: str, group_ms: float, max_readers: int) -> None:
        self.name, self.path = name, path
        self.durability, self.group_ms = durability, group_ms
        self.cut = 0
        self._claim = claim
        self._environment: lmdb.Environment | None = None
        self._gate = Gate(max_readers)
        self._ahead: tuple[int, int, int] = (0, 0, AHEAD_BYTES[0])
        self._of_this_process = True
        open_stores.add(self)

    def _usable(self) -> lmdb.Environment:
        if self._environment is None:
            raise Closed(f"store {self.name!r} is closed")
        if not self._of_this_process:
            raise ForkedError(f"store {self.name!r} belongs to the parent process; open another one here")
        return self._environment

    def fetch(self, queue: int, id: int, position: int) -> tuple[int, bytes]:
        """See `Backend.fetch`; the next messages of the queue follow. O(log n, and bytes read)."""
        after, following, ahead = self._ahead
        ahead = min(4 * ahead, AHEAD_BYTES[1]) if (queue, id) == (after, following) else AHEAD_BYTES[0]
        key = entry_key(queue, id)
        keys: list[bytes] = []
        values: list[bytes] = []
        self._usable()
        try:
            with self._gate.shared(), self._usable().begin() as transaction, transaction.cursor() as cursor:
                if not cursor.set_key(key):
                    raise KeyError(f"store {self.name!r} has no message {id} of queue {queue}")
                size = 0
                for found, value in cursor:
                    size += len(value)
                    if found[:5] != key[:5] or (values and size > ahead):
                        break
                    keys.append(found)
                    values.append(value)
        except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
            raise files.corrupt(self.path, str(error)) from error
        except lmdb.Error as error:
            raise StoreFailed(f"{self.path}: {error}") from error
        wrong = map(wrong_record, keys, values, repeat(self.salt))
        whole = next((at for at, what in enumerate(wrong) if what), len(keys))
        if whole == 0:
            what = wrong_record(key, values[0], self.salt)
            raise files.corrupt(self.path, f"the {named(key)[2]} is a record {what}")
        del keys[whole:], values[whole:]
        self._ahead = queue, int.from_bytes(keys[-1][5:], "big") + 1, ahead
        return kinds.HEAD.unpack_from(values[0])[6], b"".join(values)

    def close(self) -> None:
        """See `Backend.close`. Does nothing the second time, or in a forked child: the open environment is the parent's."""
        if self._environment is None or not self._of_this_process:
            return
        open_stores.discard(self)
        with files.explaining(self.path, paths.CLOSING):
            try:
                with self._gate.exclusive():
                    self._shut()
            finally:
                self._claim.release()

    def _shut(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()

    # ---- tools, for a store that no process has open

    @classmethod
    def recognises(cls, path: str) -> bool:
        """See `Backend.recognises`."""
        return files.recognises(path)

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.check`. Reads the file page by page, without LMDB: a damaged file cannot end the process."""
        with files.explaining(path, paths.CHECKING):
            return lmdb_repair.check(path, progress)

    @classmethod
    def repair(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.repair`. Builds the store anew out of its whole records. Takes room for a second one on the disk."""
        with files.explaining(path, paths.REPAIRING):
            return lmdb_repair.repair(path, progress)

    @classmethod
    def compact(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.compact`. Builds the store anew. Takes room for a second one on the disk."""
        with files.explaining(path, paths.COMPACTING):
            return lmdb_repair.compact(path, progress)


class Gate:
    """Lets many threads read by the map at the same time. A thread that replaces or removes the map waits for the readers."""

    def __init__(self, readers_max: int) -> None:
        self._changed = threading.Condition()
        self._readers, self._readers_max = 0, readers_max
        self._replacing = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._replacing and self._readers < self._readers_max)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        ours = False
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._replacing)
                self._replacing = ours = True
                self._changed.wait_for(lambda: self._readers == 0)      # a signal may end this wait
            yield
        finally:
            if ours:
                with self._changed:
                    self._replacing = False
                    self._changed.notify_all()


open_stores: WeakSet[LmdbReader] = WeakSet()
_inherited: list[lmdb.Environment] = []
"""Environments of a parent process, kept so that nothing here closes them."""


def _after_fork() -> None:
    for store in open_stores:
        store._of_this_process = False
        if store._environment is not None:
            _inherited.append(store._environment)
    open_stores.clear()


os.register_at_fork(after_in_child=_after_fork)
