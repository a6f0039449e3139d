"""Deliveries: messages in the application's hands, and the iterator that takes them (rules 8, 10).

While the application has a message, the delivery and the entry point to each other:

    Delivery.entry ──► entry_t                  NULL: stale        PAID: settled
    entry_t.below.delivery ──► Delivery.entry   NULL: the application has dropped the delivery

When the engine takes the message back, it clears both. So a stale delivery is recognised by one look at a pointer, and a dropped
one needs no search. The collector does not track deliveries: that would cost a header each, and a look at all that are held.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint32_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import StaleDelivery, no_pickle
from xump_ext.memory.document cimport document
from xump_ext.memory.freelist cimport PyMemberDef, PyTypeObject, xump_member, xump_pool, xump_pool_get, xump_pool_put
from xump_ext.message.content cimport checked_text
from xump_ext.message.message cimport Message, message_new
from xump_ext.route.ledger cimport PAID, accept, dead_letter, hops_of, in_hands, nacked, pay
from xump_ext.route.requeue cimport note_nack, release, requeue_entry
from xump_ext.route.routing cimport go_on, run
from xump_ext.state.constants cimport DELIVERIES_MAX, REASON_DELIVERY_LIMIT, REASON_REJECTED
from xump_ext.state.envelope cimport DestinationRef
from xump_ext.state.graph cimport engine_t, selector_t
from xump_ext.state.lazy_content cimport content_at

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t at)
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL

cdef xump_pool delivery_pool
cdef bint making = False
cdef PyMemberDef message_member_def
cdef PyMemberDef destination_member_def
cdef PyMemberDef queue_member_def
cdef PyMemberDef selector_member_def


cdef inline void delivery_clean(PyObject* object) noexcept:
    """Part the delivery from its entry, and drop its references. One without a message has no other references either."""
    if in_hands((<Delivery> object).entry):
        (<Delivery> object).entry.below.delivery = NULL
    (<Delivery> object).entry = NULL
    if (<Delivery> object).message != NULL:
        Py_XDECREF((<Delivery> object).message)
        (<Delivery> object).message = NULL
        Py_XDECREF((<Delivery> object).destination)
        Py_XDECREF((<Delivery> object).queue)
        Py_XDECREF((<Delivery> object).selector)


cdef void delivery_dealloc(PyObject* object) noexcept:
    delivery_clean(object)
    xump_pool_put(&delivery_pool, object)


cdef Delivery delivery_new():
    """A blank delivery. `Delivery.__cinit__` refuses all that are made elsewhere."""
    global making
    cdef PyObject* spare = xump_pool_get(&delivery_pool)
    if spare == NULL:
        making = True
        try:
            return Delivery.__new__(Delivery)
        finally:
            making = False
    delivery = <Delivery> spare
    Py_XDECREF(spare)
    return delivery


@cython.final
@cython.no_gc
cdef class Delivery:
    """A message handed to the application under a destination name. Ack it, nack it or reject it. As a context manager it is
    acked when the block ends, and nacked when the block raises."""

    def __cinit__(self):
        if not making:
            raise TypeError("deliveries come from Engine.take() and Engine.deliveries()")

    cdef PyObject* core(self) except NULL:
        """The engine, borrowed: the queue of this delivery refers to it. Raises if the delivery is stale."""
        if not in_hands(self.entry):
            queue_handle(self).engine._check_open()
            raise stale(self)
        return <PyObject*> self.entry.queue.engine.handle

    @property
    def id(self):
        """The message's id in its queue."""
        return message_handle(self).id

    def ack(self):
        """Pay for this very message. Raises `StaleDelivery` if it was settled or taken back before. O(queues upstream)."""
        self.pay_for_it()

    cdef int pay_for_it(self) except -1:
        cdef PyObject* core
        if self.settled:
            return 0
        core = self.core()
        (<EngineLock> core).begin_call()
        try:
            if not in_hands(self.entry):
                raise stale(self)
            self.answered = True
            pay(&(<EngineLock> core).e, self.entry)
            go_on(&(<EngineLock> core).e)
        finally:
            (<EngineLock> core).unlock()
        return 0

    def nack(self, *, requeue=True):
        """Give the message back: it waits at its old place again. With `requeue=False` it is dead-lettered; without a dead letter
        queue it is dropped and counted."""
        if requeue is not True and requeue is not False:
            raise TypeError(f"requeue must be a bool, got {type(requeue).__name__}")
        self.give_back(requeue, None)

    def reject(self, reason="rejected"):
        """Dead-letter the message; without a dead letter queue it is dropped and counted. A reason of your own goes into the
        header `xump_detail`."""
        reason = checked_text(reason, "reason")
        self.give_back(False, None if reason == "rejected" else reason)

    cdef int give_back(self, bint requeue, object detail) except -1:
        cdef EngineLock core
        cdef entry_t* entry
        if self.settled:
            return 0
        core = <EngineLock> self.core()
        core.begin_call()
        try:
            entry = self.entry
            if not in_hands(entry):
                raise stale(self)
            if not requeue or is_spent(entry):
                content_at(entry)       # the bounce needs it; if it cannot be read, this raises before anything has changed
            self.answered = True
            if requeue:
                nack_entry(&core.e, entry)
            else:
                release(&core.e, entry)
                dead_letter(&core.e, entry, REASON_REJECTED, detail, NULL)
            go_on(&core.e)
        finally:
            core.unlock()
        return 0

    def __enter__(self):
        return message_handle(self)

    def __exit__(self, kind, error, traceback):
        if self.answered or self.entry == PAID:
            return
        if kind is None:
            self.pay_for_it()
        elif in_hands(self.entry):
            self.give_back(True, None)

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        state = "settled" if self.settled else f"take {self.delivery_count}" if in_hands(self.entry) else "stale"
        return (f"<Delivery of {message_handle(self)!r} to {<object> self.destination!r} from {queue_handle(self).name!r}, "
                f"{state}>")


