"""The engine as Python calls it: every call enters alone, changes the books, drives the graph until it is quiet, and leaves.

Entering alone costs a comparison: the interpreter lets one thread run at a time, and the core never gives way while it works,
unless it asks user code (a filter, an operator, a clock). Only then can another thread find the engine busy; it waits at a
lock that exists for that. The same thread, coming back from inside, gets `Reentrant`.

What Python objects want to say about the arguments is said in `xump.engine`, which derives from `Core`; here they are
right, except for messages, which are checked where they are made.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.pystate cimport PyThreadState_Get
from libc.stdlib cimport free
from libc.string cimport memset

from xump_ext.admission cimport Admissions, letters_take
from xump_ext.building cimport (
    message_delete, queue_create, queue_delete, replay_of, selector_create, selector_delete, selector_enable,
)
from xump_ext.credit cimport is_able, overflow_has_room, selector_rest, selector_wake
from xump_ext.envelope cimport DestinationHandle, QueueHandle, queue_named, target_of
from xump_ext.errors import (
    Closed, ForkedError, QueueFull, QueueNotFound, Reentrant, StaleDelivery,
)
from xump_ext.filter cimport Filter
from xump_ext.graph cimport (
    BOUND, HISTORY, MOVED, OFFERED, REASON_DELIVERY_LIMIT, REASON_NO_QUEUE, REASON_OVERFLOW,
    REASON_REJECTED, REDELIVERED, TAKEN, TIME_UNREAD, UNLIMITED, UNROUTED, WAITING, page_t, selector_t, trip_t,
)
from xump_ext.light cimport PyMemberDef, PyTypeObject, xump_member, xump_pool, xump_pool_get, xump_pool_put
from xump_ext.index cimport chunks_free, index_from, index_get, index_until
from xump_ext.heap cimport heap_free
from xump_ext.ledger cimport (
    accept, dead_letter, end_trips, enter, hops_of, make_copy, nacked, note_nack, offers_free, own_dead_letter, pay, release,
    send_back,
)
from xump_ext.message cimport content_new, content_release, content_without_destination, message_new
from xump_ext.routing cimport go_on, wake_everything
from xump_ext.trip cimport trip_new, trip_release, trips_free

cdef extern from "pythread.h":
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock() nogil
    int PyThread_acquire_lock(PyThread_type_lock, int) nogil
    void PyThread_release_lock(PyThread_type_lock) nogil
    void PyThread_free_lock(PyThread_type_lock) nogil

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL
    PyObject* PyTuple_GET_ITEM(object tuple, Py_ssize_t at)

PAGE = 256      # messages read by one call of `browse`

cdef dict STATES = {"ready": (1 << UNROUTED) | (1 << WAITING) | (1 << BOUND),
                    "outstanding": (1 << OFFERED) | (1 << TAKEN) | (1 << MOVED),
                    "history": 1 << HISTORY, None: 0xFF}


cdef class Core:
    """The compiled part of `xump.Engine`."""

    def __cinit__(self, *args, **kwargs):
        memset(&self.e, 0, sizeof(engine_t))
        self._queues = {}
        self._selectors = {}
        self.destinations = {}
        self.nacked = {}
        self.troubles = []
        self.spare_slots = []
        self._waiters = []
        self.e.run_start = 1
        self.e.queues = <void*> self._queues
        self.e.destinations = <void*> self.destinations
        self.e.nacked = <void*> self.nacked
        self.e.troubles = <void*> self.troubles
        self.e.face = <void*> self
        self.turn = PyThread_allocate_lock()
        PyThread_acquire_lock(self.turn, 1)

    def __del__(self):
        # Called before the collector takes the objects apart, while queues and selectors are still whole.
        if self.state == IDLE:
            self.state = CLOSED
            self.close_books()

    def __dealloc__(self):
        PyThread_free_lock(self.turn)

    @property
    def dead_letter(self):
        """The name of the queue for what no queue's own dead letter takes, or None."""
        return self._dead_letter

    def _configure(self, clock, hop_limit, letters):
        self.clock = clock
        self.e.hop_limit = hop_limit
        self._dead_letter = letters
        self.e.dead_letter = NULL if letters is None else <void*> letters

    # ---- one at a time

    cdef int begin(self) except -1:
        if self.state != IDLE:
            self.begin_slowly()
        self.state = BUSY
        self.owner = <void*> PyThreadState_Get()
        self.e.now = TIME_UNREAD
        if self.clock is not None:
            self.read_clock()
        return 0

    cdef int begin_slowly(self) except -1:
        """Busy: wait for one's turn. Closed, forked or called from inside: an error."""
        while self.state != IDLE:
            if self.state == CLOSED:
                raise Closed("the engine is closed; create another one")
            if self.state == FORKED:
                raise ForkedError("the engine belongs to the parent process; create another one in this process")
            if self.owner == <void*> PyThreadState_Get():
                raise Reentrant("the engine was called from inside a filter, an operator or its clock; do it after the call")
            self.contenders += 1
            with nogil:
                PyThread_acquire_lock(self.turn, 1)
            self.contenders -= 1
        return 0

    def _check_open(self):
        """Raises what any call would for a closed engine, a forked one, or a call from inside."""
        if self.state != IDLE:
            self.begin_slowly()

    cdef int read_clock(self) except -1:
        try:
            self.e.now = self.clock()
        except BaseException:
            self.state = IDLE
            if self.contenders:
                PyThread_release_lock(self.turn)
            raise
        return 0

    cdef int leave(self) except -1:
        self.state = IDLE
        if self.contenders or self.troubles or self._waiters:
            self.end_slowly()
        return 0

    cdef int end_slowly(self) except -1:
        """Lets the next thread in, tells who waits for deliveries, reports what user code raised."""
        if self.contenders:
            PyThread_release_lock(self.turn)
        if self.e.offered != self.offered_before:
            self.offered_before = self.e.offered    # before waking: another thread may offer meanwhile
            if self._waiters:
                self._wake_waiters()
        if self.troubles:
            troubles = list(self.troubles)
            self.troubles.clear()
            self._report(troubles)
        return 0

    def _deliverable(self, destination):
        """Whether a delivery waits for the application; asked without entering."""
        if destination is None:
            return self.e.offer_count > 0
        handle = self.destinations.get(destination)
        return handle is not None and (<DestinationHandle> handle).destination.count > 0

    # ---- publishing

    cdef queue_t* queue_of(self, object queue) except? NULL:
        """By name or by object; NULL when there is none of that name."""
        cdef PyObject* found
        if PyUnicode_CheckExact(queue):
            found = PyDict_GetItemWithError(self._queues, queue)
            return NULL if found == NULL else (<QueueHandle> found).queue
        if isinstance(queue, QueueFace):
            if (<QueueFace> queue).engine is not self:
                raise QueueNotFound(f"queue {queue.name!r} belongs to another engine")
            return (<QueueFace> queue).queue
        if isinstance(queue, str):
            return queue_named(&self.e, str(queue))
        raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")

    cdef uint64_t admit(self, queue_t* queue, object name, content_t* content) except? 0:
        """Lets one message in, or dead-letters it (0), or raises. Takes over the reference unless it raises."""
        if queue == NULL:
            if not letters_take(queue_named(&self.e, self._dead_letter), content, str(name), REASON_NO_QUEUE, 1):
                raise QueueNotFound(f"no queue {str(name)!r}")
            self.no_queue += 1
            content_release(content)
            return 0
        if queue.ready >= queue.limit and not overflow_has_room(queue, content, NULL):
            letters = own_dead_letter(queue)
            if not letters_take(letters, content, (<QueueFace> queue.face).name, REASON_OVERFLOW, 1):
                raise QueueFull(f"queue {(<QueueFace> queue.face).name!r} has {queue.ready} ready messages, its limit is "
                                f"{queue.limit}")
            queue.dead_lettered[REASON_OVERFLOW] += 1
            content_release(content)
            return 0
        return enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)

    def publish(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None):
        """Publish a message into a queue and drive the graph until it is quiet.

        Returns the id issued in that queue, also when the message went on at once; 0 when it was turned away there and
        dead-lettered instead. Raises `QueueNotFound`, `QueueFull`, TypeError, ValueError; then nothing changed. Costs O(length of
        the address) to match at first, a look-up from then on, and what follows from it.
        """
        cdef content_t* content = content_new(address, body, headers, reply_to, message_id)
        cdef uint64_t id
        try:
            self.begin()
            try:
                id = self.admit(self.queue_of(queue), queue, content)
                content = NULL
                go_on(&self.e)
            finally:
                self.leave()
        finally:
            if content != NULL:
                content_release(content)
        return id

    def publish_many(self, queue, messages):
        """Publish an iterable of `Message`s, or of tuples in the order of `publish`'s arguments, as one run.

        All enter first, then the graph is driven. Room for all is checked beforehand: `QueueFull`, and none has entered. Returns
        the range of the ids issued. Cost per message as `publish`, without the call.
        """
        cdef Admissions batch = Admissions.__new__(Admissions)
        for message in messages:
            batch.add(NULL, None, content_of(message))
        batch.name = queue
        self.begin()
        try:
            return self.admit_all(batch, self.queue_of(queue))
        finally:
            self.leave()

    cdef object admit_all(self, Admissions batch, queue_t* queue):
        cdef Py_ssize_t i
        cdef uint64_t first = 0, count = 0, id
        cdef content_t* content
        batch.engine = &self.e
        batch.limited = queue == NULL or queue.limit != UNLIMITED
        for i in range(batch.count):
            batch.items[i].queue = queue
        batch.check()
        for i in range(batch.count):
            content = batch.items[i].content
            batch.items[i].content = NULL
            id = self.admit(queue, batch.name, content)
            if id:
                first = first or id
                count += 1
        go_on(&self.e)
        return range(first, first + count)

    def _commit(self, list operations):
        """Carries out a transaction's `("publish", queue, message)` and `("ack", delivery)`; returns the ids."""
        cdef Admissions batch = Admissions.__new__(Admissions)
        cdef Py_ssize_t i
        cdef list ids = []
        cdef content_t* content
        for operation in operations:
            if operation[0] == "publish":
                batch.add(NULL, operation[1], content_of(operation[2]))
        self.begin()
        try:
            batch = self.transaction_batch(operations, batch)
            batch.check()
            for i in range(batch.count):
                if batch.items[i].paid != NULL:
                    pay(&self.e, batch.items[i].paid)
                elif batch.items[i].content != NULL:
                    content = batch.items[i].content
                    batch.items[i].content = NULL
                    ids.append(self.admit(batch.items[i].queue, batch.names.get(i), content))
            go_on(&self.e)
        finally:
            self.leave()
        return ids

    cdef Admissions transaction_batch(self, list operations, Admissions contents):
        """Contents and payments in order; every delivery is checked, none may be given twice."""
        cdef Admissions batch = Admissions.__new__(Admissions)
        cdef Delivery delivery
        cdef Py_ssize_t at = 0
        batch.engine = &self.e
        check_deliveries(self, [operation[1] for operation in operations if operation[0] == "ack"])
        for operation in operations:
            if operation[0] == "publish":
                batch.add(self.queue_of(operation[1]), operation[1], contents.items[at].content)
                contents.items[at].content = NULL
                at += 1
            else:
                delivery = operation[1]
                delivery.answered = True
                if not delivery.settled:
                    batch.add_payment(delivery.entry)
        return batch

    # ---- taking

    cdef offer_t* first_offer(self, object destination) except? NULL:
        cdef PyObject* found
        if destination is None:
            return self.e.offers_head
        found = PyDict_GetItemWithError(self.destinations, destination)
        return NULL if found == NULL else (<DestinationHandle> found).destination.head

    cdef Delivery hand_over(self, offer_t* offer):
        """The application takes an offer."""
        cdef Delivery delivery = delivery_new()
        cdef entry_t* entry = offer.entry
        cdef selector_t* selector = <selector_t*> entry.holder
        delivery.message = message_new(entry.content, entry.id, entry.timestamp, hops_of(&self.e, entry))
        delivery.destination = <object> offer.destination.name
        delivery.queue = <QueueFace> entry.queue.face
        delivery.selector = <SelectorFace> selector.face
        delivery.delivery_count = entry.delivery_count + 1
        delivery.redelivered = entry.flags & REDELIVERED != 0 or entry.delivery_count > 0
        delivery.settled = selector.infinite
        accept(&self.e, entry, &delivery.entry)
        if delivery.settled:
            go_on(&self.e)
        return delivery

    def _take(self, Py_ssize_t n, destination):
        """Up to n deliveries, as many as there are."""
        cdef list taken = []
        cdef offer_t* offer
        self.begin()
        try:
            while n > 0:
                offer = self.first_offer(destination)
                if offer == NULL:
                    break
                taken.append(self.hand_over(offer))
                n -= 1
        finally:
            self.leave()
        return taken

    def ack(self, deliveries):
        """Ack many deliveries at once: pay for them in order, then drive the graph once.

        Raises `StaleDelivery` if one of them is stale or given twice; then none was acked.
        """
        cdef Delivery delivery
        cdef list checked
        if isinstance(deliveries, Delivery):
            deliveries = (deliveries,)
        checked = list(deliveries)
        self.begin()
        try:
            check_deliveries(self, checked)
            for delivery in checked:
                delivery.answered = True
                if not delivery.settled:
                    pay(&self.e, delivery.entry)
            go_on(&self.e)
        finally:
            self.leave()

    # ---- queues and selectors

    def _create_queue(self, QueueFace face, limit, history_limit, auto_delete, letters, delivery_limit):
        self.begin()
        try:
            queue_create(&self.e, face, limit, history_limit, auto_delete, letters, delivery_limit, self.spare_slots)
            go_on(&self.e)
        finally:
            self.leave()

    def _delete_queue(self, name):
        """Returns the names of the queues that are gone."""
        cdef queue_t* queue
        self.begin()
        try:
            queue = self.queue_of(name)
            if queue == NULL:
                return []
            names = queue_delete(&self.e, queue, self._selectors, self.spare_slots)
            go_on(&self.e)
            return names
        finally:
            self.leave()

    def _create_selector(
        self, SelectorFace face, int verb, int role, tuple terms, queue_field, target, destination_field, destination,
        credit, bint enabled, start,
    ):
        """`start` is "current", "tail", an id, or nanoseconds as ("time", ns)."""
        cdef selector_t* selector
        self.begin()
        try:
            face.source.live()
            selector_create(&self.e, face, verb, role, terms, queue_field, target, destination_field, destination, credit, False)
            selector = face.selector
            self._selectors[face.id] = face
            try:
                self.set_start(selector, start)
                if enabled:
                    self.enable(selector)
            except BaseException:
                auto_delete = face.source.queue.auto_delete     # it never was there: that deletes no queue
                face.source.queue.auto_delete = False
                selector_delete(&self.e, selector, self._selectors, self.spare_slots)
                face.source.queue.auto_delete = auto_delete
                raise
            go_on(&self.e)
        finally:
            self.leave()

    cdef int set_start(self, selector_t* selector, object start) except -1:
        """From which id on messages are live for a COPY selector, and from which on it replays."""
        cdef queue_t* queue = selector.source
        cdef uint64_t tail = queue.next_id
        if start == "current":
            selector.start = selector.replayed = (<QueueFace> queue.face).frontier
        elif start == "tail":
            selector.start = selector.replayed = tail
        else:
            selector.start = selector.replayed = tail
            selector.replay_due = since(queue, start[1]) if isinstance(start, tuple) else min(max(start, 1), tail)
        return 0

    cdef int enable(self, selector_t* selector) except -1:
        """Enables; the first time a replay enters its target at once, or has no room: `QueueFull`."""
        cdef list ids
        cdef entry_t* entry
        cdef trip_t* trip
        if selector.replay_due:
            ids = replay_of(&self.e, selector)
            self.check_replay(selector, ids)
            selector.start = selector.source.next_id
            selector.replayed = selector.replay_due
            selector.replay_due = 0
            for id in ids:
                entry = index_get(&selector.source.index, id)
                trip = trip_new(&self.e, selector.source.slot)
                make_copy(&self.e, selector, entry, trip)
                trip_release(&self.e, trip)
        return selector_enable(&self.e, selector, True)

    cdef int check_replay(self, selector_t* selector, list ids) except -1:
        cdef Admissions batch = Admissions.__new__(Admissions)
        cdef queue_t* target
        cdef entry_t* entry
        batch.engine = &self.e
        for id in ids:
            entry = index_get(&selector.source.index, id)
            target = target_of(selector, entry.content)
            if target != NULL and target != selector.source and hops_of(&self.e, entry) < self.e.hop_limit:
                if not batch.fits(target, entry.content):
                    raise QueueFull(f"queue {(<QueueFace> target.face).name!r} has {target.ready} ready messages and a limit of "
                                    f"{target.limit}: no room for a replay of {len(ids)} messages")
        return 0

    def _delete_selector(self, SelectorFace face):
        """Returns the names of the queues that went with it."""
        self.begin()
        try:
            if face.selector == NULL:
                return None
            names = selector_delete(&self.e, face.selector, self._selectors, self.spare_slots)
            go_on(&self.e)
            return names
        finally:
            self.leave()

    def _enable(self, SelectorFace face, bint enabled):
        self.begin()
        try:
            if enabled:
                if not face.live().enabled:
                    self.enable(face.selector)
            else:
                selector_enable(&self.e, face.live(), False)
            go_on(&self.e)
        finally:
            self.leave()

    def _grant(self, SelectorFace face, n):
        cdef selector_t* selector
        self.begin()
        try:
            selector = face.live()
            outstanding = selector.held.count + selector.taken.count
            if selector.infinite:
                raise ValueError(f"selector {face.id} has INFINITE credit; there is nothing to grant")
            if not outstanding <= selector.window + n < 2 ** 62:
                raise ValueError(f"cannot grant {n}: selector {face.id} has a window of {selector.window}, of which "
                                 f"{outstanding} are outstanding")
            selector.window += n
            selector.available += n
            if not is_able(selector):
                selector_rest(selector)
            selector_wake(&self.e, selector)
            go_on(&self.e)
        finally:
            self.leave()

    def _pay(self, SelectorFace face, n):
        cdef selector_t* selector
        self.begin()
        try:
            selector = face.live()
            if n > selector.taken.count:
                raise ValueError(f"cannot pay for {n}: the application has taken {selector.taken.count} from selector {face.id}")
            for _ in range(n):
                pay(&self.e, selector.taken.head)
            go_on(&self.e)
        finally:
            self.leave()

    def _hold(self, QueueFace face, bint held):
        cdef queue_t* queue
        self.begin()
        try:
            queue = face.live()
            if queue.held and not held:
                queue.held = False
                self.stir_queue(queue)
                wake_everything(&self.e, queue)
            queue.held = held
            go_on(&self.e)
        finally:
            self.leave()

    cdef int stir_queue(self, queue_t* queue) except -1:
        if not queue.stirred:
            queue.stirred = True
            queue.next_stirred = self.e.stirred
            self.e.stirred = queue
        return 0

    def _building(self, int change):
        """Enters (1) or leaves (-1) a building block; routing starts when the outermost one ends."""
        self.begin()
        try:
            self.e.building += change
            go_on(&self.e)
        finally:
            self.leave()

    # ---- reading

    def _page(self, QueueFace face, start, bint reverse, state, Filter filter):
        """(messages, where to go on or None): a page of what `browse` yields."""
        cdef queue_t* queue
        cdef entry_t* entry
        cdef list found = []
        cdef int wanted = STATES[state], looked = 0
        cdef uint64_t at
        self.begin()
        try:
            queue = face.live()
            at = since(queue, start[1]) if isinstance(start, tuple) else start
            entry = index_until(&queue.index, at) if reverse else index_from(&queue.index, at)
            while entry != NULL and looked < PAGE:
                if wanted >> entry.state & 1 and (
                    filter is None or filter.evaluate(entry.content, entry.timestamp, entry.delivery_count) == 1
                ):
                    found.append(message_new(entry.content, entry.id, entry.timestamp, hops_of(&self.e, entry)))
                looked += 1
                at = entry.id
                if reverse:
                    entry = index_until(&queue.index, at - 1) if at > 1 else NULL
                else:
                    entry = index_from(&queue.index, at + 1)
            return found, None if entry == NULL else entry.id
        finally:
            self.leave()

    def _fetch(self, QueueFace face, id):
        cdef entry_t* entry
        self.begin()
        try:
            entry = self.entry_of(face, id)
            return None if entry == NULL else message_new(entry.content, entry.id, entry.timestamp, hops_of(&self.e, entry))
        finally:
            self.leave()

    cdef entry_t* entry_of(self, QueueFace face, object id) except? NULL:
        cdef queue_t* queue = face.live()
        return index_get(&queue.index, id) if 0 < id < queue.next_id else NULL

    def _delete_message(self, QueueFace face, id):
        cdef entry_t* entry
        self.begin()
        try:
            entry = self.entry_of(face, id)
            if entry == NULL:
                return False
            message_delete(&self.e, entry)
            go_on(&self.e)
            return True
        finally:
            self.leave()

    def _purge(self, QueueFace face):
        """Deletes the ready messages; returns how many."""
        cdef queue_t* queue
        cdef entry_t* entry
        cdef uint64_t count = 0
        self.begin()
        try:
            queue = face.live()
            entry = index_from(&queue.index, 1)
            while entry != NULL:
                id = entry.id
                if entry.state == UNROUTED or entry.state == WAITING or entry.state == BOUND:
                    message_delete(&self.e, entry)
                    count += 1
                entry = index_from(&queue.index, id + 1)
            go_on(&self.e)
            return count
        finally:
            self.leave()

    def _counters(self):
        """Of the engine itself."""
        return {"entered": self.e.sequence, "held_messages": self.e.entries, "deliverable": self.e.offer_count,
                "no_queue": self.no_queue}

    # ---- the end

    def _close(self):
        """Idempotent. Deliveries become stale."""
        if self.state == CLOSED or self.state == FORKED:
            self.state = CLOSED if self.state == CLOSED else FORKED
            return
        self.begin()
        self.state = CLOSED
        if self.contenders:
            PyThread_release_lock(self.turn)
        self.close_books()

    def _forked(self):
        """In the child of a fork: the engine belongs to the parent."""
        if self.state != CLOSED:
            self.state = FORKED

    @property
    def closed(self):
        """Whether the engine was closed."""
        return self.state == CLOSED

    cdef int close_books(self) except -1:
        """Frees all that the engine holds. Its queues and selectors are as if deleted."""
        cdef QueueFace queue
        if self.e.face == NULL:
            return 0
        self.e.building = 1
        for queue in list(self._queues.values()):
            if queue.queue != NULL:
                queue_delete(&self.e, queue.queue, self._selectors, self.spare_slots)
        end_trips(&self.e)
        offers_free(&self.e)
        trips_free(&self.e)
        chunks_free(&self.e)
        heap_free(&self.e.able)
        free(self.e.work)
        free(self.e.pauses)
        self.e.work = NULL
        self.e.pauses = NULL
        self.e.face = NULL
        return 0


