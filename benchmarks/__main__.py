"""Runs the benchmarks, each in a process of its own: `python -m benchmarks [--quick] [NAME ...]`.

    python -m benchmarks --quick            # all but those that need valgrind, with less of everything: some minutes
    python -m benchmarks                    # as the README's tables were measured; do nothing else meanwhile
    python -m benchmarks topics batches     # these

Exits with 1 if one of them failed; a bar that is missed is no failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

QUICK: dict[str, list[str]] = {
    "queue_in_process": ["--quick"],
    "topics": ["--quick"],
    "batches": ["--quick"],
    "core_objects": ["--quick"],
    "filters_in_routing": ["--quick"],
    "match": ["--patterns", "10000", "--messages", "20000"],
    "filter": [],
    "arrow": ["--rows", "100000"],
}
ALL: dict[str, list[str]] = {name: [] for name in (*QUICK, "cost_laws")}


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--quick", action="store_true", help="less of everything")
    options = parser.parse_args()
    unknown = set(options.names) - set(ALL)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    runs = QUICK if options.quick else ALL
    failed = []
    for name in options.names or runs:
        print(f"\n== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *runs.get(name, ["--quick"])]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
