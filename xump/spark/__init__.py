"""Dataframes of Spark, batch or stream, published into the queues of a broker, and queues read as dataframes.

The data source `xump` is found by its name: `df.write.format("xump")`, `spark.readStream.format("xump")`. docs/spark.md tells how
to use it. It needs the extra `spark` (pyspark 4.2 or newer, pyarrow), on the executors too, and a broker with Arrow Flight that
they reach.

    options         what a program says of the broker, the queue and the transaction
    schema          columns, from and to Spark's types
    source          the data source: which writer or reader is meant
    writer          stages in tasks, and commits on the driver
    reader          reads a queue in ranges of ids; `stream_reader` goes on with what comes
    publishing      plain functions: a dataframe, or the rows of a partition
    replaying       publishes rows in the rhythm of a column of times, with a `progress` bar
    sessions        a local session with the settings that work
    workers         what Spark's workers need not do again and again
"""

from xump.spark.publishing import publish, publish_partition
from xump.spark.replaying import Progress, Replayed, replay
from xump.spark.sessions import session
from xump.spark.source import XumpDataSource
from xump.spark.workers import freeze_imports

__all__ = ["Progress", "Replayed", "XumpDataSource", "publish", "publish_partition", "replay", "session"]

freeze_imports()
