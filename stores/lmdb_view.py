"""An `lmdb` store to look at without changing it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import lmdb

from xump_ext.records.kinds import KEY_QUEUE
from xump_ext.recovery.salvage import queue_record

from . import lmdb_files as files
from .lmdb_content import named
from .lmdb_reader import LmdbReader
from .lmdb_survey import Survey


class LmdbView(LmdbReader):
    """Reads only, and forgets the groups that it gets to write. Does without LMDB's own lock, a file that LMDB writes to: the
    store's own lock keeps all writers away."""

    def __init__(self, path: str) -> None:
        path = os.path.abspath(path)
        with files.explaining(path):
            files.must_be_there(path)
            claim = files.own(path, "to look at it", shared=True)
        super().__init__(path, path, claim, "none", 0.0, 1)
        try:
            with files.explaining(path):
                self.salt, self.end, *_ = files.meta_of(path)
                size = os.path.getsize(files.data_of(path))
                self._environment = lmdb.open(os.fsencode(path), map_size=size, readonly=True, lock=False, create=False)
        except BaseException:
            claim.release()
            raise

    def scan(self) -> Iterator[tuple[int | None, memoryview]]:
        """Leaves damaged records out and lists them in `damage` at the end. Raises StoreCorrupt for a damaged page: messages
        are read by the map, which cannot be trusted then."""
        self._usable()
        with files.pages_of(self.path) as pages:
            survey = Survey(self.path, pages, None)
            for records in survey.pieces():
                yield None, records
            if survey.broken:
                raise files.corrupt(self.path, survey.report.damage[0].what)
            self.damage = survey.report.damage
        numbers = {named(key)[0] for _, key, _ in survey.lost if key[:1] == KEY_QUEUE}
        for queue in sorted(numbers - {0}):         # which none has: the key is what is damaged
            yield None, memoryview(queue_record(queue, self.end, self.salt))

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