cdef uint64_t since(queue_t* queue, int64_t time) except? 0:
    """The first id whose message entered at `time` or later. Cost: the queue's pages."""
    cdef page_t* page = queue.index.head
    cdef entry_t* entry
    while page != NULL and page.next != NULL and index_from(&queue.index, page.next.number << 5).timestamp < time:
        page = page.next
    entry = NULL if page == NULL else index_from(&queue.index, page.number << 5)
    while entry != NULL and entry.timestamp < time:
        entry = index_from(&queue.index, entry.id + 1)
    return queue.next_id if entry == NULL else entry.id


cdef content_t* content_of(object message) except NULL:
    """Of a `Message`, or of a tuple in the order of its arguments."""
    if isinstance(message, Message):
        return content_without_destination((<Message> message).content)
    if not isinstance(message, tuple):
        raise TypeError(f"a message is a Message or a tuple (address, body, headers, reply_to, message_id), got "
                        f"{type(message).__name__}")
    if len(message) > 5:
        raise TypeError(f"a message has at most 5 parts (address, body, headers, reply_to, message_id), got {len(message)}")
    return content_new(
        part_of(message, 0, ""), part_of(message, 1, b""), part_of(message, 2, None), part_of(message, 3, None),
        part_of(message, 4, None))


cdef inline object part_of(object message, Py_ssize_t at, object default):
    return <object> PyTuple_GET_ITEM(message, at) if at < len(<tuple> message) else default


