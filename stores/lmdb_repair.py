"""Looks after an `lmdb` store that no process has open: check, repair, compact.

All of them read the file by `lmdb_pages`, never by LMDB's map, so no damage can end the process; and what they write is a new
environment, never the damaged one. Repair takes

1. what the tree leads to, as far as it can be followed, whole records only;
2. where it cannot be followed: what lies in pages that no sound page leads to, and that are not listed as free. Of several
   records under one key the one with the highest position is the one that counts.

What is damaged goes, byte for byte, into a file beside the store, PATH.quarantine-N:

    "XumpQuar", version u32, salt u32                            at the beginning
    page u64, queue u32, id u64, key bytes u32, bytes u32        before each key and record; without a key it is a whole page

Where the tree itself was damaged, the old file is kept as PATH.damaged-N.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from xump_ext.errors import StoreCorrupt
from xump_ext.lmdb_walk import Walk
from xump_ext.records import describe, items
from xump_ext.store import Damage, Report

from . import lmdb_files as files
from .lmdb_content import (
    HEAD,
    HEAD_BYTES,
    META_BYTES,
    META_KEY,
    META_MAGIC,
    NotOurs,
    OtherVersion,
    StoreMeta,
    key_of,
    named,
    pack_meta,
    unpack_meta,
)
from .lmdb_owner import Owner
from .lmdb_pages import BadPage, Pages
from .lmdb_salvage import Entry, Gap, Stock, meta_of_records

Progress = Callable[[int, int], None] | None
CHUNK, CHUNK_BYTES = 4096, 1 << 20      # entries that are written in one transaction; a longer one is its last

QUARANTINE_MAGIC, QUARANTINE_VERSION = b"XumpQuar", 1
QUARANTINE = struct.Struct("<II")
QUARANTINED = struct.Struct("<QIQII")


def check(path: str, progress: Progress) -> Report:
    path = os.path.realpath(path)
    with _owned(path, shared=True), files.pages_of(path) as pages:
        newest_known = _choose_meta(pages)
        survey = Survey(path, pages, progress)
        survey.exhaust()
        if survey.report.damage:
            _stock(survey, newest_known).tell(survey.report)
        return survey.report


def compact(path: str, progress: Progress) -> Report:
    path = os.path.realpath(path)
    with _owned(path), files.pages_of(path) as pages:
        survey = Survey(path, pages, progress, strict=True)
        files.take_place(path, files.build(path, _chunks(survey.meta, survey.entries())))
        return survey.report


def repair(path: str, progress: Progress) -> Report:
    path = os.path.realpath(path)
    with _owned(path), files.pages_of(path, anyway=True) as pages:
        newest_known = _choose_meta(pages)
        survey = Survey(path, pages, progress)
        survey.exhaust()
        report = survey.report
        if not report.damage:
            return report
        stock = _stock(survey, newest_known)
        with stock.entries() as entries:
            new = files.build(path, _chunks(survey.meta._replace(end=stock.end), entries))
        stock.tell(report)
        report.damage += [Damage(None, number, 0, 0, f"the name and properties of queue {number} are lost; it is now called "
                                 f"'recovered-{number}'") for number in stock.nameless]
        report.quarantine = _quarantine(path, survey)
        if survey.broken:
            report.notes.append(f"the old file is kept as {_keep_old(path)}")
        files.take_place(path, new)
        return report


def _stock(survey: Survey, newest_known: bool) -> Stock:
    @contextmanager
    def whole() -> Iterator[Iterator[Entry]]:
        with files.pages_of(survey.path, anyway=True) as again:
            again.meta = survey.pages.meta
            yield Survey(survey.path, again, None).entries()

    return Stock(survey, newest_known, whole)


def _choose_meta(pages: Pages) -> bool:
    """Of two meta pages of which one is damaged, or both, the one that leads to the newest whole tree. Returns whether that is
    known to be the newest that there was."""
    if pages.damaged_meta is None:
        return True
    sound = []
    before = pages.meta
    for meta in pages.candidates():
        pages.meta = meta
        with suppress(BadPage, NotOurs, struct.error):
            found = files.read_meta(pages)
            walk = pages.walk(_raise_for_pages)
            while walk.next_records(found.salt, META_KEY) is not None:
                pass
            sound.append((found.end, meta))
        pages.forget()
    pages.meta = max(sound)[1] if sound else before
    return len(sound) == 2


def _raise_for_pages(page: int, what: str, key: bytes | None, record: bytes | None) -> None:
    if key is None:
        raise BadPage(page, what)


@contextmanager
def _owned(path: str, shared: bool = False) -> Iterator[None]:
    files.must_be_there(path)
    owner = Owner(path, "to look after it", shared)
    try:
        yield
    finally:
        owner.release(remove=owner.made)


def _chunks(meta: StoreMeta, entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    chunk: list[Entry] = [(META_KEY, pack_meta(meta))]
    for entry in entries:
        chunk.append(entry)
        if len(chunk) >= CHUNK or len(entry[1]) > CHUNK_BYTES:
            yield chunk
            chunk = []
    yield chunk


class Survey:
    """One look at all that a store has. `strict`: damage raises `StoreCorrupt`."""

    def __init__(self, path: str, pages: Pages, progress: Progress, strict: bool = False) -> None:
        self.path, self.pages, self.progress, self.strict = path, pages, progress, strict
        self.report = Report()
        self.lost: list[tuple[int, bytes, bytes]] = []
        """What is damaged: the page, the key and the record; without a key the page, whole."""
        self.gaps: list[Gap] = []
        """Between which keys something is lost."""
        self.broken: list[int] = []
        """Pages that are not what they have to be: with any of these, the tree does not lead to everything."""
        self.main_is_broken = self.free_is_damaged = False
        self.count_is_known = pages.damaged_meta is None
        """Whether the meta page says how many entries the tree has."""
        self._walk: Walk | None = None
        self._runs: dict[str, tuple[int, int, int, int]] = {}
        """By what is wrong with pages: where in the report that stands, how many they are, the lowest and the highest."""
        self.end: int | None = None
        """Where the log goes on; counted, if the store's own entry is an old one."""
        if pages.damaged_meta:
            self._broken(BadPage(0, pages.damaged_meta))
        self.meta = self._find_meta()

    def entries(self) -> Iterator[Entry]:
        """What is whole and where it belongs, in order of the keys. Fills the report."""
        for records in self.pieces():
            yield from items(records)[0]

    def pieces(self) -> Iterator[memoryview]:
        """The same, as whole records."""
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

    def _find_meta(self) -> StoreMeta:
        """The store's own entry; if the tree does not lead to it, the newest that lies anywhere, or what records tell of it."""
        try:
            return files.read_meta(self.pages)
        except OtherVersion as error:
            raise StoreCorrupt(f"{self.path}: {error}: open it with the one that made it") from None
        except (BadPage, NotOurs) as error:
            if self.strict:
                raise files.corrupt(self.path, str(error)) from None
            why = str(error)
        found = self._metas_in_use()
        sure = len(found) == 1
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
        """In pages that are in use, if that is known: one, if its page is whole."""
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

    def _damaged(self, page: int, what: str, key: bytes | None, record: bytes | None) -> None:
        if key is None or record is None:
            between = self._walk.between if self._walk is not None else None
            self.gaps += [between] if between is not None else []
            self._broken(BadPage(page, what))
        else:
            queue, id, whose = named(key)
            position = None
            self.gaps.append((key, key + b"\0"))
            if len(record) >= HEAD_BYTES:
                kind, _, of_queue, position, of_id = HEAD.unpack_from(record)
                own = key_of(kind, of_queue, of_id)
                self.gaps += [(own, own + b"\0")] if own not in (b"", key) else []
            self._tell(page, key, record, f"page {page}: the {whose} is a record {what}", position, queue, id)

    def _broken(self, error: BadPage) -> None:
        is_there = 2 <= error.page < self.pages.count
        data = os.pread(self.pages.fd, self.pages.page_bytes, error.page * self.pages.page_bytes) if is_there else b""
        self.broken.append(error.page)
        self._tell(error.page, b"", data, str(error), None)
        self._join_run(error)

    def _join_run(self, error: BadPage) -> None:
        """Of pages with which the same is wrong, one line says it."""
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


