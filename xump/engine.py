"""The engine: one graph of queues and selectors in one process. Arguments are checked here; the work is done in `xump_ext`."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from xump import operators
from xump._mappings import Registry
from xump._names import name_of
from xump.actions import Action, Field
from xump.conditions import All, Condition, Match, Role, Where, check_made
from xump.durability.committer import Committer, close_backend, uninterrupted
from xump.durability.opening import open_store
from xump.errors import Conflict, QueueNotFound, SelectorNotFound, StoreNotFound
from xump.filters import equalities
from xump.queue import Queue, position
from xump.selector import Selector
from xump.store_types import Store
from xump.transaction import Transaction
from xump_ext.arrow.batch import DeliveryBatch, publish_batch, take_batch
from xump_ext.check.laws import check_laws
from xump_ext.engine.core import Core
from xump_ext.engine.delivery import Delivery, DeliveryIterator
from xump_ext.infinite import INFINITE, Infinite
from xump_ext.state.constants import ROLES, VERBS

logger = logging.getLogger("xump")
logger.addHandler(logging.NullHandler())

HOP_LIMIT_MAX = 65_534
DELIVERIES_MAX = 65_535
"""How often a message is delivered is counted up to here."""
COUNT_MAX = 2**62
"""No limit, window or count is above this: it leaves room for sums in 64 bits."""

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
Taken = TypeVar("Taken")


class Engine(Core):
    """An engine, with a RAM store named "ram" that is the default.

    `clock` gives POSIX nanoseconds and is read once per call; `hop_limit` is how many queues a message may go through without
    waiting in a dead letter queue; `dead_letter` names the queue for what no queue's own takes. Any thread may call; calls are
    serialized.

    >>> from xump import always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     jobs.publish("resize", b"cat.png")
    ...     for delivery in engine.deliveries("worker"):
    ...         with delivery as message:
    ...             print(message.address, message.body)
    1
    resize b'cat.png'
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.time_ns, hop_limit: int = 64, dead_letter: str | None = None
    ) -> None:
        if not callable(clock):
            raise TypeError(f"clock must be callable and return POSIX nanoseconds, got {type(clock).__name__}")
        _check_count("hop_limit", hop_limit, 1, HOP_LIMIT_MAX)
        if dead_letter is not None:
            dead_letter = _queue_name(dead_letter, "dead_letter")
        self._configure(None if clock is time.time_ns else clock, hop_limit, dead_letter)
        self._stores["ram"] = Store("ram", "ram", {})
        self._last_selector = 0
        self._last_queue = 0
        self._build_lock = threading.RLock()
        self._reopened: list[Queue] = []        # held since their store was opened
        self._warned_of_held = False
        _engines.add(self)

    # ---- stores, queues, selectors

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by name; read-only."""
        return Registry(self._stores, StoreNotFound, "store")

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues by name; read-only."""
        return Registry(self._queues, QueueNotFound, "queue")

    @property
    def selectors(self) -> Mapping[int, Selector]:
        """The selectors by id; read-only."""
        return Registry(self._selectors, SelectorNotFound, "selector")

    def create_store(self, name: str, type: str = "ram", **options: Any) -> Store:
        """Open a store, made if it is not there. With the same properties again: the same store; with others: `Conflict`.

        Raises `StoreNotFound` for a type that does not exist, TypeError for options that the type does not have.
        """
        name, type = name_of(name, "store name"), name_of(type, "store type")
        self._check_open()
        with self._build_lock:
            store: Store | None = self._stores.get(name)
            if store is not None:
                if not store.was_made_with(type, options):
                    had = store.placed(store.options, created=True)
                    raise Conflict(f"store {name!r} exists with type {store.type!r} and options {had}; "
                                   f"asked for were {type!r} and {store.placed(options)}")
                return store
            store = Store(name, type, options)
            if getattr(store.backend, "durable", False):
                self._reopened.extend(open_store(self, store))
            self._stores[name] = store
            return store

    def create_queue(
        self,
        name: str | None = None,
        *,
        store: str = "ram",
        limit: int | None = None,
        history_limit: int | None = 0,
        auto_delete: bool = False,
        dead_letter: str | None = None,
        delivery_limit: int | None = None,
    ) -> Queue:
        """Make a queue; without a name the engine names it. Messages that wait for its name are routed.

        `limit`: how many may be ready (None: any number); `history_limit`: how many processed ones are kept (None: all);
        `auto_delete`: it deletes itself with its last selector; `dead_letter`: the queue, existing or not, for what cannot be
        processed here; `delivery_limit`: after how many takes a nacked message goes there. With the same properties again: the
        same queue; with others: `Conflict`. Raises `StoreNotFound`.
        """
        if name is not None:
            name = _queue_name(name, "queue name")
        if limit is not None:
            _check_count("limit", limit, 0, COUNT_MAX)
        if history_limit is not None:
            _check_count("history_limit", history_limit, 0, COUNT_MAX)
        if delivery_limit is not None:
            _check_count("delivery_limit", delivery_limit, 1, DELIVERIES_MAX)
        if dead_letter is not None:
            dead_letter = _queue_name(dead_letter, "dead_letter")
        if not isinstance(auto_delete, bool):
            raise TypeError(f"auto_delete must be a bool, got {type(auto_delete).__name__}")
        store_name = name_of(store.name if isinstance(store, Store) else store, "store")
        self._check_open()
        with self._build_lock:
            if store_name not in self._stores:
                raise StoreNotFound(f"no store {store_name!r}; there are {', '.join(map(repr, self._stores))}")
            properties = (store_name, limit, history_limit, auto_delete, dead_letter, delivery_limit)
            if name in self._queues:
                return self._same_queue(self._queues[name], properties)
            number = self._last_queue
            while name is None:
                number += 1
                name = f"queue-{number}" if f"queue-{number}" not in self._queues else None
            queue = Queue.__new__(Queue)
            queue._name(self, name, self._stores[store_name])
            try:
                self._create_queue(
                    queue, limit, history_limit, auto_delete, dead_letter, delivery_limit, self._stores[store_name].journal)
            finally:
                # The queue is there, too, if what came out of user code (an interrupt) comes out of this call.
                if self._queues.get(name) is queue:
                    self._last_queue = number
            return queue

    def _same_queue(self, queue: Queue, properties: tuple[Any, ...]) -> Queue:
        names = ("store", "limit", "history_limit", "auto_delete", "dead_letter", "delivery_limit")
        for name, wanted in zip(names, properties, strict=True):
            had = queue.store.name if name == "store" else getattr(queue, name)
            if had != wanted:
                raise Conflict(f"queue {queue.name!r} exists with {name}={had!r}; asked for was {wanted!r}")
        return queue

    def create_selector(
        self,
        source: Any,
        *,
        when: Condition,
        do: Action,
        credit: int | Infinite = 1,
        enabled: bool = True,
        start: Any = "current",
        name: str | None = None,
    ) -> Selector:
        """Make a selector on a queue: on the messages that `when` selects, it does `do`.

        `credit` is how many messages a consuming selector may have taken and not been paid for, or INFINITE. `start`, for COPY:
        "current" (the frontier on), "tail" (live ones only), "head", an id or an aware datetime (a replay of all that the queue
        holds from there, entering the target at the call, then live). A `name` makes it idempotent: with the same properties
        again the same selector; with others `Conflict`. Raises `QueueNotFound`, `QueueFull` (a replay without room), ValueError,
        TypeError.
        """
        role, terms = _compile_condition(when)
        _check_action(do, role, start, source)
        if credit is not INFINITE:
            _check_count("credit", credit, 0, COUNT_MAX, "an int or xump.INFINITE")
        if not isinstance(enabled, bool):
            raise TypeError(f"enabled must be a bool, got {type(enabled).__name__}")
        if name is not None:
            name = name_of(name, "selector name")
        begin = start if start in ("current", "tail") else 1 if start == "head" else position(start, "'head', 'tail', 'current'")
        self._check_open()
        with self._build_lock:
            queue = self._queue(source, "source")
            created = (queue.name, when, do, credit, enabled, start)
            if do._given is not None:
                self._queue(do._given, "target")
            if name is not None and name in self._named:
                return self._same_selector(self._named[name], created)
            self._check_single(queue, role, enabled)
            target = None if not isinstance(do.queue, str) else self._queue(do.queue, "target")
            self._last_selector += 1
            selector = Selector.__new__(Selector)
            selector._describe(self, self._last_selector, name, queue, when, do, created)
            try:
                self._create_selector(
                    selector, VERBS[do.verb], ROLES[role], terms, _field_of(do.queue), target,
                    _field_of(do.destination), do.destination if isinstance(do.destination, str) else None,
                    credit, enabled, begin,
                )
            finally:
                # The selector is there, too, if what came out of user code (an interrupt) comes out of this call.
                if selector.id not in self._selectors:
                    self._last_selector -= 1
                elif name is not None:
                    self._named[name] = selector
            return selector

    def _same_selector(self, selector: Selector, created: tuple[Any, ...]) -> Selector:
        names = ("source", "when", "do", "credit", "enabled", "start")
        for what, had, wanted in zip(names, selector.created, created, strict=True):
            if had != wanted:
                raise Conflict(f"selector {selector.name!r} exists with {what}={had!r}; asked for was {wanted!r}")
        return selector

    def _check_single(self, queue: Queue, role: str, enabled: bool) -> None:
        """A queue has at most one enabled default and one enabled overflow selector."""
        if role == "always" or not enabled:
            return
        other = queue._enabled_selector(ROLES[role])
        if other is not None:
            raise Conflict(f"queue {queue.name!r} has an enabled {role} selector already, number {other}; disable that first")

    def _enable(self, selector: Selector, enabled: bool) -> None:
        self._check_open()
        with self._build_lock:
            if enabled and isinstance(selector.when, Role) and not selector.enabled:
                self._check_single(selector.source, selector.when.name, True)
            super()._enable(selector, enabled)

    def delete_queue(self, name: Any) -> bool:
        """Delete a queue, its messages, and every selector that has it as source or named target. Whether there was one.

        An object stands for itself: one that was deleted, or is of another engine, is not there, whatever has its name now.
        """
        if not isinstance(name, (str, Queue)):
            raise TypeError(f"a queue is named by a str or given as a Queue, got {type(name).__name__}")
        self._check_open()
        with self._build_lock:
            queue = self._queues.get(name)
            if queue is None or (isinstance(name, Queue) and queue is not name):
                return False
            return bool(self._delete_queue(queue))

    def delete_selector(self, selector: Any) -> bool:
        """Delete a selector (or number); what it has outstanding returns to its queue. Whether there was one."""
        if isinstance(selector, bool) or not isinstance(selector, (int, Selector)):
            raise TypeError(f"a selector is given as a Selector or by its id, an int, got {type(selector).__name__}")
        self._check_open()
        with self._build_lock:
            face = self._selectors.get(selector)
            if face is None or (isinstance(selector, Selector) and face is not selector):
                return False
            self._delete_selector(face)
            return True

    def delete_store(self, name: str | Store) -> bool:
        """Close a store and delete its queues, as one; its files stay. Whether there was one.

        What a store raises that cannot be closed comes at the end: then it is gone all the same.
        """
        if not isinstance(name, (str, Store)):
            raise TypeError(f"a store is named by a str or given as a Store, got {type(name).__name__}")
        self._check_open()
        with self._build_lock:
            store = self._stores.get(str(name) if isinstance(name, Store) else name)
            if store is None or (isinstance(name, Store) and store is not name):
                return False
            if store.name == "ram":
                raise ValueError("the store 'ram' is always there and cannot be deleted")
            queues = [queue for queue in self._queues.values() if queue.store is store]
            errors: list[BaseException] = []
            self._quiet(store.journal, queues)
            try:
                with uninterrupted():
                    self._close_stores([store], errors)
            finally:        # closed well or not, it is not of this engine any more
                self._stores.pop(store.name, None)
                if store.journal is None:
                    self._drop_queues(queues)
                else:
                    self._drop_store(store.journal, queues)
        _raise_first(errors)
        return True

    @contextmanager
    def building(self) -> Iterator[None]:
        """A block in which nothing is routed, so that no message meets half a graph. Nests; at its end one run over everything,
        also when the block raises."""
        self._building(1)
        try:
            yield
        finally:
            if not self.closed:
                self._building(-1, self._reopened)

    def _queue(self, name: Any, what: str) -> Queue:
        if not isinstance(name, (str, Queue)):
            raise TypeError(f"{what} must be the name of a queue, got {type(name).__name__}")
        queue: Queue | None = self._queues.get(name)
        if queue is None or (isinstance(name, Queue) and queue is not name):
            text = name.name if isinstance(name, Queue) else str.__str__(name)
            raise QueueNotFound(f"{what}: no queue {text!r} in this engine")
        return queue

    # ---- taking

    def take(self, n: int, destination: str | None = None, *, timeout: float | None = 0.0) -> list[Delivery]:
        """Up to n deliveries, in order of delivery; waits up to `timeout` seconds (None: for ever) for the first one."""
        _check_count("n", n, 0, COUNT_MAX)
        _check_destination(destination)
        _check_timeout(timeout)
        self._check_open()
        if self._reopened:
            self._warn_of_held()
        taken = self._take(n, destination)
        if taken or timeout == 0 or n == 0:
            return taken
        return self._wait(lambda: self._take(n, destination) or None, destination, timeout) or []

    def deliveries(self, destination: str | None = None, *, timeout: float | None = 0.0) -> DeliveryIterator:
        """An iterator over what is deliverable, and over what acks given meanwhile release.

        It ends when nothing has been deliverable for `timeout` seconds (None: never). What was nacked after it began is not
        yielded by it again. No destination: every one, in order of delivery.
        """
        _check_destination(destination)
        _check_timeout(timeout)
        self._check_open()
        if self._reopened:
            self._warn_of_held()
        return DeliveryIterator(self, destination, timeout)

    def take_batch(self, n: int, destination: str | None = None, *, timeout: float | None = 0.0) -> DeliveryBatch:
        """As `take`, as Arrow columns, with `ack()` and `nack(ids)`."""
        _check_count("n", n, 0, COUNT_MAX)
        _check_destination(destination)
        _check_timeout(timeout)
        self._check_open()
        if self._reopened:
            self._warn_of_held()
        batch = take_batch(self, n, destination)
        if len(batch) or timeout == 0 or n == 0:
            return batch
        return self._wait(lambda: take_batch(self, n, destination) or None, destination, timeout) or batch

    def publish_batch(self, queue: Any, data: Any) -> range:
        """Publish the rows of anything that has the Arrow PyCapsule interface (pyarrow, Polars, DuckDB …), as one run.

        Columns: `address`, `body`, `reply_to`, `message_id` (text, bytes for the body), `headers` (a struct, typed, null means
        missing; or a map of strings); missing columns are empty, those of `take_batch` beside them are ignored. All is checked
        before the first row enters: ValueError and TypeError say the column and row, `QueueFull` as in `publish_many`. Returns
        the range of the ids. Costs a fraction of `publish` a row. What a bounce has added may take headers above their limit: as
        columns such a message is refused, as a message (`publish_many`) it is not.

        Rows that nobody consumes stay in their columns until they are routed or deleted; one waiting row keeps the whole batch
        alive. Numbers, offsets and nulls are copied, and the names in a map; the bytes of texts and bodies are shared with the
        producer until the row is routed. Who writes into them, which Arrow forbids, changes what waits: a text keeps its size,
        and if it is no UTF-8 any more, a question mark stands for every byte above 127.
        """
        return publish_batch(self, queue, data)

    def _warn_of_held(self) -> None:
        """Queues of a reopened store give nothing before they are released, which is easily forgotten."""
        held = [queue.name for queue in self._reopened if self._queues.get(queue.name) is queue and queue.held]
        held = [name for name in held if any(selector.source == name for selector in list(self._selectors.values()))]
        if held and not self._warned_of_held:
            self._warned_of_held = True
            warnings.warn(f"held since their store was opened: {', '.join(map(repr, held))}; end a building() block, or call "
                          "release() on them", stacklevel=3)

    def _wait(self, take: Callable[[], Taken | None], destination: str | None, timeout: float | None) -> Taken | None:
        """What `take()` gives once it gives something; None after `timeout` seconds. No thread polls: who offers wakes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            woken = threading.Lock()
            woken.acquire()
            waiter = self._await(destination, woken.release)
            try:
                taken = take()
                if taken is not None:
                    return taken
                left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
                if not woken.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                    return take()
            finally:
                self._withdraw(waiter)

    def transaction(self) -> Transaction:
        """Publishes and acks that happen together when the block ends: `with engine.transaction() as tx: ...`."""
        self._check_open()
        return Transaction(self)

    def sync(self, *, timeout: float | None = None) -> None:
        """Return when all that was published or acked before is durable; at once, for RAM."""
        _check_timeout(timeout)
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        committers = self._committers()
        again = True
        while again:        # what stands behind a fence of another store needs one more round
            for committer in committers:
                if not committer.sync(deadline):
                    raise TimeoutError(f"not everything is durable after {timeout} seconds; store {committer.name!r} is busy")
            again = any(committer.fenced for committer in committers)

    # ---- watching

    def stats(self) -> dict[str, Any]:
        """Counters and gauges: {"engine": …, "queues": {name: …}, "selectors": {id: …}}, plain dicts. O(queues + selectors)."""
        return self._stats()

    def check(self) -> None:
        """Verify every law of the engine from scratch. Raises `InvariantError` saying which and where. O(everything)."""
        check_laws(self)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        from xump.topology import drawing

        return drawing.to_mermaid(self)

    def to_dot(self) -> str:
        """The graph in Graphviz' language."""
        from xump.topology import drawing

        return drawing.to_dot(self)

    def topology(self) -> dict[str, Any]:
        """Stores, queues and selectors as a plain dict, which `apply` takes. Raises `Conflict` for a callable: it has no text."""
        from xump import topology

        return topology.describe(self)

    def apply(self, description: Mapping[str, Any]) -> None:
        """Create what a `topology()` describes and is not there yet, in one building block. Checked as a whole beforehand."""
        from xump import topology

        topology.apply(self, description)

    # ---- the end

    def close(self) -> None:
        """Make all durable and let go. Idempotent; later calls raise `Closed`."""
        errors: list[BaseException] = []
        with uninterrupted():
            if not self._close():
                return
            _engines.discard(self)
            self._close_stores(list(self._stores.values()), errors)
            self._stores.clear()
            self._free()
            self._named.clear()
            self._wake_all()
        _raise_first(errors)

    def _committers(self) -> list[Committer]:
        """Of the durable stores, in the order in which they came."""
        return [store.committer for store in list(self._stores.values()) if store.committer is not None]

    def _close_stores(self, stores: list[Store], errors: list[BaseException]) -> None:
        """Their last groups are written, after rounds over all as long as something of theirs stands behind a fence; then they
        are closed. What went wrong with them is added to the errors."""
        everybody = self._committers()
        closing = [store.committer for store in stores if store.committer is not None]
        for committer in closing:
            committer.stop()
            if self._broken:
                committer.give_up("the engine ran out of memory")
        while any(committer.fenced for committer in closing):
            for committer in everybody:
                committer.flush(errors if committer in closing else [])     # others tell those who call them
        for committer in closing if len(closing) > 1 else ():
            committer.flush(errors)         # each settles in its last group what the others have made durable
        for committer in closing:
            committer.finish(errors)
        for store in stores:
            if store.committer is None:
                close_backend(store.backend, errors)

    def __enter__(self) -> Engine:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<Engine, closed>"
        return f"<Engine: {len(self._queues)} queues, {len(self._selectors)} selectors>"

    def _report(self, troubles: list[tuple[int | str, BaseException]]) -> None:
        """What a run met and went on without: what user code raised, once per condition; messages that could not be read."""
        for where, error in troubles:
            if isinstance(where, int):
                logger.error("the condition of selector %d raised; that counts as no match", where, exc_info=error)
            else:
                logger.error("queue %r is held from here on, release() it when that is mended: %s", where, error)


