"""One session of Spark for all tests, and a broker for each."""

import os
import sys
from pathlib import Path

import pytest

from xump import Engine
from xump.broker import Broker

ROOT = Path(__file__).parent.parent.parent

# Spark's workers find the sources, and the module by which Spark finds the data source. An installed Xump has both in its path.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "xump/spark/discovery"), os.environ.get("PYTHONPATH", "")])
sys.path.insert(0, str(ROOT / "xump/spark/discovery"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from xump.spark import session

    made = session(spark_sql_warehouse_dir=str(tmp_path_factory.mktemp("warehouse")))
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


class Served:
    """An engine with a durable store, a queue in it, and a broker around it."""

    def __init__(self, folder, port=0, **options):
        self.folder = folder
        self.engine = Engine()
        self.engine.create_store("disk", "ring", path=f"{folder}/disk.xump", **options)
        self.queue = self.engine.create_queue("q", store="disk", history_limit=None)
        self.broker = Broker(self.engine, amqp="127.0.0.1:0", flight=f"grpc://127.0.0.1:{port}")
        self.broker.__enter__()

    @property
    def url(self):
        return self.broker.flight.url

    def close(self):
        self.broker.close()
        self.engine.check()
        self.engine.close()


@pytest.fixture
def served(tmp_path):
    made = Served(tmp_path, durability="process")
    yield made
    made.close()


@pytest.fixture
def write(served):
    """Writes a dataframe into the queue `q`, or another."""
    def write(df, queue="q", **options):
        df.write.format("xump").mode("append").option("endpoint", served.url).options(**options).save(queue)

    return write


@pytest.fixture
def read(served, spark):
    """Reads the queue `q`, or another."""
    def read(queue="q", schema=None, **options):
        reader = spark.read.format("xump").option("endpoint", served.url).options(**options)
        return (reader if schema is None else reader.schema(schema)).load(queue)

    return read


def rows(spark, count, partitions=2, extra="", first=0):
    """(address, body, headers) of numbered rows."""
    return spark.range(first, first + count, 1, partitions).selectExpr(
        "concat('a.', id) AS address", "cast(id AS string) AS body", f"named_struct('n', id{extra}) AS headers")


def numbers(queue):
    return [message.headers["n"] for message in queue.browse()]
