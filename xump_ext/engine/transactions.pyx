"""Transactions, of which all operations are carried out or none: a part of the engine's class.

The engine is one class in nine files (`engine_lock.pyx` says why). `EngineTransactions` adds `_commit`, and `_commit_later`,
which waits for room, after `EnginePublishers` in `publishers.pyx`. `reading.pyx` goes on.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.delivery cimport Delivery, check_deliveries
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.maps cimport MapChanges
from xump_ext.engine.publishers cimport EnginePublishers, Publisher
from xump_ext.engine.enqueue cimport ROOM_IS_PROMISED, check_takes_rows
from xump_ext.engine.publish cimport check_staged_times, set_times
from xump_ext.engine.staging cimport enter_next, make_room_for_next
from xump_ext.errors import StoreFull, TransactionError
from xump_ext.log.journal cimport Journal
from xump_ext.message.headers cimport content_t
from xump_ext.message.message cimport content_of
from xump_ext.route.admission cimport ANSWER_BYTES, Admissions, sends_away
from xump_ext.route.answers cimport answer_done
from xump_ext.route.ledger cimport enter
from xump_ext.route.letters cimport dead_letter_of
from xump_ext.route.routing cimport go_on
from xump_ext.state.constants cimport BROKEN
from xump_ext.state.graph cimport entry_t, queue_t, store_t


cdef enum:
    LEVELS = 8          # room is made for the records of so many messages with each answer: its own, and those upstream


cdef class Planned:
    """The steps of a transaction."""


cdef class EngineTransactions(EnginePublishers):
    """A part of the engine's class: transactions."""

    def _commit(self, transaction):
        """Carry out a transaction; set its ids and state."""
        cdef Planned planned = self.planned(transaction)
        self.begin_call()
        try:
            try:
                self.carry_out_in_room(planned)
            except StoreFull:
                if not self.make_room_for_letters():
                    raise
                self.carry_out_in_room(self.planned(transaction))
            go_on(&self.e)
        finally:
            self.unlock()

    cdef int carry_out_in_room(self, Planned planned) except -1:
        self.set_times_of(planned)
        self.make_room_for(planned)
        return self.carry_out(planned)

    def _commit_later(self, list held not None, wake, transaction):
        """Carry out a transaction of publishes into one queue, and changes of maps, when there is room for all of it, at once if
        there is: `_publish_later` for transactions."""
        cdef Publisher publisher = Publisher.__new__(Publisher)
        publisher.transaction = transaction
        publisher.queue = transaction._operations[0][1]
        publisher.call = wake
        self.begin_waiting(publisher, held)
        return publisher

    def _enter_later(self, list held not None, wake, str target not None):
        """Let the next message enter that a queue has adopted, when there is room for it, in line with publishers: `wake()` is
        called then, and `_publish_no_more` ends it before. Its `id` is then 1, or 0 if there was none left."""
        cdef Publisher publisher = Publisher.__new__(Publisher)
        publisher.adopted = True
        publisher.queue = target
        publisher.call = wake
        self.begin_waiting(publisher, held)
        return publisher

    cdef int make_room_late(self, Publisher publisher) except -1:
        if publisher.adopted:
            return make_room_for_next(self, publisher.queue)
        if publisher.transaction is None:
            return EnginePublishers.make_room_late(self, publisher)
        return self.make_room_for(self.planned(publisher.transaction))

    cdef int enter_late(self, Publisher publisher) except -1:
        cdef Planned planned
        if publisher.adopted:
            publisher.id = enter_next(self, publisher.queue)
        elif publisher.transaction is None:
            return EnginePublishers.enter_late(self, publisher)
        else:
            planned = self.planned(publisher.transaction)
            self.set_times_of(planned)
            self.carry_out(planned)
        publisher.error = None
        self.end_waiting(publisher)
        return go_on(&self.e)

    cdef Planned planned(self, object transaction):
        """The steps of a transaction, before it is asked whether that can be."""
        cdef Planned planned = Planned.__new__(Planned)
        cdef Admissions contents = Admissions.__new__(Admissions)
        cdef tuple operation
        planned.transaction, planned.operations, planned.contents = transaction, transaction._operations, contents
        planned.maps = MapChanges(self, transaction._maps) if transaction._maps else None
        for operation in planned.operations:
            if operation[0] == "publish":
                contents.add(NULL, operation[1], content_of(operation[2], NULL))
                if operation[3] is not None:
                    planned.timed = planned.timed or []
                    planned.timed.append((contents.count - 1, operation[3]))
        return planned

    cdef int set_times_of(self, Planned planned) except -1:
        for i, times in planned.timed or ():
            set_times(&self.e, &planned.contents.items[i], times)
        return 0

    cdef int make_room_for(self, Planned planned) except -1:
        """Let the store clean its log, if it must. The engine lock is given up meanwhile."""
        cdef Admissions contents = planned.contents
        cdef uint64_t answers = <uint64_t> (len(planned.operations) - contents.count)
        cdef uint64_t bytes
        cdef queue_t* queue
        contents.measure()
        bytes = contents.total + answers * LEVELS * ANSWER_BYTES
        if planned.maps is not None:
            planned.maps.make_room(<int64_t> bytes)
        for name in contents.names.values() if contents.names is not None else ():
            queue = self.queue_of(name)
            if queue != NULL and queue.durable:
                self.with_room(queue, name, bytes, contents.largest)
                break               # one is enough: `one_store` refuses two stores
        return 0

    cdef int carry_out(self, Planned planned) except -1:
        """Carry it out, or raise and change nothing. The run is still to come."""
        cdef MapChanges maps = planned.maps
        cdef Admissions batch = self.transaction_batch(planned.operations, planned.contents)
        cdef tuple operation
        one_store(batch, maps)
        if maps is not None:
            maps.check()
            if maps.journal is not None:
                batch.store, batch.charge = &maps.journal.store, maps.bytes
        batch.check()
        batch.prepare()
        if maps is not None:
            maps.carry_out()
        if batch.answers:
            for operation in planned.operations:
                if operation[0] != "publish":
                    (<Delivery> operation[1]).answered = True
        try:
            planned.transaction.ids = self.operations_done(batch)
        except MemoryError:         # some of the operations are carried out, and cannot be taken back
            self.e.at_rest = BROKEN
            raise
        planned.transaction._state = "committed"        # before the run, which may be interrupted
        return 0

    cdef list operations_done(self, Admissions batch):
        """Carry out the answers and publishes, in order; return the ids of the messages."""
        cdef content_t* content
        cdef Py_ssize_t i
        cdef list ids = []
        for i in range(batch.count):
            if batch.items[i].answer != NULL:
                answer_done(&self.e, batch.items[i].answer, batch.detail_at(i))
            elif batch.items[i].content != NULL:
                content = batch.items[i].content
                batch.items[i].content = NULL
                ids.append(self.admit_in_turn(batch.items[i].queue, batch.name_at(i), content, batch.items[i].due))
        return ids

    cdef uint64_t admit_in_turn(self, queue_t* queue, object name, content_t* content, int64_t due) except? 0:
        """`admit`, where what a transit queue makes of it must not take room that others of the same call were promised."""
        if queue == NULL or not queue.transit:
            return self.admit(queue, name, content, due, ROOM_IS_PROMISED)
        enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
        return 0

    cdef Admissions transaction_batch(self, list operations, Admissions contents):
        """Contents and payments, in order. Raises if a delivery is stale or given twice."""
        cdef Admissions batch = Admissions.__new__(Admissions)
        cdef Delivery delivery
        cdef Py_ssize_t at = 0
        cdef tuple operation
        batch.engine = &self.e
        batch.answers = len(operations) > contents.count
        if batch.answers:
            check_deliveries(self, [(<tuple> one)[1] for one in operations if (<tuple> one)[0] != "publish"])
        for operation in operations:
            if operation[0] == "publish":
                batch.add(self.queue_of(operation[1]), operation[1], contents.items[at].content)
                batch.delay_last(contents.items[at].due)
                contents.items[at].content = NULL
                if batch.items[batch.count - 1].queue != NULL and batch.items[batch.count - 1].queue.staged:
                    check_staged_times(batch.items[batch.count - 1].queue, operation[3])
                    check_takes_rows(batch.items[batch.count - 1].queue)
                at += 1
            else:
                delivery = operation[1]
                if not delivery.settled:
                    batch.add_answer(delivery.entry, operation[0], operation[2])
        return batch


cdef int one_store(Admissions batch, MapChanges maps) except -1:
    """Raise TransactionError unless all durable queues that the transaction enters or settles in, upstream too, and all maps that
    it changes, are in one store: it is one group there."""
    cdef store_t* store = NULL
    cdef entry_t* entry
    cdef queue_t* letters
    cdef queue_t* namer
    cdef Journal journal
    cdef Py_ssize_t i
    if maps is not None:
        maps.plan()
        for owner, _, journal, _, _ in maps.owners.values():
            if journal is not None:
                if store != NULL and store != &journal.store:
                    raise TransactionError(f"a transaction's durable effects must lie in one store: the map of {owner.name!r} is "
                                           f"in {journal.name!r}, others are in {(<Journal> store.handle).name!r}")
                store = &journal.store
    for i in range(batch.count):
        entry = NULL if batch.items[i].answer == NULL else batch.items[i].answer.entry
        if batch.items[i].queue != NULL:
            store = same_store(store, batch.items[i].queue)
        letters = dead_letter_of(batch.engine, entry, &namer) if entry != NULL and sends_away(batch.items[i].answer) else NULL
        if letters != NULL:
            store = same_store(store, letters)
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
