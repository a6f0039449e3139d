"""The scaler: processes of workers, started and ended as the load asks. The rule by which it decides is in `scaling`.

Any number may run, and one decides: it has a lease in a row. Workers are counted by their own rows, so it does not matter who
started them: after a scaler was killed, its workers go on, and the next one counts them, and tells them to stop by their rows.
"""

from __future__ import annotations

import logging
import shlex
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, insert, literal_column, null, select, true, update
from sqlalchemy.exc import IntegrityError

from xump.sql.claims import PRIORITY_MAX
from xump.sql.cleaner import MISSED
from xump.sql.hosts import Host
from xump.sql.moments import Now, micros
from xump.sql.payload import new_id
from xump.sql.scaling import Policy, Seen
from xump.sql.transactions import AWAY, in_own, own

if TYPE_CHECKING:
    from xump.sql.tasks import Tasks

logger = logging.getLogger("xump.sql")
NAME = "scaler"
WAITING_MAX = 100_000
"""So many are counted; more would change no decision, and cost time."""
START_SECONDS = 30.0
"""For so long a process counts as a worker that has not said so yet."""
LOOKS_A_LEASE = 3
REAP_SECONDS = 0.05


@dataclass(eq=False)
class Child:
    """A process that was started here."""

    process: subprocess.Popen[bytes]
    """It."""
    started: float
    """By the clock that never goes back."""
    killed_at: float | None = None
    """When it is killed if it has not ended; None: it was not told to end."""


