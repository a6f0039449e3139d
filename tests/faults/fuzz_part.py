"""The part `fuzz`: harnesses (`fuzz.py`) fed by our own mutations, and by atheris where it is installed. One that ends its
process is told with its signal."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import Progress

from tests.faults import worker
from tests.faults.fuzz import HARNESSES, mutations
from tests.faults.report import Section
from tests.faults.worker import Job

COLUMNS = ["reads", "by", "executions", "violations"]
TEXT = """
Readers of bytes that others made get bytes that are wrong: records of stores (half of them with a checksum that is right), the
texts of filters, edited topologies, Arrow columns with wrong lengths, offsets, counts and pointers that are missing, and streams
of AMQP frames cut anywhere. "Recovery" is a store whose records are whole, and say what no engine writes: it must be refused
with a reason, or open, hold the laws, and work. A filter that compiles must say what the model of filters says; a topology that
is taken must describe itself, and one that is refused change nothing; Arrow data is released once; frames mean the same however
they are cut; and no bytes may end the process.
"""
PIECE = 20_000
SHARE = 4           # atheris makes one in so many


def run(options: argparse.Namespace, progress: Progress) -> Section:
    section = Section("fuzz", "Bytes that are wrong", TEXT, COLUMNS)
    for name in HARNESSES:
        if options.stores not in (None, name):
            continue
        done: list[int] = []
        task = progress.add_task(name, total=options.executions)

        def told(job: Job, said: dict[str, Any], done=done, name=name, task=task) -> None:
            if "died" in said:
                section.violations.append(f"{name}, at {said['last']}: the process ended: {said['died']}")
                return
            if said["found"] is not None:
                section.violations.append(f"seed {job['seed']}, {said['found']}")
            done.append(said["done"])
            progress.update(task, advance=said["done"])
        before = len(section.violations)
        share = {"harness": name, "seed": options.seed, "stride": options.at_once, "executions": options.executions}
        jobs = [share | {"first": number} for number in range(options.at_once)]
        worker.run_all("tests.faults.fuzz_part", jobs, told, options.at_once)
        section.rows.append([name, "mutations", sum(done), len(section.violations) - before])
        if importlib.util.find_spec("atheris") is not None:
            found = by_atheris(name, options.executions // SHARE, options.seed)
            section.violations += found
            section.rows.append([name, "atheris", options.executions // SHARE, len(found)])
    return section


def work(job: Job, say: Callable[[dict[str, Any]], None]) -> None:
    """Every nth piece of the executions, each with a seed of its own, so that it can be repeated alone."""
    pieces = -(-job["executions"] // PIECE)
    for piece in range(job["first"], pieces, job["stride"]):
        size = min(PIECE, job["executions"] - piece * PIECE)
        found = mutations(HARNESSES[job["harness"]], size, f"{job['seed']}.{piece}")
        say({"piece": piece, "done": size, "found": found and found[:3_000]})


def by_atheris(name: str, executions: int, seed: int) -> list[str]:
    """What libFuzzer found: nothing, or one thing."""
    with tempfile.TemporaryDirectory(prefix="xump-fuzz-") as corpus:
        for number, data in enumerate(HARNESSES[name].seeds):
            Path(corpus, f"seed-{number}").write_bytes(data)
        command = [sys.executable, "-m", "tests.faults.fuzz_atheris", name, str(executions), str(seed), corpus]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            return []
        found = [path.read_bytes()[:2_000] for path in Path(corpus).glob("found-*")]
        said = "\n".join([*done.stdout.splitlines()[-30:], *done.stderr.splitlines()[-30:]])
        return [f"atheris, {name}, seed {seed}: exit status {done.returncode}: {said}\nfrom {found}"]
