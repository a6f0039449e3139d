"""A ring that is looked at, and not changed by that: its log as it is, with what a crash left there, without what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xump_ext.store import Report

from . import ring_lock, ring_repair
from .ring import RingStore, instances
from .ring_segments import Segments


class RingView(RingStore):
    """Reads only. What is damaged is seen when it is scanned."""

    def __init__(self, path: str) -> None:
        self.path, self._fd = ring_repair.claimed(path, shared=True)
        try:
            self._segments = Segments.load(self._fd, self.path)
        except BaseException:
            ring_lock.give_up(self._fd)
            raise
        self.name, self.durability, self.group_ms, self.cut = self.path, "none", 0.0, 0
        self.salt, self._barred, self._slots_max = self._segments.salt, None, None
        self._scanned = self._usable = False
        self._groups = self._syncs = 0
        self._prepare_space()
        instances.add(self)

    def scan(self) -> Iterator[tuple[int, memoryview]]:
        """As `repair` would leave the log, but for marks of what is doubtful."""
        self._begin_scan()
        report = Report()
        for position, view, damage in ring_repair.walk(self._segments, report, None):
            yield position, memoryview(b"".join(ring_repair.records(view, position, damage))) if damage else view
            self.end = position + len(view)
        self.cut, self.damage = report.cut, report.damage
        if report.damage:
            for _, record in ring_repair.count_remains(self._segments, report).nameless():
                yield self.end, memoryview(record)
        self._usable = True

    def write(self, batch: Any) -> None:
        self._check_usable()
        self.end += memoryview(batch).nbytes

    def sync(self) -> None:
        self._check_usable()

    def room(self) -> int:
        self._check_open()
        return 1 << 62

    def oldest(self) -> None:
        return None
