"""Defects that the tests must find: each is compiled into a copy of the core, and the state machine is let loose on it.

`python -m tests.builds.canaries [NAME ...]`, or `make canaries`. The defects stand in `xump_ext/route/ledger.pyx`: each is
there after one entry of eight. In a release they are constants, which the C compiler removes.
"""

import os
import subprocess
import sys
import time

from tests.builds.variants import build

CANARIES = {
    "payment": "a payment that climbs gives no credit back",
    "link": "a message that was taken has no link to what it became",
    "rotation": "a selector that was served keeps its place",
}
RUNS = 1_000
STEPS_PER_RUN = 400
FOUND = 3
SECONDS_MAX = 300


def hunt():
    """Runs the machine in this tree. The first find ends the process: to close an engine with broken books may crash it."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    from tests.model.test_state_machine import Machine
    from tests.model.lockstep import World

    def told(world, what):
        print(what, flush=True)
        os._exit(FOUND)

    World.told = told
    options = settings(
        max_examples=RUNS, stateful_step_count=STEPS_PER_RUN, phases=[Phase.generate], deadline=None, database=None,
        derandomize=True, suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=options)


def caught(name):
    """How the machine found that defect, by `check()` or by comparison; empty if it did not."""
    command = [sys.executable, "-m", "tests.builds.canaries", "--hunt"]
    copy = build(f"canary-{name}")
    run = subprocess.run(command, check=False, cwd=copy, capture_output=True, text=True, timeout=SECONDS_MAX)
    if run.returncode == FOUND:
        return run.stdout.partition("\n")[0]
    assert run.returncode == 0, f"the hunt ended with {run.returncode}:\n{run.stderr}"
    return ""


def main(names):
    for name in names or CANARIES:
        began = time.monotonic()
        words = caught(name)
        print(f"{name}: {CANARIES[name]}. {words or 'NOT FOUND'} ({time.monotonic() - began:.0f} s)")
        if not words:
            sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--hunt"]:
        hunt()
    else:
        main(sys.argv[1:])
