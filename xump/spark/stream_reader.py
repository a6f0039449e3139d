"""Reads a queue as a stream: a tail by id of everything that enters it. Nothing is taken, so a batch that failed reads the same.

An offset is the id of the last message that was read, and the incarnation of the queue: ids of a queue that was deleted and made
again mean something else.

With `ack="commit"` a batch is purged from the queue when the batch after it was checkpointed. One behind, since Spark reads the
last batch once more if it was killed before it had noted that the batch is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from xump.broker.answers import Offsets
from xump.spark.options import Options
from xump.spark.reader import DataLost, Part, check_queue, lost, planned, rows_of
from xump.spark.schema import Shape

Offset = dict[str, Any]


def offset(id: int, incarnation: int) -> Offset:
    """As Spark keeps it. The incarnation is a text, since it may be beyond what JSON readers take for a number."""
    return {"id": id, "incarnation": str(incarnation)}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what enters a queue."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises what is wrong with the columns, the queue or the broker."""
        self._options = options
        self._shape = Shape(schema)
        self._target: Offset | None = None
        self._committed: Offset | None = None
        with options.client as client:
            check_queue(client, options.queue)
            if options.acks and (consumers := client.offsets(options.queue).consumers):
                raise ValueError(f"ack=commit purges all that the stream has read, and {consumers} selectors take from queue "
                                 f"{options.queue!r}: read a queue that nothing else reads, such as a copy")

    def _offsets(self) -> Offsets:
        with self._options.client as client:
            return client.offsets(self._options.queue)

    # ---- how far

    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        now, start = self._offsets(), self._options.starting_id
        if start == "latest":
            return offset(now.readable_id, now.incarnation)
        if isinstance(start, int):
            return offset(start - 1, now.incarnation)
        return offset(now.first_id - 1 if now.first_id else now.readable_id, now.incarnation)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a micro-batch reads."""
        rows = self._options.rows_a_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends with what is there now."""
        self._target = self.reportLatestOffset()

    def reportLatestOffset(self) -> Offset:
        """The last message that may be read."""
        now = self._offsets()
        return offset(now.readable_id, now.incarnation)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Up to where the next micro-batch reads."""
        last = self._target or self.reportLatestOffset()
        if last["incarnation"] != start["incarnation"]:
            self._say_lost("the queue itself, which was deleted and made again,")
            start = offset(0, int(last["incarnation"]))
        end = last["id"]
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["id"] + limit.max_rows)
        return offset(max(end, start["id"]), int(last["incarnation"]))

    def _say_lost(self, what: str) -> None:
        if self._options.fails_on_loss:
            raise DataLost(lost(self._options.queue, what))

    # ---- reading

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The parts of a micro-batch. Raises `DataLost` if messages of it went before, unless `failOnDataLoss` is false."""
        first = start["id"] + 1 if start["incarnation"] == end["incarnation"] else 1
        last = end["id"]
        if first > last:
            return []
        with self._options.client as client:
            parts, rows, incarnation = planned(client, self._options, first, last)
        if str(incarnation) != end["incarnation"]:
            self._say_lost("the queue itself, which was deleted and made again,")
            return []
        whole = rows == last - first + 1
        if not whole:
            self._say_lost(f"{last - first + 1 - rows} of the messages {first} to {last}")
        exact = whole and self._options.fails_on_loss
        return [Part(begin, until, incarnation, until - begin + 1 if exact else None) for begin, until in parts]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The messages of a part, in a task. Where there are no parts, Spark asks for one of its own: that has none."""
        return rows_of(self._options, self._shape, partition) if isinstance(partition, Part) else iter(())

    def commit(self, end: Offset) -> None:
        """Spark has noted that all up to `end` is done. With `ack=commit`, what it had noted the time before is purged."""
        before, self._committed = self._committed, end
        if self._options.acks and before is not None and before["incarnation"] == end["incarnation"] and before["id"]:
            with self._options.client as client:
                if str(client.offsets(self._options.queue).incarnation) == before["incarnation"]:
                    client.purge(self._options.queue, upto=before["id"])

    def stop(self) -> None:
        """Nothing is open between two calls."""
