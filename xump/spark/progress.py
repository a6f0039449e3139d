"""A bar on a terminal that shows how far a replay is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from xump.spark.replaying import Progress

WIDTH = 30


class Bar:
    """A line of text that is written again and again; on what is no terminal, nothing."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = sys.stderr if file is None else file

    def show(self, progress: Progress) -> None:
        """Write it anew."""
        if self._file.isatty():
            ends = "\n" if progress.published == progress.rows else ""
            self._file.write(f"\r{text(progress)}{ends}")
            self._file.flush()


def text(progress: Progress) -> str:
    """The line.

    >>> from xump.spark.replaying import Progress
    >>> text(Progress(rows=2000, sent=1500, published=500, late=10, worst_seconds=0.25))
    '[#######                       ] 500 of 2,000 published, 1,000 wait for their time, 10 came late, by up to 0.2 s'
    """
    done = WIDTH * progress.published // max(progress.rows, 1)
    late = f", {progress.late:,} came late, by up to {progress.worst_seconds:.1f} s" if progress.late else ""
    return (f"[{'#' * done:{WIDTH}}] {progress.published:,} of {progress.rows:,} published, "
            f"{progress.sent - progress.published:,} wait for their time{late}")