def _raise_first(errors: list[BaseException]) -> None:
    """Of what went wrong while stores were closed; the log has the rest."""
    for error in errors[1:]:
        logger.error("while stores were closed: %s", error, exc_info=error)
    if errors:
        raise errors[0]


def _compile_condition(when: object) -> tuple[str, tuple[Any, ...]]:
    """The role, and the terms as the core takes them. Two terms that differ in type only differ in their repr."""
    if not isinstance(when, Condition):
        allowed = "always, default, overflow, match(...), where(...)"
        raise TypeError(f"when must be a condition ({allowed}), got {type(when).__name__}")
    if isinstance(when, (Role, All)):
        check_made(when)
    if isinstance(when, Role):
        return when.name, ()
    terms: list[tuple[Any, ...]] = []
    for part in when.parts if isinstance(when, All) else (when,):
        if isinstance(part, (Match, Where)):
            check_made(part)
        if isinstance(part, Match):
            terms.append(("match", part.operator, part.pattern, part.field, operators.registered(part.operator)))
        elif isinstance(part, Where) and part.tree[0] == "call":
            terms.append(("call", part.tree[1]))
        elif isinstance(part, Where):
            terms.append(("filter", part.tree, tuple(equalities(part.tree)), repr(part.tree)))
        else:
            raise TypeError(f"{part!r} is no condition that a selector can have")
    return "always", tuple(terms)