def _quarantine(path: str, survey: Survey) -> str | None:
    """Puts what was damaged into a file of its own, durably; returns its name."""
    if not survey.lost:
        return None
    file, name = _new_file(f"{path}.quarantine-")
    with file:
        os.fchmod(file.fileno(), files.mode_of(path))
        file.write(QUARANTINE_MAGIC + QUARANTINE.pack(QUARANTINE_VERSION, survey.meta.salt))
        for page, key, data in survey.lost:
            queue, id, _ = named(key)
            file.write(QUARANTINED.pack(page, queue, id, len(key), len(data)) + key + data)
        file.flush()
        os.fsync(file.fileno())
    files.sync_directory(os.path.dirname(path))
    return name


def _keep_old(path: str) -> str:
    """The environment has a second name from now on."""
    file, name = _new_file(f"{path}.damaged-")
    data = os.path.join(path, files.DATA)
    with file:
        os.unlink(name)
        try:
            os.link(data, name)
        except OSError:     # not on this file system
            shutil.copy(data, name)
    files.sync_directory(os.path.dirname(path))
    return name


def _new_file(prefix: str) -> tuple[BinaryIO, str]:
    number = 1
    while True:
        with suppress(FileExistsError):
            return open(f"{prefix}{number}", "xb"), f"{prefix}{number}"
        number += 1
