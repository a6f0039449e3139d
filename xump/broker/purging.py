"""Empties large queues by slices, between which other clients have their turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import xump.aio
from xump.errors import QueueNotFound, StoreFull

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue

SLICE = 10_000
"""Messages of a slice: about half a millisecond, in RAM."""


def is_large(queue: Queue) -> bool:
    """Whether it takes more than a slice."""
    return queue.ready + queue.delayed > SLICE


async def purge(queue: Queue) -> int:
    """Delete all messages that are ready or delayed now, and return how many there were. Raises what `Queue.purge` raises, but
    `QueueNotFound` at the beginning only: if the queue is deleted meanwhile, that is the end."""
    purged = 0
    for count in slices(queue, queue.last_id):
        purged += count
        if queue.engine.pressed:
            await xump.aio.relieved(queue.engine)
        else:
            await asyncio.sleep(0)
    return purged


def purge_in_thread(queue: Queue, upto: int | None = None) -> int:
    """The same, in a thread that may wait; only messages up to the id `upto`, if that is given."""
    purged = 0
    for count in slices(queue, queue.last_id if upto is None else min(upto, queue.last_id)):
        purged += count
        if queue.engine.pressed:
            wait_until_relieved(queue.engine)
        else:
            time.sleep(0)
    return purged


def slices(queue: Queue, upto: int) -> Iterator[int]:
    """Delete slice by slice, and yield how many messages each had. The caller lets others have their turn in between."""
    engine, looked_at, ended = queue.engine, 0, False
    while not ended:
        count = 0
        try:
            with engine.not_waiting():
                count, looked_at = engine._purge(queue, upto, SLICE, looked_at)
            ended = not looked_at
        except QueueNotFound:
            if not looked_at:
                raise
            ended = True
        except StoreFull:
            if not engine.pressed:
                raise
        yield count


def wait_until_relieved(engine: Engine) -> None:
    """Wait until the stores have caught up. Raises what ended that."""
    told = threading.Event()
    errors: list[BaseException] = []

    def tell(error: BaseException | None) -> None:
        """In the thread of a store, or in this one."""
        if error is not None:
            errors.append(error)
        told.set()

    engine.when_relieved(tell)
    told.wait()
    if errors:
        raise errors[0]
