"""How many workers there should be: a decision from what is seen, with hysteresis. It reads no database, and starts no process.

The rate of a worker is what it finishes while its places are taken. Tasks arrive as fast as they end, plus what waits more than
before: nothing is counted at enqueueing. More workers come soon, at most twice as many at a time; fewer come late, one at a time,
so that a load that comes and goes does not start and end processes each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TAU_SECONDS = 30.0
"""Rates are means over about so long."""
CLEAR_SECONDS = 60.0
"""The tasks that wait should be done in so long."""
UP_LOOKS = 2
"""So many looks in a row must ask for more."""
DOWN_SECONDS = 60.0
"""For so long fewer must have been enough."""
DOWN_EACH_SECONDS = 10.0
DOWN_SHARE = 0.7
FEW = 3
"""Of so few, 0.7 is no whole worker less: there the load decides."""


@dataclass(frozen=True)
class Seen:
    """The result of a look at the tables. Counts of tasks that ended are those since the look before."""

    workers: int
    """How many run, or were started just now."""
    waiting: int
    """Tasks that are due and wait."""
    running: int
    """Tasks that run."""
    finished: int = 0
    """Tasks that were finished."""
    failed: int = 0
    """Attempts that failed; they wait again, or are dead."""
    taken: float = 0.0
    """For how many seconds places were taken by what ended, added up, as shares of their worker: a worker whose eight places were
    all taken for a second has 1."""
    busy: float = 0.0
    """How many workers' places are taken now."""


class Policy:
    """Decides. One for each scaler.

    >>> policy = Policy(1, 8)
    >>> policy.decide(0.0, Seen(workers=0, waiting=0, running=0))
    1
    """

    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum, self._maximum = minimum, maximum
        self._at: float | None = None
        self._open = 0
        self._ended = self._taken = self._arrived = 0.0     # means, each a second
        self._busy = 0.0
        self._more = 0
        self._fewer_since: float | None = None
        self._fewer_at = -math.inf
        self.rate: float | None = None
        """Tasks that one worker ends in a second; None: not known yet."""
        self.need = 0
        """How many workers the load asks for."""

    def decide(self, now: float, seen: Seen) -> int:
        """How many workers there should be, at a time by a clock that never goes back."""
        self._learn(now, seen)
        workers = max(self._minimum, min(seen.workers, self._maximum))
        if workers != seen.workers:
            self._more, self._fewer_since = 0, None
            return workers
        self.need = self._needed(seen)
        self._more = self._more + 1 if self.need > workers else 0
        if self._more >= UP_LOOKS:
            self._more = 0
            return min(self.need, 2 * workers, self._maximum)
        return self._fewer(now, workers)

    def _learn(self, now: float, seen: Seen) -> None:
        ended = seen.finished + seen.failed
        if self._at is not None and now > self._at:
            seconds = now - self._at
            share = 1 - math.exp(-seconds / TAU_SECONDS)
            arrived = ended + seen.waiting + seen.running - self._open
            self._ended += share * (ended / seconds - self._ended)
            self._taken += share * (seen.taken / seconds - self._taken)
            self._arrived += share * (arrived / seconds - self._arrived)
            self._busy += share * (seen.busy - self._busy)
            if self._taken > 1e-6 and self._ended > 1e-6:
                self.rate = self._ended / self._taken
        self._at, self._open = now, seen.waiting + seen.running

    def _needed(self, seen: Seen) -> int:
        if self.rate is None:           # try one more, if they have enough to do
            return min(self._maximum, seen.workers + 1) if seen.waiting else max(self._minimum, math.ceil(self._busy))
        need = math.ceil((max(0.0, self._arrived) + seen.waiting / CLEAR_SECONDS) / self.rate - 1e-9)
        return max(self._minimum, min(need, self._maximum))

    def _fewer(self, now: float, workers: int) -> int:
        if workers > FEW:
            enough = self.need <= DOWN_SHARE * workers
        else:
            enough = self.need < workers and self._busy < DOWN_SHARE * (workers - 1)
        if not enough:
            self._fewer_since = None
        elif self._fewer_since is None:
            self._fewer_since = now
        if (self._fewer_since is None or now - self._fewer_since < DOWN_SECONDS or now - self._fewer_at < DOWN_EACH_SECONDS
                or workers == self._minimum):
            return workers
        self._fewer_at = now
        return workers - 1
