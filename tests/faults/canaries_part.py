"""The part `canaries`: a disk that forgets on purpose. A checker that finds nothing then would find nothing anywhere.

The builder of states treats half of all fsyncs, or all fsyncs of directories, as if they had not been made. The stores are right,
so what the checker then calls a violation shows that it would see a store that leaves out that fsync.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import worker
from tests.faults.power import CANARIES
from tests.faults.power_part import one_chain
from tests.faults.programs import MIXES
from tests.faults.report import Section
from tests.faults.worker import Job

CHAINS = 10     # for each canary and mix of stores
TEXT = f"""
The checker of power loss has to find faults that are put in: the builder of states forgets half of the fsyncs, or all fsyncs of
directories (names then last only if a journal happens to keep them). {CHAINS} chains for each. Here the checker should find
something wrong, and to find nothing is the violation.
"""


def run(options: argparse.Namespace, progress: Progress) -> Section:
    columns = ["stores", "forgets", "states", "found wrong", "chains that found it", "violations"]
    section = Section("canaries", "Canaries of power loss", TEXT, columns)
    with worker.folder() as folder:
        task = progress.add_task("canaries", total=len(CANARIES) * len(MIXES) * CHAINS)
        for mix in MIXES:
            if options.stores not in (None, mix):
                continue
            for forgets in CANARIES:
                sums = {"states": 0, "wrong": 0, "found": 0}

                def told(job: Job, said: dict[str, Any], sums=sums, what=f"{forgets}, {mix}") -> None:
                    if "died" in said:
                        section.violations.append(f"{what}: the process ended: {said['died']}")
                    for name in sums:
                        sums[name] += said.get(name, 0)
                    progress.update(task, advance="states" in said)
                jobs = [{"mix": mix, "seed": options.seed, "forgets": forgets, "first": number, "stride": options.at_once,
                         "folder": str(folder / f"{forgets} {mix} {number}")} for number in range(options.at_once)]
                worker.run_all("tests.faults.canaries_part", jobs, told, options.at_once)
                section.rows.append([mix, forgets, sums["states"], sums["wrong"], f"{sums['found']} of {CHAINS}",
                                     int(not sums["found"])])
                if not sums["found"]:
                    section.violations.append(f"the checker does not notice that {forgets} are forgotten, over {mix}")
    return section


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    for number in range(job["first"], CHAINS, job["stride"]):
        counts = one_chain(job["seed"], job["mix"], number, Path(job["folder"]), job["forgets"], sessions=1)
        say({"states": counts.states, "wrong": len(counts.violations), "found": bool(counts.violations)})
