"""An `lmdb` store that is looked at, and not changed by that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import lmdb

from xump_ext.census import queue_record
from xump_ext.errors import StoreCorrupt
from xump_ext.records import KEY_QUEUE

from . import lmdb_files as files
from .lmdb import AHEAD_BYTES, Gate, LmdbStore, open_stores
from .lmdb_content import named
from .lmdb_owner import Owner
from .lmdb_repair import Survey


class LmdbView(LmdbStore):
    """Reads only. LMDB's own lock, a file that it writes to, is not needed: by the store's own nobody can write meanwhile."""

    def __init__(self, path: str) -> None:
        self.path = self.name = os.path.abspath(path)
        self.durability, self.group_ms, self.cut = "none", 0.0, 0
        files.must_be_there(self.path)
        self._owner = Owner(self.path, "to look at it", shared=True)
        try:
            self.salt, self.end, _ = files.meta_of(self.path)
            size = os.path.getsize(os.path.join(self.path, files.DATA))
            try:
                self._environment = lmdb.open(self.path, map_size=size, readonly=True, lock=False, create=False)
            except lmdb.Error as error:
                raise StoreCorrupt(f"{self.path} cannot be opened: {error}; run: xump check {self.path}") from error
        except BaseException:
            self._owner.release()
            raise
        self._ahead = (0, 0, AHEAD_BYTES[0])
        self._gate = Gate(1)
        self._of_this_process = True
        open_stores.add(self)

    def scan(self) -> Iterator[tuple[int | None, memoryview]]:
        """Records that are damaged are left out, and are in `damage` at the end. Where a page is, the map cannot be trusted, by
        which messages are read: that is StoreCorrupt."""
        self._usable()
        with files.pages_of(self.path) as pages:
            survey = Survey(self.path, pages, None)
            for records in survey.pieces():
                yield None, records
            if survey.broken:
                raise files.corrupt(self.path, survey.report.damage[0].what)
            self.damage = survey.report.damage
        for queue in sorted(named(key)[0] for _, key, _ in survey.lost if key[:1] == KEY_QUEUE):
            yield None, memoryview(queue_record(queue, self.end, self.salt))

    def _keep_room(self) -> None:
        """Who opens it does."""

    def write(self, batch: Any) -> None:
        self._usable()
        self.end += memoryview(batch).nbytes

    def sync(self) -> None:
        self._usable()

    def room(self) -> int:
        self._usable()
        return 1 << 62

    def stats(self) -> dict[str, Any]:
        return {"path": self.path}
