"""The demo's part with Spark, over the first flights; in a process of its own, since it stops its session."""

import os
import subprocess
import sys

from xump.demo.over_spark import Outcome

MESSAGES = 2_000


def test_flights_through_spark_and_back(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    command = [sys.executable, "-m", "xump", "demo", "--spark", "--messages", str(MESSAGES), "--output", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=900)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "2,000 flights written by the tasks of Spark, one of which was killed" in run.stdout
    assert "2,000 rows read back from the history, of 2,000 different flights" in run.stdout
    assert run.stdout.splitlines()[-1].endswith("the books balance")


def test_broken_promises_are_told():
    good = Outcome(10, 1.0, {"grey": 4, "white": 3, "black": 3}, {"parse": 10}, 10, 10, True)
    assert good.wrong() == []
    bad = Outcome(10, 1.0, {"grey": 4, "white": 3, "black": 2}, {"parse": 10}, 11, 9, False)
    assert len(bad.wrong()) == 4
