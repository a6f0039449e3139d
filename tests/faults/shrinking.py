"""Makes a chain that fails a smaller one that fails: it leaves out steps of its programs, as long as some violation is left.

Other steps mean other writes and other moments of the fault, so a smaller chain may come through by chance. It is tried a few
times where the fault comes at a random time, and counts as one that fails only if it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from tests.faults.power import Steps, shown
from tests.model.shrink import smallest

SECONDS = 120.0     # after which what was found by then is told
Ran = tuple[list[str], Steps]
"""The violations of a chain, and the steps that it made."""


def told(run: Callable[[Collection[tuple[int, int]], Path], Ran], folder: Path, tries: int = 1,
         seconds: float = SECONDS, evidence: Callable[[], str] | None = None) -> str:
    """The smallest chain that fails: its calls, session by session, and its first violation. `run(left_out, folder)` runs it.
    `evidence` tells of one that does not fail again."""
    began = time.monotonic()
    steps, last = [], None

    def fails(kept: list[tuple[int, int]]) -> bool:
        nonlocal last
        if last is not None and time.monotonic() - began > seconds:
            return False
        left_out = set(steps) - set(kept)
        for _ in range(tries):
            found = run(left_out, folder)
            if found[0]:
                last = found
                return True
        return False
    for _ in range(tries):
        violations, made = run((), folder)
        if violations:
            steps, last = made.made, (violations, made)
            break
    if last is None:
        return f"\nit does not fail when it is run again; what it was:\n{evidence() if evidence else 'not known'}"
    smallest(list(steps), fails)
    violations, made = last
    lines = [f"session {number}:\n    " + "\n    ".join(map(shown, journal)) for number, journal in enumerate(made.journals)]
    return "\n".join([f"\nThe smallest chain that fails, of {len(made.made)} of {len(steps)} steps:", *lines, violations[0]])
