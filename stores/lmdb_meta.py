"""Which tree of an `lmdb` store counts: LMDB's two meta pages, and what the store's own entry in each tree says.

LMDB opens the tree that the meta page with the higher transaction number leads to, and keeps the trees of the last two
transactions whole. A meta page has no CRC. Each transaction writes its number into the store's own entry, too, under a CRC. So a
meta page that names another transaction than its tree does is found out.

One such page is no damage, but LMDB's own doing. When the system refuses to write the meta page of transaction N + 2, LMDB writes
the number and the last page of transaction N back into it, and leaves the new trees there:

    page N & 1       number N        trees of N + 2, whole: they were synced before
    the other one    number N + 1    trees of N + 1

N + 2 was never confirmed. But a flipped bit in the number of a confirmed N + 2 looks the same. So the newer tree counts in both
cases, and `mend` writes its number and its last page.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from .lmdb_content import META_KEY, NotOurs, StoreMeta, unpack_meta
from .lmdb_pages import END, END_AT, BadPage, Meta, NotLmdb, Pages


def read_meta(pages: Pages) -> StoreMeta:
    """Reads the store's own entry, the first one. Raises `BadPage`, `NotOurs`."""
    entry = pages.walk().first()
    pages.forget()
    if entry is None:
        raise NotOurs("it is an LMDB environment without entries, not a store")
    return unpack_meta(entry[1] if entry[0] == META_KEY else b"")


def other_transaction(pages: Pages) -> str | None:
    """The contradiction between a meta page and the tree that it leads to, in words: they are of different transactions.

    Where two groups were written and not synced, a power loss may leave pages of the second in place of the older tree. That
    transaction belongs into the other meta page: LMDB writes the even ones into the first, the odd ones into the second."""
    newest, said = pages.meta, None
    for meta in sorted(pages.candidates(), key=lambda meta: meta.transaction):
        pages.meta = meta
        with suppress(BadPage, NotOurs):        # the newest tree is yet to be read; the other one is not needed
            found = read_meta(pages).transaction
            if found != meta.transaction and (meta == newest or (found ^ meta.transaction) & 1 == 0):
                said = (f"a meta page is of transaction {meta.transaction}, and leads to the tree of transaction {found}: LMDB "
                        "would perhaps not open the tree that was confirmed last")
    pages.meta = newest
    pages.forget()
    return said


def choose_meta(pages: Pages) -> bool:
    """Where a meta page is damaged, chooses the one that leads to the newest whole tree. Returns whether that tree is known to
    be the newest that the store had: if both pages lead to whole trees, of two transactions that follow each other. Then no
    more than the number in a page is wrong, and the trees say it themselves."""
    if pages.damaged_meta is None:
        return True
    sound = []
    before = pages.meta
    for meta in pages.candidates():
        if meta.is_first():
            sound.append((0, meta))
            continue
        pages.meta = meta
        with suppress(BadPage, NotOurs, struct.error):
            found = read_meta(pages)
            pages.meta = meta._replace(transaction=found.transaction)
            _walk_all(pages, found.salt)
            sound.append((found.transaction, pages.meta))
        pages.forget()
    sound.sort()
    pages.meta = sound[-1][1] if sound and sound[-1][0] else before
    return [number + 1 for number, _ in sound[:-1]] == [number for number, _ in sound[1:]] != []


def _walk_all(pages: Pages, salt: int) -> None:
    """Follows both trees to their ends. Raises `BadPage`; damaged records may be in them."""
    walk = pages.walk(_raise_for_pages)
    while walk.next_records(salt, META_KEY) is not None:
        pass
    pages.free(_raise_for_pages)


def _raise_for_pages(page: int, what: str, key: bytes | None, record: bytes | None) -> None:
    if key is None:
        raise BadPage(page, what)


# ---- a meta page that LMDB could not write

def left_behind(file: str) -> Meta | None:
    """The newest meta page, as it should be, if LMDB left it as drawn above, and its trees are whole. O(1); where it is so,
    O(bytes of the store)."""
    with suppress(BadPage, NotLmdb, NotOurs), Pages(file) as pages:
        if pages.damaged_meta is not None:
            return None
        older, newest = sorted(pages.candidates(), key=lambda meta: meta.transaction)
        last = max(older.last, newest.last, pages.count - 1)
        pages.meta = older._replace(last=last)
        found = read_meta(pages)
        number = found.transaction
        if not older.transaction + 2 == newest.transaction + 1 == number:
            return None
        pages.meta = pages.meta._replace(transaction=number)
        _walk_all(pages, found.salt)
        last = max(older.last, newest.last, len(pages.reached.rstrip(b"\0")) - 1)
        return older._replace(transaction=number, last=last)
    return None


def mend(file: str) -> str | None:
    """Completes such a page, durably; returns what was wrong, None: nothing. The caller owns the store. Raises OSError."""
    meta = left_behind(file)
    if meta is None:
        return None
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)        # a killed process may have left the trees to the system
        os.pwrite(fd, END.pack(meta.last, meta.transaction), (meta.transaction & 1) * meta.free.page_bytes + END_AT)
        os.fsync(fd)
    finally:
        os.close(fd)
    return told(meta)


def told(meta: Meta) -> str:
    """The fault of such a page, in words."""
    number = meta.transaction
    return f"meta page {number & 1} has the number of transaction {number - 2}, and leads to the tree of transaction {number}"
