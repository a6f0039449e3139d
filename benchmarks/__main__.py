"""Runs the benchmarks, each in a process of its own: `python -m benchmarks [--quick] [--write] [NAME ...]`.

    python -m benchmarks --quick            # with less of everything: three minutes, and no verdict to rely on
    python -m benchmarks --write            # all, into benchmarks/RESULTS.md; do nothing else meanwhile
    python -m benchmarks topics batches     # these

Exits with 1 if one of them failed; a bar that is missed is no failure.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

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
    "match",
    "filter",
    "arrow",
    "durable_groups",
    "durable_single",
    "mixed_stores",
    "recovery",
    "fsyncs",
)
BY_NAME = ("backlog",)
"""Takes minutes for one table: only when it is asked for."""
RESULTS = Path(__file__).with_name("RESULTS.md")
HEADING = re.compile(r"  (?P<name>\S[^:]*): ")
ROW = re.compile(r"    (?P<name>\S.*?)  +(?P<figures>[-\d.,][-\d., ]*?)  +(?P<verdict>met|missed|flat|logarithmic|grows, .*)$")


def run(name: str, options: list[str]) -> tuple[list[str], bool]:
    """What a benchmark printed, shown as it comes, and whether it ended well."""
    lines = []
    command = [sys.executable, "-u", "-m", f"benchmarks.{name}", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return lines, process.returncode == 0


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


def page(printed: dict[str, list[str]], options: list[str]) -> str:
    """The results as Markdown."""
    command = " ".join(["python -m benchmarks", *options])
    lines = ["# Results", "", f"Written by `{command}`; [what is measured, and how to read it](README.md).", ""]
    lines += ["In brackets: of a bar that is missed, the figure that it is on; of a cost that grows, by what.", ""]
    lines += summary(printed)
    for name, texts in printed.items():
        lines += ["", f"## {name}", "", "```text", *texts, "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; and, only by name, {', '.join(BY_NAME)}")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--write", action="store_true", help=f"all results go into {RESULTS.name} too")
    options = parser.parse_args()
    unknown = set(options.names) - {*NAMES, *BY_NAME}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join((*NAMES, *BY_NAME))}")
    names = options.names or NAMES
    given = ["--quick"] if options.quick else []
    printed = {}
    failed = []
    for number, name in enumerate(names, 1):
        print(f"\n== {name} ({number} of {len(names)})", flush=True)
        started = perf_counter()
        printed[name], well = run(name, given)
        print(f"   {perf_counter() - started:.0f} s", flush=True)
        if not well:
            failed.append(name)
    print("", *summary(printed), sep="\n")
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    elif options.write:
        RESULTS.write_text(page(printed, [*given, "--write", *options.names]))
        print(f"\nwritten: {RESULTS}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
