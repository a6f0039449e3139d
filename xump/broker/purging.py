"""Empties large queues by slices, between which other clients have their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import xump.aio
from xump.errors import QueueNotFound, StoreFull

if TYPE_CHECKING:
    from xump.queue import Queue

SLICE = 10_000
"""Messages of a slice: about half a millisecond, in RAM."""


def is_large(queue: Queue) -> bool:
    """Whether it takes more than a slice."""
    return queue.ready + queue.delayed > SLICE


async def purge(queue: Queue) -> int:
    """Delete all messages that are ready or delayed now, and return how many there were. Raises what `Queue.purge` raises, but
    `QueueNotFound` at the beginning only: if the queue is deleted meanwhile, that is the end."""
    engine, upto = queue.engine, queue.last_id
    purged = looked_at = 0
    while True:
        try:
            with engine.not_waiting():
                count, looked_at = engine._purge(queue, upto, SLICE, looked_at)
        except QueueNotFound:
            if not looked_at:
                raise
            return purged
        except StoreFull:
            if not engine.pressed:
                raise
        else:
            purged += count
            if not looked_at:
                return purged
        if engine.pressed:
            await xump.aio.relieved(engine)
        else:
            await asyncio.sleep(0)
