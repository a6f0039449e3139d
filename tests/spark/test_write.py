"""Dataframes into queues: rows, order, types, nulls, sizes; exactly once and at least once."""

import datetime
import decimal
import socket
import time
import warnings

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.conftest import numbers, rows
from xump import always, copy_to, deliver, where
from xump.broker import Client
from xump.spark import XumpDataSource, options, publish, publish_partition
from xump.spark.options import CONNECT_SECONDS, as_texts
from xump.spark.publishing import BATCH_ROWS
from xump.spark.schema import SLICE_BYTES, sliced

BOTH = ("exactly-once", "at-least-once")


def staged(engine):
    return [name for name in engine.queues if name.startswith("xump.staging/")]


@pytest.mark.parametrize("delivery", BOTH)
@pytest.mark.parametrize("count", [0, 1, 10, 25_000])
def test_each_row_is_a_message(spark, served, write, count, delivery):
    write(rows(spark, count, 3), delivery=delivery)
    assert sorted(numbers(served.queue)) == list(range(count))
    if count:
        message = next(iter(served.queue.browse()))
        assert (message.address, message.body) == (f"a.{message.headers['n']}", b"%d" % message.headers["n"])
    assert staged(served.engine) == []


def test_a_million_rows(spark, served, write):
    write(rows(spark, 1_000_000))
    assert (served.queue.ready, served.engine.queues["q"].entering) == (1_000_000, 0)
    served.engine.sync()
    with Client(served.url) as client:
        ids = client.browse("q", columns=["id"]).read_all().column("id").to_pylist()
    assert ids == list(range(1, 1_000_001))


def test_rows_enter_in_the_order_of_a_global_sort(spark, served, write):
    write(rows(spark, 5_000, 4).orderBy("headers.n", ascending=False))
    assert numbers(served.queue) == list(range(4_999, -1, -1))


def test_types_of_headers_are_kept(spark, served, write):
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    frame = spark.range(1).selectExpr(
        "'a' AS address", "cast('x' AS binary) AS body",
        "named_struct('int', 7, 'long', 1L << 40, 'float', 1.5D, 'yes', true, 'text', 'ü', 'bytes', cast('b' AS binary), "
        "'none', cast(null AS int), 'price', cast(1.50 AS decimal(10,2)), "
        "'at', timestamp '2026-01-02 03:04:05 UTC') AS headers")
    write(frame)
    [message] = served.queue.browse()
    assert dict(message.headers) == {
        "int": 7, "long": 1 << 40, "float": 1.5, "yes": True, "text": "ü", "bytes": b"b",
        "price": str(decimal.Decimal("1.50")), "at": int(moment.timestamp()) * 1_000_000_000}


def test_headers_are_filtered_by_their_types(spark, served, write):
    texts = "int > 6", "float < 2", "yes = true", "int < 7"
    with served.engine.building():
        for text in texts:
            served.engine.create_selector("q", when=where(text), do=copy_to(served.engine.create_queue(text)))
    headers = "named_struct('int', 7, 'float', 1.5D, 'yes', true) AS headers"
    write(spark.range(1).selectExpr("'a' AS address", "'b' AS body", headers))
    assert [served.engine.queues[text].ready for text in texts] == [1, 1, 1, 0]


@pytest.mark.parametrize("headers", ["map('k', 'v')", "array(named_struct('key', 'k', 'value', cast('v' AS binary)))",
                                     "array(named_struct('key', 'k', 'value', 'v'))"])
def test_headers_as_a_map_and_as_kafka_has_them(spark, served, write, headers):
    write(spark.range(1).selectExpr("'a' AS address", "'b' AS body", f"{headers} AS headers"))
    [message] = served.queue.browse()
    assert message.headers["k"] in ("v", b"v")


def test_the_other_columns(spark, served, write):
    write(spark.range(1).selectExpr(
        "'a' AS address", "'b' AS body", "'r' AS reply_to", "'m' AS message_id", "'c' AS correlation_id", "5 AS priority",
        "timestamp '2126-01-01 00:00:00 UTC' AS expires", "timestamp '2125-01-01 00:00:00 UTC' AS at"))
    [message] = served.queue.browse(state="delayed")
    assert (message.reply_to, message.message_id, message.correlation_id, message.priority) == ("r", "m", "c", 5)


