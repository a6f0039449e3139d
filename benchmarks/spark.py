"""Spark beside what it costs Spark alone. `python -m benchmarks.spark`; needs Java, pyspark, and pandas for the floor.

- Write: rows (address, 100 bytes, a header) of two tasks, into a Parrot in RAM, whose one subscriber keeps them. Beside a
  `mapInArrow` that only counts them, which is the floor that Spark sets. Bars: 0.9 of its rate at least once, 0.6 staged and
  committed. And beside `foreachPartition` with pika into RabbitMQ, a tenth of the rows: 4 times its rate. *bare do_put* sends the
  same batches from the same tasks to a server of Flight that only counts them: with both cores taken by Spark and its workers, it
  is what any broker behind Flight is at best.
- Others: round trips of another client's publish into a queue of its own, while as many staged rows enter by a commit, beside the
  same while the broker is idle. The 99th percentile; bar: 1/3 of the rate, which is 3 times as long.
- Read: the history of a queue, beside the same rows from Parquet through a data source in Python that yields ready batches.
  Bar: 0.7.

The broker is a process of its own. All contestants of a part take turns in one session of Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pyarrow
import pyarrow.parquet
from pyarrow import flight
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.harness import Contestant, compare, describe, parser_of, speed_table, take_turns
from xump.broker.client import Client
from xump.spark import publish, session
from xump.spark.schema import sliced

ROWS = 1_000_000
TASKS = 2
PIKA_PART = 10
"""pika publishes a row in tens of µs: one of so many rows is enough."""
TRIPS = 200
"""Round trips of an idle broker."""
SOURCES = Path(__file__).parent.parent
COLUMNS = "id BIGINT, address STRING, body BINARY, headers STRUCT<n: BIGINT>"

SERVER = """
import sys
from xump import Engine, Parrot
from xump.broker import Broker, Limits

with Engine() as engine:
    Parrot(engine, "jobs").join("one", "#", credit=0)
    engine.create_queue("apart", history_limit=1)
    engine.create_queue("past")
    with Broker(engine, "127.0.0.1:0", flight="grpc://127.0.0.1:0", limits=Limits(staging_bytes=1 << 31)) as broker:
        print(broker.flight.url, flush=True)
        sys.stdin.read()
"""


@contextmanager
def broker(program: str = SERVER) -> Iterator[str]:
    """Where it listens."""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, TASKS).selectExpr(
        "concat('jobs.', id % 1000) AS address", "cast(repeat('x', 100) AS binary) AS body", "named_struct('n', id) AS headers")


# ---- write

def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    yield pyarrow.record_batch({"rows": pyarrow.array([sum(batch.num_rows for batch in batches)], pyarrow.int64())})


def counted(df: DataFrame, rows: int) -> float:
    """Nanoseconds a row."""
    begun = perf_counter_ns()
    found = sum(row.rows for row in df.mapInArrow(count, "rows BIGINT").collect())
    taken = (perf_counter_ns() - begun) / rows
    check(found, rows)
    return taken


def check(found: int, rows: int) -> None:
    if found != rows:
        raise RuntimeError(f"{found} rows came, and {rows} were sent")


def published(df: DataFrame, client: Client, rows: int, delivery: str) -> float:
    """Nanoseconds a row."""
    begun = perf_counter_ns()
    publish(df, client.endpoint, "jobs", delivery=delivery)
    taken = (perf_counter_ns() - begun) / rows
    check(client.purge("one"), rows)
    return taken


BARE = """
from pyarrow import flight
class Counting(flight.FlightServerBase):
    def do_put(self, context, descriptor, reader, writer):
        rows = 0
        for chunk in reader:
            rows += chunk.data.num_rows
            writer.write(rows.to_bytes(8, "little"))
