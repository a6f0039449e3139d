"""The numbers of outbox, inbox and tasks, looked at each so often: for the broker's live page and `/metrics`, or your own.

A look asks the database, which may take its time. So it is taken in a thread of its own, and what asks for the numbers gets those
of the last look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from xump.sql.hosts import Host, ThreadHost
from xump.sql.inbox import Inbox
from xump.sql.moments import micros
from xump.sql.outbox import Outbox
from xump.sql.tasks import Tasks
from xump.sql.transactions import AWAY, in_own, own

logger = logging.getLogger("xump.sql")

COUNTS = {"outbox": "sent", "inbox": "handled", "tasks": "finished"}
"""The counts of a relay, a processor and a worker."""
Numbers = dict[str, float]
"""By name."""


class Metrics:
    """Looks at what is in the tables, and at how much was done.

    Args:
        engine: The database.
        outbox, inbox, tasks: The ones to look at.
        loops: The relays, processors and workers of this process: their counts give the rates.
        every: After how many seconds `run` looks again.

    >>> from sqlalchemy import create_engine
    >>> from xump.sql import Metrics, Outbox, configure_sqlite, init
    >>> database = configure_sqlite(create_engine("sqlite://"))
    >>> init(database)
    >>> Metrics(database, outbox=Outbox()).look()["outbox"]["waiting"]
    0
    """

    def __init__(
        self, engine: Engine, *, outbox: Outbox | None = None, inbox: Inbox | None = None, tasks: Tasks | None = None,
        loops: Mapping[str, list[Any]] | None = None, every: float = 5.0,
    ) -> None:
        if micros(every, "every") == 0:
            raise ValueError(f"every must be more than 0 seconds, got {every!r}")
        _given = {"outbox": outbox, "inbox": inbox, "tasks": tasks}
        self._each: dict[str, Any] = {name: one for name, one in _given.items() if one is not None}
        _unknown = set(loops or ()) - set(self._each)
        if _unknown or not self._each:
            raise ValueError("give at least one of outbox, inbox, tasks, and loops only of those, by these names; "
                             f"got {sorted(self._each)} and loops of {sorted(loops or ())}")
        self._engine, self._loops, self._every = own(engine), dict(loops or {}), every
        self._then: tuple[float, dict[str, int]] | None = None
        self._plain = engine
        self._stopped = False
        self._event: Any = None
        self.numbers: dict[str, Numbers] = {name: {} for name in self._each}
        """As the last look had them: by `"outbox"`, `"inbox"`, `"tasks"`, then by name."""

    def look(self) -> dict[str, Numbers]:
        """Ask the database now. Cost: that of `stats()` of each.

        Returns:
            The answer of each one's `stats()`, and `per_second`: how much its `loops` did since the last look.
        """
        found = in_own(self._engine, lambda connection: {name: one.stats(connection) for name, one in self._each.items()})
        now = time.monotonic()
        done = {name: sum(getattr(loop, COUNTS[name]) for loop in loops) for name, loops in self._loops.items()}
        for name, count in done.items():
            then, before = self._then or (now, done)
            found[name]["per_second"] = (count - before[name]) / (now - then) if now > then else 0.0
        self._then, self.numbers = (now, done), found
        return found

    def run(self) -> None:
        """Look each `every` seconds, until `stop()`."""
        self._run(ThreadHost(self._plain))

    def _run(self, host: Host) -> None:
        self._event = host.event()
        while not self._stopped:
            try:
                self.look()
            except AWAY:
                logger.exception("the numbers cannot be asked for; those of the last look stay")
            if not self._stopped:
                host.wait(self._event, self._every)

    def stop(self) -> None:
        """Have `run` return."""
        self._stopped = True
        if self._event is not None:
            self._event.set()

    def show_on(self, broker: Any) -> None:
        """Show the numbers on the live page of an `xump.broker.Broker`, and in its `/metrics`."""
        for name in self._each:
            broker.beside[name] = lambda name=name: self.numbers[name]
