"""Commits, visible whole: attempts are staged, each in a queue of its own; a commit decides; then all enters, step by step.

    stage       a do_put stream into `xump.staging/TARGET/RUN/PARTITION-ATTEMPT`, in the store of the target; `seal` ends it, and
                is answered when all of it is durable. A stream that breaks off leaves nothing
    commit      the target adopts the attempts that are given, in that order, in one step with its map, where it is remembered.
                All other attempts of the run are dropped
    abort       drops the run, unless it was committed before

A run is of one target: whoever may write to another queue has a run of the same name there, and touches nothing of this one.

The engine decides: whatever dies, either nothing was adopted, or all. Decisions of one engine are taken one after the other.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow

from xump.broker.flight import decisions
from xump.broker.flight.attempts import STAGED, Attempt, Run, attempt_of, is_ours, run_of, winners_of
from xump.broker.flight.calls import Call, wait_durable
from xump.broker.flight.chunks import chunks, json_object
from xump.broker.flight.decisions import ABORTED, COMMITTED, DROPPED, Decision, Key, as_key
from xump.broker.flight.entering import LONGER, Entering
from xump.broker.permissions import is_staged
from xump.errors import Conflict, QueueNotFound, StoreFull, TransactionError

if TYPE_CHECKING:
    from xump.broker.limits import Limits
    from xump.engine import Engine
    from xump.queue import Queue

logger = logging.getLogger("xump")

COMMIT_SECONDS = 20.0
"""So long a commit waits for all to enter; then it answers that this goes on. The client asks again."""


class Staging:
    """The attempts that are staged in an engine."""

    def __init__(self, engine: Engine, limits: Limits, entering: Entering) -> None:
        self._engine = engine
        self._limits = limits
        self._entering = entering
        self._lock = threading.RLock()
        self._attempts: dict[tuple[Run, int, int], Attempt] = {}
        self._alive: dict[Run, float] = {}      # the last sign of life, monotonic
        self._open: dict[Run, int] = {}         # streams that are open
        self._entering_bytes: dict[str, int] = {}       # staged queues that were adopted

    def start(self) -> None:
        """Go on with what a reopened store has: sealed attempts wait for their commit, others go; what was decided enters."""
        targets: dict[str, list[int]] = {}
        for name, queue in list(self._engine.queues.items()):
            if not (is_ours(queue) and is_staged(name)):
                continue
            attempt = Attempt.read(name, queue.meta[STAGED])
            if queue.adopted_by is not None:
                found = targets.setdefault(queue.adopted_by, [0, 0])
                found[0] += max(attempt.rows, 1)
                found[1] += attempt.bytes
                self._entering_bytes[name] = attempt.bytes
            elif attempt.sealed:
                self._attempts[attempt.number] = attempt
                self._sign_of_life(attempt.of)
            else:
                self._engine.delete_queue(name)
        for target, (rows, size) in targets.items():
            self._entering.begin(target, rows, size)

    # ---- staging

    def stage(self, options: dict[str, Any]) -> tuple[Attempt, Decision | None]:
        """The attempt that is to be staged, and what was decided of its version. Raises if its run was decided."""
        attempt = attempt_of(options)
        with self._lock:
            target = self._target(attempt.target)
            attempt.incarnation = target.incarnation
            decision = decisions.find(target.meta, attempt.run, attempt.key)
            if decision is not None and (attempt.key is None or decision.state != COMMITTED):
                raise decided(attempt.run, decision)
            if decision is None and attempt.of in self._alive:
                self._sign_of_life(attempt.of)
            return attempt, decision

    def _target(self, name: str) -> Queue:
        queue = self._engine.queues.get(name)
        if queue is None:
            raise QueueNotFound(f"no queue {name!r}")
        if queue.staged or queue.transit:
            what = "is staged itself" if queue.staged else "is a transit queue, which keeps nothing"
            raise ValueError(f"queue {name!r} {what}: stage for a queue that keeps its messages")
        return queue

    def begin(self, attempt: Attempt) -> None:
        """A stream begins."""
        with self._lock:
            if attempt.number in self._attempts:
                raise Conflict(f"attempt {attempt.attempt} of partition {attempt.partition} of run {attempt.run!r} is staged "
                               "already: stage with another number")
            self._attempts[attempt.number] = attempt
            self._open[attempt.of] = self._open.get(attempt.of, 0) + 1
            self._sign_of_life(attempt.of)

    def end(self, attempt: Attempt) -> None:
        """A stream has ended; if it was not sealed, nothing of it is left."""
        with self._lock:
            self._open[attempt.of] -= 1
            if not self._open[attempt.of]:
                del self._open[attempt.of]
            if not attempt.sealed:
                self._drop(attempt)
                if not any(one.of == attempt.of for one in self._attempts.values()):
                    self._alive.pop(attempt.of, None)

    def add(self, attempt: Attempt, batch: pyarrow.RecordBatch, size: int) -> None:
        """Stage a batch, of so many bytes. Raises `StoreFull`, and `TransactionError` if the run was decided meanwhile."""
        with self._lock:
            self._check_here(attempt)
            if attempt.sealed:
                raise ValueError("this attempt is sealed, and takes no more rows")
            used = sum(one.bytes for one in self._attempts.values()) + self._still_entering()
            if used + size > self._limits.staging_bytes:
                raise StoreFull(
                    f"{used} bytes are staged in the broker, and {size} more are beyond its staging_bytes, "
                    f"{self._limits.staging_bytes}: commit or abort other runs, or allow it more")
            self._make_queue(attempt)
            attempt.bytes += size
            self._sign_of_life(attempt.of)
        try:
            attempt.rows += len(self._engine.publish_batch(attempt.name, batch))
        except QueueNotFound:
            self._check_here(attempt)
            raise

    def _make_queue(self, attempt: Attempt) -> None:
        """Make its queue, unless it is there. Raises `Conflict` if it is none of ours."""
        found = self._engine.queues.get(attempt.name)
        if found is None:
            store = self._target(attempt.target).store.name
            self._engine.create_queue(attempt.name, staged=True, store=store, meta={STAGED: attempt.kept()})
        elif not is_ours(found):
            raise Conflict(f"there is a queue {attempt.name!r} that was not made by staging: have it deleted, or stage with "
                           "another number")

    def seal(self, attempt: Attempt, rows: object, check_open: Callable[[], None]) -> int:
        """All of it is there: how many rows, once they are durable. Raises ValueError if the sender counted others."""
        if type(rows) is not int or rows != attempt.rows:
            raise ValueError(f"{attempt.rows} rows came, and {rows!r} were sent: stage anew, with another number")
        with self._lock:
            self._check_here(attempt)
            attempt.sealed = True
            if attempt.rows:
                try:
                    self._engine.queues[attempt.name].meta[STAGED] = attempt.kept()
                except BaseException:
                    attempt.sealed = False
                    raise
            self._sign_of_life(attempt.of)
        wait_durable(self._engine, check_open)
        return attempt.rows

    def _has_target(self, attempt: Attempt) -> bool:
        """Whether the queue is there for which it is staged, and not another one of that name."""
        queue = self._engine.queues.get(attempt.target)
        return queue is not None and queue.incarnation == attempt.incarnation

    def _check_here(self, attempt: Attempt) -> None:
        if not self._has_target(attempt):
            raise TransactionError(f"queue {attempt.target!r}, for which run {attempt.run!r} is staged, was deleted: stage it "
                                   "anew, as another run")
        if attempt.gone:
            raise TransactionError(f"run {attempt.run!r} was decided without attempt {attempt.attempt} of partition "
                                   f"{attempt.partition}")

    def _still_entering(self) -> int:
        """The bytes of staged queues whose rows have not entered yet."""
        for name in [name for name in self._entering_bytes if name not in self._engine.queues]:
            del self._entering_bytes[name]
        return sum(self._entering_bytes.values())

    # ---- deciding

    def commit(self, options: dict[str, Any], check_open: Callable[[], None]) -> dict[str, Any]:
        """Let the winners enter, whole, once. The answer says how many rows, whether that was decided `again`, whether all have
        `entered`, and what is strange."""
        run, key, winners = run_of(options), as_key(options.get("key")), winners_of(options)
        target = options.get("target")
        rows = sum(winner[2] for winner in winners)
        mark, warning = None, None
        with self._lock:
            queue = self._target(str(target))
            decision = decisions.find(queue.meta, run, key)
            if decision is None:
                mark = self._adopt(queue, run, key, winners, rows)
            elif decision.state != COMMITTED:
                raise decided(run, decision)
            else:
                decisions.remember_use(queue.meta, key)
            if decision is not None and decision.rows != rows:
                warning = (f"{rows} rows were given now, and {decision.rows} were committed before, which count: the query does "
                           "not give the same rows each time")
            self._drop_run((queue.name, run), key)
            if mark is None:
                mark = self._entering.begin(queue.name, 0, 0)
        wait_durable(self._engine, check_open)
        left = self._entering.wait(queue.name, mark, COMMIT_SECONDS, check_open)
        if left is None:
            wait_durable(self._engine, check_open)
        return {"rows": rows if decision is None else decision.rows, "again": decision is not None, "entered": left is None,
                "longer": left == LONGER, "run": run if decision is None else decision.run,
                "warning": warning if warning is not None else left}

    def _adopt(self, queue: Queue, run: str, key: Key | None, winners: list[tuple[int, int, int]], rows: int) -> int:
        attempts = []
        for partition, number, count in winners:
            attempt = self._attempts.get(((queue.name, run), partition, number))
            if count == 0:
                continue
            if attempt is None or not attempt.sealed:
                raise TransactionError(
                    f"attempt {number} of partition {partition} of run {run!r} is not staged for {queue.name!r}: nothing was "
                    "published by this call. It may never have been sealed, or was lost with a store in RAM: then run the job "
                    f"again. Or the run was committed, and {decisions.RUNS_MAX} others without a key have been since: then look "
                    "whether its rows are there")
            self._check_here(attempt)
            if attempt.key != key:
                raise TransactionError(
                    f"attempt {number} of partition {partition} of run {run!r} is staged with key={attempt.key!r}, and the "
                    f"commit has key={key!r}: give both the same. Nothing was published")
            if attempt.rows != count:
                raise TransactionError(f"attempt {number} of partition {partition} of run {run!r} has {attempt.rows} rows, not "
                                       f"{count}: nothing was published")
            attempts.append(attempt)
        self._engine.adopt(queue, [(attempt.name, attempt.rows) for attempt in attempts],
                           meta=decisions.changes(queue.meta, run, key, COMMITTED, rows))
        size = 0
        for attempt in attempts:
            del self._attempts[attempt.number]
            self._entering_bytes[attempt.name] = attempt.bytes
            size += attempt.bytes
        return self._entering.begin(queue.name, rows, size)

    def abort(self, options: dict[str, Any], check_open: Callable[[], None]) -> dict[str, Any]:
        """Drop a run, unless it was committed: the answer says what it is now."""
        run, target = run_of(options), options.get("target")
        with self._lock:
            queue = self._target(str(target))
            decision = decisions.find_run(queue.meta, run)
            if decision is None:
                queue.meta._change(list(decisions.changes(queue.meta, run, None, ABORTED, 0).items()))
                self._drop_run((queue.name, run))
        wait_durable(self._engine, check_open)
        return {"state": ABORTED if decision is None else decision.state, "again": decision is not None}

    def look_after(self, now: float) -> None:
        """Drop runs that have given no sign of life for too long, and what waits for a target that was deleted."""
        with self._lock:
            for attempt in list(self._attempts.values()):
                if attempt.sealed and not self._has_target(attempt):
                    self._drop(attempt)
            for run in self._open:
                self._alive[run] = now
            for run in [run for run, seen in self._alive.items() if now - seen >= self._limits.staging_seconds]:
                why = f"it had given no sign of life for {self._limits.staging_seconds:g} seconds"
                logger.warning("the staged messages of run %r for queue %r are dropped: %s", run[1], run[0], why)
                self._note_dropped(run, why)
                self._drop_run(run)

    def _note_dropped(self, run: Run, why: str) -> None:
        target, name = run
        queue = self._engine.queues.get(target)
        if queue is None or not any(one.of == run for one in self._attempts.values()):
            return
        try:
            queue.meta._change(list(decisions.changes(queue.meta, name, None, DROPPED, 0, why).items()))
        except StoreFull as error:              # to drop it makes room, so that must not depend on room
            logger.warning("a commit of run %r will not be told why it was dropped: %s", name, error)

    def _drop_run(self, run: Run, key: Key | None = None) -> None:
        """Drop what is staged of a run; and for its target, of the same application with a version that is not later."""
        for attempt in list(self._attempts.values()):
            if attempt.of == run or (key is not None and attempt.key is not None and attempt.target == run[0]
                                     and attempt.key[0] == key[0] and attempt.key[1] <= key[1]):
                self._drop(attempt)
        self._alive.pop(run, None)

    def _drop(self, attempt: Attempt) -> None:
        attempt.gone = True
        if self._attempts.get(attempt.number) is attempt:
            del self._attempts[attempt.number]
            queue = self._engine.queues.get(attempt.name)
            if queue is not None and is_ours(queue):
                self._engine.delete_queue(attempt.name)

    def _sign_of_life(self, run: Run) -> None:
        self._alive[run] = time.monotonic()


def decided(run: str, decision: Decision) -> TransactionError:
    """The error for a run that was decided."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(decision.at))
    why = f", since {decision.why}" if decision.why else ""
    return TransactionError(f"run {run!r} was {decision.state} at {at}{why}: nothing was published by this call")


def stage_stream(call: Call, staging: Staging, options: Any, reader: Any, writer: Any) -> None:
    """A stream that stages, until it is sealed."""
    if not isinstance(options, dict):
        raise ValueError(f"stage={options!r}: expected an object")
    call.check("write", str(options.get("target")))
    attempt, decision = staging.stage(options)
    if decision is not None:
        raise decided(attempt.run, decision)
    staging.begin(attempt)
    try:
        for chunk in chunks(call, reader):
            if chunk.data is not None and chunk.data.num_rows:
                staging.add(attempt, chunk.data, chunk.bytes)
            elif chunk.data is not None:
                call.engine.publish_batch(attempt.target, chunk.data)       # nothing enters, and its columns are checked
            if chunk.said is not None:
                said = json_object(chunk.said.to_pybytes(), "a message")
                if "seal" in said:
                    rows = staging.seal(attempt, said["seal"], call.check_open)
                    with call.waiting():
                        writer.write(pyarrow.py_buffer(json.dumps({"rows": rows}).encode()))
    finally:
        staging.end(attempt)