class Scaler:
    """Starts and ends workers. Made by `Tasks.scaler`."""

    def __init__(
        self, tasks: Tasks, host: Host, command: str | Iterable[str], minimum: int, maximum: int, drain: float, interval: float,
    ) -> None:
        for name, value, least in (("minimum", minimum, 1), ("maximum", maximum, minimum)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int from {least} on, got {value!r}")
        if micros(interval, "interval") == 0:
            raise ValueError(f"interval must be more than 0 seconds, got {interval!r}")
        micros(drain, "drain")
        self._command = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        if not self._command:
            raise ValueError("command must be the command line of a worker, such as 'xump sql worker shop.tasks', got nothing")
        self._tasks, self._host, self._engine = tasks, host, own(host.engine, tasks.tables)
        self._maximum, self._drain, self._interval = maximum, drain, interval
        self._lease = micros(LOOKS_A_LEASE * interval, "interval")
        self._policy = Policy(minimum, maximum)
        self._children: list[Child] = []
        self._counts: dict[str, tuple[int, int, int]] | None = None
        self._stopped = False
        self._event: Any = None
        self.id = new_id()
        """Its name beside its lease."""
        self.workers = 0
        """How many workers it saw last."""

    def run(self) -> None:
        """Look each interval until `stop()`; then the workers that were started here are ended."""
        event = self._event = self._host.event()
        try:
            while not self._stopped:
                try:
                    self.step()
                except AWAY:
                    logger.exception("the scaler cannot reach the database; it tries again")
                if not self._stopped:
                    self._host.wait(event, self._interval)
        finally:
            self.close()

    def stop(self) -> None:
        """Have `run` return when the workers that were started here have ended."""
        self._stopped = True
        if self._event is not None:
            self._event.set()

    def step(self) -> int:
        """Look once, and start or end what the load asks for. Returns how many workers there should be; 0: another one decides.

        Cost: by index, O(tasks that wait), at most 100,000.
        """
        self._reap()
        found = in_own(self._engine, self._look)
        if found is None:
            return 0
        rows, waiting, running = found
        own_pids = {child.process.pid: child for child in self._children}
        here = socket.gethostname()
        working = [row for row in rows if not self._is_told(row, here, own_pids)]
        known = {row.pid for row in rows if row.host == here}
        starting = [child for child in self._children if child.killed_at is None and child.process.pid not in known
                    and time.monotonic() - child.started < START_SECONDS]
        self.workers = len(working) + len(starting)
        target = self._policy.decide(time.monotonic(), self._seen(rows, waiting, running))
        if target != self.workers:
            logger.info("%d workers become %d: %d tasks wait, %d run", self.workers, target, waiting, running)
        if target > self.workers:
            self._start(target - self.workers)
        elif target < self.workers:
            self._end(self.workers - target, working, here)
        return target

    @staticmethod
    def _is_told(row: Any, here: str, own_pids: dict[int, Child]) -> bool:
        child = own_pids.get(row.pid) if row.host == here else None
        return bool(row.stopping or row.stop or (child is not None and child.killed_at is not None))

    # ---- looking

    def _look(self, connection: Connection) -> tuple[list[Any], int, int] | None:
        if not self._leads(connection):
            return None
        worker, task = self._tasks.tables.worker, self._tasks.tables.task
        alive = select(worker).where(worker.c.seen >= Now() - MISSED).order_by(worker.c.started, worker.c.id)
        rows = list(connection.execute(alive))
        lanes = sorted({spec.lane for spec in self._tasks.specs.values()} or {"default"})
        ready = (select(literal_column("1")).select_from(task).where(
            task.c.lane.in_(lanes), task.c.priority.in_(range(PRIORITY_MAX + 1)), task.c.start_time.is_(None),
            task.c.due <= Now()).limit(WAITING_MAX).subquery())
        waiting = connection.execute(select(func.count()).select_from(ready)).scalar_one()
        started = select(func.count()).where(task.c.start_time.is_not(None), task.c.lane.in_(lanes))
        running = connection.execute(started).scalar_one()
        return rows, waiting, running

    def _leads(self, connection: Connection) -> bool:
        table = self._tasks.tables.scaler
        held = {"owner": self.id, "until": Now() + self._lease}
        free = (table.c.owner == self.id) | (table.c.owner.is_(None)) | (table.c.until <= Now())
        if connection.execute(update(table).where(table.c.name == NAME, free).values(**held)).rowcount:
            return True
        if connection.execute(select(table.c.name).where(table.c.name == NAME)).first() is not None:
            return False
        try:
            with connection.begin_nested():
                connection.execute(insert(table).values(name=NAME, **held))
        except IntegrityError:          # another one was as quick
            return False
        return True

    def _seen(self, rows: list[Any], waiting: int, running: int) -> Seen:
        """The change of the counts since the look before. Those of a worker that has gone since then are not known."""
        before, self._counts = self._counts, {row.id: (row.finished, row.failed, row.taken) for row in rows}
        finished, failed, taken, busy = 0, 0, 0.0, 0.0
        for row in rows:
            places = max(1, row.places)
            busy += min(1.0, row.running / places)
            if before is None:
                continue
            old = before.get(row.id, (0, 0, 0))
            finished += row.finished - old[0]
            failed += row.failed - old[1]
            taken += (row.taken - old[2]) / 1e6 / places
        return Seen(self.workers, waiting, running, finished, failed, taken, busy)

    # ---- processes

    def _start(self, count: int) -> None:
        for _ in range(min(count, self._maximum - len(self._children))):
            try:
                process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)
            except OSError as error:
                logger.error("the scaler cannot start a worker by %s: %s", self._command, error)
                return
            self._children.append(Child(process, time.monotonic()))

    def _end(self, count: int, working: list[Any], here: str) -> None:
        """End so many: the newest of those that were started here; if these are not enough, others by their rows."""
        ours = [child for child in self._children if child.killed_at is None][-count:]
        for child in ours:
            self._tell(child)
        pids = {child.process.pid for child in self._children}
        others = [row.id for row in reversed(working) if not (row.host == here and row.pid in pids)][:count - len(ours)]
        if others:
            worker = self._tasks.tables.worker
            in_own(self._engine, lambda connection: connection.execute(
                update(worker).where(worker.c.id.in_(others)).values(stop=true())))

    def _tell(self, child: Child) -> None:
        child.process.terminate()
        child.killed_at = time.monotonic() + self._drain

    def _reap(self) -> None:
        """Forget those that have ended, and kill those that were told to end too long ago."""
        for child in list(self._children):
            code = child.process.poll()
            if code is None and child.killed_at is not None and time.monotonic() >= child.killed_at:
                logger.warning("the worker of process %d did not end within %g s, and is killed", child.process.pid, self._drain)
                child.process.kill()
                code = child.process.wait()
            if code is None:
                continue
            self._children.remove(child)
            if child.killed_at is None:
                logger.warning("the worker of process %d ended by itself, with code %d", child.process.pid, code)

    def close(self) -> None:
        """End the workers that were started here, and let another scaler decide. `run` calls it; after `step`, you do."""
        for child in self._children:
            if child.killed_at is None:
                self._tell(child)
        pause = self._host.event()
        while self._children:
            self._reap()
            if self._children:
                self._host.wait(pause, REAP_SECONDS)
        table = self._tasks.tables.scaler
        try:
            in_own(self._engine, lambda connection: connection.execute(
                update(table).where(table.c.owner == self.id).values(owner=null(), until=0)))
        except AWAY:
            logger.exception("the scaler could not say that it ends: another one decides when its lease is over")
