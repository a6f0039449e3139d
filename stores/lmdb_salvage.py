"""The remains of a damaged `lmdb` store, wherever they lie in its file: `check` counts them, `repair` keeps them."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from operator import itemgetter

from xump_ext.records import kinds, record_whole
from xump_ext.recovery.salvage import salvage_of
from xump_ext.store import Report

from .lmdb_content import key_of, named
from .lmdb_pages import FREE
from .lmdb_survey import Entry, Gap, Survey

CHUNK = 4096                            # records that are counted at once
NEVER = 1 << 64


class _Strays:
    """Records that no sound page leads to. Finds them by looking at each page that is not known to be free.

    An unfinished transaction wrote the records beyond the end of the log. If the meta page of the last transaction is damaged,
    though, such a record may belong to that transaction, and counts before all others.
    """

    def __init__(self, survey: Survey, newest_known: bool) -> None:
        self.pages, self.salt = survey.pages, survey.meta.salt
        # An old entry of the store says nothing of later records.
        self.newest_known, self.end_known = newest_known, survey.meta.end if survey.end is None else NEVER
        self.end = survey.meta.end if survey.end is None else survey.end
        self.unsure = survey.free_is_damaged or not newest_known
        """Whether settled or replaced records may be among them."""
        self.found: dict[bytes, tuple[int, int, int]] = {}
        """By key: the position of a record, its byte in the file, and its length."""
        if survey.main_is_broken or not newest_known:
            broken, number = set(survey.broken), 2
            while number < self.pages.count:
                looked = not newest_known or not self.pages.reached[number] or number in broken
                number += self._look_at(number) if looked else 1

    def _look_at(self, number: int) -> int:
        """Looks for records at every byte in use. Settled records may lie in the unused bytes of a leaf, and behind a record in
        pages of its own, so it skips those. Returns the number of pages."""
        size = self.pages.page_bytes
        page = os.pread(self.pages.fd, size, number * size).ljust(size, b"\0")      # the file may have been cut
        begin, sure = self.pages.filled_from(number, page)
        if self.pages.is_overflow(number, page):
            return max(1, -(-(begin + self._take(number * size + begin)) // size))
        at = page.find(kinds.MAGIC_BYTES, begin + kinds.MAGIC_AT)
        while at >= 0:
            self.unsure |= self._take(number * size + at - kinds.MAGIC_AT) > 0 and not sure
            at = page.find(kinds.MAGIC_BYTES, at + 1)
        return 1

    def _take(self, start: int) -> int:
        """Takes the record that begins there; returns its length, 0 for none that counts."""
        head = os.pread(self.pages.fd, kinds.HEAD.size, start)
        if len(head) < kinds.HEAD.size:
            return 0
        length: int
        _, _, kind, _, length, queue, position, id = kinds.HEAD.unpack(head)
        key = key_of(kind, queue, id)
        newer = position >= self.end_known
        if not key or length > self.pages.bytes - start or (newer and self.newest_known):
            return 0
        if not newer and self.pages.reached[start // self.pages.page_bytes] == FREE:
            return 0
        if record_whole(os.pread(self.pages.fd, length, start), position, self.salt) != "whole":
            return 0
        self.end = max(self.end, position + length)
        if key not in self.found or self.found[key][0] < position:
            self.found[key] = position, start, length
        return length

    def joined(self, whole: Iterator[Entry]) -> Iterator[tuple[bytes, bytes, bool]]:
        """Yields (key, record, whether it is a stray), in order of the keys. A record of the tree counts before a stray one,
        unless that was written behind the known end of the log."""
        for key, both in groupby(heapq.merge(whole, sorted(self.found.items()), key=itemgetter(0)), key=itemgetter(0)):
            known, *found = (value for _, value in both)
            value = found[0] if found and found[0][0] >= self.end_known else known
            if isinstance(value, tuple):
                yield key, os.pread(self.pages.fd, value[2], value[1]), True
            else:
                yield key, value, False


class Stock:
    """All the remains of a damaged store: the records of the tree, the strays beside it, and the records that repair makes up.

    A lost record may have said more of a message: a MARK, that it is in the history or was handed out; a STATE, up to which id
    that is so. And a stray message may have been settled since. Such a message is doubtful, and gets a MARK that says
    redelivered. `whole` opens the records of the tree anew.
    """

    def __init__(self, survey: Survey, newest_known: bool, whole: Callable[[], AbstractContextManager[Iterator[Entry]]]) -> None:
        self.strays, self.survey = _Strays(survey, newest_known), survey
        self.whole, self.gaps = whole, survey.gaps
        self.records = self.bytes = self.back = 0
        self.salvage = salvage_of(survey.path, survey.meta.salt)
        unsure = self._count()
        complete = not self.strays.unsure and self.records == survey.pages.meta.main.entries - 1
        for number in self.salvage.numbers():
            if not newest_known:
                self.salvage.doubt(number, state=True)
            for gap in () if complete else self.gaps:
                self._doubt_within(number, gap)
        for key in unsure:
            queue, id, _ = named(key)
            if key[:1] == kinds.KEY_STATE:
                self.salvage.doubt(queue, state=True)
            elif id:
                self.salvage.doubt(queue, id, id)
        self.end = self.strays.end
        """Where the log goes on."""
        made = self.salvage.nameless(self.end)
        self.end += sum(len(record) for _, record in made)
        marks = self.salvage.marks(self.end)
        self.end += sum(len(record) for _, _, record in marks)
        self.nameless = [number for number, _ in made]
        self.made = [(key_of(kinds.QUEUE, number, 0), record) for number, record in made]
        self.lost = self._lost()
        self.made += [(key_of(kinds.MARK, number, id), record) for number, id, record in marks]

    def _count(self) -> list[bytes]:
        """Reads all records; returns the keys of those that may have been settled or replaced before."""
        unsure: list[bytes] = []
        self.states: set[int] = set()
        with self.whole() as entries:
            chunk: list[bytes] = []
            for key, record, beside in self.strays.joined(entries):
                self.records, self.bytes, self.back = self.records + 1, self.bytes + len(record), self.back + beside
                chunk.append(record)
                if len(chunk) == CHUNK:
                    self.salvage.feed(b"".join(chunk))
                    chunk.clear()
                if beside and self.strays.unsure:
                    unsure.append(key)
                elif key[:1] == kinds.KEY_STATE:
                    self.states.add(named(key)[0])
            self.salvage.feed(b"".join(chunk))
        return unsure

    def _lost(self) -> int:
        """The number of lost records; at least."""
        told = sum(1 for _, key, _ in self.survey.lost if key)
        counted = self.survey.pages.meta.main.entries - 1 if self.survey.count_is_known else 0      # one entry is the store's own
        return max(told, counted - self.records)

    def _doubt_within(self, number: int, gap: Gap) -> None:
        """Doubts the messages of a queue whose records would be between these keys."""
        low, high = (_of_key(key, bound) for key, bound in zip(gap, (0, 1 << 104), strict=True))
        if number not in self.states and low <= _of_key(key_of(kinds.STATE, number, 0)) < high:
            self.salvage.doubt(number, state=True)
        first = _of_key(key_of(kinds.MARK, number, 0))
        low, high = max(low - first, 0), min(high - first, 1 << 64) - 1
        if low <= high:
            self.salvage.doubt(number, low, high, marked=False)

    @contextmanager
    def entries(self) -> Iterator[Iterator[Entry]]:
        """Opens all records, in order of the keys, with the names and marks that repair makes up. Counts them anew."""
        with self.whole() as entries:
            yield self._completed((key, record) for key, record, _ in self.strays.joined(entries))

    def _completed(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        self.records = self.bytes = 0
        for key, records in groupby(heapq.merge(entries, self.made, key=itemgetter(0)), key=itemgetter(0)):
            *_, (_, record) = records       # a record made up replaces an older one
            self.records, self.bytes = self.records + 1, self.bytes + len(record)
            yield key, record

    def tell(self, report: Report) -> None:
        report.records, report.bytes, report.lost = self.records, self.bytes, self.lost
        report.remains = self.salvage.remains()
        report.queues = {number: left.name for number, left in report.remains.items() if number not in self.nameless}
        if self.back:
            may = "; some of these may have been settled, or replaced by newer ones, before" if self.strays.unsure else ""
            report.notes.append(f"{self.back} whole records are in pages that no sound page leads to{may}")


def _of_key(key: bytes | None, bound: int = 0) -> int:
    """A key as a number, the next number for a longer key; no key: the bound."""
    return bound if key is None else int.from_bytes(
        key[:kinds.KEY.size].ljust(kinds.KEY.size, b"\0"), "big") + (len(key) > kinds.KEY.size)
