"""Writes a dataframe, or a micro-batch of a stream, into a queue.

Exactly once: a task stages its rows, which nobody sees (`write`); when all tasks are done, the driver names the attempts that
count, and the broker lets their rows enter whole (`commit`), or drops them all (`abort`). At least once: a task publishes its
rows as they come; what a failed attempt had published stays.

Spark makes a writer on the driver, and pickles it to the tasks and to its end. Of a stream it makes another one for the end of
each micro-batch, so what the end has to know travels in the messages of the tasks.
"""

from __future__ import annotations

import dataclasses
import secrets
import warnings
from collections.abc import Iterator, Sequence

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from xump.broker.answers import BrokerUnreachable, Staged
from xump.spark.options import Options
from xump.spark.schema import check_written, sendable

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties in which a task of a stream finds its query and its micro-batch."""

IN_RAM = ("queue {queue!r} is in RAM: a write into it is exactly once as long as the broker lives. For more, put the queue into "
          "a durable store")

ELSEWHERE = ("behind queue {queue!r} are durable queues in another store than its own: what enters while the broker dies may "
             "come to those twice. For exactly once there, too, put them into the same store")


@dataclasses.dataclass
class Written(WriterCommitMessage):
    """The result of a task that has written."""

    run: str
    """The run of its writer."""
    key: tuple[str, int] | None
    """(application, version), if there is one."""
    staged: Staged | None
    """The staged queue that the commit has to name; None: the rows are published already."""
    rows: int
    """How many rows."""


class _Writing:
    """The steps of both kinds of writers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raises what is wrong with the columns, the queue or the broker."""
        check_written(schema, options)
        self._options = options
        self._run = secrets.token_hex(16)
        self._check_queue()

    def _check_queue(self) -> None:
        options = self._options
        with options.client as client:
            target = client.target(options.queue)
        if target.is_transit and options.stages:
            raise ValueError(f"queue {options.queue!r} is a transit queue, which keeps nothing, so nothing can be committed into "
                             "it: write into one of the queues behind it, or say delivery='at-least-once'")
        if options.stages and not target.is_durable:
            warnings.warn(IN_RAM.format(queue=options.queue), RuntimeWarning, stacklevel=2)
        if options.stages and target.durable_elsewhere:
            warnings.warn(ELSEWHERE.format(queue=options.queue), RuntimeWarning, stacklevel=2)

    def _write(self, batches: Iterator[pyarrow.RecordBatch], key: tuple[str, int] | None) -> Written:
        options, task = self._options, TaskContext.get()
        assert task is not None
        rows = sendable(batches, options.address, f"partition {task.partitionId()}")
        with options.client as client:
            if not options.stages:
                return Written(self._run, None, None, client.publish(options.queue, rows).rows)
            staged = client.stage(self._run, task.partitionId(), task.taskAttemptId(), options.queue, rows, key=key)
            return Written(self._run, key, staged, staged.rows)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._options
        written = [one for one in messages if isinstance(one, Written)]
        if not options.stages or not written:
            return
        [run], [key] = {one.run for one in written}, {one.key for one in written}
        winners = sorted((one.staged for one in written if one.staged is not None), key=lambda one: one.partition)
        with options.client as client:
            try:
                done = client.commit(run, options.queue, winners, key=key, timeout=options.timeout)
            except BrokerUnreachable as error:
                raise BrokerUnreachable(f"{error}; {self._in_doubt(key)}") from None
        if done.warning is not None:
            warnings.warn(done.warning, RuntimeWarning, stacklevel=2)

    def _in_doubt(self, key: tuple[str, int] | None) -> str:
        if key is None:
            return ("it is not known whether the rows were committed: if they were, running the job again publishes them twice. "
                    "Give it txnAppId and txnVersion, and it may be run again at any time")
        return f"it is not known whether version {key[1]} of {key[0]!r} was committed: run it again, it is published once"

    def _abort(self, runs: set[str]) -> None:
        """Drop what was staged. A run that is decided stays so."""
        if self._options.stages:
            with self._options.client as client:
                for run in sorted(runs):
                    client.abort(run, self._options.queue)


class Writer(_Writing, DataSourceArrowWriter):
    """Writes a dataframe."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write a partition, in a task."""
        version = self._options.txn_version
        key = None if self._options.txn_app_id is None or version is None else (self._options.txn_app_id, version)
        return self._write(iterator, key)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed for good, or the commit has."""
        self._abort({self._run})


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write a partition of a micro-batch, in a task."""
        task = TaskContext.get()
        assert task is not None
        application = self._options.txn_app_id or task.getLocalProperty(QUERY)
        batch = task.getLocalProperty(BATCH)
        if application is None or batch is None:
            raise RuntimeError(f"Spark has not told the task its query and micro-batch ({QUERY}, {BATCH}): without them a batch "
                               "that comes again cannot be recognised")
        return self._write(iterator, (application, int(batch)) if self._options.stages else None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the micro-batch are done."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch has failed. Without a message of a task the run is not known: the next commit of the query drops it."""
        self._abort({one.run for one in messages if isinstance(one, Written)})
