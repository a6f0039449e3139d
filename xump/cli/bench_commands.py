"""The command `xump bench`: measures your topology under load."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xump import topology as topologies
from xump.cli.exit import CommandError, ExitCode
from xump.cli.store_report import Progress
from xump.cli.streams import writing
from xump.errors import XumpError
from xump.workloads.traffic import PROFILES

EPILOG = """\
The command builds the graph in an engine of its own, publishes messages that fit its patterns and filters, and takes and acks all
that is delivered. It prints throughput, latency, memory, where messages wait, and what each selector costs. It creates the stores
of the topology anew in a temporary folder: your stores are not touched.

profiles, that is, how often each address comes:
    zipf            the n-th address 1/n times as often as the first, as in most real traffic
    uniform         each as often as any other
    adversarial     long addresses and many headers, which are dear to match

The cost of a selector is the difference: what the messages cost with it, less what they cost in a graph without it, with all
queues in RAM. It includes the work that the selector's messages cause downstream. A share of a few percent, also below 0, is
noise.

examples:
    xump bench network.toml
    xump bench network.toml --messages 1e6 --profile adversarial --size 1000
    xump bench network.toml --json result.json --picture result.svg
    xump bench network.toml --data /mnt/disk            stores on that disk
"""


def add_commands(commands: Any, form: Any, load: Callable[[str], dict[str, Any]]) -> None:
    """Add it to the parser. `load` reads a topology."""
    parser = commands.add_parser("bench", help="measure a topology under load", epilog=EPILOG, formatter_class=form,
                                 description="Measure a topology under load.")
    parser.add_argument("topology", metavar="TOPOLOGY.toml", help="the file; - is standard input; or the URL of a running broker")
    parser.add_argument("--messages", metavar="N", type=_number, default=100_000, help="how many, such as 1e6; default: 100,000")
    parser.add_argument("--profile", choices=PROFILES, default="zipf", help="how often each address comes; default: zipf")
    parser.add_argument("--size", metavar="BYTES", type=_size, default=100,
                        help="of each body; `mixed`: of many sizes; default: 100")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="the same seed gives the same messages; default: 0")
    parser.add_argument("--data", metavar="FOLDER", help="where the stores are created; default: the system's temporary folder")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the results there, too")
    parser.set_defaults(command=lambda options: _bench(options, load), parser=parser)


def _number(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (1 <= number <= 1e10 and number.is_integer()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages; give a whole one from 1 to 1e10, such as 1e6")
    return int(number)


def _size(text: str) -> int | None:
    if text == "mixed":
        return None
    if not text.isdecimal() or int(text) > 2**24:
        raise argparse.ArgumentTypeError(f"{text!r} is not the size of a body; give bytes, 0 to 16777216, or `mixed`")
    return int(text)


def _bench(options: argparse.Namespace, load: Callable[[str], dict[str, Any]]) -> int:
    from xump.workloads import report as reports
    from xump.workloads.running import bench

    if options.data is not None and not Path(options.data).is_dir():
        raise CommandError(f"{options.data} is not a folder; create it, or leave out --data")
    mapping, shown = load(options.topology), "standard input" if options.topology == "-" else options.topology
    faults = topologies.refusals(mapping)
    if faults:
        raise CommandError("\n".join([f"xump: {shown} is wrong:", *(f"  {fault}" for fault in faults)]), ExitCode.PROBLEM_FOUND)
    try:
        with Progress("measuring", shown, "messages") as progress:
            report = bench(mapping, options.messages, profile=options.profile, size=options.size, seed=options.seed, name=shown,
                           folder=options.data, progress=progress)
    except (XumpError, ValueError) as error:
        raise CommandError(f"{shown} could not be measured: {error}", ExitCode.PROBLEM_FOUND) from None
    reports.show(report)
    _write(options.json, reports.to_json(report))
    _write(options.picture, reports.to_svg(report))
    return ExitCode.OK


def _write(name: str | None, text: str) -> None:
    if name is not None:
        with writing(name):
            Path(name).write_text(text, encoding="utf-8", errors="backslashreplace")    # a path may be no text