cdef int check_deliveries(Core core, list deliveries) except -1:
    """Every one is a live delivery of this engine, and is there once: a mark on each tells, and is taken off again."""
    cdef Delivery delivery
    cdef Py_ssize_t i = 0
    try:
        for given in deliveries:
            if not isinstance(given, Delivery):
                raise TypeError(f"expected a Delivery, got {type(given).__name__}")
            delivery = <Delivery> given
            if delivery.queue.engine is not core:
                raise StaleDelivery(f"delivery of message {delivery.message.id} belongs to another engine")
            if not delivery.settled and (delivery.entry == NULL or delivery.marked):
                raise stale(delivery)
            delivery.marked = True
            i += 1
    finally:
        while i:
            i -= 1
            (<Delivery> deliveries[i]).marked = False
    return 0


cdef object stale(Delivery delivery):
    return StaleDelivery(f"delivery of message {delivery.message.id} in queue {delivery.queue.name!r} is stale: it was settled, "
                         "or taken back by the engine, or is given twice")


cdef xump_pool delivery_pool
cdef PyMemberDef message_member_def


cdef void delivery_clean(PyObject* object) noexcept:
    delivery = <Delivery> object
    if delivery.entry != NULL:
        delivery.entry.child = NULL
        delivery.entry = NULL
    delivery.message = None
    delivery.destination = None
    delivery.queue = None
    delivery.selector = None
    delivery.answered = False


