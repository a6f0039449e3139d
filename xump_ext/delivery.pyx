"""Deliveries: what the application holds in its hands (rules 8, 10).

A delivery remembers its entry, and the entry where it is remembered; whoever takes the message back clears both. So a stale
delivery costs nothing to recognise, and nothing to forget. Deliveries are not tracked by the collector.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint32_t

from xump_ext.content cimport checked_text
from xump_ext.envelope cimport DestinationHandle
from xump_ext.errors import StaleDelivery, no_pickle
from xump_ext.faces cimport QueueFace
from xump_ext.graph cimport DELIVERIES_MAX, engine_t, REASON_DELIVERY_LIMIT, REASON_REJECTED, selector_t
from xump_ext.ledger cimport PAID, accept, dead_letter, hops_of, in_hands, nacked, pay
from xump_ext.light cimport PyMemberDef, PyTypeObject, xump_member, xump_pool, xump_pool_get, xump_pool_put
from xump_ext.message cimport Message, message_new
from xump_ext.recall cimport note_nack, release, send_back
from xump_ext.routing cimport go_on, run
from xump_ext.source cimport content_at

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
    """One without a message holds nothing else either."""
    if in_hands((<Delivery> object).entry):
        (<Delivery> object).entry.child = NULL
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
    """A blank one; only what comes from here gets past `Delivery.__cinit__`."""
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
    """A message handed to the application under a destination name. Ack it, nack it or reject it; as a context manager it is
    acked when the block ends and nacked when it raises."""

    def __cinit__(self):
        if not making:
            raise TypeError("deliveries come from Engine.take() and Engine.deliveries()")

    cdef PyObject* door(self) except NULL:
        """The engine, borrowed: our queue holds it."""
        if not in_hands(self.entry):
            queue_face(self).engine._check_open()
            raise stale(self)
        return <PyObject*> self.entry.queue.engine.face

    @property
    def id(self):
        """The message's id in its queue."""
        return message_face(self).id

    def ack(self):
        """Pay for this very message. Raises `StaleDelivery` if that was done before, or it was taken back. O(queues upstream)."""
        self.pay_for_it()

    cdef int pay_for_it(self) except -1:
        cdef PyObject* door
        if self.settled:
            return 0
        door = self.door()
        (<Door> door).begin()
        try:
            if not in_hands(self.entry):
                raise stale(self)
            self.answered = True
            pay(&(<Door> door).e, self.entry)
            go_on(&(<Door> door).e)
        finally:
            (<Door> door).leave()
        return 0

    def nack(self, *, requeue=True):
        """Give it back: it waits at its old place again; with `requeue=False` it is dead-lettered, else dropped and counted."""
        if requeue is not True and requeue is not False:
            raise TypeError(f"requeue must be a bool, got {type(requeue).__name__}")
        self.give_back(requeue, None)

    def reject(self, reason="rejected"):
        """Dead-letter it (else drop and count it); a reason of your own goes into the header `xump_detail`."""
        reason = checked_text(reason, "reason")
        self.give_back(False, None if reason == "rejected" else reason)

    cdef int give_back(self, bint requeue, object detail) except -1:
        cdef Door door
        cdef entry_t* entry
        if self.settled:
            return 0
        door = <Door> self.door()
        door.begin()
        try:
            entry = self.entry
            if not in_hands(entry):
                raise stale(self)
            if not requeue or is_spent(entry):
                content_at(entry)       # it will be bounced; when it cannot be read nothing has changed
            self.answered = True
            if requeue:
                nack_entry(&door.e, entry)
            else:
                release(&door.e, entry)
                dead_letter(&door.e, entry, REASON_REJECTED, detail, NULL)
            go_on(&door.e)
        finally:
            door.leave()
        return 0

    def __enter__(self):
        return message_face(self)

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
        return (f"<Delivery of {message_face(self)!r} to {<object> self.destination!r} from {queue_face(self).name!r}, "
                f"{state}>")