def test_wide_headers(spark, served, write):
    fields = ", ".join(f"'h{n}', id + {n}" for n in range(300))
    write(spark.range(20).selectExpr("'a' AS address", "'b' AS body", f"named_struct({fields}) AS headers"))
    assert all(message.headers["h299"] - message.headers["h0"] == 299 for message in served.queue.browse())


@pytest.mark.parametrize("column", ["address", "body"])
@pytest.mark.parametrize("delivery", BOTH)
def test_a_null_is_an_error_that_names_the_row(spark, served, write, column, delivery):
    frame = rows(spark, 100, 1).selectExpr(
        *(f"if(headers.n = 41, null, {name}) AS {name}" if name == column else name for name in ("address", "body")))
    with pytest.raises(PySparkException, match=f"{column} is null in row 41 of partition 0"):
        write(frame, delivery=delivery)
    assert (served.queue.ready, staged(served.engine)) == (0, [])


def test_one_address_for_all(spark, served, write):
    write(rows(spark, 3).select("body"), address="all")
    assert {message.address for message in served.queue.browse()} == {"all"}


@pytest.mark.parametrize("columns, options, text", [
    (["address"], {}, "column body is missing"),
    (["body"], {}, "column address is missing"),
    (["address", "body"], {"address": "x"}, "give one of them"),
    (["address", "body", "1 AS size"], {}, "unknown column 'size'"),
    (["address", "body", "1 AS header"], {}, "did you mean headers"),
    (["address", "1 AS body"], {}, "column body is of type int; allowed: string, binary"),
    (["address", "body", "array(1) AS headers"], {}, "column headers is of type"),
    (["address", "body", "named_struct('a', array(1)) AS headers"], {}, "header a is of type array<int>"),
    (["address", "body"], {"delivry": "x"}, "did you mean delivery"),
    (["address", "body"], {"delivery": "twice"}, "allowed are exactly-once, at-least-once"),
    (["address", "body"], {"timeoutMs": "soon"}, "allowed is a whole number from 1 on"),
    (["address", "body"], {"txnAppId": "a"}, "belong together"),
    (["address", "body"], {"txnVersion": 1}, "belong together"),
    (["address", "body"], {"selector": "a = 1"}, "option selector is for reading"),
    (["address", "body"], {"txnAppId": "a", "txnVersion": 1, "delivery": "at-least-once"}, "are for delivery='exactly-once'"),
    (["address", "body"], {"QUEUE": "other"}, "give it once"),
])
def test_what_is_wrong_is_said_before_any_task_runs(spark, served, write, columns, options, text):
    frame = rows(spark, 3).selectExpr(*columns)
    with pytest.raises(PySparkException, match=text):
        write(frame, **options)
    assert served.queue.ready == 0


def test_a_broker_that_is_not_there(spark, served):
    frame = rows(spark, 3)
    with pytest.raises(PySparkException, match="grpc://127.0.0.1:1"):
        frame.write.format("xump").mode("append").option("endpoint", "grpc://127.0.0.1:1").save("q")
    with pytest.raises(PySparkException, match="grpc://127.0.0.1:1"):
        spark.read.format("xump").option("endpoint", "grpc://127.0.0.1:1").load("q").count()


