"""Defects that the tests must find: each is compiled into a copy of the core, and the state machine is let loose on it.

`python -m tests.canaries [NAME ...]`, or `make canaries`. The defects stand in `xump_ext/ledger.pyx`: each is there after one
entry of eight. In a release they are constants, which the C compiler removes.
"""

import subprocess
import sys
import time

from tests.variants import build

CANARIES = {
    "payment": "a payment that climbs gives no credit back",
    "link": "a message that was taken has no link to what it became",
    "rotation": "a selector that was served keeps its place",
}
RUNS = 1_000
SECONDS_MAX = 300


def hunt():
    """Runs the machine in this tree; what it finds goes to standard output, as it is found first, and ends the process."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    from tests.test_machine import STEPS_PER_RUN, Machine

    options = settings(
        max_examples=RUNS, stateful_step_count=STEPS_PER_RUN, phases=[Phase.generate], deadline=None, database=None,
        derandomize=True, suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Machine, settings=options)
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        sys.exit(1)


def caught(name):
    """How the machine found that defect; empty if it did not."""
    command = [sys.executable, "-m", "tests.canaries", "--hunt"]
    copy = build(f"canary-{name}")
    run = subprocess.run(command, check=False, cwd=copy, capture_output=True, text=True, timeout=SECONDS_MAX)
    if run.returncode < 0:
        return f"the process died of signal {-run.returncode}"
    assert run.returncode in (0, 1), run.stderr
    assert not run.returncode or run.stdout, run.stderr
    return run.stdout.strip()


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
