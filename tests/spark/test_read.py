"""Queues as dataframes: what is read, in which parts, and never above what is durable."""

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.errors import PySparkException
from pyspark.sql.types import MapType, StringType, StructField, StructType

from benchmarks.ports import free_port
from tests.spark.conftest import rows
from xump import Engine, always, deliver
from xump.broker import Broker, hash_password, read_users
from xump.spark.options import check_for, parsed
from xump.spark.schema import Shape


@pytest.fixture
def filled(served):
    served.engine.publish_many("q", [(f"a.{n}", b"%d" % n, {"n": n}) for n in range(1, 1001)])
    served.engine.sync()
    return served


def test_all_columns(filled, read):
    filled.engine.publish("q", "late", b"x", {"n": 1}, reply_to="r", message_id="m")
    filled.engine.sync()
    frame = read()
    assert frame.schema.simpleString() == (
        "struct<id:bigint,queue:string,address:string,body:binary,headers:map<string,string>,reply_to:string,"
        "timestamp:timestamp,redelivered:boolean>")
    last = frame.where("id = 1001").collect()[0]
    assert (last.queue, last.address, bytes(last.body), last.headers, last.reply_to, last.redelivered) == (
        "q", "late", b"x", {"n": "1"}, "r", False)


def test_history_and_outstanding_are_read_too(filled, read):
    filled.engine.create_selector("q", when=always, do=deliver("w"), credit=10)
    taken = filled.engine.take(10)
    for delivery in taken[:5]:
        delivery.ack()
    taken[5].nack()
    filled.engine.sync()
    found = {row.id: row.redelivered for row in read().select("id", "redelivered").collect()}
    assert (len(found), [id for id, again in found.items() if again]) == (1000, [taken[5].id])


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_parts_are_ranges_of_ids(filled, read, parts):
    frame = read(minPartitions=parts)
    assert frame.rdd.getNumPartitions() == parts
    sizes = frame.rdd.glom().map(len).collect()
    assert (sum(sizes), max(sizes) - min(sizes) <= 1000 // parts) == (1000, True)


def test_a_filter_and_bounds(filled, read):
    found = read(schema="id BIGINT, headers STRUCT<n: BIGINT>", selector="n > 990", startingId=5, endingId=995).collect()
    assert sorted((row.id, row.headers.n) for row in found) == [(n, n) for n in range(991, 996)]


def test_an_empty_queue(read, served):
    assert read().count() == 0


def test_nothing_above_what_is_durable_is_read(served, read):
    served.engine.create_store("lazy", "ring", path=f"{served.folder}/lazy.xump", durability="none", group_ms=60_000)
    late = served.engine.create_queue("late", store="lazy")
    served.engine.publish("late", "a")
    assert (late.ready, late.durable_id, read("late").count()) == (1, 0, 0)
    served.engine.sync()
    assert read("late").count() == late.durable_id == 1


def test_what_enters_by_a_commit_is_read_whole_or_not_at_all(spark, served, read, write):
    """The target has room for ten of a hundred rows, so they enter as a consumer takes them."""
    queue = served.engine.create_queue("narrow", store="disk", limit=10, history_limit=None)
    write(rows(spark, 100), "narrow")
    assert (queue.ready, queue.entering, read("narrow").count()) == (10, 90, 0)
    served.engine.create_selector("narrow", when=always, do=deliver("w"), credit=5)
    taken = 0
    while taken < 100:
        for delivery in served.engine.take(5, timeout=60):
            delivery.ack()
            taken += 1
        assert queue.stable_id == (0 if queue.entering else 100)
    served.engine.sync()
    assert read("narrow").count() == 100


def test_what_is_read_can_be_written(filled, read, write):
    other = filled.engine.create_queue("other")
    write(read().selectExpr("address", "body", "headers"), "other")
    assert other.ready == 1000


@pytest.mark.parametrize("schema, options, text", [
    ("id STRING", {}, "column id is of type bigint, not string"),
    ("ident BIGINT", {}, "unknown column 'ident'"),
    ("headers STRUCT<a: ARRAY<INT>>", {}, "header a is of type array<int>"),
    (None, {"delivery": "at-least-once"}, "option delivery is for writing"),
    (None, {"startingId": "first"}, "allowed are earliest, latest and an id"),
    (None, {"startingId": "latest"}, "is for a stream"),
    (None, {"ack": "commit"}, "is for a stream"),
    (None, {"selector": "n >"}, "selector|filter|expected"),
])
def test_what_is_wrong_is_said(filled, read, schema, options, text):
    with pytest.raises(PySparkException, match=text):
        read(schema=schema, **options).count()


def test_transit_queues_have_no_ids(served, read):
    served.engine.create_queue("t", transit=True)
    with pytest.raises(PySparkException, match="is a transit queue"):
        read("t").count()


USERS = """
[users.anna]
password = "{password}"
[users.anna.vhosts."/"]
configure = ""
write = "^q$"
read = ""
"""


def test_tokens(spark, tmp_path):
    file = tmp_path / "users.toml"
    file.write_text(USERS.format(password=hash_password("secret", 2)))
    with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0", users=read_users(file)[0]) as broker:
        queue = engine.create_queue("q")
        client = flight.connect(broker.flight.url)
        token = client.authenticate_basic_token("anna", "secret")[1].decode().removeprefix("Bearer ")
        client.close()
        write = rows(spark, 3).write.format("xump").mode("append").option("endpoint", broker.flight.url)
        with pytest.raises(PySparkException, match="AccessRefused"):
            write.save("q")
        with pytest.raises(PySparkException, match="AccessRefused"):
            write.option("token", "drawn by lot").save("q")
        assert queue.ready == 0
        write.option("token", token).save("q")
        assert queue.ready == 3


def test_user_and_password_outlive_the_broker(spark, tmp_path):
    """Rows that were staged before it was closed are committed after it was opened again."""
    file = tmp_path / "users.toml"
    file.write_text(USERS.format(password=hash_password("secret", 2)))
    login, port = {"user": "anna", "password": "secret"}, free_port()
    for begins in (True, False):
        with Engine() as engine:
            engine.create_store("disk", "ring", path=f"{tmp_path}/disk.xump")
            engine.create_queue("q", store="disk")
            with Broker(engine, amqp="127.0.0.1:0", flight=f"grpc://127.0.0.1:{port}", store="disk",
                        users=read_users(file)[0]) as broker:
                options = check_for(parsed({"endpoint": broker.flight.url, "queue": "q"} | login), reading=False)
                with options.client as client:
                    if begins:
                        part = client.stage("run", 0, 0, "q", pa.record_batch({"address": ["a"]}))
                    else:
                        assert client.commit("run", "q", [part]).rows == 1
                frame = rows(spark, 3)
                frame.write.format("xump").mode("append").option("endpoint", broker.flight.url).options(**login).save("q")
                assert engine.queues["q"].ready == (3 if begins else 7)
    assert "secret" not in repr(options)


def test_options_that_say_nothing_to_a_batch_are_refused_whatever_they_say():
    for value in ("true", "false"):
        with pytest.raises(ValueError, match="option failOnDataLoss is for a stream"):
            check_for(parsed({"endpoint": "grpc://127.0.0.1:1", "queue": "q", "failOnDataLoss": value}), reading=True)
    with pytest.raises(ValueError, match="minPartitions='10001': allowed is a whole number from 1 to 10000"):
        parsed({"endpoint": "grpc://127.0.0.1:1", "queue": "q", "minPartitions": "10001"})


def test_values_of_headers_need_not_be_nullable():
    never_null = MapType(StringType(), StringType(), valueContainsNull=False)
    assert Shape(StructType([StructField("headers", never_null)])).columns == ["headers"]


@pytest.mark.parametrize("options, text", [
    ({"user": "anna"}, "belong together"), ({"password": "x"}, "belong together"),
    ({"user": "anna", "password": "x", "token": "y"}, "leave the token out")])
def test_user_and_password_or_a_token(options, text):
    with pytest.raises(ValueError, match=text):
        parsed({"endpoint": "grpc://127.0.0.1:1", "queue": "q"} | options)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="left out: there is no program `openssl`")
@pytest.mark.parametrize("as_file", [True, False])
def test_certificates(spark, tmp_path, as_file):
    """Named by a file, or given as they are: the executors get them from the driver."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    pem, key = (Path(tmp_path, name).read_bytes() for name in ("pem", "key"))
    with Engine() as engine, Broker(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0",
                                    flight_certificate=(pem, key)) as broker:
        queue = engine.create_queue("q")
        options = {"endpoint": broker.flight.url, "queue": "q", "tlsRootCerts": f"{tmp_path}/pem" if as_file else pem.decode()}
        assert options["endpoint"].startswith("grpc+tls://")
        frame = rows(spark, 30)
        frame.write.format("xump").mode("append").options(**options).save()
        assert queue.ready == spark.read.format("xump").options(**options).load().count() == 30
        with pytest.raises(PySparkException, match="grpc[+]tls://127.0.0.1"):
            frame.write.format("xump").mode("append").option("endpoint", broker.flight.url).save("q")
    with pytest.raises(PySparkException, match="neither a certificate"):
        frame.write.format("xump").mode("append").options(**options | {"tlsRootCerts": f"{tmp_path}/none"}).save()
