"""Handles: queues and selectors as Python sees them, with names, properties and counts.

`xump.Queue` and `xump.Selector` derive from these, and add the verbs, but for `publish`, which costs less here.

A queue is equal to its name and a selector to its number,
so that one can stand for the other, as a key of a mapping too.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from xump_ext.errors import Closed, QueueNotFound, SelectorNotFound, no_pickle
from xump_ext.infinite import INFINITE
from xump_ext.log.adopt cimport Adoptions, adoptions_of
from xump_ext.log.meta cimport Map, queue_map
from xump_ext.memory.document cimport document
from xump_ext.memory.short_call cimport call_t, name_count, short_call
from xump_ext.message.times import seconds_of
from xump_ext.message.rewriter cimport Rewriter
from xump_ext.route.settling cimport counts_by_reason
from xump_ext.select.credit cimport rank_of, waits_for
from xump_ext.select.unrouted cimport unrouted_lowest
from xump_ext.state.constants cimport DELIVER, NEVER, REASON_LATE, UNLIMITED
from xump_ext.state.envelope cimport field_name
from xump_ext.state.graph cimport PUTS_INTO, waiter_t


cdef extern from "Python.h":
    object PyObject_VectorcallMethod(object name, PyObject** args, size_t count, PyObject* names)

cdef enum:
    PASSED_MAX = 16


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

    # ---- publishing

    def publish(
        self, address="", body=b"", headers=None, *, reply_to=None, message_id=None, correlation_id=None, delay=None, at=None,
        ttl=None, expires=None, priority=0, timeout=0.0,
    ):
        """Publish a message into this queue, and run the graph until nothing more happens.

        Args:
            address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8; or a whole
                `Message`: then pass only `delay`, `at`, `ttl` and `timeout` with it.
            body: Up to 64 MiB of bytes.
            headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
            reply_to: The address for answers.
            message_id: Your own name for the message.
            correlation_id: The `message_id` of the message that this one answers, or what else joins the two.
            delay: After how many seconds the message is due: until then it is in the queue, but not ready.
            at: When the message is due, instead of `delay`: an aware datetime, or POSIX nanoseconds.
            ttl: How many seconds the message may wait from when it is due; then it expires.
            expires: When the message expires, instead of `ttl`: an aware datetime, or POSIX nanoseconds.
            priority: 0 to 255; queues with a priority take higher ones first.
            timeout: How many seconds to wait for room, if the queue is full; None: for ever.

        Returns:
            The id that the queue issued: 1, 2, 3 and so on. 0 if the message went to a dead letter queue instead, or through a
            transit queue, which issues none.

        Raises:
            QueueFull: The queue is full, also after `timeout`, and neither an overflow selector nor a dead letter queue takes the
                message.
            StoreFull, StoreFailed: The store cannot write it.
            QueueNotFound: No queue has this name any more, and no dead letter queue of the engine takes the message.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Cost: that of `Engine.publish`, and a call.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     engine.create_queue("jobs").publish("resize", b"cat.png", {"width": 80})
        1
        """
        return self.engine.publish(
            self, address, body, headers, reply_to=reply_to, message_id=message_id, correlation_id=correlation_id, delay=delay,
            at=at, ttl=ttl, expires=expires, priority=priority, timeout=timeout)

    # ---- properties and counts

    @property
    def ready(self):
        """Messages that wait in the queue, routed or not."""
        return self.live().ready

    @property
    def outstanding(self):
        """Messages that selectors have taken and that are not settled (unacknowledged)."""
        return self.live().outstanding

    @property
    def delayed(self):
        """Messages that are in the queue and not due yet: they are not routed, and not counted as ready."""
        return self.live().delayed

    @property
    def history(self):
        """Processed messages that the queue keeps, at most `history_limit`."""
        return self.live().history.count

    @property
    def limit(self):
        """How many messages may be ready or delayed; None: any number."""
        return None if self.live().limit_given == UNLIMITED else self.live().limit_given

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
        """The name of the dead letter queue: it gets messages that cannot be processed here. None: the engine's."""
        return None if self.live().dead_letter == NULL else <object> self.live().dead_letter

    @property
    def rewriter(self):
        """The name of the registered function that rewrites this queue's dead letters, or a list of the name and its argument.
        None: the engine adds its own headers, `xump_reason` and others."""
        name, argument = rewriter_of(self.live()) or (None, None)
        return [name, argument] if argument else name

    @property
    def retry_delay(self):
        """After how many seconds a nacked message is ready again: after its first delivery, its second one and so on; then the
        last of the list. None: at once, or as a queue upstream says."""
        cdef queue_t* queue = self.live()
        return [seconds_of(queue.retry_delays[i]) for i in range(queue.retry_count)] or None

    @property
    def ttl(self):
        """After how many seconds in the queue a message expires; None: never."""
        return seconds_of(none_if_never(self.live().ttl))

    @property
    def priority(self):
        """The highest priority of this queue: a message with a higher one counts as this. None: it takes the oldest message
        first, whatever its priority."""
        return self.live().top_priority or None

    @property
    def dedup(self):
        """For how many seconds the queue remembers the `message_id` of what was published into it, to enter it only once. None:
        it does not."""
        return seconds_of(none_if_never(self.live().dedup))

    @property
    def dedup_limit(self):
        """How many of these the queue remembers at most."""
        return self.live().dedup_limit

    @property
    def limit_bytes(self):
        """The queue has room while the bodies of its ready and delayed messages are together smaller than this; None: always."""
        return None if self.live().limit_bytes == UNLIMITED else self.live().limit_bytes

    @property
    def _body_bytes(self):
        """How many bytes the bodies of ready and delayed messages have, if there is a limit of bytes."""
        return self.live().body_bytes

    @property
    def when_full(self):
        """How a publish ends when the queue is full: `"refuse"`: it raises; `"drop_oldest"`: the queue makes room for it;
        `"drop_to_fit"`: the queue drops what is beyond its limits, the message itself in the end."""
        if self.live().drops_to_fit:
            return "drop_to_fit"
        return "drop_oldest" if self.live().drops_oldest else "refuse"

    @property
    def unmatched(self):
        """How a message that no selector matches is treated: `"drop"`, or `"keep"`: it waits for one that does."""
        return "keep" if self.live().keeps_unmatched else "drop"

    @property
    def transit(self):
        """Whether the queue keeps nothing: what comes goes on at once to the targets of its selectors, as in an exchange."""
        return bool(self.live().transit)

    @property
    def staged(self):
        """Whether the queue keeps what is published into it, as it came, until `Engine.adopt` gives it to another queue."""
        return bool(self.live().staged)

    def _items(self):
        """The names and values of its map, a dict that nothing changes."""
        cdef Map map = queue_map(self.live())
        return {} if map is None else map.items

    def _properties(self):
        """All properties but the store, as the core keeps them: times in nanoseconds, the group as the name of a field."""
        cdef queue_t* queue = self.live()
        return {
            "limit": self.limit, "history_limit": self.history_limit, "auto_delete": self.auto_delete,
            "dead_letter": self.dead_letter, "rewriter": rewriter_of(queue), "delivery_limit": self.delivery_limit,
            "retry_delay": tuple([queue.retry_delays[i] for i in range(queue.retry_count)]) or None,
            "ttl": none_if_never(queue.ttl), "priority": self.priority, "group": field_name(&queue.group_field),
            "dedup": none_if_never(queue.dedup), "dedup_limit": self.dedup_limit, "limit_bytes": self.limit_bytes,
            "when_full": self.when_full, "unmatched": self.unmatched, "transit": self.transit,
            "staged": self.staged,
        }

    @property
    def held(self):
        """Whether the queue is held: it routes nothing until `release()`."""
        return bool(self.live().held)

    @property
    def last_id(self):
        """The id that the queue issued last; 0: none yet."""
        return self.live().next_id - 1

    @property
    def durable_id(self):
        """Ids up to this one are durable; always 0 in RAM.

        After a crash, higher ids are issued again, to other messages. A program that remembers ids should remember none above
        this one, and `incarnation` beside it."""
        return self.live().durable_id

    @property
    def stable_id(self):
        """The last id before the oldest adoption that has not finished entering; without one, `last_id`. If your reader stops
        at this id, it sees each adoption completely or not at all."""
        cdef queue_t* queue = self.live()
        cdef Adoptions adoptions = adoptions_of(queue)
        return queue.next_id - 1 if adoptions is None or adoptions.first_id == 0 else adoptions.first_id - 1

    @property
    def entering(self):
        """How many messages of staged queues that this queue has adopted have still to enter: `Engine.enter`."""
        cdef Adoptions adoptions = adoptions_of(self.live())
        return 0 if adoptions is None else adoptions.rows

    @property
    def adopted_by(self):
        """The name of the queue that has adopted this staged queue, or None."""
        cdef queue_t* adopter = self.live().adopter
        return None if adopter == NULL else (<QueueHandle> adopter.handle).name

    @property
    def incarnation(self):
        """A random number that this queue got when it was made, and keeps as long as it exists, through reopening and repair.

        An id says which message only together with it: a queue that is deleted and made again begins with id 1, and has another
        incarnation."""
        return self.live().incarnation

    @property
    def frontier(self):
        """The lowest id that has not been routed yet, or the next one to be issued."""
        return unrouted_lowest(self.live())

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
            "entered": queue.next_id - 1, "ready": queue.ready, "outstanding": queue.outstanding, "offered": offered_by(queue),
            "history": queue.history.count, "settled": queue.settled, "deleted": queue.deleted,
            "dropped": counts_by_reason(queue.dropped), "dead_lettered": counts_by_reason(queue.dead_lettered),
            "delayed": queue.delayed, "duplicates": queue.duplicates, "late": queue.dropped[REASON_LATE],
            "held": bool(queue.held), "meta_bytes": 0 if queue.meta == NULL else queue_map(queue).bytes,
            "entering": self.entering,
        }


