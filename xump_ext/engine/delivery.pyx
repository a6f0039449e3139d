"""Deliveries: messages in your program's hands (rules 8, 10).

While your program has a message, the delivery and the entry point to each other:

    Delivery.entry ──► entry_t                  NULL: stale        PAID: settled
    entry_t.below.delivery ──► Delivery.entry   NULL: your program has dropped the delivery

When the engine takes the message back, it clears both. So a stale delivery is recognised by one look at a pointer, and a dropped
one needs no search. The collector does not track deliveries: that would cost a header each, and a look at all that are held.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import Reentrant, StaleDelivery, StoreFull, no_pickle
from xump_ext.memory.document cimport document
from xump_ext.memory.freelist cimport PyMemberDef, PyTypeObject, xump_member, xump_pool, xump_pool_get, xump_pool_put
from xump_ext.message.content cimport checked_text, no_parts, parts_t
from xump_ext.message.headers cimport content_t, correlation_of
from xump_ext.message.message cimport Message, content_new, message_new
from xump_ext.message.times cimport NEVER, seconds_ns
from xump_ext.route.answers cimport reject_entry
from xump_ext.route.offering cimport PAID, accept, in_hands, pay, take_by_hand
from xump_ext.route.ready cimport deadline_set
from xump_ext.route.settling cimport hops_of
from xump_ext.route.requeue cimport NACK_ASKS, NACK_RETURNS, nack_entry
from xump_ext.route.routing cimport go_on
from xump_ext.select.groups cimport group_key
from xump_ext.state.constants cimport DELIVERIES_MAX
from xump_ext.state.index cimport prefetch_page
from xump_ext.state.graph cimport selector_t
from xump_ext.state.lazy_content cimport content_at, content_needed

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t at)

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
        if (<Delivery> object).key != NULL:
            Py_XDECREF((<Delivery> object).key)
            (<Delivery> object).key = NULL


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
    """A message that was handed to your program under a destination (consumer name).

    Answer it once, with `ack`, `nack` or `reject`. As a context manager it gives the message, and acks it when the block ends or
    nacks it when the block raises. A delivery is stale once it was answered, or once the engine has taken the message back,
    because its selector was deleted for example. If the selector has `INFINITE` credit, the delivery is settled already, and
    answering it does nothing.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     number = jobs.publish("resize", b"cat.png")
    ...     [delivery] = engine.take(1, "worker")
    ...     with delivery as message:
    ...         print(message.address, message.body)
    resize b'cat.png'
    """

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
        """The id of the message in its queue."""
        return message_handle(self).id

    @property
    def address(self):
        """The address of the message, by which it was routed."""
        return message_handle(self).address

    @property
    def body(self):
        """The body of the message, as bytes."""
        return message_handle(self).body

    @property
    def headers(self):
        """The headers of the message, a read-only mapping."""
        return message_handle(self).headers

    @property
    def group(self):
        """The key by which its queue orders the message, or None."""
        return None if self.key == NULL else <object> self.key

    def extend(self, seconds):
        """Give your program more time to answer: so many seconds, from now on.

        Args:
            seconds: Instead of what was left of the selector's `ack_timeout`.

        Raises:
            StaleDelivery: It was answered before, or its time was over.
            ValueError: Its selector has no `ack_timeout`, so it can be answered at any time; or `seconds` is wrong.
            Closed: The engine is closed.

        Cost: O(1).
        """
        cdef PyObject* core
        cdef int64_t span = seconds_ns(seconds, "seconds")
        core = NULL if self.settled else self.core()
        if core == NULL:
            raise no_deadline()
        (<EngineLock> core).begin_call()
        try:
            if not in_hands(self.entry):
                raise stale(self)
            if self.entry.extra == NULL or self.entry.extra.due == NEVER:       # its selector may be gone
                raise no_deadline()
            deadline_set(&(<EngineLock> core).e, self.entry, span)
            go_on(&(<EngineLock> core).e)
        finally:
            (<EngineLock> core).unlock()

    def reply(self, body=b"", headers=None):
        """Publish a reply to the queue that the message names in `reply_to`. It acknowledges nothing.

        Args:
            body: Up to 64 MiB of bytes.
            headers: Values by name.

        Returns:
            The id of the reply in that queue, as `Engine.publish` does. The reply's `correlation_id` is the `message_id` of this
            message, or, if that has none, its `correlation_id`.

        Raises:
            ValueError: The message has no `reply_to`.
            QueueNotFound, QueueFull, StoreFull, StoreFailed, Closed, TypeError: As `Engine.publish`.
        """
        cdef Message message = message_handle(self)
        cdef EngineLock core = <EngineLock> queue_handle(self).engine
        cdef content_t* asked = message.content
        cdef content_t* content
        cdef parts_t parts = no_parts()
        core._check_open()
        if asked.reply_to == NULL:
            raise ValueError(f"message {message.id} of queue {queue_handle(self).name!r} names no queue to reply to (reply_to)")
        parts.correlation_id = correlation_of(asked) if asked.message_id == NULL else asked.message_id
        content = content_new("", body, headers, None, None, &parts)
        return core.publish_content(<object> asked.reply_to, content, None, NEVER)

    def ack(self):
        """Acknowledge this message: it is settled in its queue, and in every queue that it was moved through.

        Raises:
            StaleDelivery: It was answered before, or the engine has taken it back.
            StoreFailed: The store of the message has failed: the message is settled in memory, and the store still has it.
            Closed: The engine is closed.

        If it raises another error, nothing has changed.

        Cost: O(queues that it was moved through), and the run that follows.
        """
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

    def nack(self, *, requeue=True, delay=None):
        """Return the message to its old place in its queue, to be taken again.

        Args:
            requeue: False: do not return the message; dead-letter it as `reject` does.
            delay: After how many seconds it may be taken again; until then it is delayed in its queue. None: as the `retry_delay`
                of its queue says, or of the nearest queue upstream where the message is still outstanding; at once if none has
                one.

        Raises:
            StaleDelivery: It was answered before, or the engine has taken it back.
            StoreFull: With `requeue=False`, and a store has no room for the dead letter.
            StoreFailed: The store of the message has failed: what was decided counts in memory only.
            Closed: The engine is closed.
            TypeError, ValueError: `requeue` is not a bool, or `delay` is wrong, or is given with `requeue=False`.

        If it raises another error, nothing has changed. A message that your program has taken as often as its
        `delivery_limit` allows is dead-lettered; as long as a store has no room for that, it returns.

        Cost: O(log messages that returned before), and the run that follows.
        """
        if requeue is True and delay is None:
            self.return_or_reject(True, None, NEVER)
            return
        argument = nack_terms(self, requeue, delay)[2]
        self.return_or_reject(requeue, None, argument if requeue else NEVER)

    def reject(self, reason="rejected"):
        """Never deliver this message again: it goes to the dead letter queue, or is dropped and counted if there is none.

        Args:
            reason: A text for the header `xump_detail` of the dead letter; the default adds no such header.

        Raises:
            StaleDelivery: It was answered before, or the engine has taken it back.
            StoreFull: A store has no room for the dead letter.
            StoreFailed: The store of the message has failed: the message is settled in memory, and the store still has it.
            Closed: The engine is closed.
            TypeError, ValueError: `reason` is not a str, or is too long.

        If it raises another error, nothing has changed.

        Cost: O(queues that it was moved through), and the run that follows.
        """
        self.return_or_reject(False, reject_terms(self, reason)[2], NEVER)

    cdef int return_or_reject(self, bint requeue, object detail, int64_t delay) except -1:
        cdef EngineLock core
        if self.settled:
            return 0
        core = <EngineLock> self.core()
        core.begin_call()
        try:
            try:
                self.go_back_or_away(core, requeue, detail, delay)
            except StoreFull as error:
                self.go_in_room(core, requeue, detail, delay, error)
            self.answered = True
            go_on(&core.e)
        finally:
            core.unlock()
        return 0

    cdef int go_back_or_away(self, EngineLock core, bint requeue, object detail, int64_t delay) except -1:
        if not in_hands(self.entry):
            raise stale(self)
        if requeue:
            return nack_entry(&core.e, self.entry, delay, True, NACK_ASKS)
        return reject_entry(&core.e, self.entry, detail, False)

    cdef int go_in_room(self, EngineLock core, bint requeue, object detail, int64_t delay, error) except -1:
        """There was no room for the dead letter: its store makes some. If it cannot, a nack returns the message once more."""
        if core.make_room_for_letters():
            try:
                return self.go_back_or_away(core, requeue, detail, delay)
            except StoreFull as again:
                error = again
        if not requeue:
            raise error
        return nack_entry(&core.e, self.entry, delay, True, NACK_RETURNS)

    def __enter__(self):
        if not self.settled:
            self.core()         # raises if it was answered before
        return message_handle(self)

    def __exit__(self, kind, error, traceback):
        if self.answered or self.entry == PAID:
            return
        if kind is None:
            self.pay_for_it()
        elif in_hands(self.entry):
            try:
                self.return_or_reject(True, None, NEVER)
            except StaleDelivery:       # its time to be answered was over; the error that ended the block is the one to raise
                return
            except Reentrant:           # the block ends inside a call, as when the collector finds its generator there
                (<EngineLock> self.core()).teller.after_call(self.__exit__, (kind, None, None))

    def __reduce__(self):
        raise no_pickle(self)

    def __repr__(self):
        state = "settled" if self.settled else f"take {self.delivery_count}" if in_hands(self.entry) else "stale"
        return (f"<Delivery of {message_handle(self)!r} to {<object> self.destination!r} from {queue_handle(self).name!r}, "
                f"{state}>")


def nack_terms(delivery, requeue, delay):
    """The operation of a transaction that a nack is: (verb, delivery, argument). Raises for arguments that are wrong."""
    if requeue is not True and requeue is not False:
        raise TypeError(f"requeue must be a bool, got {type(requeue).__name__}")
    if delay is not None and not requeue:
        raise ValueError(f"delay={delay!r} with requeue=False: a message that is not returned is not delayed; leave one out")
    if not requeue:
        return "reject", delivery, None
    return "nack", delivery, NEVER if delay is None else seconds_ns(delay, "delay")


def reject_terms(delivery, reason):
    """The operation of a transaction that a reject is. Raises for a reason that is no text, or too long."""
    reason = checked_text(reason, "reason")
    return "reject", delivery, None if reason == "rejected" else reason


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
            raise given_twice(<Delivery> given) if in_hands((<Delivery> given).entry) else stale(<Delivery> given)
        (<Delivery> given).checked = core.checks
    return 0


cdef object no_deadline():
    return ValueError("this delivery has no deadline: its selector has no ack_timeout")


cdef object stale(Delivery delivery):
    return StaleDelivery(f"delivery of message {message_handle(delivery).id} in queue {queue_handle(delivery).name!r} is stale: "
                         "it was answered before, or the engine has taken the message back")


cdef object given_twice(Delivery delivery):
    return StaleDelivery(f"delivery of message {message_handle(delivery).id} in queue {queue_handle(delivery).name!r} is given "
                         "twice in one call")


cdef inline Message message_handle(Delivery delivery):
    return <Message> delivery.message


cdef inline QueueHandle queue_handle(Delivery delivery):
    return <QueueHandle> delivery.queue


# ---- taking

cdef Delivery hand_over(EngineLock core, offer_t* offer):
    """The delivery of an offer, which your program takes."""
    cdef PyObject* spare = xump_pool_get(&delivery_pool)
    cdef Delivery delivery
    cdef entry_t* entry = offer.entry
    cdef selector_t* selector = <selector_t*> entry.holder
    if spare == NULL:
        delivery = delivery_new()
    else:
        delivery = <Delivery> spare
        Py_XDECREF(spare)           # the pool's reference; `delivery` holds its own
    delivery_fill(core, delivery, entry, content_at(entry))
    delivery.destination = counted(offer.destination.name)
    delivery.selector = counted(selector.handle)
    delivery.settled = selector.infinite
    accept(&core.e, entry, &delivery.entry)
    return delivery


cdef inline int delivery_fill(EngineLock core, Delivery delivery, entry_t* entry, content_t* content) except -1:
    delivery.message = message_new(content, entry.id, entry.timestamp, hops_of(&core.e, entry))
    delivery.queue = counted(entry.queue.handle)
    if entry.queue.special:         # else it is NULL, as it was left
        delivery.destination = delivery.selector = NULL         # those of its last use: reading the key may fail
        delivery.key = key_counted(entry)
        prefetch_page(&entry.queue.index, entry.id)         # for the ack
    delivery.answered = False
    delivery.checked = 0
    delivery.delivery_count = entry.delivery_count + (entry.delivery_count < DELIVERIES_MAX)
    delivery.redelivered = is_redelivered(entry)
    return 0


cdef PyObject* key_found(entry_t* entry) except? NULL:
    key = group_key(entry)
    return NULL if key is None else counted(<void*> key)


cdef Delivery hand_by_hand(EngineLock core, entry_t* entry):
    """The delivery of a ready message that your program takes without a selector."""
    cdef Delivery delivery
    content_needed(&core.e, entry)      # it may be an unrouted row of a batch
    delivery = delivery_of(core, entry, content_at(entry))     # may fail, so it comes before any change
    take_by_hand(&core.e, entry, &delivery.entry)
    return delivery


cdef content_t* NO_CONTENT = content_new("", b"", None, None, None, NULL)


cdef Delivery delivery_to_settle(EngineLock core, entry_t* entry):
    """The same for whoever only settles it: its message is empty, so that none is read from a disk."""
    return delivery_of(core, entry, NO_CONTENT)


cdef Delivery delivery_of(EngineLock core, entry_t* entry, content_t* content):
    """A delivery without a selector that describes an entry, and has yet to remember it."""
    cdef Delivery delivery = delivery_new()
    delivery_fill(core, delivery, entry, content)
    delivery.destination = counted(<void*> None)
    delivery.selector = counted(<void*> None)
    delivery.settled = False
    return delivery


(<PyTypeObject*> Delivery).tp_dealloc = delivery_dealloc
xump_member(
    <PyTypeObject*> Delivery, &message_member_def, b"message", <size_t> &(<Delivery> NULL).message,
    b"The message that was delivered.")
xump_member(
    <PyTypeObject*> Delivery, &destination_member_def, b"destination", <size_t> &(<Delivery> NULL).destination,
    b"The destination (consumer name) under which it was delivered.")
xump_member(
    <PyTypeObject*> Delivery, &queue_member_def, b"queue", <size_t> &(<Delivery> NULL).queue,
    b"The queue that it was taken from.")
xump_member(
    <PyTypeObject*> Delivery, &selector_member_def, b"selector", <size_t> &(<Delivery> NULL).selector,
    b"The selector that took the message and delivered it.")
document(Delivery, b"delivery_count", b"How often your program has taken this message, this time included.")
document(
    Delivery, b"redelivered",
    b"Whether it may have been handled before: your program took it, or it came back with a reopened store.")
