"""An `lmdb` store that is looked at, and not changed by that."""

from __future__ import annotations

import os
from typing import Any

import lmdb

from xump_ext.errors import StoreCorrupt

from . import lmdb_files as files
from .lmdb import AHEAD_BYTES, Gate, LmdbStore, open_stores
from .lmdb_owner import Owner


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
