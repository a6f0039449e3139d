"""Processes that do the work of a part under the shim, so that one that crashes costs one chain and is told as a violation.

A part has `work(job, say)`, which a worker calls: a job is a dict of plain values, and `say` sends one to whoever waits for it.
The last thing said before a crash tells where it was.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.faults import shim
from xump_ext.records import record

Job = dict[str, Any]
FAST = Path("/dev/shm")     # where it is, files need no disk


@contextmanager
def folder():
    """A folder of our own, in memory if possible."""
    with tempfile.TemporaryDirectory(prefix="xump-faults-", dir=FAST if FAST.is_dir() else None) as path:
        yield Path(path)


@contextmanager
def drawn_from(seed: Any):
    """All that Xump draws at random in here comes from a seed: the salt and the first name of a ring, and the incarnations of
    queues. So the bytes of a store are the same each time."""
    chance = random.Random(seed)

    def hexadecimal(size: int) -> str:
        return chance.randbytes(size).hex()
    forget = vars(record)["_forget_drawn"]      # numbers that are drawn already
    forget()
    with ExitStack() as stack:
        stack.callback(forget)
        for name, draw in (("secrets.randbits", chance.getrandbits), ("secrets.token_hex", hexadecimal),
                           ("xump_ext.records.record.urandom", chance.randbytes)):
            stack.enter_context(patch(name, draw))
        yield


def run_all(module: str, jobs: Iterable[Job], told: Callable[[Job, dict[str, Any]], None], at_once: int) -> None:
    """Does each job in a process of its own, some of them at once; hands over what each says.

    Of a process that ended otherwise than by coming to its end it tells {"died": why, "last": what it said last}."""
    def run(job: Job) -> None:
        last: dict[str, Any] = {}
        with shim.start("tests.faults.worker", module, json.dumps(job)) as process:
            for line in process.stdout or ():
                last = json.loads(line)
                told(job, last)
            errors = process.stderr.read() if process.stderr else ""
        code = process.returncode
        if code != 0:
            why = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            told(job, {"died": f"{why}: {errors.strip()[-3000:]}", "last": last})

    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(run, job) for job in jobs]:
            done.result()


def main() -> None:
    name, job = sys.argv[1:]
    logging.getLogger("xump").setLevel(logging.CRITICAL)     # torn tails are no news here
    shim.allocate_cheaply(True)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    importlib.import_module(name).work(json.loads(job), lambda said: out.write(json.dumps(said) + "\n"))


if __name__ == "__main__":
    main()
