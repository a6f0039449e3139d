"""Publishing and transactions: messages enter the engine from outside (rule 1).

The engine is one class in four files (`engine_lock.pyx` says why). `EnginePublish` is the third part, after `EngineStores` in
`stores.pyx`. It adds `publish` (one message), `publish_many` (many, and one run) and `_commit` (a transaction: all or nothing).
`core.pyx` goes on.
"""

from libc.stdint cimport uint64_t

from xump_ext.engine.delivery cimport Delivery, check_deliveries
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import QueueFull, TransactionError, no_queue
from xump_ext.log.journal cimport Journal
from xump_ext.log.room cimport no_room, store_has_room
from xump_ext.log.writer cimport touch
from xump_ext.message.content cimport checked_text, content_release
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport content_new, content_of
from xump_ext.route.admission cimport Admissions, admission_bytes, letters_take
from xump_ext.route.ledger cimport enter, own_dead_letter, pay
from xump_ext.route.routing cimport go_on
from xump_ext.select.credit cimport overflow_has_room
from xump_ext.select.plan cimport foresee, foresee_route
from xump_ext.state.constants cimport BROKEN, IDLE, REASON_NO_QUEUE, REASON_OVERFLOW, UNLIMITED
from xump_ext.state.envelope cimport name_text, queue_named
from xump_ext.state.graph cimport entry_t, queue_t, store_t

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)