cdef void delivery_dealloc(PyObject* object) noexcept:
    xump_pool_put(&delivery_pool, object)


cdef Delivery delivery_new():
    cdef PyObject* spare = xump_pool_get(&delivery_pool)
    cdef Delivery delivery
    if spare == NULL:
        return Delivery.__new__(Delivery)
    delivery = <Delivery> spare
    Py_XDECREF(spare)
    return delivery


@cython.final
@cython.no_gc
cdef class Delivery:
    """A message handed to the application under a destination name. Ack it, nack it or reject it; as a context manager it is
    acked when the block ends and nacked when it raises."""

    def __init__(self):
        raise TypeError("deliveries come from Engine.take() and Engine.deliveries()")

    cdef Core core(self):
        if self.entry == NULL:
            if (<Core> self.queue.engine).state > BUSY:
                (<Core> self.queue.engine).begin()
            raise stale(self)
        return <Core> self.entry.queue.engine.face

    @property
    def id(self):
        """The message's id in its queue."""
        return self.message.id

    def ack(self):
        """Pay for this very message. Raises `StaleDelivery` if that was done before, or it was taken back. O(queues upstream)."""
        cdef Core core
        if self.settled:
            return
        core = self.core()
        core.begin()
        try:
            if self.entry == NULL:
                raise stale(self)
            self.answered = True
            pay(&core.e, self.entry)
            go_on(&core.e)
        finally:
            core.leave()

    def nack(self, *, requeue=True):
        """Give it back: it waits at its old place again; with `requeue=False` it is dead-lettered, else dropped and counted."""
        self.give_back(requeue, None)

    def reject(self, reason="rejected"):
        """Dead-letter it (else drop and count it); a reason of your own goes into the header `xump_detail`."""
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a str, got {type(reason).__name__}")
        self.give_back(False, None if reason == "rejected" else reason)

    cdef int give_back(self, bint requeue, object detail) except -1:
        cdef Core core
        cdef entry_t* entry
        if self.settled:
            return 0
        core = self.core()
        core.begin()
        try:
            entry = self.entry
            if entry == NULL:
                raise stale(self)
            self.answered = True
            limit = delivery_limit_of(entry)
            release(&core.e, entry)
            if not requeue:
                dead_letter(&core.e, entry, REASON_REJECTED, detail, NULL)
            elif limit and entry.delivery_count >= limit:
                dead_letter(&core.e, entry, REASON_DELIVERY_LIMIT, None, NULL)
            else:
                note_nack(&core.e, entry)
                send_back(&core.e, entry)
            go_on(&core.e)
        finally:
            core.leave()
        return 0

    def __enter__(self):
        return self.message

    def __exit__(self, kind, error, traceback):
        if self.answered:
            return
        if kind is None:
            self.ack()
        elif self.entry != NULL:
            self.nack()

    def __repr__(self):
        state = "settled" if self.settled else "stale" if self.entry == NULL else f"take {self.delivery_count}"
        return f"<Delivery of {self.message!r} to {self.destination!r} from {self.queue.name!r}, {state}>"


