"""The smallest durable store: a file that groups are appended to, and a dict.

It passes the conformance suite. So the suite asks for the contract, not for the habits of the real stores.
"""

import os
import random
import struct
from pathlib import Path

from xump.errors import ForkedError, StoreCorrupt, StoreFailed
from xump.stores.owner import claim
from xump_ext.records import kinds, entry_key, items, whole_groups
from xump_ext.store import Backend, Report

HEADER = struct.Struct("<4sIQ")         # magic, salt, the position of the first group
OLD_BYTES = 200_000


class ToyStore(Backend):
    type = "toy"
    durability, group_ms, cut = "sync", 0.0, 0

    def __init__(self, name, path, max_bytes=1 << 30):
        self.name, self.path, self.max_bytes, self.failed, self.pid = name, path, max_bytes, False, os.getpid()
        self.claim = claim(str(path), create=True)
        self.file = _file_of(self.claim)
        try:
            if self.claim.made:
                self.file.write(HEADER.pack(b"TOY1", random.getrandbits(32), 0))
            self.salt, self.begin, groups = _read(self.file, path)
        except BaseException:
            self.claim.release(remove=self.claim.made)
            raise
        self.end, self.groups, self.entries, self.live = self.begin, [], {}, 0
        for group in groups:
            self.keep(group)

    def keep(self, group):
        self.groups.append(group)
        self.end += len(group)
        puts, gone = items(group)
        self.entries.update(puts)
        for first, last in gone:
            for key in [key for key in self.entries if first <= key <= last]:
                del self.entries[key]
        self.live = sum(map(len, self.entries.values()))

    def usable(self):
        if os.getpid() != self.pid:
            raise ForkedError("the toy belongs to the parent")

    def scan(self):
        for _, record in sorted(self.entries.items()):
            yield None, record

    def write(self, batch):
        self.usable()
        group = bytes(memoryview(batch))
        if self.failed:
            raise StoreFailed("the toy failed before")
        try:
            self.file.write(group)
        except OSError as error:
            self.failed = True
            raise StoreFailed(str(error)) from error
        self.keep(group)

    def sync(self):
        self.usable()
        if self.failed:
            raise StoreFailed("the toy failed before")
        os.fsync(self.file.fileno())

    def fetch(self, queue, id, position):
        self.usable()
        record = self.entries[entry_key(queue, id)]
        return kinds.U64.unpack_from(record, kinds.POSITION_AT)[0], record

    def room(self):
        return max(0, self.max_bytes - self.live)

    def oldest(self, demand):
        if self.end - self.begin < OLD_BYTES + 2 * self.live:
            return None
        return self.begin, self.begin + len(self.groups[0]), self.groups[0][kinds.GROUP_BYTES:]

    def release(self, position):
        while self.groups and self.begin < position:
            self.begin += len(self.groups.pop(0))

    def close(self):
        if self.file.closed or os.getpid() != self.pid:
            return
        if not self.failed:
            self.file.seek(0)
            self.file.truncate()
            self.file.write(HEADER.pack(b"TOY1", self.salt, self.begin) + b"".join(self.groups))
        self.file.close()
        self.claim.release()

    @classmethod
    def recognises(cls, path):
        return Path(path).is_file() and Path(path).read_bytes()[:4] == b"TOY1"

    @classmethod
    def view(cls, path):
        if not cls.recognises(path):
            raise StoreCorrupt(f"{path} is no toy")
        return ToyView("view", path)

    @classmethod
    def check(cls, path, progress=None):
        if not Path(path).is_file():
            raise StoreCorrupt(f"{path} is no toy")
        claimed = claim(str(path), shared=True)
        try:
            groups = _read(_file_of(claimed, "rb"), path)[2]
        finally:
            claimed.release()
        return Report(records=sum(len(items(group)[0]) for group in groups), bytes=sum(map(len, groups)))

    repair = compact = check        # damage stays as it is


class ToyView(ToyStore):
    """Keeps the groups that it gets to write in memory."""

    durability = "none"

    def write(self, batch):
        self.usable()
        self.keep(bytes(memoryview(batch)))

    def sync(self):
        self.usable()

    def close(self):
        self.failed = True
        super().close()


def _file_of(claimed, mode="r+b"):
    """The claimed file, unbuffered. Closing it leaves the descriptor open: the claim closes that."""
    return open(claimed.fd, mode, buffering=0, closefd=False)


def _read(file, path):
    file.seek(0)
    data = file.read()
    if data[:4] != b"TOY1":
        raise StoreCorrupt(f"{path} is no toy")
    _, salt, begin = HEADER.unpack_from(data)
    groups, at = [], HEADER.size
    while at < len(data):
        size = kinds.U64.unpack_from(data, at + kinds.GROUP_SIZE_AT)[0] if len(data) - at >= kinds.GROUP_BYTES else 0
        used, _, state, _ = whole_groups(data[at : at + size], begin + at - HEADER.size, salt)
        if state != "whole" or not used:
            break
        groups.append(data[at : at + size])
        at += used
    return salt, begin, groups