cdef int nack_entry(engine_t* engine, entry_t* entry) except -1:
    """Back to its old place, or to the dead letter queue when the application has taken it too often (rule 10)."""
    cdef bint spent = is_spent(entry)
    release(engine, entry)
    if spent:
        return dead_letter(engine, entry, REASON_DELIVERY_LIMIT, None, NULL)
    note_nack(engine, entry)
    return send_back(engine, entry)


cdef bint is_spent(const entry_t* entry) noexcept:
    """Whether the application, which has it, has taken it as often as it may."""
    cdef uint32_t limit = delivery_limit_of(entry)
    return limit and entry.delivery_count >= limit


cdef uint32_t delivery_limit_of(const entry_t* entry) noexcept:
    """The queue's own, else that of the nearest queue upstream still waiting for its payment (rule 10); 0: none."""
    while entry != NULL:
        if entry.queue.delivery_limit:
            return entry.queue.delivery_limit
        entry = entry.parent
    return 0


cdef int check_deliveries(Door door, list deliveries) except -1:
    """Every one is a live delivery of this engine, and is there once: each remembers the number of the check."""
    cdef PyObject* given
    cdef Py_ssize_t i
    door.checks += 1
    for i in range(len(deliveries)):
        given = PyList_GET_ITEM(deliveries, i)      # borrowed: the list is the caller's own
        if not isinstance(<object> given, Delivery):
            raise TypeError(f"expected a Delivery, got {type(<object> given).__name__}")
        if <void*> (<QueueFace> (<Delivery> given).queue).engine != <void*> door:
            raise StaleDelivery(f"delivery of message {message_face(<Delivery> given).id} belongs to another engine")
        if not (<Delivery> given).settled and (
                not in_hands((<Delivery> given).entry) or (<Delivery> given).checked == door.checks):
            raise stale(<Delivery> given)
        (<Delivery> given).checked = door.checks
    return 0


cdef object stale(Delivery delivery):
    return StaleDelivery(f"delivery of message {message_face(delivery).id} in queue {queue_face(delivery).name!r} is stale: "
                         "it was settled, or taken back by the engine, or is given twice")


cdef inline Message message_face(Delivery delivery):
    return <Message> delivery.message


cdef inline QueueFace queue_face(Delivery delivery):
    return <QueueFace> delivery.queue


# ---- taking

cdef offer_t* first_offer_to(Door door, object destination) except? NULL:
    cdef PyObject* found = PyDict_GetItemWithError(door.destinations, destination)
    return NULL if found == NULL else (<DestinationHandle> found).destination.head


cdef Delivery hand_over(Door door, offer_t* offer):
    """The application takes an offer."""
    cdef PyObject* spare = xump_pool_get(&delivery_pool)
    cdef Delivery delivery
    cdef entry_t* entry = offer.entry
    cdef selector_t* selector = <selector_t*> entry.holder
    if spare == NULL:
        delivery = delivery_new()
    else:
        delivery = <Delivery> spare
        Py_XDECREF(spare)           # the pool's reference; `delivery` holds its own
    delivery.message = message_new(content_at(entry), entry.id, entry.timestamp, hops_of(&door.e, entry))
    delivery.destination = counted(offer.destination.name)
    delivery.queue = counted(entry.queue.face)
    delivery.selector = counted(selector.face)
    delivery.answered = False
    delivery.checked = 0
    delivery.delivery_count = entry.delivery_count + (entry.delivery_count < DELIVERIES_MAX)
    delivery.redelivered = is_redelivered(entry)
    delivery.settled = selector.infinite
    accept(&door.e, entry, &delivery.entry)
    return delivery


cdef Delivery next_kept(Door door, object destination):
    """The next one to this destination of those that were kept back, or None. What was taken back meanwhile is forgotten."""
    cdef Delivery delivery
    for delivery in list(door.kept_back):
        if not in_hands(delivery.entry) and not delivery.settled:
            door.kept_back.remove(delivery)
        elif destination is None or destination == <object> delivery.destination:
            door.kept_back.remove(delivery)
            return delivery
    return None