cdef class EnginePublish(EngineStores):
    """The third part of the engine's class: messages come in."""

    cdef uint64_t admit_elsewhere(self, queue_t* queue, object name, content_t* content) except? 0:
        if queue != NULL and queue.durable:
            queue = self.with_room(queue, name, admission_bytes(content))
        if queue == NULL:
            name = checked_text(name_text(name), "the queue's name")
            if not letters_take(queue_named(&self.e, self._dead_letter), content, name, REASON_NO_QUEUE, 1):
                raise no_queue(name)
            self.no_queue += 1
            content_release(content)
            return 0
        if queue.durable and not store_has_room(queue, content):
            raise no_room(queue)
        if queue.ready >= queue.limit and not overflow_has_room(queue, content, NULL):
            letters = own_dead_letter(queue)
            if not letters_take(letters, content, (<QueueHandle> queue.handle).name, REASON_OVERFLOW, 1):
                raise QueueFull(f"queue {(<QueueHandle> queue.handle).name!r} has {queue.ready} ready messages, its limit is "
                                f"{queue.limit}")
            queue.dead_lettered[REASON_OVERFLOW] += 1
            if queue.durable:
                touch(queue)
            content_release(content)
            return 0
        return enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)

    def publish(self, queue, address="", body=b"", headers=None, *, reply_to=None, message_id=None):
        """Publish a message into a queue and drive the graph until it is quiet.

        Returns the id issued in that queue, also when the message went on at once; 0 when it was turned away there and
        dead-lettered instead. Raises `QueueNotFound`, `QueueFull`, TypeError, ValueError; then nothing changed. To match costs
        O(length of the address) for a new address, a look-up for one seen before; then the run costs what it causes.
        """
        cdef content_t* content
        cdef queue_t* named
        cdef uint64_t id
        if <void*> queue == self.e.called_name and PyUnicode_CheckExact(address):
            foresee(self.e.called, address)
        content = content_new(address, body, headers, reply_to, message_id)
        try:
            self.begin_call()
            try:
                named = self.queue_of(queue)
                if named != NULL:
                    foresee_route(named, <object> content.address)
                id = self.admit(named, queue, content)
                content = NULL
                go_on(&self.e)
            finally:
                self.unlock()
        finally:
            if content != NULL and self.e.at_rest == IDLE:
                content_release(content)
        return id

    def publish_many(self, queue, messages):
        """Publish an iterable of `Message`s, or of tuples in the order of `publish`'s arguments, as one run.

        All enter first, then the graph is driven. Room for all is checked beforehand: `QueueFull`, and none has entered. Returns
        the range of the ids issued. Cost per message as `publish`, without the call.
        """
        cdef Admissions batch = Admissions.__new__(Admissions)
        for message in messages:
            batch.push(content_of(message))
        batch.name = queue
        self.begin_call()
        try:
            return self.admit_all(batch, self.queue_of(queue))
        finally:
            self.unlock()

    cdef object admit_all(self, Admissions batch, queue_t* queue):
        cdef Py_ssize_t i
        cdef uint64_t first = 0, count = 0, id
        cdef content_t* content
        batch.engine = &self.e
        batch.limited = queue == NULL or queue.limit != UNLIMITED or queue.durable
        if queue == NULL and batch.count == 0 and queue_named(&self.e, self._dead_letter) == NULL:
            raise no_queue(name_text(batch.name))
        if queue != NULL and queue.durable:
            queue = self.with_room(queue, batch.name, batch.bytes())
        if batch.limited:
            for i in range(batch.count):
                batch.items[i].queue = queue
            batch.check()
        try:
            for i in range(batch.count):
                content = batch.items[i].content
                batch.items[i].content = NULL
                if batch.limited:
                    id = self.admit(queue, batch.name, content)
                else:
                    id = enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
                if id:
                    first = first or id
                    count += 1
        except MemoryError:
            if count:           # the messages before this one are in, and cannot be taken back
                self.e.at_rest = BROKEN
            raise
        go_on(&self.e)
        return range(first, first + count)

    def _commit(self, transaction):
        """Carry out a transaction's `("publish", queue, message)` and `("ack", delivery)`; set its ids and its state."""
        cdef list operations = transaction._operations
        cdef Admissions batch = Admissions.__new__(Admissions)
        cdef Py_ssize_t i
        cdef queue_t* queue
        cdef list ids = []
        cdef content_t* content
        for operation in operations:
            if operation[0] == "publish":
                batch.add(NULL, operation[1], content_of(operation[2]))
        self.begin_call()
        try:
            for name in batch.names.values():
                queue = self.queue_of(name)
                if queue != NULL and queue.durable:
                    self.with_room(queue, name, batch.bytes())      # one is enough: `one_store` refuses two stores
                    break
            batch = self.transaction_batch(operations, batch)
            one_store(batch)
            batch.check()
            for operation in operations:
                if operation[0] == "ack":
                    (<Delivery> operation[1]).answered = True
            for i in range(batch.count):
                if batch.items[i].paid != NULL:
                    pay(&self.e, batch.items[i].paid)
                elif batch.items[i].content != NULL:
                    content = batch.items[i].content
                    batch.items[i].content = NULL
                    ids.append(self.admit(batch.items[i].queue, batch.names.get(i), content))
            transaction.ids = ids
            transaction._state = "committed"        # before the run, which may be interrupted
            go_on(&self.e)
        finally:
            self.unlock()

    cdef Admissions transaction_batch(self, list operations, Admissions contents):
        """Contents and payments, in order. Raises if a delivery is stale or given twice."""
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
                if not delivery.settled:
                    batch.add_payment(delivery.entry)
        return batch


cdef int one_store(Admissions batch) except -1:
    """Raise TransactionError unless all durable queues that the transaction enters or settles in, upstream too, are in one store:
    it is one group there."""
    cdef store_t* store = NULL
    cdef entry_t* entry
    cdef Py_ssize_t i
    for i in range(batch.count):
        entry = batch.items[i].paid
        if batch.items[i].queue != NULL:
            store = same_store(store, batch.items[i].queue)
        while entry != NULL:
            store = same_store(store, entry.queue)
            entry = entry.parent
    return 0


cdef store_t* same_store(store_t* store, queue_t* queue) except? NULL:
    if queue.store == NULL or queue.store == store:
        return store
    if store != NULL:
        name, other = (<Journal> queue.store.handle).name, (<Journal> store.handle).name
        raise TransactionError("a transaction's durable effects must lie in one store: queue "
                               f"{(<QueueHandle> queue.handle).name!r} is in {name!r}, others are in {other!r}")
    return queue.store
