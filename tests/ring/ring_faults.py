"""A disk that fails or loses power, in place of `os` in `xump.stores.ring_disk`."""

from __future__ import annotations

import errno
import os
import random

SECTOR = 512


class Quick:
    """Syncs take no time."""

    def __getattr__(self, name):
        return getattr(os, name)

    def fdatasync(self, fd):
        pass

    def fsync(self, fd):
        pass


class Failing(Quick):
    """Fails the nth call, or each from then on. `kind`: an errno, or "short" for a write of a part, and no space for the rest."""

    def __init__(self, nth, kind, forever):
        self.nth, self.kind, self.forever = nth, kind, forever
        self.calls = 0
        self.failed = False
        self.short = False

    def _fails(self):
        self.calls += 1
        if self.calls == self.nth or (self.forever and self.calls > self.nth):
            self.failed = True
            return True
        return False

    def _fail(self):
        code = errno.ENOSPC if self.kind == "short" else self.kind
        raise OSError(code, os.strerror(code))

    def pwrite(self, fd, data, at):
        if self.short:
            self.short = False
            self._fail()
        if self._fails():
            if self.kind != "short":
                self._fail()
            self.short = True
            return os.pwrite(fd, data[: len(data) // 2 + 1], at)
        return os.pwrite(fd, data, at)

    def fdatasync(self, fd):
        if self._fails():
            self._fail()

    fsync = fdatasync

    def ftruncate(self, fd, size):
        if self._fails():
            self._fail()
        os.ftruncate(fd, size)


class Power(Quick):
    """Knows the durable bytes of one file, and the bytes that a power failure would leave now."""

    def __init__(self, path):
        self.file = str(path)
        self.durable = bytearray()
        self.pending = []
        self.changed = lambda: None

    def _ours(self, fd):
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.file))
        except FileNotFoundError:
            return False

    def pwrite(self, fd, data, at):
        done = os.pwrite(fd, data, at)
        if self._ours(fd):
            self.pending.append((at, bytes(data[:done])))
            self.changed()
        return done

    def ftruncate(self, fd, size):
        os.ftruncate(fd, size)
        if self._ours(fd):
            self.pending.append((size, None))
            self.changed()

    def fdatasync(self, fd):
        if self._ours(fd):
            for change in self.pending:
                self._apply(self.durable, *change)
            self.pending = []
            self.changed()

    fsync = fdatasync

    def all_durable(self):
        with open(self.file, "rb") as file:
            self.durable = bytearray(file.read())
        self.pending = []

    @staticmethod
    def _apply(image, at, data):
        if data is None:
            del image[at:]
            image.extend(bytes(max(0, at - len(image))))
            return
        image.extend(bytes(max(0, at + len(data) - len(image))))
        image[at : at + len(data)] = data

    def image(self, rnd: random.Random):
        """The file after a power failure: each unsynced write is there or not, or some sectors of it, in any order."""
        image, changes = bytearray(self.durable), list(self.pending)
        whole = rnd.random()
        for at, data in changes if rnd.random() < 0.5 else rnd.sample(changes, len(changes)):
            if rnd.random() < whole:
                self._apply(image, at, data)
            elif data is not None:
                kept = rnd.random()
                start = at
                while start < at + len(data):
                    end = min(at + len(data), (start // SECTOR + 1) * SECTOR)
                    if rnd.random() < kept:
                        self._apply(image, start, data[start - at : end - at])
                    start = end
        return bytes(image)
