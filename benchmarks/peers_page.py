"""`python -m benchmarks peers`: Xump beside its peers, all workloads and servers one after the other, as one page.

    python -m benchmarks peers                  # into PEERS.md: half an hour, on a machine that does nothing else
    python -m benchmarks peers --quick W1 sql   # these, with less of everything, and no page
    python -m benchmarks peers --page PEERS.md W1   # this part anew; the page keeps the others as they were measured

Each part is a process of its own, whose contestants take turns. What a part needs and does not find is left out, and the page
says so: install the extras `bench` and `spark`, and from Debian redis-server, rabbitmq-server, nats-server, postgresql and a JRE.
Beside the page, a file of the same name that ends with .json has what each part printed. Exits with 1 if a part failed; the page
is written of the others, and names it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

PAGE = Path(__file__).with_name("PEERS.md")
LEFT_OUT = "left out"
MISSING = (LEFT_OUT, "not installed")


@dataclass(frozen=True)
class Part:
    """A section of the page, and the program that measures it."""

    title: str
    work: str
    """What all contestants do."""
    durability: str
    """What outlives what, of each contestant."""
    program: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Without these there is no such part: modules that can be imported."""
    commands: tuple[str, ...] = ()
    """The same: programs."""


BY_ROW = (
    "Each row says what it promises: `on the disk` is synced at each commit, acks too; `written` outlives the process, not the "
    "machine.")
NONE = "All are in memory: nothing outlives the process."