cdef object rewriter_of(const queue_t* queue):
    """(name, argument) of the rewriter, or None."""
    return None if queue.rewriter == NULL else ((<Rewriter> queue.rewriter).name, <object> queue.rewriter_argument)


cdef object none_if_never(int64_t span):
    return None if span == NEVER else span


cdef class SelectorHandle:
    """The properties of a selector. Each costs O(1), `blocked` as the targets that it waits for."""

    def _describe(self, engine, id, name, source, when, do, window, created):
        self.engine = engine
        self.id = id
        self.name = name
        self.source = source
        self.when = when
        self.do = do
        self.window = window
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
        """Whether the selector is enabled: a disabled one takes and copies nothing."""
        return bool(self.live().enabled)

    @property
    def credit(self):
        """The credit (prefetch window): available and outstanding together, or INFINITE."""
        return INFINITE if self.live().infinite else self.live().window

    @property
    def ack_timeout(self):
        """In how many seconds a delivery must be answered, else it is nacked; None: there is no limit."""
        return seconds_of(none_if_never(self.live().ack_timeout))

    @property
    def rank(self):
        """Its rank: of selectors that can take a message, one with a higher rank goes first; 0 unless given."""
        return rank_of(self.live())

    @property
    def ahead(self):
        """How many messages it may offer that your program has not taken yet; None: as many as its credit allows."""
        return None if self.live().ahead == UNLIMITED else self.live().ahead

    @property
    def available(self):
        """Credit that is left: how many messages it may take before one is acked; or INFINITE."""
        return INFINITE if self.live().infinite else self.live().available

    @property
    def outstanding(self):
        """Messages that it has taken and that are not settled."""
        cdef selector_t* selector = self.live()
        return 0 if selector.infinite else selector.holding.count + selector.taken.count

    @property
    def blocked(self):
        """Whether it has credit and a message to take, and waits for room in its target, or for its shared window."""
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
            "credit": self.credit, "available": self.available, "outstanding": self.outstanding, "offered": offers_of(selector),
            "rank": self.rank, "ahead": self.ahead, "window": None if self.window is None else self.window.name,
            "blocked": self.blocked,
            "served": selector.served, "copied": selector.copied, "dropped": selector.dropped, "paid": selector.paid,
            "returned": selector.returned, "errors": selector.errors,
        }


