"""What a damaged `lmdb` store still has, wherever in its file it lies: `check` counts it, `repair` keeps it."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from xump_ext.census import census_of
from xump_ext.records import KEY_STATE, record_whole, salt_of
from xump_ext.store import Report

from .lmdb_content import HEAD, HEAD_BYTES, KEY, StoreMeta, key_of, named
from .lmdb_pages import FREE

if TYPE_CHECKING:
    from .lmdb_pages import Pages
    from .lmdb_repair import Survey

Entry = tuple[bytes, Any]
"""A key and its value."""
Gap = tuple[bytes | None, bytes | None]
"""Between which keys something is lost, the first included; None: no bound."""

QUEUE, STATE, MARK = 2, 4, 6            # records.pxd
RECORD_MAGIC = b"\x58\x5a"
MAGIC_AT = 4                            # in a record's head
CHUNK = 4096                            # records that are counted at once
NEVER = 1 << 64


def meta_of_records(pages: Pages) -> tuple[StoreMeta, int] | None:
    """What the store's own entry said, if that is lost: the salt that most records have, and where the last of them ends; and
    how many these are. None: there are not two of one store. O(bytes of the file)."""
    count: Counter[int] = Counter()
    ends: dict[int, int] = {}
    for number in range(2, pages.count):
        page = os.pread(pages.fd, pages.page_bytes, number * pages.page_bytes)
        at = page.find(RECORD_MAGIC, MAGIC_AT)
        while at >= 0:
            salt = salt_of(memoryview(page)[at - MAGIC_AT :])
            if salt is not None:
                _, length, _, position, _ = HEAD.unpack_from(page, at - MAGIC_AT)
                count[salt] += 1
                ends[salt] = max(ends.get(salt, 0), position + length)
            at = page.find(RECORD_MAGIC, at + 1)
    salt = max(count, key=count.__getitem__, default=0)
    return None if count[salt] < 2 else (StoreMeta(salt, ends[salt], 0), count[salt])


class _Salvage:
    """Records that no sound page leads to, found by looking at each page that is not known to be free.

    A record beyond the end of the log was written by a transaction that did not get to its end; unless the meta page of the last
    one is damaged: then it may be of that one, and counts before all others.
    """

    def __init__(self, survey: Survey, newest_known: bool) -> None:
        self.pages, self.salt = survey.pages, survey.meta.salt
        # An old entry of the store says nothing of what came after it.
        self.newest_known, self.end_known = newest_known, survey.meta.end if survey.end is None else NEVER
        self.end = survey.meta.end if survey.end is None else survey.end
        self.unsure = survey.free_is_damaged or not newest_known
        """Whether there may be something among it that was settled, or replaced."""
        self.found: dict[bytes, tuple[int, int, int]] = {}
        """By key: the position, where in the file it begins, and how long it is."""
        if survey.main_is_broken or not newest_known:
            broken, number = set(survey.broken), 2
            while number < self.pages.count:
                looked = not newest_known or not self.pages.reached[number] or number in broken
                number += self._look_at(number) if looked else 1

    def _look_at(self, number: int) -> int:
        """At every byte, but for what a leaf has not in use, and what is behind a record in pages of its own: there may be what
        was settled. Returns how many pages that were."""
        size = self.pages.page_bytes
        page = os.pread(self.pages.fd, size, number * size).ljust(size, b"\0")      # the file may have been cut
        begin, sure = self.pages.filled_from(number, page)
        if self.pages.is_overflow(number, page):
            return max(1, -(-(begin + self._take(number * size + begin)) // size))
        at = page.find(RECORD_MAGIC, begin + MAGIC_AT)
        while at >= 0:
            self.unsure |= self._take(number * size + at - MAGIC_AT) > 0 and not sure
            at = page.find(RECORD_MAGIC, at + 1)
        return 1

    def _take(self, start: int) -> int:
        """How long the record is that begins there; 0: there is none that counts."""
        head = os.pread(self.pages.fd, HEAD_BYTES, start)
        if len(head) < HEAD_BYTES:
            return 0
        length: int
        kind, length, queue, position, id = HEAD.unpack(head)
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
        """What the tree leads to, which counts, and what is only found beside it, in order of the keys; whether it is that."""
        for key, places in groupby(heapq.merge(whole, sorted(self.found.items()), key=itemgetter(0)), key=itemgetter(0)):
            known, *found = (value for _, value in places)
            value = found[0] if found and found[0][0] >= self.end_known else known
            if isinstance(value, tuple):
                yield key, os.pread(self.pages.fd, value[2], value[1]), True
            else:
                yield key, value, False


class Stock:
    """All that a damaged store still has: what the tree leads to, what is found beside it, and what these lack.

    What was lost may have said more: a MARK that a message is in the history, or was handed out; a STATE up to where that is so.
    And what was found beside the tree may have been settled since. Such a message is doubtful, and gets a MARK that says
    redelivered. `whole` gives anew what the tree leads to.
    """

    def __init__(self, survey: Survey, newest_known: bool, whole: Callable[[], AbstractContextManager[Iterator[Entry]]]) -> None:
        self.salvage, self.survey = _Salvage(survey, newest_known), survey
        self.whole, self.gaps = whole, survey.gaps
        self.records = self.bytes = self.back = 0
        self.census = census_of(survey.path, survey.meta.salt)
        unsure = self._count()
        complete = not self.salvage.unsure and self.records == survey.pages.meta.main.entries - 1
        for number in self.census.numbers():
            if not newest_known:
                self.census.doubt(number, state=True)
            for gap in () if complete else self.gaps:
                self._doubt_within(number, gap)
        for key in unsure:
            queue, id, _ = named(key)
            if key[:1] == KEY_STATE:
                self.census.doubt(queue, state=True)
            elif id:
                self.census.doubt(queue, id, id)
        self.end = self.salvage.end
        """Where the log goes on."""
        made = self.census.nameless(self.end)
        self.end += sum(len(record) for _, record in made)
        marks = self.census.marks(self.end)
        self.end += sum(len(record) for _, _, record in marks)
        self.nameless = [number for number, _ in made]
        self.made = [(key_of(QUEUE, number, 0), record) for number, record in made]
        self.lost = self._lost()
        self.made += [(key_of(MARK, number, id), record) for number, id, record in marks]

    def _count(self) -> list[bytes]:
        """Reads all; returns the keys of what may have been settled, or replaced, before."""
        unsure: list[bytes] = []
        self.states: set[int] = set()
        with self.whole() as entries:
            chunk: list[bytes] = []
            for key, record, beside in self.salvage.joined(entries):
                self.records, self.bytes, self.back = self.records + 1, self.bytes + len(record), self.back + beside
                chunk.append(record)
                if len(chunk) == CHUNK:
                    self.census.feed(b"".join(chunk))
                    chunk.clear()
                if beside and self.salvage.unsure:
                    unsure.append(key)
                elif key[:1] == KEY_STATE:
                    self.states.add(named(key)[0])
            self.census.feed(b"".join(chunk))
        return unsure

    def _lost(self) -> int:
        """Records; at least so many."""
        told = sum(1 for _, key, _ in self.survey.lost if key)
        counted = self.survey.pages.meta.main.entries - 1 if self.survey.count_is_known else 0      # one is the store's own
        return max(told, counted - self.records)

    def _doubt_within(self, number: int, gap: Gap) -> None:
        """What a queue lacks whose records would be between these keys."""
        low, high = (_of_key(key, bound) for key, bound in zip(gap, (0, 1 << 104), strict=True))
        if number not in self.states and low <= _of_key(key_of(STATE, number, 0)) < high:
            self.census.doubt(number, state=True)
        first = _of_key(key_of(MARK, number, 0))
        low, high = max(low - first, 0), min(high - first, 1 << 64) - 1
        if low <= high:
            self.census.doubt(number, low, high, marked=False)

    @contextmanager
    def entries(self) -> Iterator[Iterator[Entry]]:
        """In order of the keys, with names and marks that are made. Counts them anew."""
        with self.whole() as entries:
            yield self._completed((key, record) for key, record, _ in self.salvage.joined(entries))

    def _completed(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        self.records = self.bytes = 0
        for key, records in groupby(heapq.merge(entries, self.made, key=itemgetter(0)), key=itemgetter(0)):
            *_, (_, record) = records       # what is made replaces what there was
            self.records, self.bytes = self.records + 1, self.bytes + len(record)
            yield key, record

    def tell(self, report: Report) -> None:
        report.records, report.bytes, report.lost = self.records, self.bytes, self.lost
        report.remains = self.census.remains()
        report.queues = {number: left.name for number, left in report.remains.items() if number not in self.nameless}
        if self.back:
            may = "; some of these may have been settled, or replaced by newer ones, before" if self.salvage.unsure else ""
            report.notes.append(f"{self.back} whole records are in pages that no sound page leads to{may}")


def _of_key(key: bytes | None, bound: int = 0) -> int:
    """A key as a number, the next one for what is longer; no key: the bound."""
    return bound if key is None else int.from_bytes(key[:KEY.size].ljust(KEY.size, b"\0"), "big") + (len(key) > KEY.size)