PARTS: dict[str, Part] = {
    "W1": Part(
        "W1: a queue in the process",
        'Publish an address, 100 bytes and a fresh `{"k": "v"}`, then consume all and read them.', NONE, ("beside", "W1")),
    "W2": Part(
        "W2: topics",
        "10,000 patterns, addresses by Zipf's law. Peers match and count; NATS also carries messages without a body from one "
        "socket to another; Xump publishes, and copies into queues.",
        NONE, ("beside", "W2")),
    "W3a": Part(
        "W3a: a durable queue, message by message",
        "Publish, then consume and ack, 100 bytes; a commit for each message and each ack.", BY_ROW, ("beside", "W3a")),
    "W3b": Part("W3b: a durable queue, by groups", "The same, a commit for each 1,000.", BY_ROW, ("beside", "W3b")),
    "W4": Part(
        "W4: a round trip",
        "One message there and back, 100 bytes, one at a time; the median.", NONE, ("beside", "W4")),
    "W5": Part(
        "W5: messages as objects",
        "Made and deleted; all dropped at once, or held and then freed.", NONE, ("beside", "W5")),
    "broker": Part(
        "The broker beside RabbitMQ, Redis and NATS, in memory",
        "Through one queue, 100 bytes: publish with confirms, consume with acks. Raw clients for all: AMQP 0-9-1 for Xump and "
        "RabbitMQ, the servers' own protocols for the others.",
        "Transient messages in a queue that is not durable, a stream without a file: nothing outlives the process.", ("broker",)),
    "broker-durable": Part(
        "The broker beside RabbitMQ, Redis and NATS, durable",
        "The same, with a durable queue and persistent messages; Xump's is in a ring.",
        "All are asked for confirms. Those of Xump and of Redis (`appendfsync always`) come when the messages are on the disk; "
        "those of RabbitMQ's classic queue and of JetStream's file when they are written.", ("broker", "--store", "ring")),
    "spark": Part(
        "Spark",
        "Rows of a data frame into a queue, and a queue's history into a data frame.",
        "Queues in memory. `Exactly once` means each row once, whatever tasks and executors fail; nothing outlives the broker.",
        ("spark",), ("pyspark", "pandas", "pyarrow"), ("java",)),
    "sql": Part(
        "SQL: tasks in PostgreSQL",
        "A task enqueued within a transaction; tasks that do nothing, through one worker and through eight. A quarter of the "
        "tasks of `python -m benchmarks sql`, so what a worker takes to begin and to end weighs more.",
        "PostgreSQL with fsync on, the same for all: what is committed outlives the machine. pgqueuer writes what is finished "
        "ten at a time, or after 0.1 s.", ("sql", "--share", "4"), ("sqlalchemy", "psycopg")),
    "zeromq": Part(
        "ZeroMQ: Majordomo",
        "A request and its reply over sockets, 100 bytes, through a broker to a worker and back.",
        "Nothing outlives the broker, except in the rows of Titanic: there requests and replies are on the disk.",
        ("zeromq",), ("zmq",)),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a part."""

    lines: Sequence[str]
    """What its program printed."""
    fault: str = ""
    """Why there are no figures, or "": there are."""
    command: str = ""
    """What it was measured by."""


def missing(part: Part) -> str:
    """What it needs and this machine does not have, as a sentence; "": nothing."""
    packages = [name for name in part.packages if find_spec(name) is None]
    commands = [name for name in part.commands if shutil.which(name) is None]
    return f"{LEFT_OUT}: {', '.join((*packages, *commands))} not installed" if packages or commands else ""


def run(part: Part, options: Sequence[str]) -> Outcome:
    """Run its program, and show what it prints as it comes."""
    if said := missing(part):
        print(f"  {said}", flush=True)
        return Outcome([f"  {said}"])
    name, *arguments = part.program
    command = [sys.executable, "-u", "-m", f"benchmarks.{name}", *arguments, *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=os.environ | {"PYTHONWARNINGS": "ignore"}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return Outcome(lines, f"`python -m benchmarks.{' '.join((name, *arguments))}` ended with {process.returncode}"
                   if process.returncode else "")


def page(outcomes: Mapping[str, Outcome]) -> str:
    """The results as Markdown: first the parts, then what was left out or failed, then each part."""
    lines = [
        "# Xump beside its peers", "",
        "Written by `python -m benchmarks peers`, or part by part, by the command that each part names;",
        "[how to read the figures](README.md#how-to-read-the-figures).",
        "Times are nanoseconds a message, or what the row says; contestants of a part take turns in one run.",
        "Ratios are of rates, so more is better for Xump.", ""]
    lines += [f"- [{PARTS[name].title}](#{anchor(PARTS[name].title)})" for name in outcomes]
    absent = [f"{PARTS[name].title}: {line.strip()}" for name, outcome in outcomes.items() for line in outcome.lines
              if any(mark in line for mark in MISSING)]
    absent += [f"{PARTS[name].title}: failed, {outcome.fault}" for name, outcome in outcomes.items() if outcome.fault]
    lines += ["", "## Left out", "", *([f"- {text}" for text in absent] or ["Nothing: every peer took part."])]
    for name, outcome in outcomes.items():
        part = PARTS[name]
        kept = [line for line in outcome.lines if not any(mark in line for mark in MISSING)]
        lines += ["", f"## {part.title}", "", part.work, "", f"Durability: {part.durability}", ""]
        lines += [f"Measured by `{outcome.command}`:", ""] if outcome.command and kept and not outcome.fault else []
        lines += ["```text", *kept, "```"] if kept and not outcome.fault else ["No figures; see [left out](#left-out)."]
    return "\n".join(lines) + "\n"


def anchor(title: str) -> str:
    """As GitHub makes it of a heading."""
    return "".join(character for character in title.lower().replace(" ", "-") if character.isalnum() or character in "-_")


def main(arguments: Sequence[str]) -> int:
    """Measure the parts, and write the page of all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all, and the page is written")
    parser.add_argument("--quick", action="store_true", help="less of everything: a look, no verdict to rely on")
    parser.add_argument("--rounds", type=int, help="how many")
    parser.add_argument(
        "--page", type=Path, help=f"write the page there; default: {PAGE.name}, when all parts are measured at length")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    given = ["--quick"] * options.quick + (["--rounds", str(options.rounds)] if options.rounds else [])
    place = options.page or (None if options.parts or options.quick else PAGE)
    command = " ".join(["python -m benchmarks peers", *given, *options.parts])
    failed = False
    for number, name in enumerate(options.parts or PARTS, 1):
        print(f"\n== {number} of {len(options.parts or PARTS)}: {PARTS[name].title}", flush=True)
        started = perf_counter()
        outcome = run(PARTS[name], given)
        print(f"   {perf_counter() - started:.0f} s", flush=True)
        failed |= bool(outcome.fault)
        if place is not None:
            write(place, {name: outcome}, command)
    if place is not None:
        print(f"\nwritten: {place}")
    return int(failed)


def write(place: Path, outcomes: Mapping[str, Outcome], command: str) -> None:
    """The page, of these parts and of those that it had before, in the order of `PARTS`."""
    record = place.with_suffix(".json")
    known = {name: Outcome(**fields) for name, fields in json.loads(record.read_text()).items()} if record.exists() else {}
    known |= {name: Outcome(outcome.lines, outcome.fault, command) for name, outcome in outcomes.items()}
    ordered = {name: known[name] for name in PARTS if name in known}
    record.write_text(json.dumps({name: asdict(outcome) for name, outcome in ordered.items()}, indent=1) + "\n")
    place.write_text(page(ordered))