def _check_action(do: object, role: str, start: object, source: object) -> None:
    if not isinstance(do, Action):
        raise TypeError(f"do must be an action (copy_to, move_to, deliver, bounce_to, discard), got {type(do).__name__}")
    check_made(do)
    if role == "overflow":
        if not do.consuming:
            raise ValueError("an overflow selector must take what is too much; copy_to does not")
        if do.queue is not None and do.queue == source:
            raise ValueError(f"an overflow selector cannot put into its own queue {str(source)!r}")
    if do.consuming and start != "current":
        raise ValueError(f"start={start!r} is for copy_to; {do!r} sees ready messages only: start='current'")


def _field_of(name: object) -> str | None:
    return name.name if isinstance(name, Field) else None


def _queue_name(name: object, what: str) -> str:
    return name.name if isinstance(name, Queue) else name_of(name, what)


def _check_count(what: str, value: object, least: int, most: int, kinds: str = "an int") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be {kinds}, got {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be from {least} to {most}, got {value}")


def _check_destination(destination: object) -> None:
    if destination is not None and not isinstance(destination, str):
        raise TypeError(f"destination must be a str or None, got {type(destination).__name__}")


def _check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if not isinstance(timeout, float):
        if isinstance(timeout, bool) or not isinstance(timeout, int):
            raise TypeError(f"timeout must be seconds or None, got {type(timeout).__name__}")
        try:
            float(timeout)
        except OverflowError:
            raise ValueError("timeout must be seconds that a float can hold, or None for ever; this int is larger") from None
    if not timeout >= 0:
        raise ValueError(f"timeout must not be negative, got {timeout}")


@atexit.register
def _close_durable() -> None:
    """What was gathered and not written yet is written when the interpreter ends."""
    errors: list[BaseException] = []
    for engine in list(_engines):
        if any(store.committer is not None for store in list(engine._stores.values())):
            try:
                engine.close()
            except BaseException as error:
                errors.append(error)
    _raise_first(errors)


def _after_fork() -> None:
    for engine in list(_engines):
        engine._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