cdef int keep_back(Door door, list deliveries) except -1:
    """They were taken by a call that raised, so that nobody got them: they go before all others."""
    door.kept_back[:0] = deliveries
    return door.wake({delivery.destination for delivery in deliveries}) if door.waiters else 0


cdef class DeliveryIterator:
    """Yields deliveries until nothing has been deliverable for `timeout` seconds; skips what was nacked after it began."""

    def __cinit__(self, Door engine not None, destination, timeout):
        self.engine = engine
        self.door = engine
        self.destination = destination
        self.timeout = timeout
        self.began = self.door.e.nacks

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
        """The next one, or None."""
        return self.next_delivery()

    cdef Delivery next_delivery(self):
        cdef PyObject* door = <PyObject*> self.door     # borrowed: it is ours for good
        cdef Delivery delivery = None
        cdef offer_t* offer
        cdef bint ended = False
        try:
            (<Door> door).begin()
            try:
                if (<Door> door).e.interrupted or (<Door> door).kept_back:
                    delivery = self.left_over()
                if delivery is None:
                    offer = self.first_wanted() if self.is_picky() else first_offer(<Door> door, self.destination)
                    if offer != NULL:
                        delivery = hand_over(<Door> door, offer)
                        if delivery.settled:
                            go_on(&(<Door> door).e)
            finally:
                (<Door> door).leave()
            ended = True
        finally:
            if not ended and delivery is not None:
                keep_back(<Door> door, [delivery])
        return delivery

    cdef inline bint is_picky(self) noexcept:
        """Something was nacked since the iteration began."""
        return self.began != self.door.e.nacks

    cdef Delivery left_over(self):
        """What was kept back, if there is something for this destination; else what was interrupted goes on."""
        cdef Delivery kept = next_kept(self.door, self.destination)
        if kept is None and self.door.e.interrupted:
            run(&self.door.e)
        return kept

    cdef offer_t* first_wanted(self) except? NULL:
        """The oldest one that was not nacked since the iteration began."""
        cdef offer_t* offer
        # Goes on behind those that were skipped before: memory of offers is not given back while the engine lives, so the number
        # tells whether the one that was skipped last still stands there.
        if self.passed != NULL and self.passed.number == self.passed_number:
            offer = self.following(self.passed)
        else:
            offer = first_offer(self.door, self.destination)
        while offer != NULL and nacked(&self.door.e, offer.entry) > self.began:
            self.passed = offer
            self.passed_number = offer.number
            offer = self.following(offer)
        return offer

    cdef inline offer_t* following(self, const offer_t* offer) noexcept:
        return offer.below if self.destination is not None else offer.next


cdef extern from *:
    """
    #define XUMP_DELIVERY_OFFSET(member) offsetof(struct __pyx_obj_8xump_ext_8delivery_Delivery, member)
    #define XUMP_MESSAGE_OFFSET XUMP_DELIVERY_OFFSET(message)
    #define XUMP_DESTINATION_OFFSET XUMP_DELIVERY_OFFSET(destination)
    #define XUMP_QUEUE_OFFSET XUMP_DELIVERY_OFFSET(queue)
    #define XUMP_SELECTOR_OFFSET XUMP_DELIVERY_OFFSET(selector)
    """
    const size_t message_offset "XUMP_MESSAGE_OFFSET"
    const size_t destination_offset "XUMP_DESTINATION_OFFSET"
    const size_t queue_offset "XUMP_QUEUE_OFFSET"
    const size_t selector_offset "XUMP_SELECTOR_OFFSET"

(<PyTypeObject*> Delivery).tp_dealloc = delivery_dealloc
xump_member(<PyTypeObject*> Delivery, &message_member_def, b"message", message_offset, b"The message.")
xump_member(<PyTypeObject*> Delivery, &destination_member_def, b"destination", destination_offset, b"The name it came under.")
xump_member(<PyTypeObject*> Delivery, &queue_member_def, b"queue", queue_offset, b"The queue that it was taken from.")
xump_member(<PyTypeObject*> Delivery, &selector_member_def, b"selector", selector_offset, b"The selector it came by.")
