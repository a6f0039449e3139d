"""The part `power`: chains of sessions under power loss (`power.py`), until there were as many states as were asked for."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import shrinking, worker
from tests.faults.power import SESSIONS, Chain, Counts
from tests.faults.programs import MIXES
from tests.faults.repairs import FILES, Repair
from tests.faults.report import Section
from tests.faults.shrinking import Ran
from tests.faults.worker import Job

REPAIR = "repair of "
TOLD = ("states", "killed", "emptied", "sessions", "lost_whole", "mixed")
COLUMNS = ["stores", "states", "after a kill", "emptied", "sessions", "lost whole", "mixed", "violations"]
TEXT = """
Random programs run under a preloaded library that records every write, truncation, allocation, rename, link, unlink and fsync
of the process, LMDB's own included. They publish (one, many, a batch, a transaction), take, ack, nack, reject, purge and
delete, with selectors of every verb; queues and selectors come and go; stores are synced, closed, compacted, repaired and
opened again. After every event the checker builds what a killed process leaves, and what a disk may hold after a power failure:
each unsynced write there, missing, torn at 512 B or 4 KiB, or in another order; lengths kept or lost; names kept or lost whose
directory was not synced. It opens each different state once, and empties three in ten by a consumer. The next session goes on
from one of them.

The *model* is the engine as plain lists of Python (`tests/model/engine.py`), which plays the same calls. One store, alone or
beside queues in RAM, must be exactly one moment of the model between the last confirmed call and the last begun one: queues,
properties, counts, frontiers, messages, their order, history, and what comes as redelivered. In two stores nothing may be lost,
and nothing twice but what was on its way, marked as [stores.md](stores.md#between-two-stores) says. The same is done to the
`repair` of stores with a flipped bit: repaired once more, each state must be what an undisturbed repair leaves, with the
damaged bytes in quarantine.

Five of twelve chains are `"sync"`, the others `"group"`, `"process"` or `"none"`. In ten of twelve the stores' threads work in
turn, so that a seed gives the same chain each time; in two they write whenever they come to it. "Lost whole" counts states of
`"process"` and `"none"` that a power failure made unreadable, "mixed" those in which it left a store as no single moment,
without a word.
"""


def run(options: argparse.Namespace, progress: Progress) -> Section:
    section = Section("power", "Power loss", TEXT, COLUMNS)
    if options.chain:
        mix, number = options.chain.split(":")
        jobs = {mix: [{"mix": mix, "seed": options.seed, "first": int(number), "stride": 1, "states": 1}]}
    else:
        mixes = [*MIXES, *(REPAIR + store for store in FILES)]
        jobs = {mix: shares(mix, options) for mix in mixes if options.stores in (None, mix)}
    with worker.folder() as folder:
        for mix, shared in jobs.items():
            total = Counts()
            told = teller(total, progress, progress.add_task(mix, total=sum(job["states"] for job in shared)))
            for number, job in enumerate(shared):
                job["folder"] = str(folder / f"{mix} {number}")
            run_until_done(shared, told, options.at_once)
            section.rows.append([mix, *(getattr(total, name) for name in TOLD), len(total.violations)])
            section.violations += total.violations
    return section


def shares(mix: str, options: argparse.Namespace) -> list[Job]:
    """Each process does every nth chain."""
    states = options.states if len(MIXES.get(mix, ())) == 1 else options.pair_states
    share = {"mix": mix, "seed": options.seed, "stride": options.at_once, "states": -(-states // options.at_once)}
    return [share | {"first": number} for number in range(options.at_once)]


def run_until_done(jobs: list[Job], told: Callable[[Job, dict[str, Any]], None], at_once: int) -> None:
    """A process that died is followed by one that goes on behind the chain where it was."""
    while jobs:
        again: list[Job] = []

        def heard(job: Job, said: dict[str, Any], again: list[Job] = again) -> None:
            told(job, said)
            if "died" in said and "chain" in said["last"]:
                left = job["states"] - said["last"]["done"]
                if left > 0:
                    again.append(job | {"first": said["last"]["chain"] + job["stride"], "states": left})
        worker.run_all("tests.faults.power_part", jobs, heard, at_once)
        jobs = again


def teller(total: Counts, progress: Progress, task: Any) -> Callable[[Job, dict[str, Any]], None]:
    def told(job: Job, said: dict[str, Any]) -> None:
        if "died" in said:
            total.violations.append(f"mix {job['mix']!r}, at {said['last']}: the process ended: {said['died']}")
            return
        for name in TOLD:
            setattr(total, name, getattr(total, name) + said.get(name, 0))
        total.violations += said.get("violations", [])
        progress.update(task, completed=total.states)
    return told


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    """Chains, one after the other: these, or until there are enough states."""
    for mix, number, forgets in job.get("chains", ()):
        counts = one_chain(job["seed"], mix, number, Path(job["folder"]), forgets, 1 if forgets else SESSIONS)
        say({"mix": mix, "forgets": forgets, "violations": counts.violations, "digest": counts.digest,
             **{name: getattr(counts, name) for name in TOLD}})
    done, number = 0, job.get("first", 0)
    while done < job["states"]:
        say({"chain": number, "done": done})
        counts = one_chain(job["seed"], job["mix"], number, Path(job["folder"]), job.get("forgets"),
                           job.get("sessions", SESSIONS))
        done += max(counts.states, 1)
        told = {name: getattr(counts, name) for name in TOLD}
        if counts.violations and job["mix"] in MIXES:
            counts.violations[0] += shrinking.told(partial(chain_without, job, number), Path(job["folder"]),
                                                   seconds=job.get("seconds", shrinking.SECONDS), evidence=counts.evidence)
        say(told | {"chain": number, "done": done, "violations": counts.violations[:3]})
        number += job["stride"]


def chain_without(job: Job, number: int, left_out: Collection[tuple[int, int]], folder: Path) -> Ran:
    """The chain again, less some of its steps."""
    chain = Chain(f"{job['seed']} {number}", job["mix"], folder, job.get("forgets"), left_out=left_out)
    chain.ends_at_once = True
    played(chain, job["seed"], job["mix"], number, folder, job.get("sessions", SESSIONS))
    return chain.counts.violations, chain.steps


def one_chain(seed: int, mix: str, number: int, folder: Path, forgets: str | None = None, sessions: int = SESSIONS) -> Counts:
    name = f"{seed} {number}"
    chain = Repair(name, mix.removeprefix(REPAIR), folder) if mix.startswith(REPAIR) else Chain(name, mix, folder, forgets)
    return played(chain, seed, mix, number, folder, sessions)


def played(chain: Repair | Chain, seed: int, mix: str, number: int, folder: Path, sessions: int = SESSIONS) -> Counts:
    folder.mkdir(parents=True)
    try:
        with worker.drawn_from(f"{seed} {number}"):
            return chain.run(sessions)
    except AssertionError as error:     # engine and model differ while all is well, or the record lacks something
        chain.counts.violations.append(f"chain {mix}:{number}, seed {seed}: {error}")
        return chain.counts
    finally:
        shutil.rmtree(folder)


