"""Handles: queues and selectors as Python sees them, with names, properties and counts.

`xump.Queue` and `xump.Selector` derive from these, and add the verbs. A queue is equal to its name and a selector to its number,
so that one can stand for the other, as a key of a mapping too.
"""

from xump_ext.errors import Closed, QueueNotFound, SelectorNotFound, no_pickle
from xump_ext.infinite import INFINITE
from xump_ext.memory.document cimport document
from xump_ext.route.ledger cimport counts_by_reason
from xump_ext.select.credit cimport waits_for
from xump_ext.state.constants cimport UNLIMITED, UNROUTED
from xump_ext.state.graph cimport entry_t, waiter_t
from xump_ext.state.index cimport index_from


cdef int check_open(object engine) except -1:
    """Raise `Closed` if the engine is: closing has deleted all that it had, and this says why."""
    if engine is not None and engine.closed:
        raise Closed("the engine is closed; create another one")
    return 0


cdef class QueueHandle(QueueRef):
    """The properties of a queue. Each costs O(1)."""

    def _name(self, engine, name, store):
        self.engine = engine
        self.name = name
        self.store = store

    cdef queue_t* live(self) except NULL:
        if self.queue == NULL:
            check_open(self.engine)
            raise QueueNotFound(f"queue {self.name!r} was deleted")
        return self.queue

    def __eq__(self, other):
        if isinstance(other, str):
            return self.name == other
        return self is other

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        if self.queue == NULL:
            return f"<Queue {self.name!r}, deleted>"
        return f"<Queue {self.name!r}: {self.ready} ready, {self.outstanding} outstanding, {self.history} in history>"

    @property
    def ready(self):
        """Messages that wait in the queue, routed or not."""
        return self.live().ready

    @property
    def outstanding(self):
        """Messages taken and not yet paid for."""
        return self.live().outstanding

    @property
    def history(self):
        """Processed messages that were kept."""
        return self.live().history.count

    @property
    def limit(self):
        """How many messages may be ready; None: any number."""
        return None if self.live().limit == UNLIMITED else self.live().limit

    @property
    def history_limit(self):
        """How many processed messages are kept; None: all of them."""
        return None if self.live().history_limit == UNLIMITED else self.live().history_limit

    @property
    def delivery_limit(self):
        """After how many takes a nacked message is dead-lettered; None: never."""
        return self.live().delivery_limit or None

    @property
    def auto_delete(self):
        """Whether the queue deletes itself with its last selector."""
        return bool(self.live().auto_delete)

    @property
    def dead_letter(self):
        """The name of the queue for messages that cannot be processed here, or None."""
        return None if self.live().dead_letter == NULL else <object> self.live().dead_letter

    @property
    def held(self):
        """Whether routing is held."""
        return bool(self.live().held)

    @property
    def last_id(self):
        """The id issued last; 0: none yet."""
        return self.live().next_id - 1

    @property
    def durable_id(self):
        """Ids up to this one are durable; always 0 in RAM."""
        return self.live().durable_id

    @property
    def frontier(self):
        """The lowest id that has not been routed yet, or the next one to be issued."""
        cdef queue_t* queue = self.live()
        cdef entry_t* entry
        if queue.unrouted == 0:
            return queue.next_id
        entry = index_from(&queue.index, queue.frontier)
        while entry.state != UNROUTED:
            entry = index_from(&queue.index, entry.id + 1)
        queue.frontier = entry.id       # so that those before it are not looked at again
        return entry.id

    def _enabled_selector(self, int role):
        """The id of the enabled selector of this role, default or overflow, or None."""
        cdef selector_t* selector = self.live().own
        while selector != NULL:
            if selector.role == role and selector.enabled:
                return selector.id
            selector = selector.next_own
        return None

    def counters(self):
        """A dict of all counters and gauges."""
        cdef queue_t* queue = self.live()
        return {
            "entered": queue.next_id - 1, "ready": queue.ready, "outstanding": queue.outstanding,
            "history": queue.history.count, "settled": queue.settled, "deleted": queue.deleted,
            "dropped": counts_by_reason(queue.dropped), "dead_lettered": counts_by_reason(queue.dead_lettered),
            "held": bool(queue.held),
        }


cdef class SelectorHandle:
    """The properties of a selector. Each costs O(1), `blocked` as the targets that it waits for."""

    def _describe(self, engine, id, name, source, when, do, created):
        self.engine = engine
        self.id = id
        self.name = name
        self.source = source
        self.when = when
        self.do = do
        self._created = created

    cdef selector_t* live(self) except NULL:
        if self.selector == NULL:
            check_open(self.engine)
            raise SelectorNotFound(f"selector {self.id} was deleted")
        return self.selector

    def __eq__(self, other):
        if isinstance(other, int) and not isinstance(other, bool):
            return self.id == other
        return self is other

    def __hash__(self):
        return hash(self.id)

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        name = "" if self.name is None else f" {self.name!r}"
        if self.selector == NULL:
            return f"<Selector {self.id}{name}, deleted>"
        return f"<Selector {self.id}{name}: {self.source.name!r}, when {self.when!r}, do {self.do!r}>"

    @property
    def enabled(self):
        """Whether it takes and copies."""
        return bool(self.live().enabled)

    @property
    def credit(self):
        """The window: available and outstanding together, or INFINITE."""
        return INFINITE if self.live().infinite else self.live().window

    @property
    def available(self):
        """How many more messages it may take before it is paid, or INFINITE."""
        return INFINITE if self.live().infinite else self.live().available

    @property
    def outstanding(self):
        """How many it has taken that are not paid for."""
        cdef selector_t* selector = self.live()
        return 0 if selector.infinite else selector.held.count + selector.taken.count

    @property
    def blocked(self):
        """Whether it has credit and a message, and waits for room in its target."""
        cdef waiter_t* waiter = self.live().waiters
        while waiter != NULL:
            if waits_for(waiter):
                return True
            waiter = waiter.next_of_selector
        return False

    def counters(self):
        """A dict of all counters and gauges."""
        cdef selector_t* selector = self.live()
        return {
            "name": self.name, "source": self.source.name, "enabled": bool(selector.enabled),
            "credit": self.credit, "available": self.available, "outstanding": self.outstanding, "blocked": self.blocked,
            "served": selector.served, "copied": selector.copied, "dropped": selector.dropped, "paid": selector.paid,
            "returned": selector.returned, "errors": selector.errors,
        }


document(QueueHandle, b"name", b"The name of the queue, unique in its engine.")
document(QueueHandle, b"engine", b"The Engine that it belongs to.")
document(QueueHandle, b"store", b"The Store that keeps its messages.")
document(SelectorHandle, b"id", b"The number that the engine gave it; never reused.")
document(SelectorHandle, b"name", b"The name that it was created with, or None.")
document(SelectorHandle, b"engine", b"The Engine that it belongs to.")
document(SelectorHandle, b"source", b"The Queue that it takes or copies messages from.")
document(SelectorHandle, b"when", b"The condition: which messages it selects.")
document(SelectorHandle, b"do", b"The action: what it does with them.")