cdef uint32_t delivery_limit_of(const entry_t* entry) noexcept:
    """The queue's own, else that of the nearest queue upstream still waiting for its payment (rule 10); 0: none."""
    while entry != NULL:
        if entry.queue.delivery_limit:
            return entry.queue.delivery_limit
        entry = entry.parent
    return 0


cdef class DeliveryIterator:
    """Yields deliveries until nothing has been deliverable for `timeout` seconds; skips what was nacked after it began."""

    def __cinit__(self, engine, destination, timeout):
        self.engine = engine
        self.core = engine
        self.destination = destination
        self.timeout = timeout
        self.began = self.core.e.nacks

    def __iter__(self):
        return self

    def __next__(self):
        delivery = self.take()
        if delivery is None and self.timeout != 0:
            delivery = self.engine._wait(self.take, self.destination, self.timeout)
        if delivery is None:
            raise StopIteration
        return delivery

    cpdef Delivery take(self):
        """The next one, or None."""
        cdef Core core = self.core
        cdef offer_t* offer
        core.begin()
        try:
            offer = self.next_offer()
            return None if offer == NULL else core.hand_over(offer)
        finally:
            core.leave()

    cdef offer_t* next_offer(self) except? NULL:
        """Goes on behind those that were skipped before: memory of offers is not given back while the engine lives, so the number
        tells whether the one that was skipped last still stands there."""
        cdef offer_t* offer
        if self.passed != NULL and self.passed.number == self.passed_number:
            offer = self.passed.below if self.destination is not None else self.passed.next
        else:
            offer = self.core.first_offer(self.destination)
        while offer != NULL and nacked(&self.core.e, offer.entry) > self.began:
            self.passed = offer
            self.passed_number = offer.number
            offer = offer.below if self.destination is not None else offer.next
        return offer


cdef extern from *:
    """
    #define XUMP_MESSAGE_OFFSET offsetof(struct __pyx_obj_8xump_ext_4core_Delivery, message)
    """
    const size_t message_offset "XUMP_MESSAGE_OFFSET"

delivery_pool.clean = delivery_clean
(<PyTypeObject*> Delivery).tp_dealloc = delivery_dealloc
xump_member(<PyTypeObject*> Delivery, &message_member_def, b"message", message_offset, b"The message.")
