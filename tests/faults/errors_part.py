"""The part `errors`: calls to the disk that fail (`errors.py`), N counting up for each kind until a run is clean; and a disk that
is full for real."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import full_disk, shim, worker
from tests.faults.errors import KINDS, Attempt, RepairAttempt, all_faults
from tests.faults.programs import MIXES
from tests.faults.power_part import REPAIR
from tests.faults.repairs import FILES
from tests.faults.report import Section
from tests.faults.worker import Job

DURABILITIES = {"sync": ("sync", 0), "group": ("group", 60_000), "group, by its thread": ("group", 30)}
"""In the second groups are written by calls alone, so that each run is the same; in the third also by the thread of the store,
which tells no call of it."""
COLUMNS = ["stores", "durability", "faults", "runs", "calls failed", "violations"]
TEXT = """
A program makes stores, works, closes, compacts, opens, works and closes. The Nth call of a kind fails, once or from then on,
with EIO or ENOSPC, or writes half and then finds no space; N counts up until a run comes through without meeting its fault.
Kinds: {kinds}. Each failure must give an error of Xump's that names the path, and no failing disk is called damage; queues in
RAM go on; `close` gives the files up; and when the disk is well again, the stores open with all that was confirmed, at one
moment of the model, and nothing is left over.

{full}
"""


def run(options: argparse.Namespace, progress: Progress) -> Section:
    kinds = ", ".join(kind.name.lower() for kind in KINDS)
    full_text, problems = full_disk.told()
    text = TEXT.format(kinds=kinds, full=full_text)
    section = Section("errors", "Input and output that fails", text, COLUMNS, violations=problems)
    programs = [(mix, name, durability) for mix in MIXES for name, durability in DURABILITIES.items()]
    programs += [(REPAIR + store, "", ("", 0)) for store in FILES]
    with worker.folder() as folder:
        task = progress.add_task("errors", total=len(programs) * len(all_faults()))
        for mix, name, durability in programs:
            if options.stores not in (None, mix):
                continue
            sums, found = Counter[str](), Counter[str]()

            def told(job: Job, said: dict[str, Any], sums=sums, found=found) -> None:
                if "died" in said:
                    found[f"the process ended: {said['died']}, after {said['last']}"] += 1
                    return
                sums.update(said["sums"])
                found.update(said["found"])
                progress.update(task, advance=1)
            jobs = [{"mix": mix, "durability": durability, "first": number, "stride": options.at_once,
                     "folder": str(folder / f"{mix} {name} {number}")} for number in range(options.at_once)]
            worker.run_all("tests.faults.errors_part", jobs, told, options.at_once)
            section.rows.append([mix, name, len(all_faults()), sums["runs"], sums["failed"], sum(found.values())])
            section.violations += [f"{mix}, {name}: {times} times: {what}" for what, times in found.most_common()]
    return section


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    """Every nth fault."""
    shim.allocate_cheaply(False)
    folder = Path(job["folder"])
    repair = RepairAttempt(job["mix"].removeprefix(REPAIR), folder) if job["mix"].startswith(REPAIR) else None
    for fault in all_faults()[job["first"] :: job["stride"]]:
        sums, found = Counter[str](), Counter[str]()
        nth, came = 0, True
        while came:
            nth += job.get("step", 1)
            attempt = repair or Attempt(job["mix"], tuple(job["durability"]), folder)
            came = attempt.run(fault, nth)
            sums["runs"] += 1
            sums["failed"] += came
            found.update(f"{fault}: {alike(problem, job['folder'])}" for problem in attempt.problems)
        say({"fault": str(fault), "sums": sums, "found": found})


def alike(problem: str, folder: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"new-[0-9a-f]{8}", "new-…", problem.replace(folder, "PLACE"))
