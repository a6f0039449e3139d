"""Runs the benchmarks, each in a process of its own: `python -m benchmarks [--quick] [--write] [NAME ...]`.

    python -m benchmarks --quick            # with less of everything: three minutes, and no verdict to rely on
    python -m benchmarks --write            # all, into benchmarks/RESULTS.md; do nothing else meanwhile
    python -m benchmarks topics batches     # these
    python -m benchmarks --write topics     # this one anew; RESULTS.md keeps the others as they were measured
    python -m benchmarks compare A.json B.json      # what changed between two benchmarks/results.json
    python -m benchmarks peers              # Xump beside its peers, into PEERS.md

Exits with 1 if one of them failed; a bar that is missed is no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from time import perf_counter

from benchmarks import changes, peers_page, plots, record
from benchmarks.record import Benchmark

NAMES = (
    "queue_in_process",
    "topics",
    "batches",
    "core_objects",
    "filters_in_routing",
    "schedule",
    "message_ids",
    "request_reply",
    "time_and_order",
    "cost_laws",
    "worst_case",
    "match",
    "filter",
    "arrow",
    "durable_groups",
    "durable_single",
    "mixed_stores",
    "recovery",
    "fsyncs",
)
BY_NAME = ("backlog", "zeromq", "flight", "sql_relay", "sql_flat", "sql", "spark", "spark_cpu")
"""Take minutes for one table, or processes on a machine with nothing else to do: only when they are asked for."""
RESULTS = Path(__file__).with_name("RESULTS.md")
RECORD = Path(__file__).with_name("results.json")
PLOTS = Path(__file__).with_name("pictures")
HEADING = re.compile(r"  (?P<name>\S[^:]*): ")
ROW = re.compile(r"    (?P<name>\S.*?)  +(?P<figures>[-\d.,][-\d., ]*?)  +(?P<verdict>met|missed|flat|logarithmic|grows, .*)$")


def run(name: str, options: list[str]) -> tuple[list[str], Benchmark | None]:
    """What a benchmark printed, shown as it comes, and what it recorded; None: it failed."""
    lines = []
    command = [sys.executable, "-u", "-m", f"benchmarks.{name}", *options]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "record.json")
        variables = os.environ | {record.VARIABLE: str(path)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip())
        if process.returncode:
            return lines, None
        return lines, record.benchmark_of(json.loads(path.read_text())) if path.exists() else Benchmark()


def summary(printed: dict[str, list[str]]) -> list[str]:
    """How many rows of each benchmark meet their bar, or keep their law, and which do not."""
    lines = ["| benchmark | rows with a bar | met | missed |", "|---|---|---|---|"]
    for name, texts in printed.items():
        rows, missed, under = 0, [], ""
        for text in texts:
            if heading := HEADING.match(text):
                under = f"{heading['name']}: "
            elif row := ROW.match(text):
                rows += 1
                figures = row["figures"].split()
                if row["verdict"] == "missed":
                    missed.append(f"{under}{row['name']} ({figures[-2]})")
                elif row["verdict"].startswith("grows"):
                    missed.append(f"{under}{row['name']} ({figures[-1]})")
        if rows:
            lines.append(f"| [{name}](#{name}) | {rows} | {rows - len(missed)} | {'; '.join(missed) or 'none'} |")
    return lines


def page(benchmarks: Mapping[str, Benchmark], drawn: Collection[str] = ()) -> str:
    """The results as Markdown."""
    lines = ["# Results", "", "Written by `python -m benchmarks --write`, or part by part, by the command that each part names;",
             "[what is measured, and how to read it](README.md).", ""]
    lines += ["In brackets: of a bar that is missed, the figure that it is on; of a cost that grows, by what.", ""]
    lines += summary({name: one.printed for name, one in benchmarks.items()})
    for name, one in benchmarks.items():
        lines += ["", f"## {name}", "", *([f"Measured by `{one.command}`.", ""] if one.command else [])]
        lines += [f"![{name}: times as fast as the peer](pictures/{name}.svg)", ""] * (name in drawn)
        lines += ["```text", *one.printed, "```"]
    return "\n".join(lines) + "\n"


def write(recorded: Mapping[str, Benchmark], folder: Path) -> None:
    """The results of these, and those that are known of others, as a page, as JSON and as pictures."""
    path = folder / RECORD.name
    known = {**(record.read(path) if path.exists() else {}), **recorded}
    ordered = {name: known[name] for name in (*NAMES, *BY_NAME) if name in known}
    record.write(path, ordered)
    (folder / RESULTS.name).write_text(page(ordered, plots.write(folder / PLOTS.name, ordered)))


def main() -> int:
    """Parse the command line and run."""
    if sys.argv[1:2] == ["compare"]:
        return changes.main(sys.argv[2:])
    if sys.argv[1:2] == ["peers"]:
        return peers_page.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; and, only by name, {', '.join(BY_NAME)}")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--write", action="store_true", help=f"the results go into {RESULTS.name} too")
    options = parser.parse_args()
    unknown = set(options.names) - {*NAMES, *BY_NAME}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join((*NAMES, *BY_NAME))}")
    names = options.names or NAMES
    given = ["--quick"] if options.quick else []
    command = " ".join(["python -m benchmarks", *given, *["--write"] * options.write, *options.names])
    printed, recorded, failed = {}, {}, []
    begun = perf_counter()
    for number, name in enumerate(names):
        print(f"\n== {progress(number, len(names), perf_counter() - begun)} {name}", flush=True)
        started = perf_counter()
        printed[name], found = run(name, given)
        print(f"   {perf_counter() - started:.0f} s", flush=True)
        if found is None:
            failed.append(name)
        else:
            found.printed, found.command = printed[name], command
            recorded[name] = found
    print("", *summary(printed), sep="\n")
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    elif options.write:
        write(recorded, RESULTS.parent)
        print(f"\nwritten: {RESULTS}, {RECORD}, {PLOTS}")
    return bool(failed)


def progress(done: int, of: int, seconds: float) -> str:
    """A bar, how many there are, and how long the rest takes if it goes on like this."""
    left = f", {seconds / done * (of - done) / 60:.0f} min left" if done else ""
    return f"[{'#' * (done * 20 // of):20}] {done + 1} of {of}{left}:"


if __name__ == "__main__":
    sys.exit(main())