server = Counting("grpc://127.0.0.1:0")
print(f"grpc://127.0.0.1:{server.port}", flush=True)
server.serve()
"""


def put(url: str, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Sends a task's batches as `publish` does, and waits for the answer to the last."""
    rows, writer = 0, None
    with flight.FlightClient(url) as client:
        for batch in batches:
            for part in sliced(batch):
                if writer is None:
                    writer, answers = client.do_put(flight.FlightDescriptor.for_path("jobs"), batch.schema)
                writer.write_batch(part)
                rows += part.num_rows
        counted = 0
        if writer is not None:
            writer.done_writing()
            while counted < rows:
                counted = int.from_bytes(answers.read().to_pybytes(), "little")
            writer.close()
    yield pyarrow.record_batch({"rows": pyarrow.array([counted], pyarrow.int64())})


def by_bare_put(df: DataFrame, url: str, rows: int) -> float:
    """Nanoseconds a row."""
    begun = perf_counter_ns()
    found = sum(row.rows for row in df.mapInArrow(partial(put, url), "rows BIGINT").collect())
    taken = (perf_counter_ns() - begun) / rows
    check(found, rows)
    return taken


def send_by_pika(address: tuple[str, int], rows: Iterator[Any]) -> None:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters(*address))
    channel = connection.channel()
    for row in rows:
        channel.basic_publish("", "jobs", bytes(row.body), pika.BasicProperties(headers={"n": row.headers.n}))
    connection.close()


