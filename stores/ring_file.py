"""The file of a ring from outside: its layout, its heads, and how a process makes and claims it.

    0            4096         8192          8192 + segment_bytes
    superblock │ its copy   │ slot 0      │ slot 1      │ slot 2      │ …

    slot:  head of 64 bytes │ the log: segment_bytes - 64 bytes of it │

Superblocks and the heads of segments look alike, little-endian:

     0 magic u64           XUMPRING, XUMPSEGM
     8 version u32
    12 segment_bytes u32
    16 salt u32            of the store
    20 reserved
    24 number u64          of the segment; of a superblock: the higher one of two is the newer
    32 begin u64           position of a record: nothing before it is needed
    40 synced u64          position: the log was synced up to it
    48 reserved
    60 crc u32             of the 60 bytes before

A superblock goes over the older copy, or once more over the one that is not synced yet, so one of the two is always whole.
`ring_segments.py` says how segments come and go in the slots.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass

from xump_ext.errors import StoreCorrupt
from xump_ext.records import crc

from .owner import Claim, claim, claim_made, fill_standard, reading
from .ring_disk import sync, write_all, write_zeros

VERSION = 2
SUPERBLOCK, SEGMENT = b"XUMPRING", b"XUMPSEGM"
HEAD_BYTES = 64
COPY_AT = 4096
SLOTS_AT = 8192
SEGMENT_BYTES_MIN = 64 << 10
SEGMENT_BYTES_MAX = 1 << 30
IN_THE_MAKING = ".new-"         # PATH.new-xxxxxxxx is a ring that has no name yet, or was left so by a crash
REWRITTEN = ".repair-"          # PATH.repair- and 16 digits is a ring that takes the place of PATH, or was left by a crash
SLOTS_MIN = 4       # two stay free, one fills up, one is due for cleaning; `ring_space.py` has the arithmetic

_HEAD = struct.Struct("<8sIII4xQQQ12xI")


@dataclass(frozen=True, slots=True)
class Head:
    """A superblock, or the head of a segment."""

    magic: bytes
    segment_bytes: int
    salt: int
    number: int
    begin: int
    synced: int
    version: int = VERSION

    def packed(self) -> bytes:
        data = _HEAD.pack(self.magic, self.version, self.segment_bytes, self.salt, self.number, self.begin,
                          self.synced, 0)
        return data[:-4] + crc(data[:-4]).to_bytes(4, "little")

    @classmethod
    def read(cls, data: bytes, magic: bytes) -> Head | None:
        """The head in these bytes; None where it is missing or damaged."""
        if len(data) < HEAD_BYTES or data[:8] != magic or crc(data[:60]) != int.from_bytes(data[60:64], "little"):
            return None
        _, version, segment_bytes, salt, number, begin, synced, _ = _HEAD.unpack_from(data)
        return cls(magic, segment_bytes, salt, number, begin, synced, version)


def superblocks(fd: int) -> list[bytes]:
    """The bytes of both superblocks, whole or not."""
    return [os.pread(fd, HEAD_BYTES, at) for at in (0, COPY_AT)]


def newest_superblock(fd: int, path: str) -> tuple[Head, int, bool]:
    """The superblock that counts, the number of its copy, and whether both copies are whole. Raises StoreCorrupt."""
    size, raw = os.fstat(fd).st_size, superblocks(fd)
    heads = [Head.read(data, SUPERBLOCK) for data in raw]
    newest = max((head for head in heads if head is not None), key=lambda head: head.number, default=None)
    if newest is None:
        raise StoreCorrupt(_no_store(path, size, raw))
    if newest.version != VERSION:
        raise StoreCorrupt(f"{path} is a ring store of version {newest.version}; this Xump reads version {VERSION}: "
                           "open it with the one that made it")
    if size < SLOTS_AT:
        raise StoreCorrupt(_cut_off(path, size))
    return newest, heads.index(newest), None not in heads


def recognises(path: str | os.PathLike[str]) -> bool:
    """Whether a file has, or had, a superblock."""
    if not os.path.isfile(path):
        return False
    with reading(path) as fd:
        return any(data[: len(SUPERBLOCK)] == SUPERBLOCK for data in superblocks(fd))


def _cut_off(path: str, size: int) -> str:
    return f"{path} was cut off: it has {size} bytes, a ring store has more than {SLOTS_AT}; restore it from a copy"


def _no_store(path: str, size: int, raw: list[bytes]) -> str:
    if size == 0:
        return f"{path} is empty, no ring store; remove it to have one made there, or choose another place"
    if any(data[:8] == SUPERBLOCK for data in raw):
        if size < SLOTS_AT:
            return _cut_off(path, size)
        return f"{path} is damaged: neither of its two superblocks is whole; run: xump repair {path}"
    return f"{path} is no ring store: it begins with {raw[0][:16]!r}; choose another place"


# ---- claimed and made

def claim_file(path: str, *, shared: bool = False) -> Claim:
    """Claims the file of a ring; `shared`: to read only, beside other readers.

    Raises StoreLocked, with the owner's pid; StoreCorrupt for a path that is no file; else what `os.stat` and `os.open` raise."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "no ordinary file"
        raise StoreCorrupt(f"{path} is {what}; a ring store is one file: give the path of a file")
    try:
        return claim(path, shared=shared)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise PermissionError(error.errno, f"{error.strerror}: the process must be able to read a store's file, and to write "
                              "it unless it only checks it", path) from error


