"""Reads an LMDB file without LMDB: page by page with `pread`, believing nothing.

LMDB reads its file by a map and trusts the bytes: a damaged page can make it read far behind the end of the map, which ends the
process. So `scan`, `check`, `repair` and `compact` look at a file that may be damaged through this module. LMDB itself sees a
file only after every live page was found sound.

The data format is version 1, that of all LMDB 0.9, in the byte order of the machine. `xump_ext/lmdb/walk.pxd` draws the pages of
trees, and the compiled `Walk` follows them; the reading of files is here.

    meta     16 magic u32   20 version u32   24 address u64   32 map size u64   40 tree of free pages   88 main tree
            136 last page u64   144 transaction u64           pages 0 and 1; the later transaction counts
    tree      0 page size u32 (in the first)   4 flags u16   6 depth u16   8 branch pages u64   16 leaf pages u64
             24 overflow pages u64   32 entries u64   40 root u64, 2**64 - 1: empty
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from xump_ext.lmdb.walk import Walk

MAGIC, FORMAT = 0xBEEFC0DE, 1
OVERFLOW, META = 4, 8
HEADER = 16
PAGE_BYTES = (256, 0x8000)      # the range of LMDB's page sizes, powers of two
PAGE_BYTES_MOST = 4096          # of most files
FREE_FLAGS = 0x4008             # keys are integers; and the environment was made as a single file
NO_PAGE = 2**64 - 1     # the root of an empty tree
MAIN, FREE_LIST, FREE = 1, 2, 3         # how a page was reached

_PAGE = struct.Struct("=QHHHH")
_META = struct.Struct("=II8xQ")
_TREE = struct.Struct("=IHHQQQQQ")
END, END_AT = struct.Struct("=QQ"), 136     # last page, transaction


class Tree(NamedTuple):
    page_bytes: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


class Meta(NamedTuple):
    main: Tree
    free: Tree
    last: int
    transaction: int

    def is_first(self) -> bool:
        """Whether it is as LMDB makes it, before any transaction: two empty trees."""
        return self.transaction == 0 and self.main[3:] == self.free[3:] == (0, 0, 0, 0, NO_PAGE) and self.last == 1


class NotLmdb(Exception):
    """The file has no readable meta pages: it is no LMDB file, or cut to nothing, or of another format."""


class BadPage(Exception):
    """A damaged page; `page` is its number."""

    def __init__(self, page: int, what: str) -> None:
        super().__init__(f"page {page}: {what}")
        self.page, self.what = page, what


Told = Callable[[int, str, bytes | None, bytes | None], object]
"""Hears of damage: the page, the damage in words; for a damaged entry, its key and its value."""


def _raise(page: int, what: str, key: bytes | None, record: bytes | None) -> None:
    raise BadPage(page, what)


def _meta(data: bytes, which: int) -> Meta | str:
    """A meta page, or the damage to it in words."""
    if len(data) < 152:
        return f"meta page {which} is cut"
    number, _, flags, _, _ = _PAGE.unpack_from(data)
    magic, format, _ = _META.unpack_from(data, 16)
    if magic != MAGIC:
        return f"meta page {which} begins with {magic:#010x}, not with LMDB's {MAGIC:#x}"
    if format != FORMAT:
        return f"meta page {which} has data format {format}; what can be read is {FORMAT}, that of LMDB 0.9"
    free, main = Tree(*_TREE.unpack_from(data, 40)), Tree(*_TREE.unpack_from(data, 88))
    size = free.page_bytes
    if flags & META == 0 or number != which or not _can_be(size):
        return f"meta page {which} is damaged"
    return Meta(main, free, *END.unpack_from(data, END_AT))


def _can_be(page_bytes: int) -> bool:
    return PAGE_BYTES[0] <= page_bytes <= PAGE_BYTES[1] and page_bytes & (page_bytes - 1) == 0


def _contradiction(first: Meta, second: Meta) -> str | None:
    """The contradiction between two meta pages, in words. Transactions write them in turn."""
    ids = first.transaction, second.transaction
    if ids[0] & 1 or (ids != (0, 0) and abs(ids[0] - ids[1]) != 1):
        return f"the meta pages are of the transactions {ids[0]} and {ids[1]}, which do not follow each other"
    if first.free.page_bytes != second.free.page_bytes:
        return f"the meta pages tell of pages of {first.free.page_bytes} and {second.free.page_bytes} bytes"
    for meta in (first, second):
        if meta.main.flags or meta.free.flags & ~FREE_FLAGS or meta.main.page_bytes:
            return (f"a meta page tells of trees with flags {meta.main.flags:#x} and {meta.free.flags:#x}, and values of "
                    f"{meta.main.page_bytes} bytes")
    return None


class Pages:
    """The pages of one file, as of its last transaction. Raises `NotLmdb`. `anyway`: opens even such a file, so that you can
    look at its pages, but the trees lead nowhere."""

    def __init__(self, file: str, anyway: bool = False) -> None:
        self.fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.bytes = os.fstat(self.fd).st_size
            metas = [_meta(os.pread(self.fd, 152, 0), 0)]
            sizes = [metas[0].free.page_bytes] if isinstance(metas[0], Meta) else [1 << shift for shift in range(8, 16)]
            for size in sizes:
                metas[1:] = [_meta(os.pread(self.fd, 152, size), 1)]
                if isinstance(metas[1], Meta) and metas[1].free.page_bytes == size:
                    break
            found = [meta for meta in metas if isinstance(meta, Meta)]
            if not found and not (anyway and self.bytes):
                raise NotLmdb(str(metas[0]) if self.bytes else "the file is empty")
            self.damaged_meta = next((meta for meta in metas if isinstance(meta, str)), None)
            if not found:
                nowhere = Tree(PAGE_BYTES_MOST, 0, 1, 0, 0, 0, 0, 0)
                found = [Meta(nowhere, nowhere, self.bytes // PAGE_BYTES_MOST, 0)]
            elif self.damaged_meta is None:
                self.damaged_meta = _contradiction(*found)
            self.meta = max(found, key=lambda meta: meta.transaction)
            self.page_bytes = self.meta.free.page_bytes
            self.count = -(-self.bytes // self.page_bytes)
            """Pages of which the file has at least a part."""
            self.reached = bytearray(self.count)
            """How each page was reached: MAIN, FREE_LIST, FREE; 0: not yet."""
        except BaseException:
            os.close(self.fd)
            raise

    def candidates(self) -> Iterator[Meta]:
        """Yields both meta pages, damaged or not."""
        for number in (0, 1):
            data = os.pread(self.fd, 152, number * self.page_bytes)
            if len(data) == 152:
                yield Meta(Tree(*_TREE.unpack_from(data, 88)), Tree(*_TREE.unpack_from(data, 40)), *END.unpack_from(data, END_AT))

    def forget(self) -> None:
        """Forgets which pages were reached, so that you can walk the trees anew."""
        self.reached = bytearray(self.count)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def least_bytes(self) -> int:
        """The size of a file with all pages in use. Pages that were free from the start need not be in the file."""
        trees = self.meta.main, self.meta.free
        return self.page_bytes * (2 + sum(tree.branches + tree.leaves + tree.overflows for tree in trees))

    def walk(self, tell: Told = _raise) -> Walk:
        """Walks the main tree."""
        return self._walk(self.meta.main, MAIN, tell)

    def free(self, tell: Told = _raise) -> int:
        """Reads the list of free pages, after the main tree; returns how many it has."""
        free, beyond = self._walk(self.meta.free, FREE_LIST, tell).free_pages(self.meta.transaction)
        if self.meta.last + 1 > self.count + beyond:
            tell(0, f"there should be {self.meta.last + 1} pages, of which {beyond} need not be in the file; "
                 f"there are {self.count}", None, None)
        return free

    def _walk(self, tree: Tree, mark: int, tell: Told) -> Walk:
        return Walk(tree, self.page_bytes, self.meta.last, self.reached, mark, self._read, tell)

    def _read(self, buffer: memoryview, page: int) -> int:
        return os.preadv(self.fd, [buffer], page * self.page_bytes)

    @staticmethod
    def is_overflow(number: int, page: bytes) -> bool:
        """Whether a value with pages of its own begins in this page. The bytes behind the value are left from before."""
        own, _, flags, _, _ = _PAGE.unpack_from(page)
        return bool(own == number and flags == OVERFLOW)

    def filled_from(self, number: int, page: bytes) -> tuple[int, bool]:
        """Where the used bytes of a page begin that may be a damaged leaf, and whether that is sure. The bytes before them
        belong to deleted entries."""
        lower, upper = _PAGE.unpack_from(page)[3:]
        if self.is_overflow(number, page):
            return HEADER, True
        if lower & 1 or not HEADER < lower <= upper < self.page_bytes:
            return 0, False
        offsets = struct.unpack_from(f"={(lower - HEADER) // 2}H", page, HEADER)
        least = min([upper, *(at for at in offsets if at >= lower)])
        return least, least == upper == min(offsets)