cdef int nack_entry(engine_t* engine, entry_t* entry) except -1:
    """Return the message to its old place, or dead-letter it if the application has taken it too often (rule 10)."""
    cdef bint spent = is_spent(entry)
    release(engine, entry)
    if spent:
        return dead_letter(engine, entry, REASON_DELIVERY_LIMIT, None, NULL)
    note_nack(engine, entry)
    return requeue_entry(engine, entry)


cdef bint is_spent(const entry_t* entry) noexcept:
    """Whether the application has taken the message as often as it may, so that a nack dead-letters it."""
    cdef uint32_t limit = delivery_limit_of(entry)
    return limit and entry.delivery_count >= limit


cdef uint32_t delivery_limit_of(const entry_t* entry) noexcept:
    """The limit of the queue, else of the nearest queue upstream that still waits for its payment (rule 10); 0: none."""
    while entry != NULL:
        if entry.queue.delivery_limit:
            return entry.queue.delivery_limit
        entry = entry.parent
    return 0


cdef int check_deliveries(EngineLock core, list deliveries) except -1:
    """Raise unless all are live deliveries of this engine, each given once. Each remembers the number of the check, so that a
    second one is recognised."""
    cdef PyObject* given
    cdef Py_ssize_t i
    core.checks += 1
    for i in range(len(deliveries)):
        given = PyList_GET_ITEM(deliveries, i)      # borrowed: no other code has this list
        if not isinstance(<object> given, Delivery):
            raise TypeError(f"expected a Delivery, got {type(<object> given).__name__}")
        if <void*> (<QueueHandle> (<Delivery> given).queue).engine != <void*> core:
            raise StaleDelivery(f"delivery of message {message_handle(<Delivery> given).id} belongs to another engine")
        if not (<Delivery> given).settled and (
                not in_hands((<Delivery> given).entry) or (<Delivery> given).checked == core.checks):
            raise stale(<Delivery> given)
        (<Delivery> given).checked = core.checks
    return 0


cdef object stale(Delivery delivery):
    return StaleDelivery(f"delivery of message {message_handle(delivery).id} in queue {queue_handle(delivery).name!r} is stale: "
                         "it was settled, or taken back by the engine, or is given twice")


cdef inline Message message_handle(Delivery delivery):
    return <Message> delivery.message


cdef inline QueueHandle queue_handle(Delivery delivery):
    return <QueueHandle> delivery.queue


# ---- taking

cdef offer_t* first_offer_to(EngineLock core, object destination) except? NULL:
    cdef PyObject* found = PyDict_GetItemWithError(core.destinations, destination)
    return NULL if found == NULL else (<DestinationRef> found).destination.head


cdef Delivery hand_over(EngineLock core, offer_t* offer):
    """The delivery of an offer, which the application takes."""
    cdef PyObject* spare = xump_pool_get(&delivery_pool)
    cdef Delivery delivery
    cdef entry_t* entry = offer.entry
    cdef selector_t* selector = <selector_t*> entry.holder
    if spare == NULL:
        delivery = delivery_new()
    else:
        delivery = <Delivery> spare
        Py_XDECREF(spare)           # the pool's reference; `delivery` holds its own
    delivery.message = message_new(content_at(entry), entry.id, entry.timestamp, hops_of(&core.e, entry))
    delivery.destination = counted(offer.destination.name)
    delivery.queue = counted(entry.queue.handle)
    delivery.selector = counted(selector.handle)
    delivery.answered = False
    delivery.checked = 0
    delivery.delivery_count = entry.delivery_count + (entry.delivery_count < DELIVERIES_MAX)
    delivery.redelivered = is_redelivered(entry)
    delivery.settled = selector.infinite
    accept(&core.e, entry, &delivery.entry)
    return delivery


