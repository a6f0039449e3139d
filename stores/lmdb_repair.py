"""Looks after an `lmdb` store that no process has open: check, repair, compact.

All of them read the file by `lmdb_pages`, never by LMDB's map, so no damage can end the process. And they write a new
environment, never into the damaged one. Repair takes

1. the whole records that the tree leads to, as far as it can be followed;
2. where it cannot be followed: the records in pages that no sound page leads to, and that are not listed as free. Of several
   records under one key, the one with the highest position counts.

The damaged bytes go, one for one, into a file beside the store, PATH.quarantine-N:

    "XumpQuar", version u32, salt u32                            at the beginning
    page u64, queue u32, id u64, key bytes u32, bytes u32        before each key and record; without a key, a whole page follows

If the tree itself was damaged, the old file stays as PATH.damaged-N.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from xump_ext.store import Damage, Report

from . import lmdb_files as files, lmdb_meta
from .belonging import belong
from .lmdb_content import named
from .lmdb_pages import END
from .lmdb_salvage import Stock
from .lmdb_survey import Entry, Progress, Survey

CHUNK, CHUNK_BYTES = 4096, 1 << 20      # entries of one transaction; an entry longer than the second is its last

QUARANTINE_MAGIC, QUARANTINE_VERSION = b"XumpQuar", 1
QUARANTINE = struct.Struct("<II")
QUARANTINED = struct.Struct("<QIQII")


def check(path: str, progress: Progress) -> Report:
    """See `Backend.check`."""
    path = os.path.realpath(path)
    with _owned(path, shared=True), files.pages_of(path) as pages:
        left = lmdb_meta.left_behind(files.data_of(path))
        if left is not None:
            pages.meta, pages.damaged_meta = left, None
        newest_known = lmdb_meta.choose_meta(pages)
        survey = Survey(path, pages, progress)
        survey.exhaust()
        if survey.report.damage:
            _stock(survey, newest_known).tell(survey.report)
        if left is not None:
            survey.report.damage.append(Damage(None, 0, 0, END.size, lmdb_meta.told(left), harmless=True))
        return survey.report


def compact(path: str, progress: Progress) -> Report:
    """See `Backend.compact`."""
    path = os.path.realpath(path)
    with _owned(path):
        lmdb_meta.mend(files.data_of(path))
        with files.pages_of(path) as pages:
            survey = Survey(path, pages, progress, strict=True)
            files.take_place(path, files.build(path, survey.meta, _chunks(survey.entries())))
            return survey.report


def repair(path: str, progress: Progress) -> Report:
    """See `Backend.repair`."""
    path = os.path.realpath(path)
    with _owned(path):
        mended = lmdb_meta.mend(files.data_of(path))
        report = _repair(path, progress)
        if mended is not None:
            report.damage.append(Damage(None, 0, 0, END.size, f"{mended}; its number is mended"))
        return report


def _repair(path: str, progress: Progress) -> Report:
    with files.pages_of(path, anyway=True) as pages:
        newest_known = lmdb_meta.choose_meta(pages)
        survey = Survey(path, pages, progress)
        survey.exhaust()
        report = survey.report
        if not report.damage:
            return report
        stock = _stock(survey, newest_known)
        with stock.entries() as entries:
            new = files.build(path, survey.meta._replace(end=stock.end), _chunks(entries))
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


@contextmanager
def _owned(path: str, shared: bool = False) -> Iterator[None]:
    files.must_be_there(path)
    claim = files.own(path, "to look after it", shared)
    try:
        yield
    finally:
        claim.release(remove=claim.made and not shared)


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    chunk: list[Entry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) >= CHUNK or len(entry[1]) > CHUNK_BYTES:
            yield chunk
            chunk = []
    yield chunk


def _quarantine(path: str, survey: Survey) -> str | None:
    """Puts the damaged bytes into a file of their own, durably; returns its name."""
    if not survey.lost:
        return None
    file, name = _new_file(f"{path}.quarantine-")
    with file:
        belong(file.fileno(), files.status_of(path))
        file.write(QUARANTINE_MAGIC + QUARANTINE.pack(QUARANTINE_VERSION, survey.meta.salt))
        for page, key, data in survey.lost:
            queue, id, _ = named(key)
            file.write(QUARANTINED.pack(page, queue, id, len(key), len(data)) + key + data)
        file.flush()
        os.fsync(file.fileno())
    files.sync_directory(os.path.dirname(path))
    return name


def _keep_old(path: str) -> str:
    """Gives the environment a second name; returns it."""
    file, name = _new_file(f"{path}.damaged-")
    data = files.data_of(path)
    with file:
        os.unlink(name)
        try:
            os.link(data, name)
        except OSError:     # not on this file system
            _copy(data, name)
    files.sync_directory(os.path.dirname(path))
    return name


def _copy(file: str, name: str) -> None:
    """Copies a file, durably; an error leaves no copy."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as copy, open(file, "rb") as old:
            belong(copy.fileno(), os.fstat(old.fileno()))
            shutil.copyfileobj(old, copy, CHUNK_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
    except BaseException:
        os.unlink(name)
        raise


def _new_file(prefix: str) -> tuple[BinaryIO, str]:
    number = 1
    while True:
        with suppress(FileExistsError):
            return open(f"{prefix}{number}", "xb"), f"{prefix}{number}"
        number += 1
