"""One look at a whole `lmdb` store that may be damaged: its entries, and the damage among them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from xump_ext.errors import StoreCorrupt
from xump_ext.lmdb.walk import Walk
from xump_ext.records import describe, items, kinds, salt_of
from xump_ext.store import Damage, Report

from . import lmdb_files as files
from .lmdb_content import (
    META_BYTES,
    META_KEY,
    META_MAGIC,
    NotOurs,
    OtherVersion,
    StoreMeta,
    is_key,
    key_of,
    named,
    unpack_meta,
)
from .lmdb_meta import read_meta
from .lmdb_pages import BadPage, Pages

Progress = Callable[[int, int], None] | None
Entry = tuple[bytes, Any]
"""A key and its value."""
Gap = tuple[bytes | None, bytes | None]
"""The keys between which something is lost, the first included; None: no bound."""



class Survey:
    """Reads everything that a store has. `strict`: damage raises `StoreCorrupt`."""

    def __init__(self, path: str, pages: Pages, progress: Progress, strict: bool = False) -> None:
        self.path, self.pages, self.progress, self.strict = path, pages, progress, strict
        self.report = Report()
        self.lost: list[tuple[int, bytes, bytes]] = []
        """Everything damaged: the page, the key and the record; without a key the page, whole."""
        self.gaps: list[Gap] = []
        """The keys between which something is lost."""
        self.broken: list[int] = []
        """Damaged pages: with any of these, the tree does not lead to everything."""
        self.main_is_broken = self.free_is_damaged = False
        self.count_is_known = pages.damaged_meta is None
        """Whether the meta page says how many entries the tree has."""
        self._walk: Walk | None = None
        self._runs: dict[str, tuple[int, int, int, int]] = {}
        """By damage to pages: its place in the report, the number of these pages, the lowest and the highest."""
        self.end: int | None = None
        """Where the log goes on; counted, if the store's own entry is an old one."""
        if pages.damaged_meta:
            self._broken(BadPage(0, pages.damaged_meta))
        self.meta = self._find_meta()

    # ---- entries

    def entries(self) -> Iterator[Entry]:
        """Yields the entries that are whole and where they belong, in order of the keys. Fills the report."""
        for records in self.pieces():
            yield from items(records)[0]

    def pieces(self) -> Iterator[memoryview]:
        """Yields the same, as whole records."""
        pages, report = self.pages, self.report
        before = len(self.broken)
        self._walk = walk = pages.walk(self._damaged)
        while (records := walk.next_records(self.meta.salt, META_KEY)) is not None:
            report.records, report.bytes = walk.records, report.bytes + len(records)
            at = 0
            while at < len(records) and (record := describe(records, at))["kind"] == "QUEUE":
                report.queues[record["queue"]] = record["name"]
                at += record["length"]
            if self.end is not None:
                self.end = max(self.end, walk.end)
            if self.progress is not None:
                self.progress(min(walk.pages * pages.page_bytes, pages.bytes), pages.bytes)
            yield records
        self._walk = None
        self.main_is_broken = len(self.broken) > before
        self.count_is_known &= 0 not in self.broken[before:]
        before = len(self.broken)
        pages.free(self._damaged)
        self.free_is_damaged = len(self.broken) > before
        if self.progress is not None:
            self.progress(pages.bytes, pages.bytes)

    def exhaust(self) -> None:
        for _ in self.pieces():
            pass

    # ---- the store's own entry

    def _find_meta(self) -> StoreMeta:
        """The store's own entry; if the tree does not lead to it, the newest one anywhere, or one made up from the records."""
        try:
            return read_meta(self.pages)
        except OtherVersion as error:
            raise StoreCorrupt(f"{self.path}: {error}: open it with the one that made it") from None
        except (BadPage, NotOurs) as error:
            if self.strict:
                raise files.corrupt(self.path, str(error)) from None
            why, misled = str(error), isinstance(error, BadPage)
        found = self._metas_in_use()
        # An entry that was led to and is damaged is not among them; one may stand in what a page in use does not use any more.
        sure = len(found) == 1 and misled
        if not sure:
            found = self._metas_in(range(2, self.pages.count))
        if not found:
            guessed = meta_of_records(self.pages)
            if guessed is None:
                raise StoreCorrupt(f"{self.path}: {why}; and there is no entry of a store anywhere in {files.DATA}, nor two "
                                   "records of one: it is no store, or nothing of it is left")
            meta, records = guessed
            self._tell(0, b"", b"", f"{why}; the entry of the store is lost: {records} records say whose they are", None)
            self.end = meta.end
            return meta
        newest = max(found, key=lambda meta: meta.end)
        if not sure:
            self._tell(0, b"", b"", f"{why}; an older entry of the store was taken", None)
            self.end = newest.end
        return newest

    def _metas_in_use(self) -> list[StoreMeta]:
        """Looks in the pages in use, if these are known: one entry, if its page is whole."""
        found: list[StoreMeta] = []
        if self.pages.damaged_meta is None:
            with suppress(BadPage):
                self.pages.free()
                last = min(self.pages.count, self.pages.meta.last + 1)
                found = self._metas_in(number for number in range(2, last) if not self.pages.reached[number])
        self.pages.forget()
        return found

    def _metas_in(self, numbers: Iterable[int]) -> list[StoreMeta]:
        found = []
        for number in numbers:
            page = os.pread(self.pages.fd, self.pages.page_bytes + META_BYTES, number * self.pages.page_bytes)
            at = page.find(META_MAGIC)
            while 0 <= at < self.pages.page_bytes:
                with suppress(NotOurs):
                    found.append(unpack_meta(page[at : at + META_BYTES]))
                at = page.find(META_MAGIC, at + 1)
        return found

    # ---- damage

    def _damaged(self, page: int, what: str, key: bytes | None, record: bytes | None) -> None:
        if key is None or record is None:
            if self._walk is not None:
                lost = self._walk.entry
                self.gaps.append(self._walk.between if lost is None or not is_key(lost) else (lost, lost + b"\0"))
            self._broken(BadPage(page, what))
        else:
            queue, id, whose = named(key)
            position, own = None, b""
            if len(record) >= kinds.HEAD.size:
                _, _, kind, _, _, of_queue, position, of_id = kinds.HEAD.unpack_from(record)
                own = key_of(kind, of_queue, of_id)
            self.gaps += [(own, own + b"\0")] if own else []
            if own != key and self._walk is not None:       # one of them is damaged, so the key is any between its neighbours
                self.gaps.append(self._walk.between)
            self._tell(page, key, record, f"page {page}: the {whose} is a record {what}", position, queue, id)

    def _broken(self, error: BadPage) -> None:
        is_there = 2 <= error.page < self.pages.count
        data = os.pread(self.pages.fd, self.pages.page_bytes, error.page * self.pages.page_bytes) if is_there else b""
        self.broken.append(error.page)
        self._tell(error.page, b"", data, str(error), None)
        self._join_run(error)

    def _join_run(self, error: BadPage) -> None:
        """Joins pages with the same damage into one line of the report."""
        damage = self.report.damage
        at, pages, low, high = self._runs.get(error.what, (len(damage) - 1, 0, error.page, error.page))
        pages, low, high = pages + 1, min(low, error.page), max(high, error.page)
        self._runs[error.what] = at, pages, low, high
        if pages > 1:
            size = damage.pop().bytes + damage[at].bytes
            damage[at] = Damage(None, 0, 0, size, f"{pages} pages between {low} and {high}: each {error.what}")

    def _tell(self, page: int, key: bytes, data: bytes, what: str, position: int | None, queue: int = 0, id: int = 0) -> None:
        if self.strict:
            raise files.corrupt(self.path, what)
        self.report.damage.append(Damage(position, queue, id, len(data), what))
        if data:
            self.lost.append((page, key, data))


def meta_of_records(pages: Pages) -> tuple[StoreMeta, int] | None:
    """Makes up the store's own entry when it is lost: the salt of most records, and where the last of these ends; and how many
    they are. None: no two records belong to one store. O(bytes of the file)."""
    count: Counter[int] = Counter()
    ends: dict[int, int] = {}
    for number in range(2, pages.count):
        page = os.pread(pages.fd, pages.page_bytes, number * pages.page_bytes)
        at = page.find(kinds.MAGIC_BYTES, kinds.MAGIC_AT)
        while at >= 0:
            salt = salt_of(memoryview(page)[at - kinds.MAGIC_AT :])
            if salt is not None:
                _, _, _, _, length, _, position, _ = kinds.HEAD.unpack_from(page, at - kinds.MAGIC_AT)
                count[salt] += 1
                ends[salt] = max(ends.get(salt, 0), position + length)
            at = page.find(kinds.MAGIC_BYTES, at + 1)
    salt = max(count, key=count.__getitem__, default=0)
    return None if count[salt] < 2 else (StoreMeta(salt, ends[salt], 0), count[salt])
