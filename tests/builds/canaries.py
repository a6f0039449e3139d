"""Defects that the tests must find: each is compiled into a copy of the core, and a hunt goes looking for it.

`python -m tests.builds.canaries [NAME ...]`, or `make canaries`. The defects are in the modules that `CANARIES` names (and in
`xump_ext/memory/canaries.pxd`). In a release they are constants, which the C compiler removes.
"""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.builds.variants import alone, build

RUNS = 1_000
FOUND = 3
TESTS_FAILED = 1
"""pytest's exit status."""
SECONDS_MAX = 1_200


class Canary(NamedTuple):
    defect: str
    modules: tuple[str, ...]
    hunt: str
    stores: str = "ring"


CANARIES = {
    "payment": Canary("a payment that climbs gives no credit back", ("route/settling",), "worlds", "ram"),
    "link": Canary("a message that was taken has no link to what it became", ("route/ledger",), "worlds", "ram"),
    "rotation": Canary("a selector that was served keeps its place", ("route/offering",), "worlds", "ram"),
    "expiry": Canary("a message is handed out after its time", ("route/due",), "worlds", "ram"),
    "group": Canary("two messages of a key are outstanding", ("route/oldest", "route/routing", "select/groups"), "worlds", "ram"),
    "duplicate": Canary("a duplicate is let in after reopening", ("route/duplicates",), "worlds"),
    "delay": Canary("a delay is lost in a crash", ("log/append",), "power"),
    "settlement": Canary("a message is settled before its copy in another store is durable", ("log/fences",), "power",
                         "ring and lmdb"),
    "room": Canary("a store forgets that somebody waits for room in it", ("log/room",), "full"),
    "checksum": Canary("the checksum of a body is not verified", ("records/record",), "damage"),
}
SLOW = {"settlement"}
"""Found within minutes: not a part of the suite."""


def worlds(runs, stores):
    """Programs over few queues, in RAM, or in a store that is closed, or crashes, and is opened again."""
    from tests.model.test_small_programs import MIXES, STEPS_PER_RUN, Dense

    for seed in range(RUNS):
        next(runs)
        Dense(f"canary {seed}", *MIXES[stores]).run(STEPS_PER_RUN)


def full(runs, stores):
    """Programs over stores that are full again and again."""
    from tests.faults.machine_part import STEPS_PER_PROGRAM, mixes
    from tests.model.test_full_stores import FullFlow

    for seed in range(RUNS):
        next(runs)
        FullFlow(f"canary {seed}", *mixes()[stores]).run(STEPS_PER_PROGRAM)


def power(runs, stores):
    """Programs over stores whose disk loses power at every write."""
    from tests.faults import worker

    said = []
    with worker.folder() as folder:
        worker.run_all("tests.builds.canaries", [{"stores": stores, "folder": str(folder)}], lambda _, one: said.append(one), 1)
    runs = itertools.count(len(said))
    for one in said:
        assert "died" not in one, one
        if one["violations"]:
            found(runs, one["violations"][0])


def work(job, say):
    """The programs of `power`, in a process whose calls to the disk are recorded; up to the first violation."""
    from tests.faults.power_part import one_chain

    for number in range(RUNS):
        violations = one_chain(1, job["stores"], number, Path(job["folder"]) / str(number), sessions=1).violations
        say({"violations": violations})
        if violations:
            return


def damage(runs, _):
    """A ring with each of its bytes damaged in turn; by a process of its own, because pytest wants to import Xump first."""
    next(runs)
    test = "tests/ring/test_damage.py::test_every_byte_with_a_flipped_bit"
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], check=False, capture_output=True)
    assert run.returncode in (0, TESTS_FAILED), run.stdout.decode()[-2000:] + run.stderr.decode()[-2000:]
    if run.returncode:
        found(runs, "a test of damaged rings fails")


def found(runs, what):
    """The first find ends the process: to close an engine with broken books may crash it."""
    print(f"{what.splitlines()[0]} (run {next(runs)})", file=sys.__stdout__, flush=True)
    os._exit(FOUND)


def hunt(name):
    """Runs in the copy. Exit status 0: nothing was found."""
    from tests.model.lockstep import World

    runs = itertools.count()
    World.told = lambda world, what: found(runs, what)
    {"worlds": worlds, "full": full, "power": power, "damage": damage}[CANARIES[name].hunt](runs, CANARIES[name].stores)


def caught(name):
    """What found that defect, and in which run; empty if nothing did."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.builds.canaries", "--hunt", name]
    with alone(f"canary-{name}"):
        copy = build(f"canary-{name}", CANARIES[name].modules)
        run = subprocess.run(command, check=False, cwd=copy, capture_output=True, text=True, timeout=SECONDS_MAX)
    if run.returncode == FOUND:
        return run.stdout.strip().splitlines()[-1]
    assert run.returncode == 0, f"the hunt ended with {run.returncode}:\n{run.stderr[-2000:]}"
    return ""


def main(names):
    for name in names or CANARIES:
        began = time.monotonic()
        words = caught(name)
        print(f"{name}: {CANARIES[name].defect}. {words or 'NOT FOUND'} ({time.monotonic() - began:.0f} s)", flush=True)
        if not words:
            sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hunt"]:
        hunt(sys.argv[2])
    else:
        main(sys.argv[1:])
