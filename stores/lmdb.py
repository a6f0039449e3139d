"""The store `lmdb`: records by their keys in one LMDB environment.

LMDB never overwrites a page that the last two transactions can see, and ends a transaction by writing a meta page. A meta page
has no checksum, so it must not reach the disk before the pages that it names. In `sync` and `group` durability LMDB syncs those
pages at each commit (`sync=True`), but not the meta page (`metasync=False`): `write` gives a group that is whole or not there,
and `sync` makes it durable. That is two fdatasyncs a group, as many as LMDB itself makes for a durable commit. In `process` and
`none` durability nothing is synced before the end, and a crash of the machine (not of the process) may cost the whole store,
not only its end.

LMDB opens the tree that the meta page with the higher transaction number leads to, and that number has no checksum either. So
each transaction writes its number also into the store's own entry, under a CRC, and opening compares the two, in both meta pages:
the trees of the last two transactions are always whole. A flipped bit in a meta page is `StoreCorrupt`, therefore, and not a
return to the group before the last (`lmdb_meta.py` has one exception). Where the two pages agree, the store relies on the disk
for two things: synced bytes stay (so a confirmed group has its meta page there, and only an unconfirmed one can lack it), and a
write within 512 bytes is whole or not there (LMDB writes no more of a meta page).

The map is read only (no `writemap`): a stray write in this process, which may run any code, ends the process and not the store.
`lmdb_space.py` has the arithmetic of its size.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from typing import Any

import lmdb

from xump_ext.errors import StoreFull
from xump_ext.records import items
from xump_ext.store import DURABILITIES

from . import lmdb_files as files, lmdb_meta, paths
from .lmdb_content import META_KEY, StoreMeta, named, pack_meta
from .lmdb_pages import BadPage, NotLmdb, Pages
from .lmdb_space import LmdbSpace
from .lmdb_view import LmdbView
from .owner import Claim

MAX_BYTES_LEAST, MAX_BYTES_MOST = 1 << 20, 1 << 44
MAX_READERS_MOST = 10_000

logger = logging.getLogger("xump")


class LmdbStore(LmdbSpace):
    """Opens the store in the directory at `path`, or makes it. `scan` it before anything else.

    `durability`: see `DURABILITIES`; `group_ms`: how long groups gather. `max_bytes`: of the pages in use. `max_readers`: how
    many threads may read at the same time; others wait.

    Raises StoreLocked; StoreCorrupt, also where something else is; StoreFull for a full disk; PermissionError; ValueError and
    TypeError for options; and has changed no file then.
    """

    def __init__(self, name: str, *, path: str | os.PathLike[str], durability: str = "group", group_ms: float = 2.0,
                 max_bytes: int = 1 << 40, max_readers: int = 126) -> None:
        _check_options(durability, group_ms, max_bytes, max_readers)
        place = paths.absolute(path)
        with files.explaining(place):
            claim, made_directory = _own(place, name)
            super().__init__(name, place, claim, durability, float(group_ms), max_readers, max_bytes)
            self._groups_written = self._syncs = 0
            try:
                if files.is_there(place):
                    self._open(max_readers)
                else:
                    self._make(max_readers)
            except BaseException:
                with suppress(OSError):
                    self._shut()
                with suppress(OSError):
                    claim.release(remove=claim.made)
                with suppress(OSError):
                    if made_directory and not os.listdir(place):
                        os.rmdir(place)
                raise

    def _make(self, max_readers: int) -> None:
        try:
            _create(self.path)
            self._open(max_readers)
            self._keep_room()
            if self._lacking(0) > 0:
                least = self._file_bytes + self._lacking(0)
                raise StoreFull(f"no room on the disk of {self.path}: a new store takes {least} bytes; make room there, and open "
                                "it again")
        except BaseException:
            with suppress(OSError):
                self._shut()
            with suppress(OSError):     # what stays is an empty store, or one in the making
                files.discard(self.path, files.LOCK)
                files.sync_directory(self.path)
                files.discard(self.path, files.DATA)
            raise

    def _open(self, max_readers: int) -> None:
        data = files.data_of(self.path)
        if not os.access(data, os.W_OK):
            raise PermissionError(f"{data} cannot be written to; an lmdb store must be writable")
        if (mended := lmdb_meta.mend(data)) is not None:
            logger.warning("store %r: mended in %s: %s, as after a write that failed", self.name, data, mended)
        self.salt, self.end, *_ = files.meta_of(self.path)
        synced = self.durability in ("sync", "group")
        files.discard(self.path, files.NEW)     # left by a crash
        files.sync_directory(self.path)         # first the environment's name: a lock alone looks as if it had been taken away
        files.reserve_lock(self.path, max_readers)
        self._environment = environment = lmdb.open(
            os.fsencode(self.path), map_size=os.path.getsize(data), sync=synced, metasync=False, max_readers=max_readers,
            mode=files.FILE_MODE, create=False)
        self._fd = os.open(data, os.O_RDWR | os.O_CLOEXEC)
        environment.reader_check()
        # A killed process may have left bytes and names to the system: durable before the store says anything of them.
        environment.sync(True)
        files.sync_directory(os.path.dirname(os.path.realpath(self.path)))
        self._measure_file()

    def scan(self) -> Iterator[tuple[int | None, memoryview]]:
        """See `Backend.scan`. Reads the file itself, not the map, and verifies every CRC, those of contents, too: so damage is
        found and does no harm. O(bytes of the store)."""
        self._usable()
        with files.explaining(self.path):
            yield from self._scanned_pages()
        self._keep_room()

    def _scanned_pages(self) -> Iterator[tuple[int | None, memoryview]]:
        try:
            with Pages(files.data_of(self.path)) as pages:
                walk = pages.walk(_raise)
                while (records := walk.next_records(self.salt, META_KEY)) is not None:
                    yield None, records
                pages.free()
        except (BadPage, NotLmdb) as error:
            raise files.corrupt(self.path, str(error)) from None

    # ---- writing

    def write(self, batch: Any) -> None:
        """See `Backend.write`. O(records and settled ids, times log n)."""
        self._check_not_failed()
        meta = StoreMeta(self.salt, batch.position + memoryview(batch).nbytes, batch.number)
        puts, gone = items(batch)
        size = meta.end - batch.position
        with self._poisoned_by_errors():
            if self.durability in ("sync", "group"):
                self._claim.assure(self.path, self._data())
            while True:
                try:
                    self._commit(meta, puts, gone)
                    break
                except lmdb.MapFullError as error:
                    self._grow(size, error)
            self._measure()
            self._grow_ahead(size)
        self._groups_written += 1

    def _commit(self, meta: StoreMeta, puts: list[tuple[bytes, bytes]], gone: list[tuple[bytes, bytes]]) -> None:
        with self._usable().begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.put(META_KEY, pack_meta(meta._replace(transaction=transaction.id())))
            # In order, a cursor goes from page to page. Keys behind all others fill their pages.
            behind = bisect_right(puts, cursor.key(), key=itemgetter(0)) if cursor.last() else 0
            cursor.putmulti(puts[:behind])
            cursor.putmulti(puts[behind:], append=True)
            key, delete = cursor.key, cursor.delete
            for first, last in gone:
                there = cursor.set_range(first)
                while there and key() <= last:
                    there = delete()

    def sync(self) -> None:
        """See `Backend.sync`."""
        self._check_not_failed()
        with self._poisoned_by_errors():
            self._sync()
        self._syncs += 1

    def _sync(self) -> None:
        self._usable().sync(True)
        self._claim.assure(self.path, self._data())

    def stats(self) -> dict[str, Any]:
        return {
            "path": self.path, "bytes_used": self._pages_used * self._page_bytes,
            "bytes_file": self._file_bytes, "bytes_max": self.max_bytes, "groups": self._groups_written,
            "syncs": self._syncs, "failed": self._failed,
        }

    # ---- looked at

    @classmethod
    def view(cls, path: str) -> LmdbView:
        """See `Backend.view`. Others may look at the same time."""
        return LmdbView(path)


# ---- a store is claimed and made

def _own(path: str, name: str) -> tuple[Claim, bool]:
    """Claims the directory of a store, and makes it if needed; returns whether it did."""
    paths.check(path)
    files.is_there(path)
    made = False
    try:
        try:
            os.mkdir(path)
            made = True
        except FileExistsError:
            pass
        return files.own(path, f"as store {name!r}"), made
    except OSError:
        with suppress(OSError):
            if made and not os.listdir(path):
                os.rmdir(path)
        raise


def _create(path: str) -> None:
    meta = StoreMeta(int.from_bytes(os.urandom(4), "little"), 0, 0)
    files.take_place(path, files.build(path, meta, [[]]))


def _raise(page: int, what: str, key: bytes | None, record: bytes | None) -> None:
    raise BadPage(page, what if key is None else f"the {named(key)[2]} is a record {what}")


def _check_options(durability: str, group_ms: float, max_bytes: int, max_readers: int) -> None:
    if not isinstance(durability, str):
        raise TypeError(f"durability={durability!r}; allowed is a str: {', '.join(map(repr, DURABILITIES))}")
    if durability not in DURABILITIES:
        raise ValueError(f"durability={durability!r}; allowed are {', '.join(map(repr, DURABILITIES))}")
    if isinstance(group_ms, bool) or not isinstance(group_ms, int | float):
        raise TypeError(f"group_ms={group_ms!r}; allowed is a number of milliseconds")
    if not 0 <= group_ms <= 60_000:
        raise ValueError(f"group_ms={group_ms!r}; allowed are 0 to 60000 milliseconds")
    for what, value, least, most in (("max_bytes", max_bytes, MAX_BYTES_LEAST, MAX_BYTES_MOST),
                                     ("max_readers", max_readers, 1, MAX_READERS_MOST)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what}={value!r}; allowed is an int")
        if not least <= value <= most:
            raise ValueError(f"{what}={value}; allowed is {least} to {most}")
