"""A ring to look at without changing it: its log as a crash left it, without the damaged records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xump_ext.store import Report

from . import ring_repair
from .ring_reader import RingReader
from .ring_segments import Segments


class RingView(RingReader):
    """Shows damage when it is scanned, in `damage`, and forgets the groups that it gets to write."""

    def __init__(self, path: str) -> None:
        path, claim = ring_repair.claimed(path, shared=True)
        try:
            segments = Segments.load(claim.fd, path)
        except BaseException:
            claim.release()
            raise
        super().__init__(path, claim, segments, "none", 0.0)

    def scan(self) -> Iterator[tuple[int, memoryview]]:
        """Yields the log as `repair` would leave it, without the marks on doubtful messages."""
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
