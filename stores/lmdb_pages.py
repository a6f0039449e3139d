"""An LMDB file, read without LMDB: page by page with `pread`, believing nothing.

LMDB reads its file by a map and trusts what is in it: a damaged page can make it read far behind the end of the map, which ends
the process. So whatever looks at a file that may be damaged looks through this module: `scan`, `check`, `repair` and `compact`.
LMDB itself gets to see a file whose every live page was found to be sound.

The data format is version 1, that of all LMDB 0.9, in the byte order of the machine:

    page      0 number u64   8 pad u16   10 flags u16   12 lower u16   14 upper u16   (overflow: 12 pages u32)
    meta     16 magic u32   20 version u32   24 address u64   32 map size u64   40 tree of free pages   88 main tree
            136 last page u64   144 transaction u64           pages 0 and 1; the one of the later transaction counts
    tree      0 page size u32 (in the first)   4 flags u16   6 depth u16   8 branch pages u64   16 leaf pages u64
             24 overflow pages u64   32 entries u64   40 root u64, 2**64 - 1: empty
    branch   16 offsets u16 of the nodes, by key; up to lower     node  0 child, 48 bits   6 key bytes u16   8 key
    leaf     likewise                                             node  0 low u16   2 high u16: of the value's size
                                                                        4 flags u16   6 key bytes u16   8 key, value
    A value too long for half a page lies in overflow pages, one behind the other, from byte 16 of the first on; its node has the
    number of that page instead.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from operator import lt
from typing import NamedTuple

MAGIC, FORMAT = 0xBEEFC0DE, 1
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
BIG = 1                         # a node's flag: its value is in overflow pages
EMPTY = 2**64 - 1
HEADER = 16
PAGE_BYTES = (256, 0x8000)      # that LMDB can have, powers of two
PAGE_BYTES_MOST = 4096          # what most have
FREE_FLAGS = 0x4008             # keys are integers; and the environment was made as a single file
DEPTH_MAX = 32                  # LMDB's own limit
MAIN, FREE_LIST, FREE = 1, 2, 3         # what a page is reached as

_PAGE = struct.Struct("=QHHHH")
_META = struct.Struct("=II8xQ")
_TREE = struct.Struct("=IHHQQQQQ")
_END = struct.Struct("=QQ")
_NODE = struct.Struct("=HHHH")
_NUMBER = struct.Struct("=Q")


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


class Child(NamedTuple):
    """A page that a branch names, and between which keys it lies."""

    page: int
    level: int
    low: bytes | None
    high: bytes | None


class NotLmdb(Exception):
    """The file has no meta pages that can be read: it is no LMDB file, or cut to nothing, or of another format."""


class BadPage(Exception):
    """A page that is not what it has to be; `page` is its number."""

    def __init__(self, page: int, what: str) -> None:
        super().__init__(f"page {page}: {what}")
        self.page = page


Told = Callable[[BadPage], None]


def _raise(error: BadPage) -> None:
    raise error


def _meta(data: bytes, which: int) -> Meta | str:
    """A meta page, or what is wrong with it."""
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
    return Meta(main, free, *_END.unpack_from(data, 136))


def _can_be(page_bytes: int) -> bool:
    return PAGE_BYTES[0] <= page_bytes <= PAGE_BYTES[1] and page_bytes & (page_bytes - 1) == 0


def _contradiction(first: Meta, second: Meta) -> str | None:
    """What is wrong with two meta pages. Transactions write them in turn."""
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
    """The pages of one file, as of its last transaction. Raises `NotLmdb`; `anyway`: not even then, so that pages can be looked
    at, but the trees lead nowhere."""

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
            """Of each page what it was reached as: MAIN, FREE_LIST, FREE; 0: not yet."""
        except BaseException:
            os.close(self.fd)
            raise

    def candidates(self) -> Iterator[Meta]:
        """What the meta pages say, damaged or not."""
        for number in (0, 1):
            data = os.pread(self.fd, 152, number * self.page_bytes)
            if len(data) == 152:
                yield Meta(Tree(*_TREE.unpack_from(data, 88)), Tree(*_TREE.unpack_from(data, 40)), *_END.unpack_from(data, 136))

    def forget(self) -> None:
        """What was reached, so that the trees can be walked anew."""
        self.reached = bytearray(self.count)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, number: int, pages: int = 1) -> bytes:
        data = os.pread(self.fd, pages * self.page_bytes, number * self.page_bytes)
        if len(data) < pages * self.page_bytes:
            raise BadPage(number, f"lies behind the end of the file, which has {self.bytes} bytes")
        return data

    def least_bytes(self) -> int:
        """Of a file that has all pages in use. Pages that were free from the start need not be in the file."""
        trees = self.meta.main, self.meta.free
        return self.page_bytes * (2 + sum(tree.branches + tree.leaves + tree.overflows for tree in trees))

    def leaves(self, tree: Tree, damaged: Told = _raise, mark: int = MAIN) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
        """The leaves of a tree in order: number of the page, keys, values. What is damaged is told and left out; at the end, what
        was found is compared with what the tree says of itself. O(bytes), a page at a time."""
        found = dict.fromkeys(("branches", "leaves", "overflows", "entries"), 0)
        whole = True

        def tell(error: BadPage) -> None:
            nonlocal whole
            whole = False
            damaged(error)

        todo: list[Child] = []
        if tree.root != EMPTY:
            if 1 <= tree.depth <= DEPTH_MAX:
                todo = [Child(tree.root, 1, None, None)]
            else:
                tell(BadPage(0, f"the tree has depth {tree.depth}"))
        while todo:
            child = todo.pop()
            try:
                self._reach(child.page, 1, mark)
                page = self.read(child.page)
                if child.level < tree.depth:
                    found["branches"] += 1
                    todo += reversed(self._children(page, child))
                    continue
                found["leaves"] += 1
                keys, values, big = self.nodes(child.page, page)
                if mark == MAIN:
                    _check_order(keys, child)
            except BadPage as error:
                tell(error)
                continue
            found["entries"] += len(keys)
            for at in reversed(big):
                try:
                    values[at] = self._overflow(values[at], mark)
                    found["overflows"] += self.pages_of(len(values[at]))
                except BadPage as error:
                    tell(error)
                    del keys[at], values[at]
            yield child.page, keys, values
        if whole and tuple(found.values()) != tree[3:7]:
            text = "a tree has {} branches, {} leaves, {} overflow pages and {} entries, and says {}, {}, {} and {}"
            damaged(BadPage(0, text.format(*found.values(), *tree[3:7])))

    def free(self, damaged: Told = _raise) -> int:
        """Reads the list of free pages, after the main tree; returns how many there are."""
        free = beyond = 0
        for page, keys, values in self.leaves(self.meta.free, damaged, FREE_LIST):
            for key, value in zip(keys, values, strict=True):
                count = _NUMBER.unpack_from(value)[0] if len(value) >= 8 and len(key) == 8 else -1
                if not 0 <= count * 8 <= len(value) - 8:
                    damaged(BadPage(page, "a list of free pages has no length that can be"))
                    continue
                for (number,) in _NUMBER.iter_unpack(value[8 : 8 + 8 * count]):
                    try:
                        # LMDB need not have written pages that were free from the start.
                        if number > self.meta.last or number < 2:
                            raise BadPage(page, f"lists page {number} as free, of {self.meta.last + 1}")
                        if number < self.count:
                            self._reach(number, 1, FREE)
                        else:
                            beyond += 1
                        free += 1
                    except BadPage as error:
                        damaged(error)
        if self.meta.last + 1 > self.count + beyond:
            damaged(BadPage(0, f"there should be {self.meta.last + 1} pages, of which {beyond} need not be in the file; "
                               f"there are {self.count}"))
        return free

    def pages_of(self, size: int) -> int:
        """Overflow pages of a value."""
        return -(-(HEADER + size) // self.page_bytes)

    def nodes(self, number: int, page: bytes) -> tuple[list[bytes], list[bytes], list[int]]:
        """Keys and values of a leaf, and which values are to be looked for in overflow pages: these say where."""
        keys: list[bytes] = []
        values: list[bytes] = []
        big: list[int] = []
        key, value, unpack, page_bytes = keys.append, values.append, _NODE.unpack_from, self.page_bytes
        for at in self._offsets(number, page, LEAF):
            low, high, flags, key_bytes = unpack(page, at)
            start = at + 8 + key_bytes
            end = start + (8 if flags else low | high << 16)
            if end > page_bytes or flags > BIG:
                raise BadPage(number, f"a node at byte {at} has {end - at} bytes, flags {flags}")
            if flags:
                big.append(len(keys))
                value(page[start:end] + _NUMBER.pack(low | high << 16))
            else:
                value(page[start:end])
            key(page[at + 8 : start])
        return keys, values, big

    def _offsets(self, number: int, page: bytes, kind: int) -> tuple[int, ...]:
        own, _, flags, lower, upper = _PAGE.unpack_from(page)
        if own != number or flags != kind:
            what = "branch" if kind == BRANCH else "leaf"
            raise BadPage(number, f"should be a {what}, says that it is page {own} with flags {flags}")
        count = (lower - HEADER) // 2
        if lower & 1 or not HEADER + 2 <= lower <= upper <= self.page_bytes:
            raise BadPage(number, f"is filled up to {lower} and from {upper} on, of {self.page_bytes} bytes")
        offsets: tuple[int, ...] = struct.unpack_from(f"={count}H", page, HEADER)
        if min(offsets) < upper or max(offsets) > self.page_bytes - 8:
            raise BadPage(number, "has a node outside of what is filled")
        return offsets

    def filled_from(self, number: int, page: bytes) -> tuple[int, bool]:
        """From where on a page that may be a damaged leaf has what is in use, and whether that is sure: before it there is what
        was deleted."""
        own, _, flags, lower, upper = _PAGE.unpack_from(page)
        if own == number and flags == OVERFLOW:
            return HEADER, True
        if lower & 1 or not HEADER < lower <= upper < self.page_bytes:
            return 0, False
        offsets = struct.unpack_from(f"={(lower - HEADER) // 2}H", page, HEADER)
        least = min([upper, *(at for at in offsets if at >= lower)])
        return least, least == upper == min(offsets)

    def _children(self, page: bytes, parent: Child) -> list[Child]:
        pages, keys = [], []
        for at in self._offsets(parent.page, page, BRANCH):
            low, high, top, key_bytes = _NODE.unpack_from(page, at)
            if at + 8 + key_bytes > self.page_bytes:
                raise BadPage(parent.page, f"a node at byte {at} has a key of {key_bytes} bytes")
            pages.append(low | high << 16 | top << 32)
            keys.append(page[at + 8 : at + 8 + key_bytes])
        _check_order(keys[1:], parent)      # the first has none that counts
        bounds = [parent.low, *keys[1:], parent.high]
        return [Child(page, parent.level + 1, bounds[at], bounds[at + 1]) for at, page in enumerate(pages)]

    def _overflow(self, place: bytes, mark: int) -> bytes:
        first, size = _NUMBER.unpack_from(place)[0], _NUMBER.unpack_from(place, 8)[0]
        pages = self.pages_of(size)
        self._reach(first, pages, mark)
        data = self.read(first, pages)
        own, _, flags, low, high = _PAGE.unpack_from(data)
        if own != first or flags != OVERFLOW or low | high << 16 != pages:
            raise BadPage(first, f"should be {pages} overflow pages, says that it is page {own} with flags {flags}")
        return data[HEADER : HEADER + size]

    def _reach(self, first: int, pages: int, mark: int) -> None:
        if first < 2 or first + pages > self.meta.last + 1 or first + pages > self.count:
            raise BadPage(first, f"is named, of {min(self.meta.last + 1, self.count)} pages")
        if any(self.reached[first : first + pages]):
            raise BadPage(first, "is named twice" if mark != FREE else "is in use and listed as free")
        self.reached[first : first + pages] = bytes([mark]) * pages


def _check_order(keys: list[bytes], within: Child) -> None:
    if not keys:
        return
    if not (all(map(lt, keys, islice(keys, 1, None))) and (within.low is None or within.low <= keys[0])
            and (within.high is None or keys[-1] < within.high)):
        raise BadPage(within.page, "has keys that are not in order")
