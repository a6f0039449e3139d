"""A driver: it writes numbered rows from two partitions. The first attempt of partition 1 stops in its middle, until the second
one, which Spark runs on the other host, has come to its end.

    python -m tests.spark.speculating MASTER ENDPOINT FOLDER ROWS
"""

import os
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.spark.conftest import rows

SETTINGS = {
    "spark.speculation": "true", "spark.speculation.interval": "50ms", "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.0", "spark.speculation.minTaskRuntime": "0ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
}


def slow(folder):
    def pass_on(batches):
        task = TaskContext.get()
        attempt = f"{task.partitionId()}-{task.attemptNumber()}"
        for number, batch in enumerate(batches):
            yield batch
            if (attempt, number) == ("1-0", 1):
                Path(folder, "stopped 1-0").touch()
                wait_for(Path(folder, "ended 1-1"))
        Path(folder, f"ended {attempt}").touch()

    return pass_on


def wait_for(path):
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def main(master, endpoint, folder, count):
    builder = SparkSession.builder.master(master).appName("speculating")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with builder.getOrCreate() as spark:
        frame = rows(spark, int(count), 2)
        frame.mapInArrow(slow(folder), frame.schema).write.format("xump").mode("append").option("endpoint", endpoint).save("q")


if __name__ == "__main__":
    main(*sys.argv[1:])
