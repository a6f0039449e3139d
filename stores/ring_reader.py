"""The half of a ring that reads: an open log, its records by position, and the tools for a closed one."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from xump_ext.errors import Closed, ForkedError, StoreCorrupt, StoreFailed
from xump_ext.records import kinds, record_whole
from xump_ext.store import Backend, Report

from . import paths, ring_file, ring_repair
from .owner import Claim
from .ring_file import HEAD_BYTES, SLOTS_AT
from .ring_segments import Segments

WINDOW_BYTES = 64 << 10     # what `fetch` reads: a few hundred small messages, the next ones that the engine will ask for
instances: weakref.WeakSet[RingReader] = weakref.WeakSet()


class RingReader(Backend):
    """A ring that is open. `RingStore` also writes, `RingView` only looks."""

    type = "ring"
    durable = True

    _live_bytes: int | None = None
    """Of the last `Demand`; None: there was none yet."""
    _slots_max: int | None = None
    _groups = _syncs = 0

    def __init__(self, name: str, claim: Claim, segments: Segments, durability: str, group_ms: float) -> None:
        self.name = name
        self.path = segments.path
        self.durability = durability
        self.group_ms = group_ms
        self.cut = 0
        self.salt = segments.salt
        self.end = segments.begin
        self._claim = claim
        self._fd = segments.fd
        self._segments = segments
        self._barred: Exception | None = None
        self._scanned = self._usable = False
        instances.add(self)

    def _begin_scan(self) -> None:
        self._check_open()
        if self._scanned:
            raise RuntimeError(f"store {self.name!r} was scanned before")
        self._scanned = True

    def fetch(self, queue: int, id: int, position: int) -> tuple[int, memoryview]:
        """See `Backend.fetch`.

        The old place of a message that was just copied forward still serves, until something else is written there; then:
        KeyError. O(bytes of the record, at least 64 KiB)."""
        self._check_open()
        if not 0 <= position < self.end:
            raise KeyError(f"message {id} of queue {queue} at position {position}: the log ends at {self.end}")
        size = min(WINDOW_BYTES, self.end - position)
        data = self._read(position, size)
        state = record_whole(data, position, self.salt)
        if state == "cut" and size >= kinds.HEAD.size:
            length = kinds.HEAD.unpack_from(data)[4]
            if size < length <= self.end - position:
                data = self._read(position, length)
                state = record_whole(data, position, self.salt)
        if state != "whole":
            if position < self._segments.begin:
                raise KeyError(f"message {id} of queue {queue} is not at position {position} any more")
            raise StoreCorrupt(f"{self._where(position, state)}: message {id} of queue {queue}; run: xump repair {self.path}")
        _, _, kind, _, length, of_queue, _, of_id = kinds.HEAD.unpack_from(data)
        if (kind, of_queue, of_id) != (kinds.ENTER, queue, id):
            raise KeyError(f"message {id} of queue {queue} is not at position {position}: there is a record of kind {kind}, "
                           f"queue {of_queue}, id {of_id}")
        while length + kinds.HEAD.size <= len(data):       # whole records only
            following = kinds.HEAD.unpack_from(data, length)[4]
            if following < kinds.HEAD.size or length + following > len(data):
                break
            length += following
        return position, data[:length]

    def _read(self, position: int, size: int) -> memoryview:
        try:
            return self._segments.read(position, size)
        except OSError as error:
            raise StoreFailed(error.errno, f"{self.path} cannot be read: {error.strerror}") from error

    def stats(self) -> dict[str, Any]:
        segments = self._segments
        return {
            "path": self.path, "file_bytes": SLOTS_AT + segments.slots * segments.segment_bytes,
            "bytes_max": None if self._slots_max is None else self._slots_max * segments.segment_bytes,
            "segment_bytes": segments.segment_bytes, "segments": segments.slots, "segments_free": len(segments.free),
            "log_bytes": self.end - segments.begin, "live_bytes": self._live_bytes, "groups": self._groups, "syncs": self._syncs,
            "cut": self.cut,
        }

    # ---- the end

    def close(self) -> None:
        """See `Backend.close`. Idempotent."""
        if isinstance(self._barred, Closed):
            return
        barred, self._barred = self._barred, Closed(f"store {self.name!r} is closed")
        instances.discard(self)
        if isinstance(barred, ForkedError):
            self._claim.forsake()
            return
        try:
            if self._usable and barred is None:
                self._write_down()
        except OSError as error:
            raise StoreFailed(error.errno, f"store {self.name!r} at {self.path}: closing failed: {error.strerror}") from error
        finally:
            with paths.explaining(self.path, paths.CLOSING):
                self._claim.release()

    def _write_down(self) -> None:
        """Leaves in the file what the next opening should know. A reader leaves nothing."""

    # ---- errors

    def _check_open(self) -> None:
        if self._barred is not None and not isinstance(self._barred, StoreFailed):
            raise self._barred

    def _check_usable(self) -> None:
        if self._barred is not None:
            raise self._barred
        if not self._usable:
            raise RuntimeError(f"store {self.name!r} must be scanned to its end before it is used")

    def _where(self, failed: int, state: str) -> str:
        """Damage at a position, in words."""
        segments = self._segments
        if state == "cut":      # the log goes on in a segment that is missing
            failed, number = segments.reach(failed), segments.reach(failed) // segments.capacity
        else:
            number = failed // segments.capacity
        if number not in segments.slot_of:
            return f"{self.path} is damaged at position {failed}: segment {number} of the log is missing"
        at = segments.at(segments.slot_of[number]) + HEAD_BYTES + failed % segments.capacity
        what = "a record with a damaged payload" if state == "payload" else "no record, or one with a damaged head"
        return f"{self.path} is damaged at position {failed}: {what}, in segment {number}, byte {at} of the file"

    # ---- tools, for a ring that no process has open

    @classmethod
    def recognises(cls, path: str) -> bool:
        """See `Backend.recognises`: a file that has a superblock, or had one."""
        return ring_file.recognises(path)

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.check`. O(bytes)."""
        with paths.explaining(path, paths.CHECKING):
            return ring_repair.check(path, progress)

    @classmethod
    def repair(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.repair`. Writes a log with damaged records anew beside the old one, without them. O(bytes)."""
        with paths.explaining(path, paths.REPAIRING):
            return ring_repair.repair(path, progress)

    @classmethod
    def compact(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Report:
        """See `Backend.compact`. Writes the live records anew beside the old file. O(bytes)."""
        with paths.explaining(path, paths.COMPACTING):
            return ring_repair.compact(path, progress)


def _after_fork() -> None:
    for store in list(instances):
        store._barred = ForkedError(f"store {store.name!r} belongs to the parent process; open it there only")


os.register_at_fork(after_in_child=_after_fork)
