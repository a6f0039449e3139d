"""The battery: attacks on the engine and its stores. `python -m tests.faults [PART ...]`, without any: all of them.

It prints its seed, with which it can be repeated, shows how far it is, says what it found, and writes docs/reliability.md. The
exit status is 1 if anything was found.

    python -m tests.faults power --states 1000 --pair-states 200      a quick look
    python -m tests.faults power --chain ring:12 --seed 5             one chain again, which a violation named
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.faults import report

PARTS = {
    "power": "tests.faults.power_part",
    "kills": "tests.faults.kills_part",
    "canaries": "tests.faults.canaries_part",
    "errors": "tests.faults.errors_part",
    "damage": "tests.faults.damage_part",
    "fuzz": "tests.faults.fuzz_part",
    "machine": "tests.faults.machine_part",
    "soak": "tests.faults.soak_part",
}
"""A part is a module with `run(options, progress) -> Section`."""
COLUMNS = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; without any: all")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--states", type=int, default=100_000, help="power: states of each store")
    parser.add_argument("--pair-states", type=int, default=20_000, help="power: states of each pair of stores")
    parser.add_argument("--kills", type=int, default=10_000, help="kills: of each store; a fifth of that for each pair")
    parser.add_argument("--every", type=int, default=1, help="damage: only every nth bit, run of zeros, and length")
    parser.add_argument("--kind", help="damage: only of this kind, as its table calls it")
    parser.add_argument("--executions", type=int, default=10_000_000, help="fuzz: of each harness")
    parser.add_argument("--steps", type=int, default=1_000_000, help="machine: of each mix of stores")
    parser.add_argument("--messages", type=int, default=24_000_000, help="soak: of each store")
    parser.add_argument("--stores", help="only over these, as the report calls them; it keeps the rows over others")
    parser.add_argument("--chain", help="power: only this one, as MIX:NUMBER")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--no-report", action="store_true", help="leave docs/reliability.md as it is")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return options


def command_of(options: argparse.Namespace, part: str) -> str:
    """The command that repeats a part."""
    sizes = f" --states {options.states} --pair-states {options.pair_states}" if part == "power" else ""
    sizes += f" --kills {options.kills}" if part == "kills" else ""
    sizes += f" --executions {options.executions}" if part == "fuzz" else ""
    sizes += f" --steps {options.steps}" if part == "machine" else ""
    sizes += f" --messages {options.messages}" if part == "soak" else ""
    sizes += f" --every {options.every}" if part == "damage" and options.every > 1 else ""
    return f"python -m tests.faults {part} --seed {options.seed}{sizes}"


def main() -> None:
    options = parsed()
    print(f"seed {options.seed}", flush=True)
    found = 0
    for name in options.parts or PARTS:
        with Progress(*COLUMNS, disable=not sys.stdout.isatty()) as progress:
            section = importlib.import_module(PARTS[name]).run(options, progress)
        if not section.rows and (options.stores is not None or options.kind is not None):
            sys.exit(f"{name}: nothing is called {options.stores or options.kind!r}; its table in docs/reliability.md has the "
                     "names")
        print(section.markdown(command_of(options, name), options.seed))
        for violation in section.violations[:50]:
            print(f"* {violation}\n")
        if not (options.no_report or options.chain):
            only = options.stores is not None or options.kind is not None
            report.write(section, command_of(options, name), options.seed, only)
        found += len(section.violations)
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
