"""A cluster of two hosts: Spark's own master and workers, on loopback addresses, and a driver that is a process of its own.

Spark runs a second attempt of a slow task only on another host.
"""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from benchmarks.ports import free_port
from tests.spark.conftest import ROOT

HOSTS = "127.0.0.2", "127.0.0.3"
WAIT = 120


@contextmanager
def running(folder):
    """The address of a master with two workers of one core each."""
    with ExitStack() as processes:
        port = free_port()
        start(processes, folder, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until_said(folder / "master.Master.log", "I have been elected leader", 1)
        url = f"spark://127.0.0.1:{port}"
        for host in HOSTS:
            start(processes, folder, "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                  "--work-dir", str(folder / "work"), url)
        until_said(folder / "master.Master.log", "Registering worker 127", len(HOSTS))
        yield url


def start(processes, folder, name, *arguments):
    home = Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    with open(folder / f"{name}.log", "ab") as log:
        process = subprocess.Popen([home / "bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                                   env=environment, stdout=log, stderr=subprocess.STDOUT)
    processes.callback(process.wait)
    processes.callback(process.terminate)


def until_said(log, text, times):
    deadline = time.monotonic() + WAIT
    while len(re.findall(text, log.read_text())) < times:
        assert time.monotonic() < deadline, f"{text!r} was not said:\n{log.read_text()}"
        time.sleep(0.05)


def drive(master, program, *arguments):
    """Run a program of this folder as the driver. Returns what it printed."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-m", f"tests.spark.{program}", master, *arguments], cwd=ROOT, env=environment,
                          capture_output=True, text=True, timeout=2 * WAIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