cdef object publish_short(object self, PyObject** args, Py_ssize_t count, PyObject* names):
    """`publish` with all arguments passed on as they come; a wrong number of them goes the long way, which says so."""
    cdef PyObject* passed[PASSED_MAX]
    cdef Py_ssize_t i, all = count + (name_count(names) if names != NULL else 0)
    if count > 3 or all + 2 > PASSED_MAX:
        return publish_long(self, args, count, names)
    passed[0] = <PyObject*> (<QueueHandle> self).engine
    passed[1] = <PyObject*> self
    for i in range(all):
        passed[2 + i] = args[i]
    return PyObject_VectorcallMethod("publish", passed, count + 2, names)


cdef call_t publish_long = short_call(QueueHandle, b"publish", publish_short)


cdef uint64_t offers_of(const selector_t* selector) noexcept:
    """How many messages the selector offers to your program, which has not taken them."""
    return selector.holding.count if selector.verb == DELIVER and selector.puts != PUTS_INTO else 0


cdef uint64_t offered_by(const queue_t* queue) noexcept:
    """The same for all selectors of the queue."""
    cdef const selector_t* selector = queue.own
    cdef uint64_t count = 0
    while selector != NULL:
        count += offers_of(selector)
        selector = selector.next_own
    return count


document(QueueHandle, b"name", b"The name of the queue, unique in its engine.")
document(QueueHandle, b"engine", b"The Engine that it belongs to.")
document(QueueHandle, b"store", b"The Store that keeps its messages.")
document(SelectorHandle, b"id", b"The number that the engine gave it; never reused.")
document(SelectorHandle, b"name", b"The name that it was created with, or None.")
document(SelectorHandle, b"engine", b"The Engine that it belongs to.")
document(SelectorHandle, b"source", b"The Queue that it takes or copies messages from.")
document(SelectorHandle, b"when", b"The condition: which messages it selects.")
document(SelectorHandle, b"window", b"The Window that it shares with other selectors, or None.")
document(SelectorHandle, b"do", b"The action: what the selector does with the messages that `when` selects.")
