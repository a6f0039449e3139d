"""Streams into queues and out of them: checkpoints, restarts, batches that come again, what was lost before it was read."""

import json
import shutil
from contextlib import nullcontext

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import numbers, rows
from tests.spark.cut import Embedded
from tests.spark.piping import finish, pipe
from xump import always, deliver
from xump.spark.options import check_for, parsed
from xump.spark.reader import DataLost
from xump.spark.schema import read_schema
from xump.spark.stream_reader import StreamReader


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
        pipe(self.spark, self.source, self.checkpoint, self.served.url, queue, **options)


@pytest.fixture
def piped(spark, served, tmp_path):
    return Pipe(spark, served, tmp_path)


def test_a_stream_goes_on_from_its_checkpoint(piped, served):
    piped.run()
    piped.more(10, 10)
    piped.run()
    piped.run()
    assert sorted(numbers(served.queue)) == list(range(20))


def test_a_batch_that_comes_again_is_not_published_again(piped, served):
    """The log of finished batches is lost, as by a crash before it was written."""
    piped.run()
    piped.more(10, 10)
    piped.run()
    shutil.rmtree(f"{piped.checkpoint}/commits")
    piped.run()
    assert sorted(numbers(served.queue)) == list(range(20))


def test_a_checkpoint_that_counts_from_0_again_is_an_error(piped, served):
    piped.run()
    piped.more(10, 10)
    piped.run()
    for folder in ("offsets", "commits", "sources"):
        shutil.rmtree(f"{piped.checkpoint}/{folder}", ignore_errors=True)
    with pytest.raises(PySparkException, match="version"):
        piped.run()
    assert sorted(numbers(served.queue)) == list(range(20))
    piped.run(txnAppId="another name")       # what the error advises; the rows are published as those of another application
    assert len(numbers(served.queue)) == 40


def test_at_least_once(piped, served):
    piped.run(delivery="at-least-once")
    assert sorted(numbers(served.queue)) == list(range(10))


def test_for_each_batch(spark, served, piped):
    from xump.spark import publish

    url = served.url

    def publish_batch(frame, number):
        publish(frame, url, "q", txnAppId="each", txnVersion=number)
        publish(frame, url, "q", txnAppId="each", txnVersion=number)

    frame = spark.readStream.schema("address STRING, body STRING, headers STRUCT<n: BIGINT>").parquet(piped.source)
    finish(frame.writeStream.foreachBatch(publish_batch).option("checkpointLocation", piped.checkpoint)
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


@pytest.fixture
def embedded(tmp_path):
    made = Embedded(tmp_path)
    yield made
    made.kill()


def test_a_tail_that_was_not_durable_when_the_broker_was_killed(spark, embedded, tmp_path):
    """What it had not read then is gone, and its ids belong to others, which it reads."""
    tail = Tail(spark, embedded, tmp_path)
    for word in ("kept", "sync", "lost"):
        embedded.say(word)
    tail.run()
    assert tail.ids == list(range(1, 11))
    embedded.kill()
    embedded.start()
    embedded.say("later")
    tail.run()
    assert tail.ids == list(range(1, 11))
    embedded.say("sync")
    tail.run()
    found = spark.read.parquet(tail.out).orderBy("id").collect()
    assert [(row.id, row.address) for row in found] == [(n, "kept" if n <= 10 else "later") for n in range(1, 21)]


def test_a_query_that_goes_on(spark, served, tmp_path):
    """Not ended by what is there now: it reads what comes meanwhile, and purges behind itself."""
    frame = spark.readStream.format("xump").option("endpoint", served.url).option("ack", "commit").load("q")
    query = frame.select("id").writeStream.format("parquet").option("path", f"{tmp_path}/out") \
        .option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(processingTime="0 seconds").start()
    try:
        for last in (10, 20, 30):
            publish(served, 10)
            query.processAllAvailable()
            assert spark.read.schema("id BIGINT").parquet(f"{tmp_path}/out").count() == last
    finally:
        query.stop()
    assert next(served.queue.browse(state="ready")).id > 10


def test_acks_are_one_batch_behind(tail, served):
    publish(served, 9)
    tail.run(maxOffsetsPerTrigger=3, ack="commit")
    assert tail.ids == list(range(1, 10))
    # Spark says that a batch is done when it begins the next one, and nothing of the last.
    assert [message.id for message in served.queue.browse(state="ready")] == list(range(4, 10))


@pytest.mark.parametrize("options, text", [
    ({"endingId": 3}, "a stream has no end"), ({"ack": "commit", "selector": "n > 1"}, "with a selector those too"),
    ({"delivery": "at-least-once"}, "option delivery is for writing"),
    ({"acks": "commit"}, "unknown option 'acks'; did you mean ack. Known are endpoint, queue, address")])
def test_what_is_wrong_with_a_stream_is_said(tail, options, text):
    with pytest.raises(PySparkException, match=text):
        tail.run(**options)


@pytest.mark.parametrize("options, text", [
    ({"txnVersion": 3}, "option txnVersion is for a batch"), ({"ack": "commit"}, "option ack is for reading"),
    ({"colour": "red"}, "unknown option 'colour'; known are endpoint, queue, address")])
def test_what_is_wrong_with_a_stream_into_a_queue_is_said(piped, served, options, text):
    with pytest.raises(PySparkException, match=text):
        piped.run(**options)
    assert served.queue.ready == 0


@pytest.fixture
def reading(served):
    """A reader of ten messages, and the parts of its first batch."""
    def reading(**options):
        publish(served, 10)
        given = check_for(parsed({"endpoint": served.url, "queue": "q"} | options), True, True)
        reader = StreamReader(given, read_schema())
        return reader, reader.partitions(reader.initialOffset(), reader.reportLatestOffset())

    return reading


def test_what_goes_between_plan_and_read_is_missed_beside_a_selector_too(reading, served):
    reader, [part] = reading(selector="sys.address = 'a.9'")
    served.queue.purge(upto=4)
    with pytest.raises(DataLost, match="4 of the messages 1 to 10"):
        list(reader.read(part))


def test_a_queue_that_is_made_again_between_plan_and_read(reading, served):
    for options, lost in (({}, True), ({"failOnDataLoss": "false"}, False)):
        reader, [part] = reading(**options)
        served.engine.delete_queue("q")
        served.engine.create_queue("q", store="disk", history_limit=None)
        publish(served, 3)
        with pytest.raises(DataLost, match="deleted and made again") if lost else nullcontext():
            assert list(reader.read(part)) == []
        served.engine.queues["q"].purge()


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
