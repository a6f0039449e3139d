"""`python -m tests.broker.suites` runs the integration tests that kombu and Celery have of their own against `xump serve`.

They come from the source distributions of the installed versions, and run as they are: pip loads these, and what the tests need
besides, into a folder that is deleted at the end. Celery's need a Redis, too, for its results: the one that is installed
(`apt-get install redis-server`) is started; without it they are left out, which is said.

    python -m tests.broker.suites                       both
    python -m tests.broker.suites kombu -k Priority     one of them; further arguments are pytest's (some of Celery's tests need
                                                        the worker that others start)
    python -m tests.broker.suites --rabbitmq kombu      the same against the RabbitMQ that is installed: what fails there, too, is
                                                        not the broker's fault

The exit code says how many suites failed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ports import free_port
from tests.broker import rabbitmq


@dataclass(frozen=True)
class Suite:
    """The tests of a library."""

    tests: tuple[str, ...]
    """Modules of its folder of integration tests."""
    needs: tuple[str, ...]
    """What its tests import besides."""
    redis: bool = False
    """Whether they need a Redis."""


SUITES = {
    "kombu": Suite(("test_py_amqp",), ("pytest-rerunfailures",)),
    "celery": Suite(
        ("test_tasks", "test_canvas", "test_inspect", "test_group_chains", "test_worker"),
        ("pytest-rerunfailures", "pytest-timeout", "pytest-subtests", "pytest-order", "redis", "django", "pytest-celery"),
        redis=True),
}


def load(name: str, folder: Path) -> Path:
    """Unpack the source distribution of the installed version, and install what its tests need beside it."""
    version = importlib.metadata.version(name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "download", "--no-deps", "--no-build-isolation", "--no-binary", name, "-d", folder, f"{name}=={version}"],
        check=True)
    [archive] = folder.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    subprocess.run([*pip, "install", "--target", folder / "needs", *SUITES[name].needs], check=True)
    for ours in ("celery", "kombu", "amqp", "vine", "pytest", "_pytest", "pluggy"):     # those that are installed are meant
        shutil.rmtree(folder / "needs" / ours, ignore_errors=True)
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


@contextmanager
def served() -> Iterator[tuple[str, str]]:
    """`xump serve`; gives its host and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "xump", "serve", "--amqp", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"on (.+):(\d+)", line)
        if found is None:
            sys.exit(f"xump serve did not begin: {line!r}")
        yield found[1], found[2]
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis on a socket and a port of its own; gives its URL."""
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder], stdout=subprocess.PIPE,
        text=True)
    try:
        assert process.stdout is not None
        if not any("eady to accept connections" in line for line in process.stdout):
            sys.exit("Redis did not begin")
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def run(name: str, host: str, port: str, more: list[str]) -> bool:
    """Run a suite. Returns whether it passed."""
    suite = SUITES[name]
    if suite.redis and shutil.which("redis-server") is None:
        print(f"{name}: left out, since Redis is not installed: apt-get install redis-server")
        return True
    with tempfile.TemporaryDirectory(prefix=f"xump-{name}-") as given, ExitStack() as stack:
        folder = Path(given)
        place = load(name, folder)
        environment = {
            **os.environ, "PYTHONPATH": f"{place}{os.pathsep}{folder / 'needs'}", "TEST_BROKER": f"pyamqp://{host}:{port}",
            "RABBITMQ_HOST": host, "RABBITMQ_5672_TCP": port,
            "WORKER_LOGLEVEL": "INFO",          # as Celery's tox.ini says: some tests look at what workers log
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",       # they start `celery` by its name
        }
        if suite.redis:
            environment["TEST_BACKEND"] = stack.enter_context(redis(folder))
            environment["REDIS_PORT"] = environment["TEST_BACKEND"].rpartition(":")[2]
        # What fails is tried again, up to three times, as many of Celery's tests ask for themselves. One that does not sets a
        # variable to False after it has sent the task whose handler sets it to True, and fails where the worker is faster.
        pytest = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--reruns", "3"]
        for plugin in ("randomly", "xdist", "cacheprovider"):
            pytest += ["-p", f"no:{plugin}"]
        files = [Path("t", "integration", f"{test}.py") for test in suite.tests]
        done = subprocess.run([*pytest, *files, *more], cwd=place, env=environment, check=False)
        return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}; default: all")
    parser.add_argument("--rabbitmq", action="store_true", help="against the RabbitMQ that is installed")
    options, more = parser.parse_known_args()
    for name in options.suites:
        if name not in SUITES:
            parser.error(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    failed = 0
    for name in options.suites or SUITES:
        with ExitStack() as stack:
            if options.rabbitmq:
                host, port = stack.enter_context(rabbitmq.running())
                port = str(port)
            else:
                host, port = stack.enter_context(served())
            failed += not run(name, host, port, more)
    return failed


if __name__ == "__main__":
    sys.exit(main())
