"""Runs the tests of the Spark connector; installs pyspark first, with what Spark Connect needs, if it is not there.

    python -m tests.spark [OPTIONS OF PYTEST]
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def main():
    if not all(map(importlib.util.find_spec, ("pyspark", "grpc"))):
        print("Installing pyspark: some 400 MB, which takes a few minutes.", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "pyspark[connect]>=4.2"], check=True)
    options = ["--doctest-modules", "--strict-markers", "-p", "no:asyncio", "-p", "no:randomly", "-q"]
    pandas = "ignore:PySpark does not yet fully support pandas:FutureWarning"
    return subprocess.run([sys.executable, "-m", "pytest", "-o", f"addopts={' '.join(options)}", "-W", pandas,
                           *(sys.argv[1:] or ["tests/spark", "xump/spark"])],
                          cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
