"""The part `damage`: every bit, runs of zeros and every length of small stores (`damage.py`), or every nth of them."""

from __future__ import annotations

import argparse
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import worker
from tests.faults.damage import BATCH, Damage, Specimen, Tried
from tests.faults.repairs import FILES
from tests.faults.report import Section
from tests.faults.worker import Job

ENDS = {"closed": True, "killed": False}
CAME = ["unseen", "torn tail", "lost none", "lost some"]
COLUMNS = ["stores", "what", "damages", *CAME, "violations"]
TEXT = """
Small stores, closed in order or left by a killed process, get one damage each: a bit flipped, a run of 16, 512 or 4,096 bytes
zeroed, or another length. A forked child lets `xump check`, `stats` and `browse` read the store, opens it, repairs it, checks it,
and opens it again. Each message that comes out must be what was published under its id. Every difference must be told: by an
error, a warning, or a line of the report. No damage may end the process, or hold it up for a minute.

"Unseen" damage is in bytes that nobody reads: all is there. A "torn tail" is one that an unsynced write leaves, too: cut off and
logged. In a ring that was not closed, only the last group tells that those before it were synced, so they are a torn tail, too,
if zeros take its head. The others are found by `check` and by opening; the repair "lost none" or "lost some" messages, and said
so.{share}
"""


def run(options: argparse.Namespace, progress: Progress) -> Section:
    sampled = f"\nEvery {options.every}th was tried." if options.every > 1 else ""
    section = Section("damage", "Damaged files", TEXT.format(share=sampled), COLUMNS, keys=2)
    for store in FILES:
        for end in ENDS:
            if options.stores not in (None, store, f"{store}, {end}"):
                continue
            task, came = progress.add_task(f"{store}, {end}", total=None), Counter[tuple[str, str]]()
            totals = [0] * options.at_once

            def told(job: Job, said: dict[str, Any], came=came, task=task, totals=totals, end=end,
                     name=f"{store}, {end}") -> None:
                if "died" in said:
                    section.violations.append(f"{name}, at {said['last']}: the process ended: {said['died']}")
                    return
                totals[job["first"]] = said["total"]
                progress.update(task, total=sum(totals), advance=said["done"])
                for kind, what, number in said["came"]:
                    came[kind, what] += number
                section.violations.extend(f"{end}: {violation}" for violation in said["violations"])
            with worker.folder() as folder:
                share = {"store": store, "end": end, "seed": options.seed, "every": options.every, "kind": options.kind}
                jobs = [share | {"first": number, "stride": options.at_once, "folder": str(folder / str(number))}
                        for number in range(options.at_once)]
                worker.run_all("tests.faults.damage_part", jobs, told, options.at_once)
            section.rows += rows(f"{store}, {end}", came, section.violations, end, store)
    return section


def rows(name: str, came: Counter[tuple[str, str]], violations: list[str], end: str, store: str) -> list[list[object]]:
    return [[name, kind, sum(number for (of, _), number in came.items() if of == kind), *(came[kind, what] for what in CAME),
             sum(violation.startswith(f"{end}: {store}, {kind} at") for violation in violations)]
            for kind in sorted({kind for kind, _ in came})]


def drawn(damages: list[Damage], every: int, seed: int) -> list[Damage]:
    """Every nth of each kind, but at least one in a hundred and one of each."""
    if every == 1:
        return damages
    chance, found = random.Random(seed), list[Damage]()
    for kind in sorted({damage.kind for damage in damages}):
        of_kind = [damage for damage in damages if damage.kind == kind]
        found += of_kind[chance.randrange(min(every, len(of_kind))) :: every]
    return found


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    """Every nth of the damages that are drawn."""
    folder = Path(job["folder"])
    with worker.drawn_from(job["seed"]):
        specimen = Specimen(job["store"], ENDS[job["end"]], job["seed"], folder / "specimen")
    damages = [one for one in specimen.all_damages() if job.get("kind") in (None, one.kind)]
    damages = drawn(damages, job["every"], job["seed"])[job["first"] :: job["stride"]]
    tried = Tried(specimen, folder / "tried")
    for start in range(0, len(damages), BATCH):
        batch = damages[start : start + BATCH]
        tried.all(batch)
        say({"total": len(damages), "done": len(batch), "violations": tried.violations[:20],
             "came": [[kind, what, number] for (kind, what), number in sorted(tried.came.items())]})
        tried.came.clear()
        tried.violations.clear()
    shutil.rmtree(folder)
