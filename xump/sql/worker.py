"""A worker: one pump that finishes what ended and claims for the free places in one statement, and places in which tasks run.

Nothing is claimed that has no place. While tasks run, their leases are renewed beside, on another connection; past its timeout a
task is not renewed, since its code hangs. A finish holds only while the attempt is this worker's: what another one claimed in the
meantime is counted as `lost`, and nothing is written.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from xump.sql.claims import Claims, end, give_back, is_mine
from xump.sql.dead import bury
from xump.sql.direct import Direct, is_direct
from xump.sql.hosts import Host
from xump.sql.moments import Now, delay_after, micros
from xump.sql.payload import lane_column, new_id, told
from xump.sql.relay import jittered
from xump.sql.schedules import Schedules
from xump.sql.transactions import AWAY, begun, in_own, own, refuse

if TYPE_CHECKING:
    from xump.sql.tasks import Spec, Tasks

logger = logging.getLogger("xump.sql")
BEAT_SECONDS = 2.0
"""How often a worker says that it lives."""
LEASE = 60_000_000
"""Of a task that is not known here."""
UNKNOWN_DELAY = 10_000_000
TOGETHER_SECONDS = 0.001


class LeaseLost(Exception):
    """Another worker has the task."""


@dataclass(eq=False)
class Job:
    """A task that runs here."""

    row: Any
    """The row that was claimed."""
    started: float
    """By the clock that never goes back."""
    spec: Spec | None
    """How it is run; None: no such task is known here."""
    error: BaseException | None = None
    """The exception that it raised."""
    ended_itself: bool = False
    """Whether it ended in its own transaction."""


class Worker:
    """Runs tasks. Made by `Tasks.worker`."""

    def __init__(
        self, tasks: Tasks, host: Host, *, concurrency: int, prefetch: int, lanes: Iterable[str] | None, poll: float,
        retry_time: float, giveup_time: float,
    ) -> None:
        for name, value, least in (("concurrency", concurrency, 1), ("prefetch", prefetch, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an int from {least} on, got {value!r}")
        if isinstance(lanes, str):
            raise TypeError(f"lanes must be a list of names, got {lanes!r}")
        _lanes = None if lanes is None else sorted({lane_column(lane) for lane in lanes})
        if _lanes == []:
            raise ValueError("lanes must have at least one name; leave it out for the lanes of the tasks that are known here")
        for name, seconds in (("poll", poll), ("retry_time", retry_time), ("giveup_time", giveup_time)):
            if micros(seconds, name) == 0 and name == "poll":
                raise ValueError(f"{name} must be more than 0 seconds, got {seconds!r}")
        self._tasks, self._host, self._tables = tasks, host, tasks.tables
        self._engine = own(host.engine, tasks.tables)
        _postgresql = host.engine.dialect.name == "postgresql"
        # A turn is one statement there: its own transaction, in one round trip.
        self._turns = host.engine.execution_options(isolation_level="AUTOCOMMIT") if _postgresql else self._engine
        self._direct: Direct | None = None
        self._places, self._concurrency = concurrency + prefetch, concurrency
        self._lanes = _lanes
        self._poll, self._retry_time, self._giveup_time = poll, retry_time, giveup_time
        self.id = new_id()
        """Its name beside the tasks that it has claimed."""
        self.finished = 0
        """How many tasks it has finished."""
        self.failed = 0
        """How many attempts failed."""
        self.lost = 0
        """How many tasks it ran whose lease was over, so that another worker may have run them, too."""
        self._taken = 0.0       # seconds in which places were taken, of all that ended
        self._schedules = Schedules(tasks)
        self._running: dict[Job, None] = {}
        self._ended: deque[Job] = deque()
        self._owed: list[Job] = []
        self._stopped = False
        self._event: Any = None
        self._claims: Claims | None = None
        self._due_in = math.inf         # seconds until the next task is due, as the last turn saw it
        self._was_away = False          # whether the database was, when it was asked last

    # ---- the pump

    def run(self) -> None:
        """Run tasks until `stop()`; what runs then is finished first."""
        self._pump(until_empty=False)

    def drain(self) -> int:
        """Run tasks until none is due. Returns how many were finished.

        Raises:
            DBAPIError: The database cannot be reached. Tasks that have ended meanwhile run again when their leases are over.
        """
        before = self.finished
        self._pump(until_empty=True)
        return self.finished - before

    def stop(self) -> None:
        """Have `run` return when what it runs has ended."""
        self._stopped = True
        if self._event is not None:
            self._event.set()

    def _pump(self, until_empty: bool) -> None:
        specs = self._tasks.specs.values()
        leases = {spec.name: spec.lease for spec in specs}
        lanes = self._lanes if self._lanes is not None else sorted({spec.lane for spec in specs} or {"default"})
        self._claims = Claims(self._tables, self.id, lanes, LEASE, self._tasks.keep is not None, leases)
        if is_direct(self._host.engine):
            self._direct = Direct(self._host.engine)
        self._event = event = self._host.event()
        leave = self._tasks.wake.join(event, self.id)
        self._announce()
        beating = self._host.every(min(BEAT_SECONDS, min(leases.values(), default=LEASE) / 3e6), self._beat)
        places = self._host.places(self._concurrency, self._places)
        pause = self._host.event()
        looks_until = next_look = 0.0
        try:
            while True:
                if self._ended and len(self._running) - len(self._ended) > self._concurrency:
                    # Some that were claimed wait for a place: they may end at once, too, and are finished in one turn then.
                    self._host.wait(pause, TOGETHER_SECONDS)
                woken = event.is_set()
                event.clear()
                now = time.monotonic()
                if woken:
                    looks_until = now + self._giveup_time
                stopping = self._stopped
                if stopping and not self._running and not self._ended:
                    return
                free = 0 if stopping else self._places - len(self._running) + len(self._ended) + len(self._owed)
                looking = free > 0 and (woken or now >= next_look)
                if looking or self._ended or self._owed:
                    claimed = self._patient_turn(places, free, until_empty)
                    if claimed is None:
                        continue
                    if claimed:
                        looks_until = 0.0
                    elif until_empty and not self._running and not self._ended:
                        return
                    if claimed and claimed >= free:
                        next_look = 0.0         # there may be more
                    elif free > 0:
                        wait = self._retry_time if now < looks_until else jittered(self._poll)
                        next_look = now + min(wait, self._due_in)
                if self._ended or self._owed or event.is_set() or self._stopped and not self._running:
                    continue
                full = len(self._running) >= self._places
                self._host.wait(event, self._poll if full or stopping else max(0.0, next_look - time.monotonic()))
        finally:
            try:
                places.end()
                self._last_turn(places)
            finally:
                beating()
                leave()
                if self._direct is not None:
                    self._direct.close()
                self._leave()

    def _patient_turn(self, places: Any, free: int, until_empty: bool) -> int | None:
        """A turn; None: it is to be tried again, since the database was away. If that does not help, `drain` raises."""
        try:
            claimed = self._turn(places, free)
            self._was_away = False
            return claimed
        except AWAY:
            if until_empty and self._was_away:
                raise
            self._was_away = True
            # Their leases hold for a while, and what they did is known here: it is written when the database is back.
            logger.exception("the worker cannot reach the database; it tries again")
            self._host.wait(self._host.event(), jittered(min(self._poll, 1.0)))
            return None

    def _last_turn(self, places: Any) -> None:
        """Write down what ended while it was waited for: the pump was cancelled, or an exception has ended it."""
        # What Ctrl-C has ended did not fail: the cleaner sees to it, as if the process had been killed.
        self._ended = deque(job for job in self._ended if not isinstance(job.error, KeyboardInterrupt))
        if self._ended or self._owed:
            try:
                self._turn(places, 0)
            except AWAY:
                logger.exception("the worker could not write down what has ended: it runs again when its lease is over")

    def _turn(self, places: Any, free: int) -> int:
        while self._ended:
            self._owed.append(self._ended.popleft())
        done = [job for job in self._owed if job.error is None and not job.ended_itself]
        for job in [job for job in self._owed if job.error is not None]:
            in_own(self._engine, partial(self._failed, job))
            self._settled(job)
        assert self._claims is not None
        mine, rows = self._one_turn([job.row for job in done], free)
        for job in list(self._owed):
            if job.ended_itself or job.row.id in mine:
                self.finished += 1
            else:
                self._lost(job)
            self._settled(job)
        for row in rows:
            job = Job(row, time.monotonic(), self._tasks.specs.get(row.name))
            self._running[job] = None
            places.start(self._work, job)
        return len(rows)

    def _one_turn(self, ended: list[Any], free: int) -> tuple[set[int], list[Any]]:
        claims = self._claims
        assert claims is not None

        def _work(connection: Connection | Direct) -> tuple[set[int], list[Any]]:
            mine, rows = claims.turn(connection, ended, free)
            if len(rows) < free:        # it will wait
                self._due_in = claims.due_in(connection)
            return mine, rows

        return _work(self._direct) if self._direct is not None else in_own(self._turns, _work)

    def _settled(self, job: Job) -> None:
        self._owed.remove(job)
        self._running.pop(job, None)
        self._taken += time.monotonic() - job.started

    def _lost(self, job: Job) -> None:
        self.lost += 1
        logger.warning("the lease of task %d (%s) was over before it was finished: it may have run twice", job.row.id,
                       job.row.name)

    # ---- one task

    def _work(self, job: Job) -> None:
        """In a place: a thread, or a task of the event loop. The pump is told, whatever happens."""
        try:
            if job.spec is None:
                raise LookupError(f"no task {job.row.name!r} is known here: import the module that has it, or use lanes")
            if job.row.codec != self._tasks.codec.name:
                raise ValueError(f"the arguments are written as {job.row.codec!r}, and this program reads "
                                 f"{self._tasks.codec.name!r}")
            arguments, named = self._tasks.codec.loads(bytes(job.row.payload))
            if job.spec.transaction:
                with self._engine.begin() as connection:
                    self._within(connection, job, arguments, named)
                job.ended_itself = True
            else:
                self._host.handle(_named(job.spec.function, named), None, *arguments)
        except BaseException as error:
            job.error = error
        self._ended.append(job)
        self._event.set()

    def _within(self, connection: Connection, job: Job, arguments: list[Any], named: dict[str, Any]) -> None:
        """No lock is held while the user's code runs: it would hold up the renewal of leases. The end alone decides."""
        assert job.spec is not None
        if not is_mine(connection, self._tables, job.row):
            raise LeaseLost
        began = begun(connection)
        self._host.handle(_named(job.spec.function, named), connection, *arguments)
        refuse(began)
        if not end(connection, self._tables, job.row, "done" if self._tasks.keep is not None else None):
            raise LeaseLost

    def _failed(self, job: Job, connection: Connection) -> None:
        row, spec = job.row, job.spec
        if isinstance(job.error, LeaseLost):
            self._lost(job)
            return
        assert job.error is not None
        said = f"{type(job.error).__name__}: {told(job.error)}"
        # One that is not known here waits for a worker that knows it: this program may be older than what enqueued it.
        dead = spec is not None and row.attempts >= spec.max_attempts
        logger.warning("task %d (%s) failed, attempt %d%s", row.id, row.name, row.attempts, ", it is dead" if dead else "",
                       exc_info=job.error)
        if dead:
            held = bury(connection, self._tasks, row, said)
        else:
            delay = delay_after(spec.retry_delay, row.attempts) if spec else UNKNOWN_DELAY
            back = partial(give_back, connection, self._tables, row, delay, said, tried=spec is not None)
            try:
                with connection.begin_nested():
                    held = back() is not None
            except IntegrityError:          # its key came to wait again in between
                held = back() is not None
        if held:
            self.failed += 1
        else:
            self._lost(job)

    # ---- presence

    def _announce(self) -> None:
        try:
            in_own(self._engine, self._arrive)
        except AWAY:
            logger.exception("the worker could not say that it is there: it says so with its next beat")

    def _arrive(self, connection: Connection) -> None:
        worker = self._tables.worker
        connection.execute(insert(worker).values(
            id=self.id, host=socket.gethostname(), pid=os.getpid(), started=Now(), seen=Now(), places=self._places))

    def _beat(self) -> None:
        now = time.monotonic()
        alive = [job.row for job in list(self._running)
                 if job.spec is None or now - job.started < job.spec.timeout / 1e6]

        def _work(connection: Connection) -> tuple[bool, int]:
            worker = self._tables.worker
            seen = connection.execute(update(worker).where(worker.c.id == self.id).values(
                seen=Now(), running=len(self._running), stopping=self._stopped, finished=self.finished, failed=self.failed,
                taken=round(self._taken * 1e6)))
            if not seen.rowcount:
                self._arrive(connection)
            assert self._claims is not None
            self._claims.renew(connection, alive)
            told = connection.execute(select(worker.c.stop).where(worker.c.id == self.id)).scalar_one()
            return told, self._schedules.fire(connection)

        try:
            told, fired = in_own(self._engine, _work)
        except AWAY:
            logger.exception("the worker could not renew its leases")
            return
        self._schedules.committed()
        if fired:
            self._tasks.wake.try_signal()
        if told and not self._stopped:
            logger.info("the worker was told to stop by a scaler")
            self.stop()

    def _leave(self) -> None:
        worker = self._tables.worker
        try:
            in_own(self._engine, lambda connection: connection.execute(delete(worker).where(worker.c.id == self.id)))
        except AWAY:
            logger.exception("the worker could not say that it ends: it counts as vanished soon")


def _named(function: Any, named: dict[str, Any]) -> Any:
    if not named:
        return function
    return lambda *arguments: function(*arguments, **named)