def make(path: str, segment_bytes: int, slots: int, salt: int) -> Claim:
    """Makes a new, empty ring, whole and synced but for its name, and claims it. An error leaves no file."""
    fill_standard()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        made = claim_made(fd, path)
    except BaseException:
        os.unlink(path)
        os.close(fd)
        raise
    try:
        for number, at in enumerate((0, COPY_AT)):
            write_zeros(fd, at, COPY_AT)
            write_all(fd, Head(SUPERBLOCK, segment_bytes, salt, number, 0, 0).packed(), at)
        write_zeros(fd, SLOTS_AT, slots * segment_bytes)
        sync(fd, size_too=True)
    except BaseException:
        made.release(remove=True)
        raise
    return made


def remove_remains(path: str) -> None:
    """Removes what a crash left beside the store when it was made, repaired or compacted. The caller owns the store, so no other
    process repairs it, and any that makes one there comes too late.

    One of these names may lead to the store itself, which keeps its own. A copy that somebody gave such a name stays: a date has
    eight digits, too. So does all that a process has open."""
    folder, name = os.path.split(path)
    ours = re.compile(f"{re.escape(name)}(?:{re.escape(IN_THE_MAKING)}[0-9a-f]{{8}}|({re.escape(REWRITTEN)}[0-9a-f]{{16}}))")
    with suppress(OSError):     # nothing depends on it: the next opening tries again
        for entry in os.listdir(folder):
            if (found := ours.fullmatch(entry)) is not None:
                with suppress(OSError):
                    _remove(os.path.join(folder, entry), path, rewritten=found[1] is not None)


def _remove(other: str, path: str, *, rewritten: bool) -> None:
    if os.path.samefile(other, path):
        os.unlink(other)
        return
    left = claim_file(other)
    remove = False
    try:
        remove = rewritten or is_blank(left.fd)
    finally:
        left.release(remove=remove)


def is_blank(fd: int) -> bool:
    """Whether a ring, whole or half made, was never written to."""
    heads = [Head.read(data, SUPERBLOCK) for data in superblocks(fd) if data.strip(b"\0")]
    untouched = all(head is not None and head.number <= 1 and head.begin == head.synced == 0 for head in heads)
    return untouched and not os.pread(fd, HEAD_BYTES, SLOTS_AT).strip(b"\0")


def remove_file(path: str, status: os.stat_result) -> None:
    """Takes a name from a file, if it has that name."""
    with suppress(OSError):
        if os.path.samestat(os.lstat(path), status):
            os.unlink(path)
