"""The part `soak`: very many numbered messages through a store whose process is killed at random (`soak.py`)."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import worker
from tests.faults.report import Section
from tests.faults.soak import OPTIONS, SESSION, Soak
from tests.faults.worker import Job

COLUMNS = ["store", "messages", "kills", "in doubt", "of those there", "never durable", "memory, warm", "memory, end",
           "violations"]
TEXT = """
One store takes very many numbered messages. Each is copied into one queue, moved into another one, taken from both and acked; a
few are nacked. The process is killed at random moments, and the next one goes on with the same files: in sessions of 1,000 to
2,000,000 messages, in durability `"process"`, `"group"` or `"sync"`. After each kill every number that may be there is looked
for, in both queues: what was confirmed is there, what was acked is not, nothing is there twice, and the laws hold. "In doubt" is
what had begun and was not confirmed when the process was killed. At the end all is taken, and no number is left without an
account. The memory (MB) is that of a process after its first 100,000 messages, and at its end, in the session that grew most; a
growth by more than 15 % and 16 MiB is a violation.
"""


def run(options: argparse.Namespace, progress: Progress) -> Section:
    section = Section("soak", "Millions of messages and kills", TEXT, COLUMNS)
    for kind in OPTIONS:
        if options.stores not in (None, kind):
            continue
        task = progress.add_task(kind, total=options.messages)
        sums: dict[str, Any] = {}

        def told(job: Job, said: dict[str, Any], sums: dict[str, Any] = sums, task: Any = task) -> None:
            if "died" in said:
                section.violations.append(f"{job['store']}: the process ended: {said['died']}")
            elif "number" in said:
                progress.update(task, completed=said["number"])
            else:
                sums.update(said)
        with worker.folder() as folder:
            job = {"store": kind, "seed": options.seed, "messages": options.messages, "folder": str(folder)}
            worker.run_all("tests.faults.soak_part", [job], told, 1)
        if sums:
            found = sums.pop("violations")
            section.violations += found
            section.rows.append([kind, sums["numbers"], sums["kills"], sums["doubtful"], sums["back"], sums["never"],
                                 *(round(sums[name] / 1e6) for name in ("first_rss", "last_rss")), len(found)])
    return section


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    folder = Path(job["folder"]) / "soak"
    folder.mkdir(parents=True)
    last = 0

    def told(number: int) -> None:
        nonlocal last
        if number - last >= 10_000:
            last = number
            say({"number": number})
    soak = Soak(job["store"], job["messages"], str(job["seed"]), folder, told, tuple(job.get("session", SESSION)))
    try:
        say(asdict(soak.run()))
    finally:
        soak.close()
        shutil.rmtree(folder)
