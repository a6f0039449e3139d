"""Producers: batches with a number, which enter once, however often they are sent, also after a crash.

The number of a producer's last batch stands in the map of the queue, changed in one step with what it published. If only a part
of a batch had room, that part is remembered, too: what is sent again goes on behind it. The map keeps the producers that were
seen last; one that was forgotten begins anew.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow

import xump
from xump.broker.answers import Published
from xump.broker.flight.room import LOOK_SECONDS, Entered, Wait, publish_all
from xump.errors import QueueNotFound
from xump.transaction import Transaction

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump_ext.message.message import Message

PRODUCER = "flight.producer/"
"""The names in the map of a queue, before that of the producer."""

PRODUCERS_MAX = 100
"""Of so many producers a queue remembers the last batch, if their names are not long:"""
BYTES_MAX = 16 << 10
"""so many of the 64 KiB that its map has. Decisions have 40 (`decisions.py`)."""

STATE_BYTES = 100
"""The memory of a producer has fewer bytes: four numbers and their names."""

BEFORE_ALL = 1 - (1 << 63)
"""A time, in POSIX nanoseconds, before any other: nothing has expired then, or is due."""

NAME_CHARACTERS_MAX = 200
"""A producer's name has at most so many."""


class Producers:
    """The locks of the producers of a broker: batches of one producer enter one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[int, str, str], tuple[threading.Lock, list[int]]] = {}

    def enter(self, key: tuple[int, str, str]) -> threading.Lock:
        """The lock of a producer, for one more stream."""
        with self._lock:
            lock, users = self._locks.setdefault(key, (threading.Lock(), [0]))
            users[0] += 1
            return lock

    def leave(self, key: tuple[int, str, str]) -> None:
        """A stream of it has ended."""
        with self._lock:
            users = self._locks[key][1]
            users[0] -= 1
            if not users[0]:
                del self._locks[key]


class Producer:
    """A stream of a producer."""

    def __init__(self, producers: Producers, engine: Engine, queue: str, name: object, sequence: object) -> None:
        if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
            raise ValueError(f"producer={name!r}: expected a name of 1 to {NAME_CHARACTERS_MAX} characters, with `sequence`")
        if type(sequence) is not int or not 0 <= sequence < 1 << 63:
            raise ValueError(f"sequence={sequence!r}: expected the number of the first batch, 0 or more, with `producer`")
        self._producers = producers
        self._engine = engine
        self._queue = queue
        self._name = PRODUCER + name
        self._next = sequence

    def publish(
        self, batch: pyarrow.RecordBatch, wait: Wait | None, entered: Entered, check_open: Callable[[], None],
    ) -> dict[str, Any]:
        """Publish the next batch, or what of it did not enter before. Returns the answer."""
        number, self._next = self._next, self._next + 1
        key = (id(self._engine), self._queue, self._name)
        lock = self._producers.enter(key)
        try:
            while not lock.acquire(timeout=LOOK_SECONDS):       # another stream of this producer waits for room
                check_open()
            try:
                return self._publish(batch, number, wait, entered)
            finally:
                lock.release()
        finally:
            self._producers.leave(key)

    def _publish(self, batch: pyarrow.RecordBatch, number: int, wait: Wait | None, entered: Entered) -> dict[str, Any]:
        queue = self._engine.queues.get(self._queue)
        if queue is None:
            raise QueueNotFound(f"no queue {self._queue!r}")
        rows, before = batch.num_rows, 0
        known = self._known(queue.meta)
        if known is not None and number <= known["sequence"]:
            if number == known["sequence"] and known["of"] != rows:
                raise ValueError(f"batch {number} of producer {self._name.removeprefix(PRODUCER)!r} had {known['of']} rows, and "
                                 f"has {rows} now: a number is of one batch for ever")
            before = known["rows"] if number == known["sequence"] else rows
        else:
            self._forget(queue.meta)
        told = Published(before, 0, 0)
        entered(told)
        if before == rows:
            return {**told.answer(), "sequence": number, "again": True}
        messages = messages_of(batch)

        def publish(begin: int, count: int, seconds: float = 0.0) -> list[int]:
            """Publish a part, and remember it; wait so long until there is room for it."""
            begin += before
            state = {"sequence": number, "rows": begin + count, "of": rows, "time": int(time.time())}
            with Transaction(self._engine, seconds) as tx:
                for message, at in messages[begin:begin + count]:
                    tx.publish(self._queue, message, at=at)
                tx.set_meta(self._queue, self._name, json.dumps(state).encode())
            return [id for id in tx.ids if id]

        def later(row: int, seconds: float) -> list[int]:
            """Publish a row when there is room for it."""
            return publish(row, 1, seconds)

        told = told.plus(publish_all(rows - before, publish, wait, later, entered))
        return {**told.answer(), "sequence": number}

    def _known(self, meta: MutableMapping[str, bytes]) -> dict[str, Any] | None:
        kept = meta.get(self._name)
        return None if kept is None else json.loads(kept)

    def _forget(self, meta: MutableMapping[str, bytes]) -> None:
        """Make room in the map for this producer: the one that was seen longest ago goes."""
        known = {name: (json.loads(kept).get("time", 0), len(name.encode()) + len(kept))
                 for name, kept in meta.items() if name.startswith(PRODUCER)}
        if self._name in known:
            return
        size = len(self._name.encode()) + STATE_BYTES + sum(one for _, one in known.values())
        for name in sorted(known, key=known.__getitem__):
            if len(known) < PRODUCERS_MAX and size <= BYTES_MAX:
                return
            size -= known.pop(name)[1]
            with suppress(KeyError):            # another stream has forgotten it
                del meta[name]


def messages_of(batch: pyarrow.RecordBatch) -> list[tuple[Message, int | None]]:
    """The rows of a batch as messages, each with its `at`. Raises what `publish_batch` raises."""
    with xump.Engine(clock=lambda: BEFORE_ALL) as engine:
        queue = engine.create_queue("rows", unmatched="keep")
        queue.hold()
        engine.publish_batch(queue, batch)
        return [(message, until if state == "delayed" else None)
                for message, state, until in queue._browse_detailed("head", None, None, None, False)]
