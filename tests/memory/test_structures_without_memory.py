"""Memory ends while things are scheduled, or message ids remembered: a call that raises has changed nothing, and nothing is lost.

The structures alone, in a process of its own in which allocations fail: `python -m tests.memory.test_structures_without_memory
NAME`. For the schedule the cells that are there already are hoarded but for a few, so that each of the next ones is the first
that is not there.
"""

import ctypes
import os
import random
import subprocess
import sys

import pytest

from tests.compiled import compiled
from tests.memory.failing_malloc import ROOT, SHIM

STATE = ROOT / "tests" / "state"
LAST = 2**63 - 2
DELAY = 1
ADDED = 1_500


def dues(chance):
    """Together, far apart, and many at one moment, so that the tree has branches of every kind."""
    return chance.choice((chance.randrange(100), chance.randrange(10**12), 10**15 + chance.randrange(10**6), 77))


def first(model):
    return min(model, key=lambda sequence: (model[sequence], sequence))


def with_few_cells(module, shim, left):
    """Adds and takes with `left` cells of each size; how often memory was missing."""
    chance = random.Random(left)
    schedule, model, failed = module.Schedule(), {}, 0
    for sequence in range(2 * ADDED):
        schedule.make(sequence)
    for sequence in range(ADDED):
        model[sequence] = dues(chance)
        schedule.add(sequence, model[sequence], DELAY)
    shim.fail_at(0, 1)
    hoard = module.Hoard(left)
    for sequence in range(ADDED, 2 * ADDED):
        due = dues(chance)
        try:
            schedule.add(sequence, due, DELAY)
            model[sequence] = due
        except MemoryError:
            failed += 1
            schedule.check()
        if sequence % 3 == 0:
            try:
                popped = schedule.pop(LAST)
                assert popped == first(model)
                del model[popped]
            except MemoryError:
                failed += 1
                schedule.check()
    hoard.give_back()
    shim.failures()
    order = sorted(model, key=lambda sequence: (model[sequence], sequence))
    assert [schedule.pop(LAST) for _ in order] == order
    assert schedule.next() is None
    schedule.check()
    schedule.close()
    return failed


def the_first_allocations(module, shim):
    """Of a schedule that has nothing yet."""
    outcomes = []
    for at in range(3):
        schedule = module.Schedule()
        schedule.make(1)
        shim.fail_at(at, 0)
        try:
            schedule.add(1, 5, DELAY)
            outcomes.append("added")
        except MemoryError:
            outcomes.append("not added")
            assert (schedule.items(), schedule.next()) == (0, None)
        shim.failures()
        assert schedule.pop(5) == (1 if outcomes[-1] == "added" else None)
        schedule.close()
    return outcomes


def schedule():
    module = compiled(STATE / "scheduling.pyx")
    shim = ctypes.CDLL(str(SHIM))
    before = module.cells_in_use()
    assert the_first_allocations(module, shim) == ["not added", "not added", "added"]
    failed = [with_few_cells(module, shim, left) for left in range(60)]
    assert failed[0] > 100 and failed[30] > 0, failed
    assert module.cells_in_use() == before


def window():
    """The Nth allocation fails, N counting up; then the addition is tried again."""
    module = compiled(STATE / "windows.pyx")
    shim = ctypes.CDLL(str(SHIM))
    at, failed, times = 0, 1, 0
    kept = []                           # so that every window needs new memory
    while failed:
        window = module.Window(2**63 - 1, 100_000)
        shim.fail_at(at, 0)
        for id in range(1, 5_000):
            try:
                window.add(b"%d" % id, id, id)
            except MemoryError:
                window.check()
                assert [found for found, _ in window.records()] == list(range(1, id))
                window.add(b"%d" % id, id, id)
        failed = shim.failures()
        times += failed
        window.check()
        assert [window.find(b"%d" % id, 5_000) for id in range(1, 5_000)] == list(range(1, 5_000))
        kept.append(window)
        at += 1
    assert times > 10, times


PROGRAMS = {"schedule": schedule, "window": window}


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_memory(shim, name):
    for source in ("scheduling.pyx", "windows.pyx"):
        compiled(STATE / source)
    done = subprocess.run([sys.executable, "-m", "tests.memory.test_structures_without_memory", name], cwd=ROOT,
                          capture_output=True, env=os.environ | {"LD_PRELOAD": str(shim)}, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