def by_pika(df: DataFrame, address: tuple[str, int], rows: int) -> float:
    """Nanoseconds a row."""
    import pika

    with pika.BlockingConnection(pika.ConnectionParameters(*address)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs")
        begun = perf_counter_ns()
        df.foreachPartition(partial(send_by_pika, address))
        taken = (perf_counter_ns() - begun) / rows
        while channel.queue_declare("jobs", passive=True).method.message_count < rows:
            pass            # what was sent is on its way
        channel.queue_delete("jobs")
    return taken


# ---- others

def round_trips(client: Client, ended: threading.Event | None) -> float:
    """The 99th percentile of what a publish of one row takes, in ns: of some, or until `ended` is set."""
    row = pyarrow.record_batch({"address": ["a"], "body": [b"x"]})
    took = []
    while len(took) < TRIPS if ended is None else not ended.is_set():
        begun = perf_counter_ns()
        client.publish("apart", row)
        took.append(perf_counter_ns() - begun)
    client.purge("apart")
    return float(sorted(took)[len(took) * 99 // 100])


def while_rows_enter(client: Client, table: pyarrow.Table, number: Iterator[int]) -> float:
    """As `round_trips`, from the beginning of a commit to its end."""
    run, ended = f"run {next(number)}", threading.Event()
    staged = client.stage(run, 0, 0, "jobs", table)

    def commit() -> None:
        with Client(client.endpoint) as other:
            other.commit(run, "jobs", [staged])
        ended.set()

    committing = threading.Thread(target=commit)
    committing.start()
    found = round_trips(client, ended)
    committing.join()
    check(client.purge("one"), table.num_rows)
    return found


# ---- read

class Ready(DataSource):
    """Parquet by its row groups, as ready batches."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> ReadyReader:
        return ReadyReader(self.options["path"])


class ReadyReader(DataSourceReader):
    """Reads every so manieth row group in a task."""

    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        groups = pyarrow.parquet.ParquetFile(self._path).num_row_groups
        return [InputPartition(group) for group in range(groups)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        yield from pyarrow.parquet.ParquetFile(self._path).iter_batches(10_000, [partition.value])


def read(df: DataFrame, rows: int) -> float:
    """Nanoseconds a row."""
    begun = perf_counter_ns()
    df.write.format("noop").mode("overwrite").save()
    return (perf_counter_ns() - begun) / rows


def filled(client: Client, path: Path, rows: int) -> None:
    """The rows in the queue `past`, and in a file, in as many row groups as that queue is read in parts."""
    table = pyarrow.table({"address": [f"jobs.{n % 1000}" for n in range(rows)], "body": [b"x" * 100] * rows,
                           "headers": pyarrow.StructArray.from_arrays([pyarrow.array(range(rows), pyarrow.int64())], ["n"])})
    client.publish("past", table)
    numbered = table.add_column(0, "id", [pyarrow.array(range(1, rows + 1), pyarrow.int64())])
    pyarrow.parquet.write_table(numbered, path, row_group_size=100_000)


# ---- all of it

def write_part(spark: SparkSession, client: Client, rows: int, rounds: int, servers: ExitStack) -> None:
    from tests.broker import rabbitmq

    df = frame(spark, rows)
    contestants: dict[str, Contestant] = {
        "mapInArrow, counts": partial(counted, df, rows),
        "bare do_put, counts": partial(by_bare_put, df, servers.enter_context(broker(BARE)), rows),
        "xump, at least once": partial(published, df, client, rows, "at-least-once"),
        "xump, exactly once": partial(published, df, client, rows, "exactly-once"),
    }
    if rabbitmq.is_installed():
        contestants["pika to RabbitMQ"] = partial(
            by_pika, frame(spark, rows // PIKA_PART), servers.enter_context(rabbitmq.running()), rows // PIKA_PART)
    else:
        print("RabbitMQ is not installed, and left out: apt-get install rabbitmq-server")
    times = take_turns(contestants, rounds)
    print(f"  write: {rows:,} rows into a Parrot")
    compare(speed_table(), times, "mapInArrow, counts", ["bare do_put, counts"], None)
    compare(speed_table(), times, "mapInArrow, counts", ["xump, at least once"], 0.9)
    compare(speed_table(), times, "mapInArrow, counts", ["xump, exactly once"], 0.6)
    if "pika to RabbitMQ" in times:
        compare(speed_table(), times, "pika to RabbitMQ", ["xump, at least once"], 4.0)


def others_part(client: Client, rows: int, rounds: int) -> None:
    table = pyarrow.table({"address": ["jobs.1"] * rows, "body": [b"x" * 100] * rows})
    times = take_turns({"idle": partial(round_trips, client, None),
                        "while rows enter": partial(while_rows_enter, client, table, iter(range(rounds + 1)))}, rounds)
    print(f"  others: p99 of a round trip while {rows:,} rows enter")
    compare(speed_table(width=12), times, "idle", ["while rows enter"], 1 / 3)


def read_part(spark: SparkSession, client: Client, folder: str, rows: int, rounds: int) -> None:
    path = Path(folder, "past.parquet")
    filled(client, path, rows)
    spark.dataSource.register(Ready)
    ours = spark.read.format("xump").schema(COLUMNS).option("endpoint", client.endpoint).load("past")
    theirs = spark.read.format("ready").schema(COLUMNS).load(str(path))
    for df in (ours, theirs):
        check(df.count(), rows)
    times = take_turns({"ready batches of Parquet": partial(read, theirs, rows), "xump": partial(read, ours, rows)}, rounds)
    print(f"  read: {rows:,} messages")
    compare(speed_table(), times, "ready batches of Parquet", ["xump"], 0.7)


def let_workers_find_this() -> None:
    """Spark's workers find the sources, and the data source."""
    places = [str(SOURCES), str(SOURCES / "xump/spark/discovery"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)


def started(servers: ExitStack, folder: str) -> SparkSession:
    """A session, until the block ends."""
    made = session(spark_sql_warehouse_dir=f"{folder}/warehouse")
    servers.callback(made.stop)
    made.sparkContext.setLogLevel("ERROR")
    return made


def main(arguments: list[str] | None = None) -> None:
    options = parser_of(__doc__).parse_args(arguments)
    rows = ROWS // 10 if options.quick else ROWS
    describe("pyspark", "pyarrow")
    let_workers_find_this()
    with ExitStack() as servers:
        folder = servers.enter_context(tempfile.TemporaryDirectory())
        spark = started(servers, folder)
        client = servers.enter_context(Client(servers.enter_context(broker())))
        write_part(spark, client, rows, options.rounds, servers)
        others_part(client, rows, options.rounds)
        read_part(spark, client, folder, rows, options.rounds)


if __name__ == "__main__":
    main()
