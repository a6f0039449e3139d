"""Looking at messages, times and counts, which changes nothing: a part of the engine's class."""

from typing import Any

from xump.types import Stats
from xump_ext.engine.transactions import EngineTransactions
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message

class EngineReading(EngineTransactions):
    """A part of the engine's class: looking at messages, times and counts."""

    @property
    def next_due(self) -> int | None:
        """When something falls due next, in POSIX nanoseconds, or None: a delay or a retry ends, a message expires, or a delivery
        was not answered in time. Messages that wait for the release of their queue do not count. O(1) amortized.
        """
    def _now(self) -> int: ...
    def _oldest(self, handle: Any) -> int | None: ...
    def _page(
        self, handle: Any, start: Any, reverse: bool, state: str | None, filter: Filter | None, detailed: bool = False
    ) -> tuple[list[Any], int | None]: ...
    def _fetch(self, handle: Any, id: int) -> Message | None: ...
    def _counters(self) -> dict[str, int]: ...
    def _stats(self) -> Stats: ...
