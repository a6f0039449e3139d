"""The part `machine`: programs drawn from seeds, played by the engine and the model at once and compared after each call, over
RAM, lmdb and ring, alone and together. Closing and opening again is one of the calls, in order or by a crash.

Five generators: small worlds of few queues, equal conditions, targets that are their own queue and tiny limits; selectors that
stand in line for the same room; graphs in which messages go far; the same with time; and graphs over stores that are full again
and again. One seed gives engine, stores, clock and crashes. A program that fails is told by its seed, and as the smallest
program that fails (`tests/model/shrink.py`).
"""

from __future__ import annotations

import argparse
import itertools
import traceback
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from rich.progress import Progress

from tests.faults import worker
from tests.faults.report import Section
from tests.faults.worker import Job
from tests.model import test_small_programs, test_store_programs
from tests.model.full import FullWorld
from tests.model.test_full_stores import FullFlow
from tests.model.test_lines import Lines
from tests.model.test_small_programs import Dense
from tests.model.test_store_programs import Flow, TimedFlow
from xump.durability import opening

GENERATORS: dict[str, type] = {
    "small worlds": Dense, "lines": Lines, "flows": Flow, "flows in time": TimedFlow, "full stores": FullFlow}
STEPS_PER_PROGRAM = 40
COLUMNS = ["stores", "generator", "programs", "steps", "undecided", "violations"]
TEXT = """
Programs drawn from a seed are played by the engine and by the model of it at once; after each call all that can be seen of both
is compared, and every law is checked. Closing and opening again, in order or by a crash, is a call like the others. Small
worlds have two to four queues, hardly any room, selectors that are alike, and targets that are the selector's own queue; in
"lines" many selectors wait for room in the same few targets, through building blocks that last; flows take messages far,
through durable queues and RAM; full stores are so small that messages of kilobytes fill them again and again, and the model is
told what found room (`tests/model/told.py`). A program is "undecided" where it ended early: copies of a message that are alike
wanted the same room, and the records do not say which one got it, or what came first. A program that fails is shrunk to the
smallest one that fails.
"""


def mixes() -> dict[str, tuple[tuple[str, ...], bool]]:
    return test_small_programs.MIXES | test_store_programs.MIXES


def run(options: argparse.Namespace, progress: Progress) -> Section:
    section = Section("machine", "Random programs beside the model", TEXT, COLUMNS)
    for mix in mixes():
        if options.stores not in (None, mix):
            continue
        task = progress.add_task(mix, total=options.steps)
        sums = {name: [0, 0, 0, 0] for name in generators_of(mix)}

        def told(job: Job, said: dict[str, Any], sums=sums, mix=mix, task=task) -> None:
            if "died" in said:
                section.violations.append(f"{mix}, at {said['last']}: the process ended: {said['died']}")
                return
            counts = sums[said["generator"]]
            for at, number in enumerate((said["programs"], said["steps"], said["undecided"], len(said["violations"]))):
                counts[at] += number
            section.violations.extend(said["violations"])
            progress.update(task, advance=said["steps"])
        share = {"mix": mix, "seed": options.seed, "steps": options.steps, "stride": options.at_once}
        worker.run_all("tests.faults.machine_part", [share | {"first": number} for number in range(options.at_once)], told,
                       options.at_once)
        section.rows += [[mix, name, *counts] for name, counts in sums.items()]
    return section


def generators_of(mix: str) -> list[str]:
    """Flows, in time and through full stores too, need a durable store."""
    return [name for name in GENERATORS if name in ("small worlds", "lines") or mixes()[mix][0]]


def program(seed: str, generator: str, mix: str) -> str | None:
    """Plays one program; returns what went wrong in it, None: nothing."""
    with patch.object(opening, "RESIDENT_BYTES_MAX", 500), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            GENERATORS[generator](seed, *mixes()[mix]).run(STEPS_PER_PROGRAM)
        except AssertionError as error:
            return f"{generator}, stores {mix!r}, seed {seed!r}: {error}"
        except Exception:       # what no call may raise: a store that does not open again
            return f"{generator}, stores {mix!r}, seed {seed!r}: {traceback.format_exc()}"
    return None


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    """Every nth program, until there are enough steps."""
    names = generators_of(job["mix"])
    for number in itertools.count(job["first"], job["stride"]):
        if number * STEPS_PER_PROGRAM >= job["steps"]:
            return
        generator, before = names[number % len(names)], FullWorld.met["undecided"]
        found = program(f"{job['seed']} {number}", generator, job["mix"])
        say({"generator": generator, "number": number, "programs": 1, "steps": STEPS_PER_PROGRAM,
             "undecided": FullWorld.met["undecided"] - before, "violations": [middle_cut(found)] if found else []})


def middle_cut(text: str, most: int = 40_000) -> str:
    """What differs is at the beginning or at the end, and the last calls are."""
    return text if len(text) <= most else f"{text[: most // 2]}\n ...\n{text[-most // 2 :]}"
