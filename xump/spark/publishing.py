"""Plain functions: a dataframe into a queue, or the rows of one partition."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, Row

from xump.spark.options import as_texts, check_for, parsed
from xump.spark.schema import sendable
from xump.spark.source import ensure_source

BATCH_ROWS = 10_000
"""So many rows of a partition are sent as one batch."""

TIMED = ("at", "expires", "headers")
"""Columns in which there may be times."""


def publish(df: DataFrame, endpoint: str, queue: str, **options: Any) -> None:
    """Publish a dataframe into a queue, whole and once.

    Args:
        df: Its columns are `address`, `body`, and perhaps `headers`, `reply_to`, `message_id`, `correlation_id`, `at`, `expires`,
            `priority`.
        endpoint: Where the broker listens, `grpc://HOST:PORT`. The executors must reach it.
        queue: The queue.
        options: Those of the data source, such as `address`, `user`, `password`, `delivery`, `txnAppId`, `txnVersion`.

    Returns when all rows have entered, or wait for room in the queue. Raises what Spark raises for a write that failed.

    In `foreachBatch`, give it `txnAppId=NAME, txnVersion=batch_id`: a batch that comes again is then published once.
    """
    ensure_source(df.sparkSession)
    texts = as_texts(options)
    check_for(parsed({"endpoint": endpoint, "queue": queue} | texts), reading=False)
    df.write.format("xump").mode("append").option("endpoint", endpoint).options(**texts).save(queue)


def publish_partition(rows_or_batches: Iterable[Any], endpoint: str, queue: str, **options: Any) -> int:
    """Publish the rows of a partition at once, at least once: for `foreachPartition`, `mapInArrow` and tasks of your own.

    Args:
        rows_or_batches: Rows of Spark, dicts, or record batches. In rows and dicts a time without a zone is one of this process's
            zone: Spark gives those of TIMESTAMP so.
        endpoint, queue, options: As for `publish`; of the options, those that say how to reach the broker, and `address`.

    Returns:
        How many rows were published, and are durable if the queue is.

    Raises:
        BrokerUnreachable, AccessRefused, QueueNotFound: As `xump.broker.Client.publish`. Batches before the error have entered.
        ValueError, TypeError: A column or an option is wrong, or a row has no address or no body.

    If a task fails, Spark runs it again, and what it had published is published twice.
    """
    given = check_for(parsed({"endpoint": endpoint, "queue": queue, "delivery": "at-least-once"}
                             | as_texts(options)), reading=False)
    if given.stages:
        raise ValueError("delivery='exactly-once' takes a commit when all tasks are done: use `publish`. This publishes at once")
    sent = sendable(_batches(iter(rows_or_batches)), given.address, "the partition")
    with given.client as client:
        # Columns of rows have the types that the values of a batch have, which may be others in the next one: a stream has one.
        return sum(client.publish(given.queue, alike).rows for _, alike in itertools.groupby(sent, attrgetter("schema")))


def _batches(found: Iterator[Any]) -> Iterator[pyarrow.RecordBatch]:
    """Record batches as they are; rows as batches."""
    for first in found:
        found = itertools.chain([first], found)
        break
    else:
        return
    if isinstance(first, pyarrow.RecordBatch):
        yield from found
        return
    while rows := [row.asDict(recursive=True) if isinstance(row, Row) else row for row in itertools.islice(found, BATCH_ROWS)]:
        for row in rows:
            if not isinstance(row, dict):
                raise TypeError(f"expected rows of Spark, dicts or record batches, got {type(row).__name__}")
        names = dict.fromkeys(itertools.chain.from_iterable(rows))
        yield pyarrow.RecordBatch.from_pydict(
            {name: [row.get(name) for row in rows] if name not in TIMED else [_aware(row.get(name)) for row in rows]
             for name in names})


def _aware(value: Any) -> Any:
    """A time without a zone is one of this process's zone, as in Spark's rows, and for Python."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: _aware(one) for name, one in value.items()}
    return value
