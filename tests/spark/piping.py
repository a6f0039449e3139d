"""A stream from Parquet files into a queue; and a driver of its own for it, which a test kills.

    python -m tests.spark.piping SOURCE CHECKPOINT ENDPOINT QUEUE
"""

import sys

from xump.spark import session

WAIT = 180      # seconds; a query that hangs fails the test


def pipe(spark, source, checkpoint, endpoint, queue, **options):
    """Until all is there that is there now."""
    frame = spark.readStream.schema("address STRING, body STRING, headers STRUCT<n: BIGINT>").parquet(source)
    finish(frame.writeStream.format("xump").option("endpoint", endpoint).options(**options)
           .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(queue))


def finish(query):
    try:
        assert query.awaitTermination(WAIT), "the query hangs"
    finally:
        query.stop()


if __name__ == "__main__":
    with session() as spark:
        pipe(spark, *sys.argv[1:], timeoutMs=10_000)        # so long its Python worker may outlive it
