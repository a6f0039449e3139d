"""Publishes what a client streams, batch by batch, and answers each batch when it is durable.

A stream's descriptor is the path of a queue, or a JSON object as command:

    queue       the queue
    on_full     "wait" holds the stream back while the queue has no room; "error" refuses a batch that does not fit whole
    producer    a name of the sender's own, and
    sequence    the number of the first batch; the others follow it. A batch that is sent again with its number enters once

The answer to a batch is a JSON object: `rows`, and the ids `first` and `last`, with those of other publishers in between if the
batch had to wait for room; `again` if its number was known. A message without a batch is a sign of life, and gets no answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import flight

from xump.broker.answers import NOTHING, Published
from xump.broker.flight.chunks import chunks, json_object
from xump.broker.flight.problems import problem
from xump.broker.flight.producers import Producer, messages_of
from xump.broker.flight.room import Later, Publish, Wait, publish_all, wait_for_memory
from xump.errors import QueueFull

if TYPE_CHECKING:
    from xump.broker.flight.calls import Call
    from xump.engine import Engine

PENDING_MAX = 64
"""So many batches of a stream may wait to be durable; then no more is read."""


def options_of(descriptor: flight.FlightDescriptor) -> dict[str, Any]:
    """The request in the descriptor. Raises ValueError."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        if len(descriptor.path) != 1:
            raise ValueError(f"the path of a stream is one name, of a queue; got {len(descriptor.path)}")
        return {"queue": descriptor.path[0].decode()}
    return json_object(descriptor.command, "the descriptor")


def put(call: Call, options: dict[str, Any], reader: flight.MetadataRecordBatchReader, writer: Any) -> None:
    """Publish a stream into a queue."""
    known = {"queue", "on_full", "producer", "sequence"}
    if set(options) - known or not isinstance(options.get("queue"), str):
        raise ValueError(f"a stream is described by `queue` and perhaps {', '.join(sorted(known - {'queue'}))}; got {options!r}")
    on_full = options.get("on_full", "wait")
    if on_full not in ("wait", "error"):
        raise ValueError(f"on_full={on_full!r}: expected 'wait' or 'error'")
    name = options["queue"]
    call.queue("write", name)
    producer = None
    if "producer" in options or "sequence" in options:
        producer = Producer(call.listener.producers, call.engine, name, options.get("producer"), options.get("sequence"))
    acks = Acks(call, writer)
    wait = waits(call, on_full)
    try:
        with closing(acks):
            for chunk in chunks(call, reader):
                if chunk.data is None:
                    continue
                if not chunk.data.num_rows:
                    call.engine.publish_batch(name, chunk.data)         # its columns are checked
                wait_for_memory(call.listener.broker.memory, wait, chunk.bytes)
                if producer is not None:
                    answer = producer.publish(chunk.data, wait, acks.entered, call.check_open)
                else:
                    answer = publish_all(chunk.data.num_rows, publisher(call.engine, name, chunk.data), wait,
                                         later(call.engine, name, chunk.data), acks.entered).answer()
                acks.add(answer)
    except Exception as error:          # whose client may not get the answers any more: pyarrow drops them when a write fails
        raise problem(error, **acks.published.answer()) from None


def publisher(engine: Engine, name: str, batch: pyarrow.RecordBatch) -> Publish:
    """Publishes parts of a batch into a queue."""
    return lambda begin, count: engine.publish_batch(name, batch.slice(begin, count) if count < batch.num_rows else batch)


def later(engine: Engine, name: str, batch: pyarrow.RecordBatch) -> Later:
    """Publishes one row of a batch into a queue when there is room."""
    def publish(row: int, seconds: float) -> list[int]:
        [(message, at)] = messages_of(batch.slice(row, 1))
        return [engine.publish(name, message, at=at, timeout=seconds)]

    return publish


def waits(call: Call, on_full: str) -> Wait | None:
    """How a stream that finds no room goes on: it waits, though not for ever, or (None) it fails."""
    if on_full == "error":
        return None

    def wait(seconds: float, since: float, error: QueueFull) -> None:
        time.sleep(seconds)
        call.check_open()
        if time.monotonic() - since >= call.listener.limits.flight_idle_seconds:
            raise error

    return wait


class Acks:
    """Answers batches in order, each when it is durable. If that takes time, a thread of its own does it, while more is read."""

    def __init__(self, call: Call, writer: Any) -> None:
        self._call = call
        self._writer = writer
        self._changed = threading.Condition()
        self._pending: deque[list[Any]] = deque()       # [answer, whether it is durable]
        self._thread: threading.Thread | None = None
        self._ended = False
        self._error: BaseException | None = None
        self.published = NOTHING
        """All rows of the stream that were published."""

    def entered(self, some: Published) -> None:
        """Rows were published, of a batch that may not be whole."""
        self.published = self.published.plus(some)

    def add(self, answer: dict[str, Any]) -> None:
        """A batch was published, whole. Raises what an earlier one could not become durable for."""
        entry = [answer, False]

        def told(error: BaseException | None) -> None:
            """It is durable, or will not be."""
            with self._changed:
                self._error = self._error or error
                entry[1] = True
                self._changed.notify_all()

        self._call.engine.when_durable(told)
        with self._changed:
            if self._error is not None:
                raise self._error
            direct = entry[1] and self._thread is None
            if not direct:
                with self._call.waiting():          # most often for the client, which does not read its answers
                    while len(self._pending) >= PENDING_MAX and self._error is None:
                        self._changed.wait()
                self._pending.append(entry)
        if direct:
            self._write(answer)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="xump-flight-acks", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is left. Raises what a batch could not become durable for."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            with self._call.waiting():
                self._thread.join()
        if self._error is not None:
            raise self._error

    def _write(self, answer: dict[str, Any]) -> None:
        with self._call.waiting():
            self._writer.write(pyarrow.py_buffer(json.dumps(answer).encode()))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._pending and self._pending[0][1]) and not (self._ended and not self._pending):
                    if self._error is not None:
                        return
                    self._changed.wait()
                if self._error is not None or not self._pending:
                    return
                answer = self._pending.popleft()[0]
                self._changed.notify_all()
            try:
                self._writer.write(pyarrow.py_buffer(json.dumps(answer).encode()))
            except Exception as error:          # the client is gone; the thread of the call hears of it
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