cdef Delivery next_undelivered(EngineLock core, object destination):
    """The next delivery to this destination that was kept back, or None. Those that are stale by now are dropped."""
    cdef Delivery delivery
    for delivery in list(core.undelivered):
        if not in_hands(delivery.entry) and not delivery.settled:
            core.undelivered.remove(delivery)
        elif destination is None or destination == <object> delivery.destination:
            core.undelivered.remove(delivery)
            return delivery
    return None


cdef int keep_undelivered(EngineLock core, list deliveries) except -1:
    """Keep back deliveries of a call that raised, so that the application did not get them: they go before all others."""
    core.undelivered[:0] = deliveries
    return core.wake({delivery.destination for delivery in deliveries}) if core.takers else 0


cdef class DeliveryIterator:
    """Yields deliveries until nothing has been deliverable for `timeout` seconds. Skips messages nacked after it began."""

    def __cinit__(self, EngineLock engine not None, destination, timeout):
        self.engine = engine
        self.core = engine
        self.destination = destination
        self.timeout = timeout
        self.began = self.core.e.nacks

    def __reduce__(self):
        raise no_pickle(self)

    def __iter__(self):
        return self

    def __next__(self):
        delivery = self.next_delivery()
        if delivery is None and self.timeout != 0:
            delivery = self.engine._wait(self.take, self.destination, self.timeout)
        if delivery is None:
            raise StopIteration
        return delivery

    def take(self):
        """The next delivery, or None."""
        return self.next_delivery()

    cdef Delivery next_delivery(self):
        cdef PyObject* core = <PyObject*> self.core     # borrowed: `self` refers to it
        cdef Delivery delivery = None
        cdef offer_t* offer
        cdef bint ended = False
        try:
            (<EngineLock> core).begin_call()
            try:
                if (<EngineLock> core).e.interrupted or (<EngineLock> core).undelivered:
                    delivery = self.left_over()
                if delivery is None:
                    offer = self.first_wanted() if self.is_picky() else first_offer(<EngineLock> core, self.destination)
                    if offer != NULL:
                        delivery = hand_over(<EngineLock> core, offer)
                        if delivery.settled:
                            go_on(&(<EngineLock> core).e)
            finally:
                (<EngineLock> core).unlock()
            ended = True
        finally:
            if not ended and delivery is not None:
                keep_undelivered(<EngineLock> core, [delivery])
        return delivery

    cdef inline bint is_picky(self) noexcept:
        """Whether a message was nacked since the iteration began."""
        return self.began != self.core.e.nacks

    cdef Delivery left_over(self):
        """A delivery to this destination that was kept back. Without one, a run that was interrupted goes on, and None."""
        cdef Delivery kept = next_undelivered(self.core, self.destination)
        if kept is None and self.core.e.interrupted:
            run(&self.core.e)
        return kept

    cdef offer_t* first_wanted(self) except? NULL:
        """The oldest offer that was not nacked since the iteration began; NULL: none."""
        cdef offer_t* offer
        # Go on behind the offers that were skipped before. Offers are not freed while the engine lives, so the number of the last
        # one tells whether it is still the same offer.
        if self.passed != NULL and self.passed.number == self.passed_number:
            offer = self.following(self.passed)
        else:
            offer = first_offer(self.core, self.destination)
        while offer != NULL and nacked(&self.core.e, offer.entry) > self.began:
            self.passed = offer
            self.passed_number = offer.number
            offer = self.following(offer)
        return offer

    cdef inline offer_t* following(self, const offer_t* offer) noexcept:
        return offer.below if self.destination is not None else offer.next


(<PyTypeObject*> Delivery).tp_dealloc = delivery_dealloc
xump_member(
    <PyTypeObject*> Delivery, &message_member_def, b"message", <size_t> &(<Delivery> NULL).message,
    b"The message that was delivered.")
xump_member(
    <PyTypeObject*> Delivery, &destination_member_def, b"destination", <size_t> &(<Delivery> NULL).destination,
    b"The name it came under.")
xump_member(
    <PyTypeObject*> Delivery, &queue_member_def, b"queue", <size_t> &(<Delivery> NULL).queue,
    b"The queue that it was taken from.")
xump_member(
    <PyTypeObject*> Delivery, &selector_member_def, b"selector", <size_t> &(<Delivery> NULL).selector,
    b"The selector it came by.")
document(Delivery, b"delivery_count", b"How often the application has taken this message, this time included.")
document(
    Delivery, b"redelivered",
    b"Whether it may have been handled before: it was delivered, or came back from a selector or a reopened store.")