def test_a_broker_that_does_not_answer(spark):
    """Somebody listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"grpc://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(PySparkException, match=url):
            rows(spark, 3).write.format("xump").mode("append").option("endpoint", url).option("timeoutMs", 2000).save("q")


@pytest.mark.parametrize(("given", "seconds"), [
    ({"timeoutMs": "2000"}, 2.0), ({"timeoutMs": "60000"}, CONNECT_SECONDS), ({}, CONNECT_SECONDS)])
def test_how_long_a_broker_is_waited_for(monkeypatch, given, seconds):
    """To connect and to ask: `timeoutMs` if it is short. A commit is asked for again until `timeoutMs` is over."""
    clients = []
    monkeypatch.setattr(options, "Client", lambda endpoint, **named: clients.append(named["timeout"]))
    assert options.parsed({"endpoint": "grpc://127.0.0.1:1", "queue": "q", **given}).client is None
    assert clients == [seconds]


def test_a_queue_that_is_not_there(spark, served, write):
    with pytest.raises(PySparkException, match="no queue 'nope'"):
        write(rows(spark, 3), "nope")


def test_a_transit_queue_takes_rows_at_least_once_only(spark, served, write):
    served.engine.create_queue("t", transit=True)
    served.engine.create_selector("t", when=always, do=copy_to("q"))
    with pytest.raises(PySparkException, match="is a transit queue"):
        write(rows(spark, 3), "t")
    write(rows(spark, 3), "t", delivery="at-least-once")
    assert sorted(numbers(served.queue)) == [0, 1, 2]


def test_a_version_is_published_once(spark, served, write):
    for _ in range(2):
        write(rows(spark, 5), txnAppId="app", txnVersion=3)
    assert served.queue.ready == 5
    write(rows(spark, 5), txnAppId="app", txnVersion=4)
    assert served.queue.ready == 10
    with pytest.raises(PySparkException, match="version"):
        write(rows(spark, 5), txnAppId="app", txnVersion=2)
    assert (served.queue.ready, staged(served.engine)) == (10, [])


def test_a_queue_at_its_limit_whose_consumer_waits_for_the_job(spark, served, write):
    """The commit is decided when there is no room; the rows enter as the consumer takes."""
    queue = served.engine.create_queue("small", store="disk", limit=10)
    write(rows(spark, 100), "small")
    served.engine.create_selector("small", when=always, do=deliver("worker"), credit=5)
    taken = []
    while len(taken) < 100:
        for delivery in served.engine.take(5, timeout=60):
            taken.append(delivery.message.headers["n"])
            delivery.ack()
    assert (sorted(taken), queue.ready) == (list(range(100)), 0)


def test_plain_functions(spark, served):
    publish(rows(spark, 10), served.url, "q", txnAppId="f", txnVersion=1)
    publish(rows(spark, 10), served.url, "q", txnAppId="f", txnVersion=1)
    assert served.queue.ready == 10
    url = served.url
    rows(spark, 10).foreachPartition(lambda rows: publish_partition(rows, url, "q"))
    assert served.queue.ready == 20

    def send(batches):
        import pyarrow

        yield pyarrow.RecordBatch.from_pydict({"rows": [publish_partition(batches, url, "q")]})

    counted = rows(spark, 10, 2).mapInArrow(send, "rows long").collect()
    assert (sorted(row.rows for row in counted), served.queue.ready) == ([5, 5], 30)
    assert publish_partition([], url, "q") == 0
    assert publish_partition([{"address": "a", "body": b"b"}], url, "q") == 1


def test_rows_of_a_partition_need_not_be_alike(spark, served):
    """Columns that are null, or not there, in the first batch; a header of another type in the second; and one that is gone."""
    first = [{"address": "a", "body": b"b", "headers": {"n": 1}, "reply_to": None}, {"address": "a", "body": b"b", "headers": {}}]
    first += [{"address": "a", "body": b"b", "message_id": "m"}] * (BATCH_ROWS - 2)
    second = [{"address": "a", "body": "b", "headers": {"n": 1.5}, "reply_to": "r"}, {"address": "a", "body": "b"}]
    assert publish_partition(first + second, served.url, "q") == BATCH_ROWS + 2
    found = [(one.headers.get("n"), one.reply_to, one.message_id) for one in served.queue.browse()]
    assert found[:3] == [(1, None, None), (None, None, None), (None, None, "m")]
    assert found[-3:] == [(None, None, "m"), (1.5, "r", None), (None, None, None)]
    with pytest.raises(ValueError, match=f"body is null in row {BATCH_ROWS + 2} of the partition"):
        publish_partition([*first, *second, {"address": "a"}], served.url, "q")
    with pytest.raises(TypeError, match="expected rows of Spark, dicts or record batches, got int"):
        publish_partition([first[0], 1], served.url, "q")


@pytest.mark.parametrize("kind", [Row, dict])
def test_times_without_a_zone_are_those_of_the_process(served, monkeypatch, kind):
    """As Spark's rows have them."""
    monkeypatch.setenv("TZ", "XXX-5")
    time.tzset()
    try:
        moment = datetime.datetime(2126, 1, 1)
        row = kind(address="a", body=b"b", expires=moment, headers=kind(at=moment))
        publish_partition([row, {"address": "a", "body": b"b", "expires": moment.astimezone()}], served.url, "q")
    finally:
        monkeypatch.undo()
        time.tzset()
    ns = int(datetime.datetime(2125, 12, 31, 19, tzinfo=datetime.UTC).timestamp()) * 10**9
    assert [(one.expires, one.headers.get("at", ns)) for one in served.queue.browse()] == [(ns, ns)] * 2


