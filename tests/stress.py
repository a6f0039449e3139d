"""The suite on a busy machine, in random order: a test that fails only here is a defect. `python -m tests.stress`.

Each run has one core, which it shares with a program that writes and syncs files and with another run, or with a program that
computes where there is no other run. Its threads start late (`tests/slow_threads.py`). It prints its seed, with which it can be
repeated (`--seed`), and what failed; the output of such a run is in `build/stress`.

    python -m tests.stress --runs 20
    python -m tests.stress --runs 1 --seed 1234 tests/durability
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

OUTPUT = Path("build/stress")
# They end with the process that began them, however that ends.
COMPUTE = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(10**6))
"""
WRITE = """
import os, sys, time
parent = os.getppid()
with open(sys.argv[1], "wb") as file:
    while os.getppid() == parent:
        file.seek(0)
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        time.sleep(0.05)
"""


@contextmanager
def load(folder, at_once):
    """For each core a program that writes to the disk, and one that computes if there is one run; ended with the block."""
    with ExitStack() as stack:
        for core in range(os.cpu_count()):
            for program in ([WRITE, f"{folder}/{core}"], [COMPUTE])[:1 if at_once >= 2 * os.cpu_count() else 2]:
                process = stack.enter_context(subprocess.Popen([sys.executable, "-c", *program]))
                stack.callback(process.kill)
        yield


def run(seed, core, selected):
    """(what failed, the closing line, seconds) of one run."""
    begun = time.monotonic()
    command = ["taskset", "-c", str(core), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "randomly",
               "-p", "tests.slow_threads", "-p", "no:xdist", f"--randomly-seed={seed}", *selected]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env=os.environ | {"COLUMNS": "400", "XUMP_RANDOM": "1", "XUMP_SLOW_THREADS": str(seed)})
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)", done.stdout, re.MULTILINE)
    if done.returncode:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        (OUTPUT / f"{seed}.txt").write_text(done.stdout + done.stderr)
    if done.returncode and not failed:
        failed = [f"exit status {done.returncode}: {(done.stdout + done.stderr)[-500:]}"]
    return failed, done.stdout.strip().rpartition("\n")[2], time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=2 * os.cpu_count(), help="runs at the same time; without it two a core")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the first run; the next ones count on")
    parser.add_argument("tests", nargs="*", help="files or folders; without any: all")
    options = parser.parse_args()
    passed = 0
    with tempfile.TemporaryDirectory() as folder, load(folder, options.at_once), ThreadPoolExecutor(options.at_once) as pool:
        runs = [(options.seed + number, pool.submit(run, options.seed + number, number % os.cpu_count(), options.tests))
                for number in range(options.runs)]
        for seed, result in runs:
            failed, closing, seconds = result.result()
            passed += not failed
            print(f"seed {seed}: {closing} ({seconds / 60:.1f} min on the clock)", *failed, sep="\n    ", flush=True)
    print(f"{passed} passed, {options.runs - passed} failed")
    sys.exit(passed < options.runs)


if __name__ == "__main__":
    main()
