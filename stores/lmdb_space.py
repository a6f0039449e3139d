"""The space of an `lmdb` store: how much is left, and how its file stays ahead of what LMDB uses.

The file has blocks on the disk ahead of what LMDB uses, and the map ends where the file does. So LMDB meets the end of the map
before it has written anything, and never a full disk in the middle of a commit; and another program that fills the disk does
not take the space of this store. The file grows, and the map with it, while there is still room for a few groups; reads wait
for that.

LMDB needs free pages also to delete: it copies the pages of its trees that it changes, and a transaction's freed pages serve
the one after the next. So the store keeps twice as many pages free as a group may copy. A group may copy all pages of the
trees, except long contents, which have pages of their own; but not more leaves than the group has records, even if it is full
of SETTLEs of messages far from each other: 13,000, of 50 MiB. Each message given back gets a MARK, and the store keeps room for
those, too. So a full store, on a full disk, settles and takes back. `max_bytes` bounds the pages in use. The kept pages come on
top, with `SLACK_BYTES` for free space in pieces, and there the file ends.

A record takes up to twice its bytes: one of half a page and a bit does. So `room` halves the bytes left. The space that the
file may grow by is room, too, with half of the disk's free space left to others. If others take all of it at once, a group
fails that is larger than the space kept ahead for it. The store has failed then. Everything written before is there, and so is
the room to settle it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import lmdb

from xump_ext.errors import Closed, StoreFailed

from . import lmdb_files as files
from .lmdb_reader import LmdbReader
from .owner import Claim

SLACK_BYTES = 64 << 20
KEPT_PAGES, KEPT_BYTES_MAX = 16, 4 << 20
AHEAD_ROOM_BYTES = (4 << 20, 64 << 20)  # of records to come: at least the first, and twice the last group up to the second
GROWTH_BYTES = (8 << 20, 64 << 20)      # at once; between them an eighth of the file
GROWTH_UNIT = 64 << 10                  # the file is a multiple of this: whole pages, whatever their size
DISK_BYTES_LEFT = 1 << 20               # for what a file system writes beside the data
RECORD_BYTES_MIN, MARK_BYTES = 40, 128  # in a group; of a MARK in a tree, 64 bytes in pages that may be half full


class LmdbSpace(LmdbReader):
    """The half of an `lmdb` store that knows its free space."""

    group_bytes = 1 << 19       # as fast as groups of twice that, and half as many pages stay free for them

    _page_bytes: int
    _file_bytes: int
    _file_bytes_max: int
    _pages_used: int
    _pages_kept: int

    def __init__(self, name: str, path: str, claim: Claim, durability: str, group_ms: float, max_readers: int,
                 max_bytes: int) -> None:
        super().__init__(name, path, claim, durability, group_ms, max_readers)
        self.max_bytes = max_bytes
        self._failed: str | None = None
        self._fd: int | None = None

    def _shut(self) -> None:
        super()._shut()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _data(self) -> int:
        """A descriptor of the environment's file, which may have another name by now: LMDB gives none. Raises Closed."""
        self._usable()
        if (fd := self._fd) is None:
            raise Closed(f"store {self.name!r} is closed")
        return fd

    def _measure_file(self) -> None:
        """Finds the sizes of pages and file, and how far the file may grow. Once, at opening."""
        environment = self._usable()
        self._page_bytes = environment.stat()["psize"]
        # LMDB does not write free pages at the end of its file: they may lie beyond it.
        self._file_bytes = max(os.path.getsize(files.data_of(self.path)),
                               (environment.info()["last_pgno"] + 1) * self._page_bytes)
        self._file_bytes_max = max(self._file_bytes, 3 * self.max_bytes + SLACK_BYTES) // GROWTH_UNIT * GROWTH_UNIT
        self._measure()

    def _measure(self) -> None:
        """Counts the pages in use, and those to keep free: pages to copy to, and pages to list them."""
        status, records = self._usable().stat(), self.group_bytes // RECORD_BYTES_MIN
        branches, leaves = status["branch_pages"], status["leaf_pages"]
        self._pages_used = branches + leaves + status["overflow_pages"] + 2
        copied = 2 * (branches + min(leaves, records))
        marks = min(status["entries"], 2 * records) * MARK_BYTES // self._page_bytes
        self._pages_kept = copied + marks + (self._file_bytes // self._page_bytes >> 8) + 64

    # ---- how much is left

    @property
    def kept_bytes(self) -> int:    # type: ignore[override]
        """See `Backend.kept_bytes`. Messages that end free whole pages."""
        return max(KEPT_PAGES * self._page_bytes, min(self.max_bytes >> 4, KEPT_BYTES_MAX))

    def room(self) -> int:
        """See `Backend.room`: half of the bytes left, by `max_bytes` and on the disk. O(1)."""
        disk = os.statvfs(self._data())
        more = min(disk.f_bavail * disk.f_frsize // 2, self._file_bytes_max - self._file_bytes)
        return max(0, min(self._allowed(), more - self._lacking(0)) // 2)

    def _allowed(self) -> int:
        """Bytes that `max_bytes` leaves."""
        return (self.max_bytes // self._page_bytes - self._pages_used) * self._page_bytes

    def _lacking(self, room: int) -> int:
        """Bytes that the file lacks for so many bytes of records; negative: bytes that it has beyond them."""
        return (self._pages_used + self._pages_kept) * self._page_bytes + 2 * room - self._file_bytes

    # ---- the file grows

    def _keep_room(self) -> None:
        """Sees to the space kept ahead. Call it only for a file that was found whole: a damaged one stays as it is."""
        with self._poisoned_by_errors():
            files.fill_holes(self._data(), self._file_bytes)
            self._grow_ahead(0)

    def _grow(self, size: int, error: lmdb.MapFullError) -> None:
        """Grows for a group of that size which had no room though `room` was asked: the disk was filled since, or free space is
        in pieces."""
        before = self._file_bytes
        self._extend(2 * size)
        if self._file_bytes > before:
            return
        if before >= self._file_bytes_max:
            raise StoreFailed(f"{self.path} would need more than {before} bytes, with max_bytes={self.max_bytes}: its free space "
                              f"is in pieces; close it and run: xump compact {self.path}") from error
        raise StoreFailed(f"{self.path}: no room on the disk for a group of {size} bytes: others have filled it") from error

    def _grow_ahead(self, size: int) -> None:
        """Keeps room for a few more groups; the last one had that size. The file grows when half of that room is used up."""
        least, most = AHEAD_ROOM_BYTES
        room, allowed = max(least, min(2 * size, most)), max(0, self._allowed() // 2)
        if self._lacking(min(self.kept_bytes + room // 2, allowed)) > 0:
            self._extend(self._lacking(min(self.kept_bytes + room, allowed)))

    def _extend(self, lacking: int) -> None:
        """Makes the file longer by so many bytes or more, or by as much as the disk has; and the map with it."""
        disk = os.statvfs(self._data())
        least, most = GROWTH_BYTES
        left = disk.f_bavail * disk.f_frsize - DISK_BYTES_LEFT
        more = min(max(lacking, least, min(self._file_bytes >> 3, most)), left, self._file_bytes_max - self._file_bytes)
        size = (self._file_bytes + more) // GROWTH_UNIT * GROWTH_UNIT
        if size <= self._file_bytes or not files.extend(self._data(), self._file_bytes, size):
            return
        with self._gate.exclusive():
            self._usable().set_mapsize(size)
        self._file_bytes = size

    # ---- failure

    def _check_not_failed(self) -> None:
        self._usable()
        if self._failed is not None:
            raise StoreFailed(f"store {self.name!r} failed before: {self._failed}; open it anew to go on")

    @contextmanager
    def _poisoned_by_errors(self) -> Iterator[None]:
        """Turns any error of the disk into `StoreFailed`, now and from now on."""
        try:
            yield
        except (lmdb.Error, OSError) as error:
            self._failed = str(error)
            if isinstance(error, StoreFailed):
                raise
            what = "no room on the disk" if files.no_space(error) else "cannot be written"
            raise StoreFailed(f"{self.path}: {what}: {error}; open it anew to go on") from error
