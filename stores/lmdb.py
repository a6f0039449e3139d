"""The store `lmdb`: records by their keys in one LMDB environment.

What survives what
------------------
LMDB never overwrites a page that the last two transactions can see, and ends a transaction by writing a meta page. That has no
checksum, so it must not reach the disk before the pages that it names: in `sync` and `group` durability LMDB syncs these at each
commit (`sync=True`), but not the meta page (`metasync=False`): `write` gives a group that is whole or not there, `sync` makes it
durable. That is two fdatasyncs a group, as many as LMDB itself makes for a durable commit. In `process` and `none` durability
nothing is synced before the end, and a crash of the machine (not of the process) may cost the whole store, not only its end.

The map is read only (no `writemap`): a stray write in this process, which may run any code, ends the process and not the store.

Room
----
The file has blocks on the disk ahead of what LMDB uses, and the map ends where the file does. So LMDB meets the end of the
map, before it has written anything, never a full disk in the middle of a commit; and who fills the disk does not take what this
store has. The file grows, and the map with it, while there is still room for a few groups; reads wait for that.

LMDB needs free pages also to delete: it copies the pages of its trees that it changes, and those that a transaction frees serve
the one after the next. So twice as many are kept free as a group may copy. That is all that the trees have, without long
contents, which have pages of their own; but not more leaves than a group has records, be it full of SETTLEs of messages far from
each other: 13,000, of 50 MiB. What is given back gets a MARK, for which there is room, too. So a full store, on a full disk,
settles and takes back. `max_bytes` bounds what the pages in use have; this comes on top, with `SLACK_BYTES` for free space in
pieces, and there the file ends.

A record takes up to twice its bytes, one of half a page and a bit; `room` halves what is left. What the file may grow by is
room, too, half of the disk's free space left to others. Should they take it all at once, a group fails that is larger than what
was kept ahead for it: the store has failed then, all that was written before is there, and so is the room to settle it.

No transaction outlives a call, so no reader keeps old pages from being used again, and it does not matter which thread calls.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from operator import itemgetter
from typing import Any
from weakref import WeakSet

import lmdb

from xump_ext.errors import Closed, ForkedError, StoreCorrupt, StoreFailed, StoreFull
from xump_ext.lmdb_walk import wrong_record
from xump_ext.records import entry_key, items
from xump_ext.store import DURABILITIES, Backend, Report

from . import lmdb_files as files, places
from .lmdb_content import HEAD, META_KEY, StoreMeta, named, pack_meta
from .lmdb_owner import Owner
from .lmdb_pages import BadPage, NotLmdb, Pages

MAX_BYTES_LEAST = 1 << 20
SLACK_BYTES = 64 << 20
KEPT_PAGES, KEPT_BYTES_MAX = 16, 4 << 20
AHEAD_ROOM_BYTES = (4 << 20, 64 << 20)  # of records that come in, at least, and twice the last group up to the second
GROWTH_BYTES = (8 << 20, 64 << 20)      # at once; between them an eighth of the file
GROWTH_UNIT = 64 << 10                  # of these the file consists: whole pages, whatever their size
DISK_BYTES_LEFT = 1 << 20               # to what a file system writes beside the data
RECORD_BYTES_MIN, MARK_BYTES = 40, 128  # in a group; of a MARK in a tree, 64 bytes in pages that may be half full
# A fetch that goes on where the last one ended reads four times as far ahead as that did.
AHEAD_BYTES = (4 << 10, 256 << 10)


class LmdbStore(Backend):
    """`path`: a directory, made if it is not there. `durability`: see `DURABILITIES`; `group_ms`: how long groups are gathered.
    `max_bytes`: of the pages in use. `max_readers`: how many may read at the same time; others wait.

    Raises `StoreLocked`, `StoreCorrupt` (where something else is, too), `StoreFull` (the disk is), PermissionError; ValueError
    and TypeError for options; files are as they were then.
    """

    type = "lmdb"
    group_bytes = 1 << 19       # as fast as twice that, and half as much is kept free for it

    def __init__(self, name: str, *, path: str | os.PathLike[str], durability: str = "group", group_ms: float = 2.0,
                 max_bytes: int = 1 << 40, max_readers: int = 126) -> None:
        self._check_options(durability, group_ms, max_bytes, max_readers)
        self.name, self.durability, self.group_ms = name, durability, float(group_ms)
        self.path = places.absolute(path)
        self.max_bytes, self.cut = max_bytes, 0
        self._failed: str | None = None
        self._groups_written = self._syncs = 0
        self._ahead: tuple[int, int, int] = (0, 0, AHEAD_BYTES[0])
        self._gate = Gate(max_readers)
        self._environment: lmdb.Environment | None = None
        self._owner = self._own()
        made = False
        try:
            if not files.is_there(self.path):
                made = True
                self._create()
            self._open(max_readers)
            if made:
                self._keep_room()
                if self._lacking(0) > 0:
                    least = self._file_bytes + self._lacking(0)
                    raise StoreFull(f"no room on the disk of {self.path}: a new store takes {least} bytes")
        except BaseException as error:
            self._shut()
            if made:
                files.discard(self.path)
            self._owner.release(remove=self._owner.made)
            if self._made_directory and not os.listdir(self.path):
                os.rmdir(self.path)
            if places.is_denied(error):
                raise places.denied(error, self.path) from error
            raise
        self._of_this_process = True
        open_stores.add(self)

    @staticmethod
    def _check_options(durability: str, group_ms: float, max_bytes: int, max_readers: int) -> None:
        if durability not in DURABILITIES:
            raise ValueError(f"durability={durability!r}; allowed are {', '.join(map(repr, DURABILITIES))}")
        if isinstance(group_ms, bool) or not isinstance(group_ms, int | float):
            raise TypeError(f"group_ms={group_ms!r}; allowed is a number of milliseconds")
        if not 0 <= group_ms <= 60_000:
            raise ValueError(f"group_ms={group_ms!r}; allowed are 0 to 60000 milliseconds")
        for what, value, least in (("max_bytes", max_bytes, MAX_BYTES_LEAST), ("max_readers", max_readers, 1)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{what}={value!r}; allowed is an int")
            if not least <= value <= (1 << 44 if what == "max_bytes" else 10_000):
                raise ValueError(f"{what}={value}; allowed is {least} to {1 << 44 if what == 'max_bytes' else 10_000}")

    # ---- opening

    def _own(self) -> Owner:
        places.check(self.path)
        files.is_there(self.path)
        self._made_directory = False
        try:
            try:
                os.mkdir(self.path)
                self._made_directory = True
            except FileExistsError:
                pass
            return Owner(self.path, f"as store {self.name!r}")
        except OSError as error:
            if self._made_directory and not os.listdir(self.path):
                os.rmdir(self.path)
            if places.is_denied(error):
                raise places.denied(error, self.path) from error
            if files.no_space(error):
                raise StoreFull(f"no room on the disk of {self.path}: {error}") from error
            raise

    def _create(self) -> None:
        meta = StoreMeta(int.from_bytes(os.urandom(4), "little"), 0, 0)
        files.take_place(self.path, files.build(self.path, [[(META_KEY, pack_meta(meta))]]))
        files.sync_directory(os.path.dirname(self.path))

    def _open(self, max_readers: int) -> None:
        meta = files.meta_of(self.path)
        self.salt, self.end, self._groups = meta
        data = os.path.join(self.path, files.DATA)
        if not os.access(data, os.W_OK):
            raise PermissionError(f"{data} cannot be written to; an lmdb store must be writable")
        synced = self.durability in ("sync", "group")
        files.reserve_lock(self.path, max_readers)
        try:
            environment = lmdb.open(self.path, map_size=os.path.getsize(data), sync=synced, metasync=False,
                                    max_readers=max_readers, mode=files.FILE_MODE, create=False)
        except lmdb.Error as error:
            raise StoreCorrupt(f"{self.path} cannot be opened: {error}; run: xump check {self.path}") from error
        try:
            environment.reader_check()
            # What a process that was killed left to the system is made durable before anything is said of it.
            environment.sync(True)
            files.sync_directory(self.path)
            self._environment = environment
            self._page_bytes: int = environment.stat()["psize"]
            # LMDB does not write free pages at the end of its file: they may lie beyond it.
            self._file_bytes = max(os.path.getsize(data), (environment.info()["last_pgno"] + 1) * self._page_bytes)
            self._file_bytes_max = max(self._file_bytes, 3 * self.max_bytes + SLACK_BYTES) // GROWTH_UNIT * GROWTH_UNIT
            self._measure()
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()

    def _measure(self) -> None:
        """Pages in use; and those that are kept free, to be copied to, with what lists them."""
        status, records = self._usable().stat(), self.group_bytes // RECORD_BYTES_MIN
        branches, leaves = status["branch_pages"], status["leaf_pages"]
        self._pages_used = branches + leaves + status["overflow_pages"] + 2
        copied = 2 * (branches + min(leaves, records))
        marks = min(status["entries"], 2 * records) * MARK_BYTES // self._page_bytes
        self._pages_kept = copied + marks + (self._file_bytes // self._page_bytes >> 8) + 64

    def _usable(self) -> lmdb.Environment:
        if self._environment is None:
            raise Closed(f"store {self.name!r} is closed")
        if not getattr(self, "_of_this_process", True):
            raise ForkedError(f"store {self.name!r} belongs to the parent process; open another one here")
        return self._environment

    # ---- reading

    def scan(self) -> Iterator[tuple[int | None, memoryview]]:
        """As the contract says. Reads the file itself, not the map: what is damaged is found, and cannot do harm. Every CRC is
        looked at, those of contents, too. O(bytes of the store)."""
        self._usable()
        try:
            with Pages(os.path.join(self.path, files.DATA)) as pages:
                walk = pages.walk(self._damaged)
                while (records := walk.next_records(self.salt, META_KEY)) is not None:
                    yield None, records
                pages.free()
        except (BadPage, NotLmdb) as error:
            raise files.corrupt(self.path, str(error)) from None
        self._keep_room()

    def _keep_room(self) -> None:
        """What is kept ahead is there from the beginning: of a file that is whole, others are left as they are."""
        with self._poisoned_by_errors():
            files.fill_holes(os.path.join(self.path, files.DATA), self._file_bytes)
            self._grow_ahead(0)

    @staticmethod
    def _damaged(page: int, what: str, key: bytes | None, record: bytes | None) -> None:
        raise BadPage(page, what if key is None else f"the {named(key)[2]} is a record {what}")

    def fetch(self, queue: int, id: int, position: int) -> tuple[int, bytes]:
        """As the contract says; what follows are the next messages of the queue. O(log n, and bytes read)."""
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
        return HEAD.unpack_from(values[0])[3], b"".join(values)

    @property
    def kept_bytes(self) -> int:    # type: ignore[override]
        """Of messages that end, whole pages become free."""
        return max(KEPT_PAGES * self._page_bytes, min(self.max_bytes >> 4, KEPT_BYTES_MAX))

    def room(self) -> int:
        """As the contract says: half of the bytes that are left, by `max_bytes` and on the disk. O(1)."""
        disk = os.statvfs(self.path)
        more = min(disk.f_bavail * disk.f_frsize // 2, self._file_bytes_max - self._file_bytes)
        return max(0, min(self._allowed(), more - self._lacking(0)) // 2)

    def _allowed(self) -> int:
        """Bytes that `max_bytes` leaves."""
        return (self.max_bytes // self._page_bytes - self._pages_used) * self._page_bytes

    def _lacking(self, room: int) -> int:
        """Bytes that the file lacks for so many bytes of records; negative: that it has beyond."""
        return (self._pages_used + self._pages_kept) * self._page_bytes + 2 * room - self._file_bytes

    # ---- writing

    def write(self, batch: Any) -> None:
        """As the contract says. O(records and settled ids, times log n)."""
        self._check_not_failed()
        meta = StoreMeta(self.salt, batch.position + memoryview(batch).nbytes, batch.number)
        puts, gone = items(batch)
        puts.insert(0, (META_KEY, pack_meta(meta)))
        size = meta.end - batch.position
        with self._poisoned_by_errors():
            while True:
                try:
                    self._commit(puts, gone)
                    break
                except lmdb.MapFullError as error:
                    self._grow(size, error)
            self._measure()
            self._grow_ahead(size)
        self._groups_written += 1

    def _commit(self, puts: list[tuple[bytes, bytes]], gone: list[tuple[bytes, bytes]]) -> None:
        with self._usable().begin(write=True) as transaction, transaction.cursor() as cursor:
            # In order, a cursor goes from page to page; and what comes behind all that is there fills its pages.
            behind = bisect_right(puts, cursor.key(), key=itemgetter(0)) if cursor.last() else 0
            cursor.putmulti(puts[:behind])
            cursor.putmulti(puts[behind:], append=True)
            key, delete = cursor.key, cursor.delete
            for first, last in gone:
                there = cursor.set_range(first)
                while there and key() <= last:
                    there = delete()

    def _grow(self, size: int, error: lmdb.MapFullError) -> None:
        """A group of that size had no room, though `room` was asked: the disk was filled since, or free space is in pieces."""
        before = self._file_bytes
        self._extend(2 * size)
        if self._file_bytes > before:
            return
        if before >= self._file_bytes_max:
            raise StoreFailed(f"{self.path} would need more than {before} bytes, with max_bytes={self.max_bytes}: its free space "
                              f"is in pieces; close it and run: xump compact {self.path}") from error
        raise StoreFailed(f"{self.path}: no room on the disk for a group of {size} bytes: others have filled it") from error

    def _grow_ahead(self, size: int) -> None:
        """There is room for a few groups more; the last one had that size. When half of that is used up, the file grows."""
        least, most = AHEAD_ROOM_BYTES
        room, allowed = max(least, min(2 * size, most)), max(0, self._allowed() // 2)
        if self._lacking(min(self.kept_bytes + room // 2, allowed)) > 0:
            self._extend(self._lacking(min(self.kept_bytes + room, allowed)))

    def _extend(self, lacking: int) -> None:
        """The file gets longer by so many bytes or more, or what the disk has; and the map with it."""
        disk = os.statvfs(self.path)
        least, most = GROWTH_BYTES
        left = disk.f_bavail * disk.f_frsize - DISK_BYTES_LEFT
        more = min(max(lacking, least, min(self._file_bytes >> 3, most)), left, self._file_bytes_max - self._file_bytes)
        size = (self._file_bytes + more) // GROWTH_UNIT * GROWTH_UNIT
        if size <= self._file_bytes or not files.extend(self.path, self._file_bytes, size):
            return
        with self._gate.exclusive():
            self._usable().set_mapsize(size)
        self._file_bytes = size

    def sync(self) -> None:
        self._check_not_failed()
        with self._poisoned_by_errors():
            self._sync()
        self._syncs += 1

    def _sync(self) -> None:
        self._usable().sync(True)

    def _check_not_failed(self) -> None:
        self._usable()
        if self._failed is not None:
            raise StoreFailed(f"store {self.name!r} failed before: {self._failed}; open it anew to go on")

    @contextmanager
    def _poisoned_by_errors(self) -> Iterator[None]:
        """Whatever goes wrong on the disk is `StoreFailed`, now and from now on."""
        try:
            yield
        except (lmdb.Error, OSError) as error:
            self._failed = str(error)
            if isinstance(error, StoreFailed):
                raise
            what = "no room on the disk" if files.no_space(error) else "cannot be written"
            raise StoreFailed(f"{self.path}: {what}: {error}") from error

    # ---- the end, and in between

    def close(self) -> None:
        """As the contract says. A second time: nothing; in a forked child, too: what is open belongs to the parent."""
        if self._environment is None or not self._of_this_process:
            return
        with self._gate.exclusive():
            environment, self._environment = self._environment, None
            environment.close()
        open_stores.discard(self)
        self._owner.release()

    def stats(self) -> dict[str, Any]:
        return {
            "path": self.path, "bytes_used": self._pages_used * self._page_bytes,
            "bytes_file": self._file_bytes, "bytes_max": self.max_bytes, "groups": self._groups_written,
            "syncs": self._syncs, "failed": self._failed,
        }

    @classmethod
    def recognises(cls, path: str) -> bool:
        """As the contract says."""
        return files.recognises(path)

    @classmethod
    def view(cls, path: str) -> LmdbStore:
        """As the contract says; others may look at it at the same time."""
        from .lmdb_view import LmdbView

        return LmdbView(path)

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """As the contract says. Reads the file page by page, without LMDB: a damaged one cannot end the process."""
        from .lmdb_repair import check

        return check(path, progress)

    @classmethod
    def repair(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """As the contract says: builds the store anew out of what is whole. Takes room for a second one on the disk."""
        from .lmdb_repair import repair

        return repair(path, progress)

    @classmethod
    def compact(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """As the contract says: builds the store anew. Takes room for a second one on the disk."""
        from .lmdb_repair import compact

        return compact(path, progress)


class Gate:
    """Many read by the map at the same time; who replaces or removes it waits until nobody does."""

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
        with self._changed:
            self._changed.wait_for(lambda: not self._replacing)
            self._replacing = True
            self._changed.wait_for(lambda: self._readers == 0)
        try:
            yield
        finally:
            with self._changed:
                self._replacing = False
                self._changed.notify_all()


open_stores: WeakSet[LmdbStore] = WeakSet()
_inherited: list[lmdb.Environment] = []
"""Environments of a parent process: kept, so that nothing here closes them."""


def _after_fork() -> None:
    for store in open_stores:
        store._of_this_process = False
        if store._environment is not None:
            _inherited.append(store._environment)
    open_stores.clear()


os.register_at_fork(after_in_child=_after_fork)
