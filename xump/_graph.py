"""The graph of an engine: its stores, queues and selectors, created and deleted.

The class `xump.Engine` is in three files: `Graph` here, `Taking` in `xump._taking`, and the rest in `xump.engine`. The graph
changes under the lock of the graph, one change at a time; arguments are checked before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from xump._arguments import (
    check_ack_timeout,
    check_action,
    check_ahead,
    check_bool,
    check_credit,
    check_rank,
    check_same,
    check_through,
    check_window,
    compile_condition,
    field_of,
    plain_value,
    queue_name,
    start_of,
)
from xump._mappings import Registry, SelectorRegistry
from xump._meta import first_items
from xump._names import name_of, plain, what_is_there
from xump._queue_properties import DEFAULTS, NAMES, check_staged, check_transit, checked_properties, differing
from xump._windows import Windows
from xump.actions import Action, Field
from xump.conditions import Condition, Role
from xump.durability.awaiting_broker import AwaitingBroker
from xump.durability.call_backs import Patience
from xump.durability.closing import close_stores, engines_with_stores, raise_first
from xump.durability.committer import Committer, uninterrupted
from xump.durability.names import free_names
from xump.durability.opening import open_store
from xump.errors import Conflict, QueueNotFound, SelectorNotFound, StoreNotFound
from xump.queue import Queue
from xump.selector import Selector
from xump.store_types import Store
from xump_ext.message.times import seconds_of
from xump_ext.state.constants import DEDUP_LIMIT, ROLES, VERBS

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.types import Credit, SelectorStart, Unmatched, WhenFull
    from xump.window import Window

SELECTOR_PROPERTIES = ("source", "when", "do", "credit", "enabled", "ack_timeout", "rank", "ahead", "window", "start")


# Defaults of `create_queue`, which knows them when it sees them.
RAM: Final = "ram"
NO_HISTORY: Final = 0
REFUSE: Final = "refuse"
DROP: Final = "drop"
DESTINATIONS_MAX = 256      # names that are remembered to tell of mistyped ones; with more, none is told


class Graph(Windows):
    """The part of `xump.Engine` that creates and deletes stores, queues and selectors."""

    _looks_for_held = False             # there may be queues held since their store was opened, of which `take` has to warn
    _warned_of_held = False             # it has, once

    def _begin_graph(self) -> None:
        self._patience = Patience()
        self._awaiting = AwaitingBroker()
        self._stores["ram"] = ram = Store("ram", "ram", {})
        ram._engine = self
        self._last_selector = 0
        self._last_queue = 0
        self._alarms: dict[Any, Any] = {}       # of `xump.aio`: who does what falls due, by loop
        self._destinations: set[str] | None = set()     # to which selectors ever delivered; None: to any
        self._warned_of: set[str] = set()               # destinations to which none did

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by name: a read-only, live mapping, in the order of creation. A missing name raises `StoreNotFound`."""
        return Registry(self._stores, StoreNotFound, "store", self._check_open)

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues by name: a read-only, live mapping, in the order of creation. A missing name raises `QueueNotFound`."""
        return Registry(self._queues, QueueNotFound, "queue", self._check_open)

    @property
    def selectors(self) -> SelectorRegistry[Selector]:
        """The selectors by id: a read-only, live mapping, in the order of creation. A missing id raises `SelectorNotFound`.

        A selector that has a name is found by that, too: `engine.selectors["audit"]`."""
        return SelectorRegistry(self._selectors, self._named, SelectorNotFound, self._check_open)

    # ---- create

    def create_store(self, name: str, type: str = "ram", **options: Any) -> Store:
        """Open a store, which keeps the messages of queues. Create it if it does not exist on disk.

        Args:
            name: The store's name in this engine, which `create_queue(store=...)` takes.
            type: `"ram"`, `"lmdb"`, `"ring"`, or a type that was registered or installed.
            options: The options of that type. `"lmdb"` and `"ring"` take `path`, `durability` (`"sync"`, `"group"`, `"process"`
                or `"none"`), `group_ms` (milliseconds), `max_bytes` and more; docs/stores.md lists them.

        Returns:
            The store. If one with the same name, type and options is open in this engine, that one.

        Raises:
            Conflict: The engine has a store of this name with another type or other options, or a queue with the name of one that
                the store brings along.
            StoreNotFound: There is no such type of store.
            StoreLocked: Another process has the store open.
            StoreCorrupt: The files are damaged; the command `xump repair` takes the damage out.
            TypeError, ValueError, OSError: An option is wrong, or the system refuses the files.

        If it raises, the engine has not changed.

        The queues of a durable store come back with it, and are *held*: they route nothing until the first `building()` block or
        `apply()` that ends after this call, or until `Queue.release()`. Those whose dead letters go to exchanges of a broker are
        held until the broker has read these.

        Cost: O(1) for `"ram"`; a durable store is read as a whole, O(bytes on disk).

        >>> import tempfile
        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     store = engine.create_store("orders", "lmdb", path=tempfile.mkdtemp() + "/orders.xump")
        ...     queue = engine.create_queue("jobs", store="orders")
        """
        name, type = name_of(name, "store name"), name_of(type, "store type")
        self._check_open()
        with self._graph_lock:
            store: Store | None = self._stores.get(name)
            if store is not None:
                if not store.was_made_with(type, options):
                    existing = store.placed(store.options, created=True)
                    raise Conflict(f"store {name!r} exists with type {store.type!r} and options {existing}; "
                                   f"you asked for type {type!r} and options {store.placed(options)}")
                return store
            store = Store(name, type, options)
            held = open_store(self, store) if getattr(store.backend, "durable", False) else []
            self._stores[name] = store
            store._engine = self
            if store.committer is not None:
                engines_with_stores.add(cast("Engine", self))
                if self.closed:         # meanwhile, by another thread, which need not have seen the store
                    engines_with_stores.discard(cast("Engine", self))
                    store.committer.abandon()
                    self._check_open()
            self._looks_for_held |= bool(held) and not self._warned_of_held
            held = self._awaiting.keep_waiting(held)
            self._reopened.extend(held)
            return store

    def create_queue(
        self,
        name: str | None = None,
        *,
        store: str | Store = RAM,
        limit: int | None = None,
        history_limit: int | None = NO_HISTORY,
        auto_delete: bool = False,
        dead_letter: str | Queue | None = None,
        rewriter: str | Sequence[str] | None = None,
        delivery_limit: int | None = None,
        retry_delay: float | Sequence[float] | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        group: Field | None = None,
        dedup: float | None = None,
        dedup_limit: int = DEDUP_LIMIT,
        limit_bytes: int | None = None,
        when_full: WhenFull = REFUSE,
        unmatched: Unmatched = DROP,
        transit: bool = False,
        staged: bool = False,
        meta: Mapping[str, bytes] | None = None,
    ) -> Queue:
        """Create a queue: a list of messages, first in, first out.

        Args:
            name: The queue's name, unique in the engine; None: the engine chooses `"queue-1"` or the like.
            store: The store that keeps the messages.
            limit: How many messages may be ready or delayed (not taken yet) before the queue is full; None: any number.
            history_limit: How many messages the queue keeps after they were processed; None: all of them.
            auto_delete: Whether the queue deletes itself, with its messages, when its last selector is deleted.
            dead_letter: The queue for messages that cannot be processed here. It may be created later.
            rewriter: The name of what rewrites such messages on their way there (`register_rewriter`), or (name, argument). None:
                the engine writes into their headers why they come.
            delivery_limit: How often your program may take a message, 1 to 65,535. A nack after the last time sends the message
                to the dead letter queue. None: any number.
            retry_delay: After how many seconds a nacked message is ready again; or a list, for its first delivery, its second one
                and so on; then the last of them. None: at once, or as the nearest queue upstream says, from which a MOVE brought
                it.
            ttl: After how many seconds in the queue a message expires: it goes to the dead letter queue, or is dropped. None:
                never.
            priority: The highest priority of this queue, 1 to 255: it takes messages with a higher priority first; one above this
                counts as this. None: it takes the oldest message first, whatever its priority.
            group: `field(...)`: messages with the same text in that field go one after the other: the next one when the one
                before is settled. A message without the field, or with a number there, is not ordered: write `str(customer)`.
            dedup: For how many seconds the queue remembers the `message_id` of what was published into it. A second publish of
                one enters nothing, and returns the id of the first. None: it does not look.
            dedup_limit: How many of these it remembers at most.
            limit_bytes: The queue has room while the bodies of its ready and delayed messages are together smaller than this, so
                the last one may pass the bound; None: any number.
            when_full: How a publish into a full queue ends, if no overflow selector takes the message. `"refuse"`: it raises
                `QueueFull`, or goes to the dead letter queue. `"drop_oldest"`: it enters, and the oldest ready ones make room.
                `"drop_to_fit"`: it enters, and what no selector takes then is dropped, the oldest first, until no more is left
                than `limit` and `limit_bytes` say, be it the message itself.
            unmatched: How the queue treats a message that neither a selector nor `default` matches. `"drop"`: it goes to the dead
                letter queue, or is dropped. `"keep"`: it waits for a selector that matches it.
            transit: Whether the queue keeps nothing, as an exchange: what comes goes on at once to the targets of its selectors,
                which only copy or discard. One with no way on is `unroutable`. Beside it only `auto_delete`, `dead_letter` and
                `rewriter` may be given.
            staged: Whether the queue keeps what is published into it, as it came, until another queue of its store adopts it
                (`Engine.adopt`). It has no selectors, routes nothing, and is held always. Beside it only `store` may be given.
            meta: The names and values that `Queue.meta` has from the start, in one step with the queue. It is no property: if the
                queue exists, its map stays as it is.

        Returns:
            The queue. If one with the same name and properties exists, that one.

        Raises:
            Conflict: A queue of this name exists with other properties.
            StoreNotFound: The engine has no such store.
            RewriterNotFound: No such rewriter is registered.
            StoreFull, StoreFailed: The store cannot write; or a queue of this name was deleted from another durable store, which
                cannot write that.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Cost: O(1), and the run that follows: messages may be waiting for a queue of this name. If a queue of this name was
        deleted from another durable store a moment ago, a sync of that.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs", limit=1000, dead_letter="dead", delivery_limit=3)
        ...     same = engine.create_queue("jobs", limit=1000, dead_letter="dead", delivery_limit=3)
        ...     other = engine.create_queue("jobs", limit=5)
        Traceback (most recent call last):
        xump.errors.Conflict: queue 'jobs' exists with limit=1000; you asked for limit=5
        """
        if name is not None:
            name = queue_name(name, "queue name")
        # Most queues have the defaults, which are known without a look at each.
        given: tuple[Any, ...] = DEFAULTS
        if not (limit is None and dead_letter is None and rewriter is None and delivery_limit is None and retry_delay is None
                and ttl is None and priority is None and group is None and dedup is None and limit_bytes is None
                and auto_delete is False and transit is False and staged is False and history_limit is NO_HISTORY
                and dedup_limit is DEDUP_LIMIT and when_full is REFUSE and unmatched is DROP):
            given = (           # in the order of `NAMES`
                limit, history_limit, auto_delete, dead_letter, rewriter, delivery_limit, retry_delay, ttl, priority, group,
                dedup, dedup_limit, limit_bytes, when_full, unmatched, transit, staged)
        properties = {} if given is DEFAULTS else checked_properties(given)
        items = {} if meta is None else first_items(name, meta)
        store_name = store if store is RAM else name_of(store.name if isinstance(store, Store) else store, "store")
        if properties:
            check_transit(store_name, properties)
            check_staged(properties)
        self._check_open()
        with self._graph_lock:
            if store_name not in self._stores:
                raise StoreNotFound(f"no store {store_name!r}; the stores are {', '.join(map(repr, self._stores))}")
            if store is not RAM and isinstance(store, Store) and self._stores[store_name] is not store:
                raise StoreNotFound(f"{store!r} was deleted, or is of another engine; give its name for the one in this engine")
            if name in self._queues:
                queue: Queue = self._queues[name]
                check_same(f"queue {name!r}", ("store",), (queue.store.name,), (store_name,))
                other = differing(properties, queue._properties())
                if other is not None:
                    check_same(f"queue {name!r}", (other,), (getattr(queue, other),), (plain_value(given[NAMES.index(other)]),))
                self.tick()         # a call like any other
                return queue
            number = self._last_queue
            while name is None:
                number += 1
                name = f"queue-{number}" if f"queue-{number}" not in self._queues else None
            free_names(self, (name,), store_name)
            queue = Queue.__new__(Queue)
            queue._name(self, name, self._stores[store_name])
            try:
                self._create_queue(queue, properties, self._stores[store_name].journal, items)
            finally:
                # If user code raised in the run (an interrupt, say), the queue exists all the same.
                if self._queues.get(name) is queue:
                    self._last_queue = number
            return queue

    def create_selector(
        self,
        source: str | Queue,
        *,
        when: Condition,
        do: Action,
        credit: Credit = 1,
        enabled: bool = True,
        ack_timeout: float | None = None,
        rank: int = 0,
        ahead: int | None = None,
        window: str | Window | None = None,
        start: SelectorStart = "current",
        name: str | None = None,
    ) -> Selector:
        """Create a selector (a binding or subscription) of a queue: it does `do` with the messages that `when` selects.

        Args:
            source: The queue that the selector takes messages from.
            when: A condition: `always`, `default`, `overflow`, `match(...)`, `where(...)`, or several of the last two joined by
                `&`.
            do: An action: `copy_to(...)`, `move_to(...)`, `deliver(...)`, `bounce_to(...)` or `discard`.
            credit: The prefetch window: how many messages the selector may have taken that are not settled (acked, rejected or
                dropped); 0 takes none yet, `INFINITE` any number. COPY and DISCARD use no credit.
            enabled: Whether the selector copies and takes from the start.
            ack_timeout: For `deliver` to your program with finite credit: in how many seconds a delivery must be answered. A
                late message is nacked, and its delivery stale. None: there is no limit.
            rank: Of selectors that can take a message, one with a higher rank goes first, -32,768 to 32,767.
            ahead: For `deliver` to your program: how many messages the selector may offer that your program has not taken yet.
                The others wait in their queue, for any selector. None: as many as its credit allows.
            window: For `deliver` to your program with finite credit: a window that the selector shares with others, made by
                `create_window`, or its name. The selector takes a message while both its credit and the window allow it.
            start: For `copy_to` only, the first message to copy. `"current"`: the first that has not been routed yet. `"tail"`:
                the next that comes. `"head"`, an id, or an aware datetime: all that the queue holds from there (a replay, which
                enters the target during this call), then the new ones.
            name: A name that makes the call idempotent; None: each call creates a selector.

        Returns:
            The selector. If one with the same name and properties exists, that one.

        Raises:
            Conflict: A selector of this name exists with other properties, or `when` is `default` or `overflow` and the queue
                has an enabled selector with that condition.
            QueueNotFound, WindowNotFound: The engine has no such source, target or window.
            QueueFull: The target has no room for the replay.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Cost: the new selector's condition is evaluated on the messages that wait in the queue, then the run follows.

        >>> from xump import Engine, copy_to, deliver, match, where
        >>> with Engine() as engine:
        ...     with engine.building():
        ...         orders, audit = engine.create_queue("orders"), engine.create_queue("audit")
        ...         large = engine.create_selector("orders", when=where("amount > 1000"), do=copy_to("audit"))
        ...         shop = engine.create_selector("orders", when=match("prefix", "order."), do=deliver("shop"), credit=10)
        ...     number = engine.publish("orders", "order.new", headers={"amount": 5000})
        ...     audit.ready, [delivery.message.address for delivery in engine.take(10, "shop")]
        (1, ['order.new'])
        """
        role, terms = compile_condition(when)
        check_action(do, role, start, source)
        check_credit(credit)
        if type(enabled) is not bool:
            check_bool("enabled", enabled)
        timeout_ns = None if ack_timeout is None else check_ack_timeout(ack_timeout, do, credit)
        if rank != 0 or type(rank) is not int:
            check_rank(rank, do)
        if ahead is not None:
            check_ahead(ahead, do, role)
        if window is not None:
            check_window(do, role, credit)
        if name is not None:
            name = name_of(name, "selector name")
        begin = start if start in ("current", "tail") else 1 if start == "head" else start_of(start, "'head', 'tail', 'current'")
        self._check_open()
        with self._graph_lock:
            queue = self._queue(source, "source")
            shared = None if window is None else self._window(window)
            created = (queue.name, when, do, credit, enabled, seconds_of(timeout_ns), rank, ahead,
                       None if shared is None else shared.name, start)
            if do._given is not None:
                self._queue(do._given, "target")
            if name is not None and name in self._named:
                selector: Selector = self._named[name]
                check_same(f"selector {name!r}", SELECTOR_PROPERTIES, selector._created, created)
                self.tick()
                return selector
            if queue.transit:
                check_through(queue, when, do, start)
            self._check_single(queue, role, enabled)
            target = None if not isinstance(do.queue, str) else self._queue(do.queue, "target")
            self._last_selector += 1
            selector = Selector.__new__(Selector)
            selector._describe(self, self._last_selector, name, queue, when, do, shared, created)
            try:
                self._create_selector(
                    selector, VERBS[do.verb], ROLES[role], terms, field_of(do.queue), target,
                    field_of(do.destination), do.destination if isinstance(do.destination, str) else None,
                    credit, timeout_ns, rank, ahead, shared, enabled, begin,
                )
            finally:
                # If user code raised in the run (an interrupt, say), the selector exists all the same.
                if selector.id not in self._selectors:
                    self._last_selector -= 1
                elif name is not None:
                    self._named[name] = selector
            if do.verb == "deliver" and do.queue is None:
                self._delivers_to(do.destination)
            return selector

    def _delivers_to(self, destination: str | Field | None) -> None:
        """Remember to which destinations selectors ever delivered; a field may name any."""
        if isinstance(destination, Field) or (self._destinations is not None and len(self._destinations) >= DESTINATIONS_MAX):
            self._destinations = None
        elif destination is not None and self._destinations is not None:
            self._destinations.add(destination)

    def _check_single(self, queue: Queue, role: str, enabled: bool) -> None:
        """A queue has at most one enabled default and one enabled overflow selector."""
        if role == "always" or not enabled:
            return
        other = queue._enabled_selector(ROLES[role])
        if other is not None:
            raise Conflict(f"queue {queue.name!r} has an enabled {role} selector already, number {other}; disable that first")

    def _enable(self, selector: Selector, enabled: bool) -> None:
        self._check_open()
        with self._graph_lock:
            if enabled and isinstance(selector.when, Role) and not selector.enabled:
                self._check_single(selector.source, selector.when.name, True)
            super()._enable(selector, enabled)

    # ---- delete

    def delete_queue(self, name: str | Queue) -> bool:
        """Delete a queue, its messages, and every selector that has it as its source or named target.

        Args:
            name: The queue's name, or the `Queue`. A `Queue` means itself: if it was deleted, or belongs to another engine, no
                other queue of its name is deleted.

        Returns:
            Whether there was such a queue.

        Raises:
            TypeError: `name` is neither.

        Messages that came by a MOVE and are not settled return to the queue that they came from. Deliveries of the queue's
        messages become stale. Then the graph is run.

        Cost: O(messages and selectors that are deleted).

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     engine.delete_queue("jobs"), engine.delete_queue("jobs")
        (True, False)
        """
        if not isinstance(name, (str, Queue)):
            raise TypeError(f"a queue is named by a str or given as a Queue, got {type(name).__name__}")
        self._check_open()
        with self._graph_lock:
            queue = self._queues.get(name if type(name) is str else plain(name))
            if queue is None or (isinstance(name, Queue) and queue is not name):
                self.tick()
                return False
            return bool(self._delete_queue(queue))

    def delete_selector(self, selector: int | Selector, *, recall: bool = True) -> bool:
        """Delete a selector. The messages that it has taken return to their queue.

        Args:
            selector: The selector's id, or the `Selector`. A `Selector` means itself, also if another engine has one of that id.
            recall: False, for a selector that delivers to your program: only what it has offered returns. A delivery that your
                program has taken stays valid, and can be acked, nacked or rejected as before.

        Returns:
            Whether there was such a selector.

        Raises:
            TypeError: `selector` is neither, or `recall` is not a bool.
            ValueError: `recall=False`, and the selector puts messages into a queue.

        The messages return to their old places, and their deliveries become stale; those that your program had taken are marked
        as redelivered. Copies are not taken back. Then the graph is run.

        Cost: O(messages that return).

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"))
        ...     engine.delete_selector(worker), engine.delete_selector(worker)
        (True, False)
        """
        if isinstance(selector, bool) or not isinstance(selector, (int, Selector)):
            raise TypeError(f"a selector is given as a Selector or by its id, an int, got {type(selector).__name__}")
        check_bool("recall", recall)
        self._check_open()
        with self._graph_lock:
            found = self._selectors.get(selector)
            if found is None or (isinstance(selector, Selector) and found is not selector):
                self.tick()
                return False
            if not recall and found.do.consuming and found.do.queue is not None:
                raise ValueError(f"recall=False is for selectors that deliver to your program; selector {found.id} has "
                                 f"do={found.do!r}: what it moved is recalled when it is deleted")
            self._delete_selector(found, recall)
            return True

    def delete_store(self, name: str | Store) -> bool:
        """Close a store and remove its queues from the engine. The files stay on disk.

        Args:
            name: The store's name, or the `Store`. A `Store` means itself, also if another engine has one of that name.

        Returns:
            Whether there was such a store.

        Raises:
            TypeError: `name` is neither.
            ValueError: It is the store `"ram"`, which every engine has.
            StoreFailed: The last messages could not be written. The store is gone from the engine all the same.

        Cost: O(messages of its queues), and a sync of the disk.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     store = engine.create_store("scratch")
        ...     queue = engine.create_queue("jobs", store="scratch")
        ...     engine.delete_store("scratch"), list(engine.queues)
        (True, [])
        """
        if not isinstance(name, (str, Store)):
            raise TypeError(f"a store is named by a str or given as a Store, got {type(name).__name__}")
        self._check_open()
        with self._graph_lock:
            store = self._stores.get(name.name if isinstance(name, Store) else plain(name))
            if store is None or (isinstance(name, Store) and store is not name):
                return False
            if store.name == "ram":
                raise ValueError("the store 'ram' is always there and cannot be deleted")
            errors: list[BaseException] = []
            try:
                with uninterrupted():
                    self._close_and_drop(store, [queue for queue in list(self._queues.values()) if queue.store is store], errors)
            except BaseException as error:      # of the handler of a signal that waited, perhaps
                errors.append(error)
        raise_first(errors)
        return True

    def _close_and_drop(self, store: Store, queues: list[Queue], errors: list[BaseException]) -> None:
        begun: list[bool] = []
        try:
            self._quiet(store.journal, queues, begun)
        except BaseException as error:
            if not begun:
                raise
            errors.append(error)        # of a call-back, say; the rest goes its way
        try:
            self._close_stores([store], errors)
        finally:        # closed well or not, it does not belong to this engine any more
            self._stores.pop(store.name, None)
            if not self._committers():
                engines_with_stores.discard(cast("Engine", self))
            if store.journal is None:
                self._drop_queues(queues)
            else:
                self._drop_store(store.journal, queues)

    # ---- inside

    def _hold(self, queue: Queue, held: bool) -> None:
        self._awaiting.forget(queue)
        super()._hold(queue, held)

    def _queue(self, name: object, what: str) -> Queue:
        """The queue of this engine that is given by its name or as a `Queue`."""
        if not isinstance(name, (str, Queue)):
            raise TypeError(f"{what} must be the name of a queue or a Queue, got {type(name).__name__}")
        queue: Queue | None = self._queues.get(name if type(name) is str else plain(name))
        if queue is None or (isinstance(name, Queue) and queue is not name):
            raise self._missing_queue(name.name if isinstance(name, Queue) else str.__str__(name), what)
        return queue

    def _missing_queue(self, text: str, what: str) -> QueueNotFound:
        """The error for a queue that is not there. It is made here, since a name that the lambda keeps costs each call of its
        function."""
        there = list(self._queues)
        return QueueNotFound.told_later(lambda: f"{what}: no queue {text!r} in this engine" + (
            "" if text in there else what_is_there(text, there, "create it first")))

    def _committers(self) -> list[Committer]:
        """The committers of the durable stores, in the order in which the stores were created."""
        return [store.committer for store in list(self._stores.values()) if store.committer is not None]

    def _close_stores(self, stores: list[Store], errors: list[BaseException]) -> None:
        close_stores(stores, self._committers, self._broken, errors)
