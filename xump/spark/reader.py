"""Reads a queue as a dataframe, in parts: each part is a range of ids, with about as many messages as the others.

Nothing is taken. Messages above the last durable id, or of a commit that is still entering, are not read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from xump.broker.client import Client
from xump.spark.options import Options
from xump.spark.schema import Shape

PART_ROWS = 100_000
"""So many rows a part has, unless `minPartitions` asks for more parts."""
PARTS_MAX = 1_000
"""So many parts there are at most, unless `minPartitions` asks for more."""


@dataclasses.dataclass(init=False)
class Part(InputPartition):
    """A range of ids of a queue."""

    first: int
    """Its first id."""
    last: int
    """Its last id."""
    incarnation: int
    """Which queue of this name it is."""
    rows: int | None
    """How many messages it must have; None: it is not known."""

    def __init__(self, first: int, last: int, incarnation: int, rows: int | None = None) -> None:
        super().__init__(None)
        self.first, self.last, self.incarnation, self.rows = first, last, incarnation, rows


class DataLost(RuntimeError):
    """Messages that were to be read are not there any more."""


def check_queue(client: Client, queue: str) -> None:
    """Raises ValueError for a queue that has no ids."""
    if client.offsets(queue).is_transit:
        raise ValueError(f"queue {queue!r} is a transit queue, which keeps nothing and issues no ids: read one of the queues "
                         "behind it")


def planned(client: Client, options: Options, first: int, last: int) -> tuple[list[tuple[int, int]], int, int]:
    """(parts, how many rows are in them, the queue's incarnation) of the messages from one id to another."""
    wanted = options.partitions_min or 1
    plan = client.plan(options.queue, wanted, first, last)
    parts = max(wanted, min(-(-plan.rows // PART_ROWS), PARTS_MAX))
    if parts > wanted:
        plan = client.plan(options.queue, parts, first, last)
    return plan.parts, plan.rows, plan.incarnation


def rows_of(options: Options, shape: Shape, part: Part) -> Iterator[pyarrow.RecordBatch]:
    """The messages of a part. Raises `DataLost` if the queue is another one by now, or has lost messages of the part; unless
    `failOnDataLoss` is false: then what is there of it."""
    seen = 0
    with options.client as client:
        reader = client.browse(options.queue, start=part.first, end=part.last, where=options.selector, columns=shape.columns,
                               headers=shape.headers)
        if client.offsets(options.queue).incarnation != part.incarnation:
            if options.fails_on_loss:
                raise DataLost(lost(options.queue, "the queue itself, which was deleted and made again,"))
            return
        for batch in reader:
            seen += batch.num_rows
            yield shape.shaped(batch)
        if part.rows is not None and options.selector is not None:      # how many there were to select from
            seen = client.plan(options.queue, 1, part.first, part.last).rows
    if part.rows is not None and seen != part.rows:
        raise DataLost(lost(options.queue, f"{part.rows - seen} of the messages {part.first} to {part.last}"))


def lost(queue: str, what: str) -> str:
    """The error text for messages that are not there any more."""
    return (f"{what} of queue {queue!r} went before the stream had read it: keep more of its history (history_limit), read it "
            "without consumers beside, or go on with failOnDataLoss=false")


class Reader(DataSourceReader):
    """Reads what a queue has: what is ready, delayed, outstanding, and its history."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises what is wrong with the columns, the queue or the broker."""
        self._options = options
        self._shape = Shape(schema)
        with options.client as client:
            check_queue(client, options.queue)

    def partitions(self) -> Sequence[InputPartition]:
        """The parts of the queue."""
        options = self._options
        first = options.starting_id if isinstance(options.starting_id, int) else 1
        with options.client as client:
            last = client.offsets(options.queue).readable_id
            if options.ending_id is not None:
                last = min(last, options.ending_id)
            parts, _, incarnation = planned(client, options, first, last) if first <= last else ([], 0, 0)
        return [Part(start, end, incarnation) for start, end in parts]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The messages of a part, in a task. Where there are no parts, Spark asks for one of its own: that has none."""
        return rows_of(self._options, self._shape, partition) if isinstance(partition, Part) else iter(())
