"""Runs the tests of the Spark connector; installs pyspark first, with what Spark Connect needs, if it is not there.

    python -m tests.spark [OPTIONS OF PYTEST] [FILES, INSTEAD OF ALL]
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
    files = [] if any(map(is_file, sys.argv[1:])) else ["tests/spark", "xump/spark"]
    command = [sys.executable, "-m", "pytest", "-o", f"addopts={' '.join(options)}", "-W", pandas, *sys.argv[1:], *files]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def is_file(argument):
    """Whether it names a file, a folder, or a test in one."""
    return Path(ROOT, argument.partition("::")[0]).exists()


if __name__ == "__main__":
    sys.exit(main())
