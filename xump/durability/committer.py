"""The committer of a durable store: writes its groups (the changes that are written together). `xump_ext.store` is the contract.

When it writes depends on the durability of the store:

    sync      each call writes and syncs what it changed before it returns; calls that come meanwhile share the next fsync
    group     a thread writes and syncs what came in during `group_ms`; `sync` does so at once
    process   each call writes what it changed before it returns, without an fsync
    none      a thread writes what came in during `group_ms`, without an fsync

If somebody waits for a group, by `when`, the thread writes it as soon as the disk is idle. Where a call does not wait
(`Patience`), the thread does all the work, also of `sync` and `process`; a store with much to do is *pressed* until its thread
has caught up.

One thread writes at a time; it has *the turn*. Sealing a group takes the engine lock for an instant. The CRCs, the write and
the fsync hold no lock that others need: publishers, other stores and queues in RAM go on. After a write or an fsync that
failed, the store counts as failed: everything that was reported durable is on disk, and the rest is unknown. Ctrl-C, SIGTERM
and SIGALRM wait until the disk has answered.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from xump.durability.call_backs import CallBacks, Patience, Told
from xump.durability.standstill import Standstill
from xump.errors import Closed, StoreFailed
from xump_ext.engine.signals import DeferredSignals
from xump_ext.log.wakeup import Wakeup

if TYPE_CHECKING:
    from xump_ext.engine.stores import StorePort
    from xump_ext.log.group import Group
    from xump_ext.store import Backend

logger = logging.getLogger("xump")

PRESSED_GROUPS = 4
"""A store is pressed when a call that does not wait finds so many times `group_bytes` gathered."""

AGAIN = InterruptedError("ask again")
"""The answer to a call that has asked for a sync, if the call that was to start the thread was interrupted."""

_here = threading.local()
"""`changed`: while this thread writes for a store, the committers of the stores that its own calls of the engine change.
`in_turn`: those that are to write when it has written."""


def uninterrupted() -> AbstractContextManager[None]:
    """A context manager for blocks that write files: Ctrl-C, SIGTERM and SIGALRM wait until the block ends.

    Signal handlers run in the main thread only, so in other threads it does nothing.
    """
    return DeferredSignals() if threading.get_ident() == threading.main_thread().ident else nullcontext()


def _write_in_turn(changed: set[Committer]) -> None:
    """Have these committers write, and those whose stores change by that, one after the other: in a full store each message that
    goes on may make room for one more."""
    others: set[Committer] | None = getattr(_here, "in_turn", None)
    if others is not None:
        others |= changed
        return
    _here.in_turn = changed
    try:
        while changed:
            committer = min(changed, key=lambda one: one.name)
            changed.remove(committer)
            if committer._each_call:
                committer.write_for_others()
            else:
                committer.wakeup.set()
    finally:
        _here.in_turn = None


class Committer:
    """Writes for one store: takes groups from the engine's port, and gives them to the back-end.

    `xump_ext.engine.stores` has a drawing of the two and the port between them.

    `others` returns the committers of all stores of the engine; `patience` says whether a call waits.
    """

    def __init__(
        self, name: str, backend: Backend, port: StorePort, others: Callable[[], list[Committer]], patience: Patience
    ) -> None:
        self.name = name
        """The name of the store."""
        self.error: BaseException | None = None
        """Why the store has failed; None: it has not."""
        self.syncs = 0
        """How often the store was synced to disk."""
        self.sync_seconds = 0.0
        """How many seconds that took in all."""
        self._backend = backend
        self._port = port
        self._others = others
        self._syncs = backend.durability in ("sync", "group")
        self._turn = threading.Lock()
        self._ending = threading.RLock()    # `Engine.close` and `delete_store` may come at once, in two threads
        self._ended = False
        self._written = 0
        self._on_its_way = 0            # bytes of a group that is being written
        self._told = False              # whether a call of the program has raised that the store failed
        self._unsynced = False          # something was written, and not synced
        self._raised: BaseException | None = None   # by a function of the program, in a run of the graph within this turn
        self._went_on = False           # other stores may have records behind fences that are open now
        self.wakeup = Wakeup()
        """Set when something has changed in the store: the thread waits for that."""
        self._closing = Wakeup()
        self._thread: threading.Thread | None = None
        self._hurry = Wakeup()
        self._asking = threading.Lock()
        self._asked: list[queue.SimpleQueue[BaseException | None]] = []     # calls of `sync` with a deadline, which wait
        self._patience = patience
        self._calls = CallBacks(self)
        self._wanted: int | None = None     # the room that a call lacked which does not wait
        self._in_vain = (-1, 0)             # the ticket, and the room wanted, when the thread made room the last time
        self._standstill = Standstill(self)
        self._each_call = backend.durability in ("sync", "process")
        port.connect(self, self._each_call)
        if not self._each_call:
            self._start()

    def _start(self) -> None:
        """Start the thread. With `sync` and `process` there is one only if somebody waits, or does not."""
        with uninterrupted(), self._asking:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._run, name=f"xump store {self.name}", daemon=True)
                thread.start()      # may raise, where the system gives no more threads
                self._thread = thread

    def hasten(self) -> None:
        """Have the thread look at once for what there is to do."""
        if self._thread is None:
            self._start()
        self._hurry.set()
        self.wakeup.set()

    def in_own_thread(self) -> bool:
        """Whether the thread of the store calls."""
        return threading.current_thread() is self._thread

    # ---- requests to write

    def changed(self) -> None:
        """Called when a call has changed something in the store. With `sync` and `process` it is written when this returns, if
        the call waits. With `group` and `none` the journal has woken the thread."""
        if self.error is not None:
            self._refuse()
        elif self._each_call:
            self._commit_call()
        elif not self._patience.waits and self._is_far_behind():
            self._leave_to_thread()

    def _commit_call(self) -> None:
        changed: set[Committer] | None = getattr(_here, "changed", None)
        if changed is not None:     # a call of this module's own, made while it writes: the write comes first
            changed.add(self)
            return
        if not self._patience.waits:
            self._leave_to_thread()
            return
        group = self._port.open_group
        with self._writing():
            if self._written < group:       # else an earlier turn has written it
                self._write(self._syncs)

    def _leave_to_thread(self) -> None:
        """A call that does not wait has changed something: the thread writes it."""
        if self._is_far_behind():
            self._calls.press()
        self.hasten()

    def _is_far_behind(self) -> bool:
        return self._port.open_bytes >= PRESSED_GROUPS * self._backend.group_bytes

    def _run(self) -> None:
        while not self._closing.is_set() and self.error is None:
            if not self.wakeup.wait(self._standstill.seconds):
                self._standstill.look(self._written)
                continue
            if not self._calls.hurry:
                self._hurry.wait(0 if self._each_call else self._backend.group_ms / 1000)
            self._round()
        self._calls.look()          # the store may have failed by another thread's write since the last round
        self._calls.call()

    def _round(self) -> None:
        """Do what there is to do for the thread."""
        self._hurry.clear()
        self.wakeup.clear()
        wanted, self._wanted = self._wanted, None
        if wanted is not None or self._has_work():      # else another thread writes it already: do not wait for its turn
            self.write_for_others(wanted)
        if self._calls.pressed:
            self._catch_up(wanted)
        self._calls.look()
        self._calls.call()

    def _has_work(self) -> bool:
        """Whether there is something to write. A group gathered while the store was opened counts if somebody waits for it."""
        return self._port.waiting or (self._calls.hurry and self._port.ticket == self._port.open_group)

    def _catch_up(self, wanted: int | None) -> None:
        """The thread has made room, or written what there was: the pressure is over, unless there is more to do already."""
        if wanted is not None:
            self._in_vain = self._port.ticket, wanted
        if self._wanted is not None or self._port.open_bytes >= self._backend.group_bytes:
            self.hasten()
        else:
            self._calls.relieve()

    def write_for_others(self, wanted: int | None = None, stands_still: bool = False) -> None:
        """Write what was gathered. If that fails, it is logged, and the next call that needs this store raises."""
        told = self._told
        try:
            with self._writing():
                if self.error is None:
                    self._write(self._syncs, wanted=wanted, stands_still=stands_still)
        except BaseException as error:
            if not isinstance(error, Exception) and not self.in_own_thread():
                raise       # a signal, or what a condition raises, ends a call of the program; the store's thread goes on
            logger.error("%s", error, exc_info=not isinstance(error, StoreFailed))
            self._told = told

    # ---- call-backs

    def when(self, ticket: int, fence: int, told: Told) -> None:
        """Have `told` called when the changes of this ticket are as durable as the store promises, and the records up to `fence`
        wait for other stores no more."""
        if self._calls.add(ticket, fence, told):
            self.hasten()

    def when_relieved(self, told: Told) -> None:
        """Have `told` called when the store has caught up."""
        self._calls.add_relief(told)

    @property
    def everything(self) -> tuple[int, int]:
        """The ticket, and the number of the last fenced record, of all that was gathered until now."""
        return self._port.ticket, self.last_fenced

    @property
    def pressed(self) -> bool:
        """Whether the store has to catch up, so that calls that do not wait should pause."""
        return self._calls.pressed

    @property
    def last_sealed(self) -> int:
        """The number of the last group that was sealed."""
        return self._port.open_group - 1

    def is_safe(self, ticket: int) -> bool:
        """Whether the changes of this ticket are as durable as the store promises."""
        return self._port.passed >= ticket

    def outcome(self) -> BaseException | None:
        """The argument of a call-back: None, or why its changes may not be durable."""
        if self.error is None:
            return None
        told, failure = self._told, self.failure()
        self._told = told       # a program that looks away hears of it when it closes the store
        return failure

    def _look(self) -> None:
        """Find the call-backs that are due, and have the thread call them."""
        if (self._calls.hurry or self._calls.pressed) and self._calls.look() and not self.in_own_thread():
            self.hasten()

    def sync(self, deadline: float | None) -> bool:
        """Make durable what was gathered. Returns False if the deadline, a time of `time.monotonic`, came first.

        A call to the disk cannot be interrupted, so with a deadline another thread makes it.
        """
        if deadline is None:
            with self._writing():
                self._write(True)
            return True
        done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        error: BaseException | None = AGAIN
        while error is AGAIN:
            with uninterrupted():       # else a call would have asked, and no thread were on its way
                self._ask_for_sync(done)
            try:
                error = done.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
            except queue.Empty:
                return False
        if error is not None:
            raise error
        return True

    def _ask_for_sync(self, done: queue.SimpleQueue[BaseException | None]) -> None:
        with self._asking:
            self._asked.append(done)
            first = len(self._asked) == 1
        if first:       # else a thread waits for the turn already, and will answer this call too
            try:
                threading.Thread(target=self._sync_for_all, name=f"xump sync {self.name}", daemon=True).start()
            except RuntimeError as refused:     # the system gives no more threads
                self._answer(refused)
            except BaseException:               # of a signal's handler: there may be a thread, or not
                self._answer(AGAIN)
                raise

    def _sync_for_all(self) -> None:
        """A thread that syncs once, for all the calls that have asked when it gets its turn."""
        asked: list[queue.SimpleQueue[BaseException | None]] = []
        error: BaseException | None = None
        try:
            with self._writing():
                with self._asking:
                    asked, self._asked = self._asked, []
                self._write(True)
        except BaseException as raised:
            error = raised
        for done in asked:
            done.put(error)

    def _answer(self, error: BaseException) -> None:
        """Tell all calls that have asked for a sync that there is none."""
        with self._asking:
            asked, self._asked = self._asked, []
        for done in asked:
            done.put(error)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A context manager that has the turn.

        Calls made in the block may change other stores, and records behind fences of this one may go on. These stores are written
        afterwards, so that no thread waits for two turns at once.
        """
        with self._port.later(), self._in_turn():
            yield

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        changed: set[Committer] = set()
        raised: BaseException | None = None
        try:
            with uninterrupted(), self._turn:       # in this order: a handler of a signal that waited may write, too
                _here.changed = changed
                try:
                    yield
                finally:
                    _here.changed = None
                    raised, self._raised = self._raised, None
                    if self._went_on and not self._port.alone:
                        self._went_on = False
                        changed |= self._fenced_others()
        finally:
            try:
                _write_in_turn(changed)
            finally:
                if raised is not None:
                    self._told = False      # of a failure, the caller hears when it closes the store
                    raise raised

    def _fenced_others(self) -> set[Committer]:
        """The committers of the stores that have records behind fences, perhaps of this store."""
        return {committer for committer in self._others() if committer is not self and committer.fenced}

    # ---- writing

    def check(self) -> None:
        """Raises StoreFailed if the store has failed."""
        if self.error is not None:
            raise self.failure()

    def failure(self) -> StoreFailed:
        """The error to raise when a call needs the failed store."""
        self._told = True
        why = "out of memory" if self.error is None else str(self.error) or type(self.error).__name__
        failure = StoreFailed(
            f"store {self.name!r} has failed: {why}; close the engine, check the disk, and open the store again")
        failure.__cause__ = self.error
        return failure

    def crowded(self) -> None:
        """Called when much has come in: the thread writes it without waiting any longer.

        If the thread does not keep up, the call that brings more writes it. Other programs may have taken the room that the
        disk had when the last group was written, so the store is asked for its room again.
        """
        if self.error is None and self._patience.waits:
            self._ask_for_room()
        changed: set[Committer] | None = getattr(_here, "changed", None)
        if changed is None and not self._patience.waits:
            self._leave_to_thread()
        elif changed is None and self._hurry.is_set():
            self.make_room(0)
        else:
            self._hurry.set()

    def _ask_for_room(self) -> None:
        """Outside a turn, on behalf of a call whose message is in. So the call does not fail if the disk does not answer: the
        room that was known counts on, and whoever writes the next group asks again, and finds the store to have failed."""
        try:
            room = self._backend.room()
        except OSError as error:
            logger.warning("store %r: the room on its disk is not known: %s", self.name, error)
        else:
            self._port.has_room(room - self._on_its_way)

    def make_room(self, wanted: int) -> None:
        """Called when a call lacks room for so many bytes: writes what was gathered, and cleans the log. For a call that does not
        wait the thread does so, unless it did so in vain since the store last changed."""
        if getattr(_here, "changed", None) is not None:     # called from inside a turn
            return
        if not self._patience.waits:
            ticket, in_vain = self._in_vain
            if ticket != self._port.ticket or wanted < in_vain:
                self._wanted = max(wanted, self._wanted or 0)
                self._calls.press()
                self.hasten()
            return
        with self._writing():
            if self.error is None:
                self._write(self._syncs, wanted=wanted)

    def _refuse(self) -> None:
        """A call has changed something in a failed store, and raises StoreFailed, unless a committer made the call."""
        if getattr(_here, "changed", None) is None:
            self.check()

    def _write(self, sync: bool, last: bool = False, wanted: int | None = None, stands_still: bool = False) -> None:
        """Write the open group, if there is anything in it. The caller has the turn.

        `wanted`: a call lacks room for so many bytes, so the log is cleaned in any case. `stands_still`: see `standstill.py`.
        """
        self.check()
        cleaned = False
        try:
            group = self._port.seal(last)
            self._put(group, sync)
            if not last and (group is not None or wanted is not None or self._port.refused):
                cleaned = self._clean(wanted or 0, stands_still)
            if wanted is not None:
                self._tell_room()       # the disk may have got room, of which nothing was written yet
        except BaseException as error:
            self._fail(error)
            self._told = True
            if isinstance(error, (OSError, MemoryError, StoreFailed)):
                self.check()
            raise
        self._standstill.watch(not last and self._port.refused and (cleaned or not stands_still))

    def _put(self, group: Group | None, sync: bool) -> None:
        """Write a group into the store. If asked to, sync it and everything before it."""
        if group is not None:
            self._on_its_way = len(group)
            group.finish()
            self._backend.write(group)
            self._on_its_way = 0
            self._unsynced = True
        if sync and self._unsynced:
            begun = time.perf_counter()
            self._backend.sync()
            self.sync_seconds += time.perf_counter() - begun
            self.syncs += 1
            self._unsynced = False
        if group is not None:
            self._written = group.number
            self._port.written(group, not self._syncs)
            self._went_on = True
        if sync:
            self._port.synced(self._written)
        self._look()
        if group is not None:
            self._tell_room()

    def _tell_room(self) -> None:
        """Tell the engine the room there is. It may run the graph, and so conditions of the program.

        A condition that raises SystemExit, or the like, ends that run. The store has not failed: it is raised after the turn.
        """
        room = self._backend.room()
        try:
            self._port.has_room(room)
        except Exception:
            raise
        except BaseException as error:
            self._raised = self._raised or error

    def _clean(self, wanted: int, stands_still: bool) -> bool:
        """Free the oldest part of the log, as often as the store asks for it: write its live records once more, at the end.
        Whether it gave any."""
        cleaned = False
        while (part := self._backend.oldest(self._port.demand(wanted, stands_still))) is not None:
            _, end, data = part
            cleaned = True
            try:
                self._port.copy_forward(data)
            except Closed:
                return False        # the store gives this part again when it is opened
            self._put(self._port.seal(), self._backend.durability != "none")
            self._backend.release(end)
            self._tell_room()
        return cleaned

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._port.failed()
        self._went_on = True        # fences of a failed store hold nothing back
        self._port.connect(self, True)      # each call that changes something more raises
        self._look()

    # ---- the end

    def stop(self) -> None:
        """End the thread that writes."""
        self._closing.set()
        self._hurry.set()
        self.wakeup.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def fenced(self) -> bool:
        """Whether records of this store wait for other stores. Records wait no longer for a store that has failed."""
        return self.error is None and self._port.fenced > 0

    @property
    def last_fenced(self) -> int:
        """The number of the last record that waits for other stores, or of the last one that did."""
        return self._port.fences_passed + self._port.fenced

    def is_fenced(self, number: int) -> bool:
        """Whether records of this store up to this number wait for other stores."""
        return self.fenced and self._port.fences_passed < number

    def flush(self, errors: list[BaseException]) -> None:
        """Make durable what can be, while the engine is being closed. Adds what is raised to `errors`."""
        with self._ending:
            try:
                if self.error is None and not self._ended:
                    with self._writing():
                        self._write(True)
            except BaseException as error:
                errors.append(error)

    def finish(self, errors: list[BaseException]) -> None:
        """Write the last group, which says exactly which messages were handed out, and close the store, unless that is done.

        A failed store is closed as it is. Adds what is raised to `errors`.
        """
        with self._ending:
            if self._ended:
                return
            self._ended = True
            try:
                if self.error is None:
                    with self._writing():
                        self._write(self._backend.durability != "none", last=True)
                elif not self._told:
                    self.check()
            except BaseException as error:
                errors.append(error)
            finally:
                close_backend(self._backend, errors)
                self._calls.end()

    def abandon(self) -> None:
        """Close the store as it is, unless that is done: its engine was closed while the store was opened."""
        self.mark_failed("its engine was closed")
        self._told = True
        self.stop()
        self.finish([])

    def mark_failed(self, reason: str) -> None:
        """Count the store as failed: what was gathered is not to be trusted, so nothing more is written."""
        self.error = self.error or StoreFailed(reason)


def close_backend(backend: Any, errors: list[BaseException]) -> None:
    """Close a back-end. Adds what that raises to `errors`, so that others can still be closed."""
    try:
        backend.close()
    except BaseException as error:
        errors.append(error)
