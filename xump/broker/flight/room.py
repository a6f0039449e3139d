"""Publishes many rows where there may be room for some of them only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xump.broker.answers import NOTHING, Published
from xump.errors import QueueFull

if TYPE_CHECKING:
    from xump.broker.memory import Memory

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.001, 0.1
"""A stream that waits for memory looks so often whether there is some, each time after twice as long."""

LOOK_SECONDS = 0.5
"""How often a row that waits in the engine looks whether its client is still there."""

LARGE_BYTES = 16 << 20
"""A batch that takes more must have room in memory. Others may pass the bound a little."""

Wait = Callable[[float, float, QueueFull], None]
"""Waits for so many seconds, where there has been no room since a moment (monotonic); or raises."""

Publish = Callable[[int, int], Sequence[int]]
"""Publishes a number of rows from one of them on, and returns the ids that they got."""

Later = Callable[[int, float], Sequence[int]]
"""Publishes one row as soon as there is room, for which it waits so many seconds, in line with others. It waits as
`publish(timeout=)` does, so the call that makes room lets it in: nothing looks for room, and none who came later is before it."""


Entered = Callable[[Published], None]
"""Is told of rows that have entered, also if an error comes later."""


def publish_all(rows: int, publish: Publish, wait: Wait | None, later: Later, entered: Entered) -> Published:
    """Publish so many rows; where there is no room for all of them, as many as there is, and so on."""
    size = rows
    done = NOTHING
    since = time.monotonic()
    while done.rows < rows:
        ids = publish_some(done.rows, size, publish, wait, later, since)
        if ids is None:
            size = max(1, size // 4)
            continue
        some = Published(size, ids[0], ids[-1]) if ids and ids[-1] else Published(size, 0, 0)
        entered(some)
        done = done.plus(some)
        size = min(2 * size, rows - done.rows)
        since = time.monotonic()
    return done


def publish_some(done: int, size: int, publish: Publish, wait: Wait | None, later: Later, since: float) -> Sequence[int] | None:
    """Publish `size` rows from row `done` on; a single one when there is room. Returns None if there was no room."""
    try:
        return publish(done, size)
    except QueueFull:
        if wait is None:
            raise
    if size > 1:
        return None
    try:
        return later(done, LOOK_SECONDS)
    except QueueFull as still:
        wait(0, since, still)
        return None


def wait_for_memory(memory: Memory, wait: Wait | None, size: int) -> None:
    """Return when messages do not take too much memory, and would not with a large batch of so many bytes."""
    pause, since = PAUSE_SECONDS_MIN, time.monotonic()
    more = size if size > LARGE_BYTES else 0
    if more > memory.bytes_max:
        raise QueueFull(f"a batch takes {more} bytes as messages, and all messages may take {memory.bytes_max} "
                        "(Limits.memory_bytes): send more batches with fewer rows each")
    while memory.is_too_much(more):
        error = QueueFull(memory.said())
        if wait is None:
            raise error
        wait(pause, since, error)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
