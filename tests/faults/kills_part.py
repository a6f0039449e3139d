"""The part `kills`: chains of sessions whose process is killed (`kills.py`), until there were as many kills as were asked for."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import shrinking, worker
from tests.faults.kills import KilledChain
from tests.faults.power import Counts
from tests.faults.programs import MIXES
from tests.faults.report import Section
from tests.faults.shrinking import Ran
from tests.faults.worker import Job

TOLD = ("killed", "emptied", "sessions")
COLUMNS = ["stores", "kills", "emptied", "violations"]
TEXT = """
A process plays a random program of the same calls as above over its stores, and beside them in RAM, and gets SIGKILL at a random
moment. Its files are opened again and must be exactly one moment of the model, between the last call that had returned and the
last one that had begun; of two stores, nothing is lost, and what comes twice is marked. The next process goes on from what the
killed one left.
"""


def run(options: argparse.Namespace, progress: Progress) -> Section:
    section = Section("kills", "Processes that are killed", TEXT, COLUMNS)
    for mix in MIXES:
        if options.stores not in (None, mix):
            continue
        total = Counts()
        kills = options.kills if len(MIXES[mix]) == 1 else options.kills // 5
        task = progress.add_task(mix, total=kills)

        def told(job: Job, said: dict[str, Any], total: Counts = total, task: Any = task) -> None:
            if "died" in said:
                total.violations.append(f"mix {job['mix']!r}, at {said['last']}: the process ended: {said['died']}")
                return
            for name in TOLD:
                setattr(total, name, getattr(total, name) + said[name])
            total.violations += said["violations"]
            progress.update(task, completed=total.killed)

        with worker.folder() as folder:
            share = {"mix": mix, "seed": options.seed, "stride": options.at_once, "kills": -(-kills // options.at_once)}
            jobs = [share | {"first": number, "folder": str(folder / str(number))} for number in range(options.at_once)]
            worker.run_all("tests.faults.kills_part", jobs, told, options.at_once)
        section.rows.append([mix, total.killed, total.emptied, len(total.violations)])
        section.violations += total.violations
    return section


def chain_without(job: Job, number: int, left_out: Collection[tuple[int, int]], folder: Path) -> Ran:
    """The chain again, less some of its steps; killed at other moments."""
    folder.mkdir(parents=True)
    try:
        chain = KilledChain(f"{job['seed']} {number}", job["mix"], folder, left_out)
        return chain.run().violations, chain.steps
    finally:
        shutil.rmtree(folder)


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    done, number = 0, job["first"]
    while done < job["kills"]:
        folder = Path(job["folder"])
        folder.mkdir(parents=True)
        counts = KilledChain(f"{job['seed']} {number}", job["mix"], folder).run()
        shutil.rmtree(folder)
        if counts.violations:
            counts.violations[0] += shrinking.told(partial(chain_without, job, number), folder, tries=4,
                                                   evidence=counts.evidence)
        done += max(counts.killed, 1)
        say({"chain": number, "violations": counts.violations[:3], **{name: getattr(counts, name) for name in TOLD}})
        number += job["stride"]