def test_nothing_is_no_row(served):
    row = {"address": "a", "body": b"b"}
    for given in ([None, row], [row, None]):
        with pytest.raises(TypeError, match="got NoneType"):
            publish_partition(given, served.url, "q")
    assert served.queue.ready == 0


def test_what_is_none_was_not_given(served):
    publish_partition([{"address": "a", "body": b"b"}], served.url, "q", address=None, token=None)
    assert [message.address for message in served.queue.browse()] == ["a"]
    assert as_texts({"address": None, "txnVersion": 7}) == {"txnVersion": "7"}


def test_a_partition_is_published_at_least_once(served):
    with pytest.raises(ValueError, match="use `publish`"):
        publish_partition([{"address": "a", "body": b"b"}], served.url, "q", delivery="exactly-once")
    assert served.queue.ready == 0


def test_rows_of_different_sizes_are_sent_in_slices_of_4_mib():
    import pyarrow

    sizes = [10] * 5_000 + [1_000_000] * 20 + [10] * 4_980 + [2 * SLICE_BYTES] * 2
    batch = pyarrow.record_batch({"body": pyarrow.array([b"x" * size for size in sizes])})
    parts = list(sliced(batch))
    assert pyarrow.Table.from_batches(parts).equals(pyarrow.Table.from_batches([batch]))
    assert all(part.nbytes <= 2 * SLICE_BYTES or part.num_rows == 1 for part in parts)
    assert list(sliced(batch.slice(0, 0))) == []


def test_a_large_row(spark, served, write):
    write(spark.range(3).selectExpr("'a' AS address", "repeat('x', 40000000) AS body"))
    assert [len(message.body) for message in served.queue.browse()] == [40_000_000] * 3


RAM, ELSEWHERE = "queue 'target' is in RAM", "behind queue 'target' are durable queues in another store"


@pytest.mark.parametrize("store, behind, texts", [
    ("disk", "disk", []), ("disk", "other", [ELSEWHERE]), ("ram", "ram", [RAM]), ("ram", "disk", [RAM, ELSEWHERE])])
def test_what_exactly_once_does_not_hold_for_is_said_in_a_warning(served, tmp_path, store, behind, texts):
    """Spark makes the writer in a process of its own, whose errors are in its log."""
    engine = served.engine
    engine.create_store("other", "ring", path=f"{tmp_path}/other.xump")
    engine.create_queue("target", store=store)
    engine.create_queue("behind", store=behind)
    engine.create_selector("target", when=always, do=copy_to("behind"))
    schema = StructType([StructField("address", StringType()), StructField("body", StringType())])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for delivery in BOTH:
            XumpDataSource({"endpoint": served.url, "path": "target", "delivery": delivery}).writer(schema, False)
    assert [str(one.message)[:len(text)] for one, text in zip(said, texts, strict=True)] == texts


def test_where_overwriting_was_meant(spark, served):
    with pytest.raises(PySparkException):
        rows(spark, 3).write.format("xump").mode("overwrite").option("endpoint", served.url).save("q")
    assert served.queue.ready == 0
