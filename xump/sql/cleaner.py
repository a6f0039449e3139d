"""The cleaner sees to it that every task runs at last: those that were overlooked, and those whose worker died.

There may be any number of cleaners, and none leads: each transition is one transaction over rows that the others skip.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, exists, or_, select, update
from sqlalchemy.exc import IntegrityError

from xump.sql.claims import crashed, end, give_back
from xump.sql.dead import bury
from xump.sql.hosts import Host
from xump.sql.moments import Now, delay_after, micros
from xump.sql.relay import jittered
from xump.sql.schedules import Schedules
from xump.sql.transactions import AWAY, in_own, own

if TYPE_CHECKING:
    from xump.sql.tasks import Tasks

logger = logging.getLogger("xump.sql")
GRACE = 5_000_000
"""A worker that was not seen is not dead: its tasks are left alone for so long."""
MISSED = 6_000_000
"""Three beats."""
CHUNK = 5_000
BATCH = 100
UNKNOWN_MICROS = 60_000_000
"""For so long another cleaner may see to a task that is not known here, before it is missed."""
LEFT_MICROS = 604_800_000_000
"""How long merged and compensated tasks can be looked at if none are kept: a week."""
PRESENCE_SECONDS = 1.0
"""How often a broker is asked which workers are there."""


class Cleaner:
    """Looks after tasks. Made by `Tasks.cleaner`."""

    def __init__(self, tasks: Tasks, host: Host, interval: float) -> None:
        if micros(interval, "interval") == 0:
            raise ValueError(f"interval must be more than 0 seconds, got {interval!r}")
        self._tasks, self._host, self._engine, self._interval = tasks, host, own(host.engine, tasks.tables), interval
        self._schedules = Schedules(tasks)
        self._warned: set[str] = set()
        self._stopped = False
        self._event: Any = None

    def run(self) -> None:
        """Clean each interval, and as soon as a worker may have vanished, until `stop()`."""
        event = self._event = self._host.event()
        due, each = 0.0, PRESENCE_SECONDS if self._tasks.wake.tells_presence else self._interval
        while not self._stopped:
            now = time.monotonic()
            try:
                if now >= due:
                    due = now + jittered(min(self._interval, MISSED / 1e6))
                    gone = self.step()["vanished"]
                else:
                    gone = self._gone()
                if gone:
                    due = min(due, now + GRACE / 1e6)
            except AWAY:
                logger.exception("the cleaner cannot reach the database; it tries again")
            self._host.wait(event, max(0.0, min(due - time.monotonic(), each)))

    def stop(self) -> None:
        """Have `run` return."""
        self._stopped = True
        if self._event is not None:
            self._event.set()

    def step(self) -> dict[str, int]:
        """Clean once. Returns how many tasks were `retried`, `merged`, `compensated`, `dead` and `scheduled`; and workers
        `vanished`."""
        counts = dict.fromkeys(("retried", "merged", "compensated", "dead", "vanished", "scheduled"), 0)
        counts["scheduled"] = in_own(self._engine, self._schedules.fire)
        self._schedules.committed()
        counts["vanished"] = self._gone()
        while True:
            outcomes = in_own(self._engine, self._crashed)
            for outcome in outcomes:
                counts[outcome] += 1
            if not outcomes:
                break
        if counts["retried"] or counts["scheduled"] or in_own(self._engine, self._overlooked):
            self._tasks.wake.try_signal()
        self._warn_of_unknown()
        self._forget()
        return counts

    def _warn_of_unknown(self) -> None:
        """Tasks whose worker died, and of which it is not known here what to do with them: another cleaner's, or nobody's."""
        task = self._tasks.tables.task
        over = (select(task.c.name).where(task.c.start_time.is_not(None), task.c.lease_until < Now() - UNKNOWN_MICROS)
                .order_by(task.c.lease_until).limit(BATCH))
        names = set(in_own(self._engine, lambda connection: connection.execute(over).scalars().all()))
        unknown = sorted(names - set(self._tasks.specs) - self._warned)
        if unknown:
            self._warned.update(unknown)
            logger.warning("workers of the tasks %s have ended, and no cleaner has seen to them: run a cleaner of the module "
                           "that has them", ", ".join(unknown))

    def _gone(self) -> int:
        """Workers that were not seen for three beats, or that the broker says have gone, if workers are woken by one."""
        absent: set[str] = set()
        if self._tasks.wake.tells_presence:
            known = select(self._tasks.tables.worker.c.id)
            names = in_own(self._engine, lambda connection: set(connection.execute(known).scalars()))
            absent = self._host.call(self._tasks.wake.absent, names)
        return in_own(self._engine, partial(self._vanished, absent))

    def _vanished(self, absent: set[str], connection: Connection) -> int:
        """The tasks of workers that have gone come back after a grace, if nothing renews them."""
        worker, task = self._tasks.tables.worker, self._tasks.tables.task
        over = or_(worker.c.seen < Now() - MISSED, worker.c.id.in_(absent)) if absent else worker.c.seen < Now() - MISSED
        gone = list(connection.execute(select(worker.c.id).where(over).with_for_update(skip_locked=True)).scalars())
        if gone:
            connection.execute(update(task).where(task.c.worker.in_(gone), task.c.start_time.is_not(None),
                                                  task.c.lease_until > Now() + GRACE).values(lease_until=Now() + GRACE))
            connection.execute(delete(worker).where(worker.c.id.in_(gone)))
        return len(gone)

    def _crashed(self, connection: Connection) -> list[str]:
        names = sorted(self._tasks.specs)
        return [self._transition(connection, row) for row in crashed(connection, self._tasks.tables, names, BATCH)]

    def _transition(self, connection: Connection, row: Any) -> str:
        tasks = self._tasks
        spec = tasks.specs[row.name]
        what = spec.on_crash
        said = f"its worker {row.worker} ended, or hung, in attempt {row.attempts}"
        if what == "retry" and row.attempts < spec.max_attempts:
            delay = delay_after(spec.retry_delay, row.attempts)
            try:
                with connection.begin_nested():
                    outcome = give_back(connection, tasks.tables, row, delay, said)
            except IntegrityError:          # its key came to wait again in between
                outcome = give_back(connection, tasks.tables, row, delay, said)
            return outcome or "retried"
        if what in ("retry", "dead"):
            bury(connection, tasks, row, said)
            return "dead"
        end(connection, tasks.tables, row, "compensated", said)
        tasks._compensate(connection, what, row)
        return "compensated"

    def _overlooked(self, connection: Connection) -> bool:
        task = self._tasks.tables.task
        late = exists().where(task.c.start_time.is_(None), task.c.due < Now() - micros(2 * self._interval, "interval"))
        return bool(connection.execute(select(late)).scalar())

    def _forget(self) -> None:
        """Delete what was kept long enough, 5,000 a transaction. Dead tasks stay until you drop them."""
        done, keep = self._tasks.tables.done, self._tasks.keep
        # Another program may keep those that are done.
        which = done.c.outcome.in_(["merged", "compensated"]) if keep is None else done.c.outcome != "dead"
        old = (select(done.c.id).where(done.c.finish_time < Now() - (LEFT_MICROS if keep is None else keep), which)
               .order_by(done.c.finish_time).limit(CHUNK).with_for_update(skip_locked=True))

        def _work(connection: Connection) -> int:
            ids = list(connection.execute(old).scalars())
            return connection.execute(delete(done).where(done.c.id.in_(ids))).rowcount if ids else 0

        while in_own(self._engine, _work) == CHUNK:
            pass
