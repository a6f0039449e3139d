"""Streams into queues and out of them: checkpoints, restarts, batches that come again, what was lost before it was read."""

import json
import shutil

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import numbers, rows
from xump import always, deliver

WAIT = 180      # seconds; a query that hangs fails the test


class Pipe:
    """Streams a folder of Parquet files into a queue, or a queue into another."""

    def __init__(self, spark, served, folder):
        self.spark, self.served = spark, served
        self.source, self.checkpoint = f"{folder}/source", f"{folder}/checkpoint"
        self.more(0, 10)

    def more(self, first, count):
        rows(self.spark, count, 1, first=first).write.mode("append").parquet(self.source)

    def run(self, queue="q", **options):
        """Until all is there that is there now."""
        frame = self.spark.readStream.schema("address STRING, body STRING, headers STRUCT<n: BIGINT>").parquet(self.source)
        finish(frame.writeStream.format("xump").option("endpoint", self.served.url).options(**options)
               .option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start(queue))


def finish(query):
    try:
        assert query.awaitTermination(WAIT), "the query hangs"
    finally:
        query.stop()


@pytest.fixture
def pipe(spark, served, tmp_path):
    return Pipe(spark, served, tmp_path)


def test_a_stream_goes_on_from_its_checkpoint(pipe, served):
    pipe.run()
    pipe.more(10, 10)
    pipe.run()
    pipe.run()
    assert sorted(numbers(served.queue)) == list(range(20))


def test_a_batch_that_comes_again_is_not_published_again(pipe, served):
    """The log of finished batches is lost, as by a crash before it was written."""
    pipe.run()
    pipe.more(10, 10)
    pipe.run()
    shutil.rmtree(f"{pipe.checkpoint}/commits")
    pipe.run()
    assert sorted(numbers(served.queue)) == list(range(20))


def test_a_checkpoint_that_counts_from_0_again_is_an_error(pipe, served):
    pipe.run()
    pipe.more(10, 10)
    pipe.run()
    for folder in ("offsets", "commits", "sources"):
        shutil.rmtree(f"{pipe.checkpoint}/{folder}", ignore_errors=True)
    with pytest.raises(PySparkException, match="version"):
        pipe.run()
    assert sorted(numbers(served.queue)) == list(range(20))
    pipe.run(txnAppId="another name")       # what the error advises; the rows are published as those of another application
    assert len(numbers(served.queue)) == 40


def test_at_least_once(pipe, served):
    pipe.run(delivery="at-least-once")
    assert sorted(numbers(served.queue)) == list(range(10))


def test_for_each_batch(spark, served, pipe):
    from xump.spark import publish

    url = served.url

    def publish_batch(frame, number):
        publish(frame, url, "q", txnAppId="each", txnVersion=number)
        publish(frame, url, "q", txnAppId="each", txnVersion=number)

    frame = spark.readStream.schema("address STRING, body STRING, headers STRUCT<n: BIGINT>").parquet(pipe.source)
    finish(frame.writeStream.foreachBatch(publish_batch).option("checkpointLocation", pipe.checkpoint)
           .trigger(availableNow=True).start())
    assert sorted(numbers(served.queue)) == list(range(10))


# ---- out of a queue

class Tail:
    """Reads a queue as a stream into Parquet files."""

    def __init__(self, spark, served, folder):
        self.spark, self.served, self.checkpoint, self.out = spark, served, f"{folder}/tail", f"{folder}/out"

    def run(self, queue="q", **options):
        frame = self.spark.readStream.format("xump").option("endpoint", self.served.url).options(**options).load(queue)
        query = frame.select("id", "address").writeStream.format("parquet").option("path", self.out) \
            .option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        finish(query)
        return len([one for one in query.recentProgress if one.numInputRows])

    @property
    def ids(self):
        return sorted(row.id for row in self.spark.read.schema("id BIGINT, address STRING").parquet(self.out).collect())


@pytest.fixture
def tail(spark, served, tmp_path):
    return Tail(spark, served, tmp_path)


def publish(served, count, queue="q"):
    served.engine.publish_many(queue, [(f"a.{n}",) for n in range(count)])
    served.engine.sync()


def test_a_tail_reads_all_that_enters_once(tail, served):
    publish(served, 10)
    tail.run()
    publish(served, 5)
    tail.run()
    tail.run()
    assert tail.ids == list(range(1, 16))


def test_a_batch_reads_no_more_than_was_asked_for(tail, served):
    publish(served, 10)
    assert tail.run(maxOffsetsPerTrigger=3) == 4
    assert tail.ids == list(range(1, 11))


@pytest.mark.parametrize("start, expected", [("earliest", 1), ("4", 4), ("latest", 11)])
def test_where_a_new_query_begins(tail, served, start, expected):
    publish(served, 10)
    tail.run(startingId=start)
    publish(served, 2)
    tail.run(startingId=start)
    assert tail.ids == list(range(expected, 13))


def test_what_went_before_it_was_read_is_an_error(tail, served):
    publish(served, 10)
    tail.run()
    publish(served, 10)
    served.queue.purge(upto=15)
    with pytest.raises(PySparkException, match="5 of the messages 11 to 20"):
        tail.run()
    tail.run(failOnDataLoss=False)
    assert tail.ids == [*range(1, 11), *range(16, 21)]


def test_a_queue_that_was_made_again_is_data_loss(tail, served):
    publish(served, 10)
    tail.run()
    served.engine.delete_queue("q")
    served.engine.create_queue("q", store="disk", history_limit=None)
    publish(served, 3)
    with pytest.raises(PySparkException, match="was deleted and made again"):
        tail.run()
    tail.run(failOnDataLoss=False)
    assert tail.ids == sorted([*range(1, 11), 1, 2, 3])


def test_acks_are_one_batch_behind(tail, served):
    publish(served, 9)
    tail.run(maxOffsetsPerTrigger=3, ack="commit")
    assert tail.ids == list(range(1, 10))
    # Spark says that a batch is done when it begins the next one, and nothing of the last.
    assert [message.id for message in served.queue.browse(state="ready")] == list(range(4, 10))


def test_acks_are_for_queues_without_consumers(tail, served):
    served.engine.create_selector("q", when=always, do=deliver("worker"), credit=1)
    with pytest.raises(PySparkException, match="1 selectors take from queue"):
        tail.run(ack="commit")


def test_offsets_are_ids_and_an_incarnation(tail, served):
    publish(served, 10)
    tail.run()
    with open(f"{tail.checkpoint}/offsets/0") as file:
        kept = json.loads(file.read().splitlines()[-1])
    assert (kept["id"], kept["incarnation"]) == (10, str(served.queue.incarnation))


def test_queue_to_queue(spark, served, tmp_path):
    other = served.engine.create_queue("other", store="disk")
    publish(served, 50)
    frame = spark.readStream.format("xump").option("endpoint", served.url).option("maxOffsetsPerTrigger", 20).load("q")
    finish(frame.select("address", "body").writeStream.format("xump").option("endpoint", served.url)
           .option("checkpointLocation", f"{tmp_path}/both").trigger(availableNow=True).start("other"))
    assert other.ready == 50
