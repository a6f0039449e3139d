"""What the engine and the journals of its durable stores have to do with each other. Called by `xump.commit` and `xump.opening`,
each call for an instant: files are read and written outside.
"""

from libc.stdint cimport int64_t, uint64_t, uintptr_t

from xump_ext.building cimport message_delete, queue_create, queue_delete
from xump_ext.credit cimport choosy_wake, line_wake
from xump_ext.faces cimport QueueFace
from xump_ext.fences cimport fences_forget
from xump_ext.graph cimport BROKEN, OWNED, engine_t, entry_t, queue_t, store_t
from xump_ext.index cimport cursor_t, index_from, start, step
from xump_ext.journal cimport Group, Journal, undirty
from xump_ext.ledger cimport pay_for
from xump_ext.log cimport entry_charge, kept_bytes
from xump_ext.records cimport group_record_t
from xump_ext.recovery cimport Recovery
from xump_ext.routing cimport go_on, run
from xump_ext.source cimport fetched_forget

STORES_MAX = 64


cdef class Durable(Door):
    """The part of the engine that is for durable stores."""

    # ---- a store comes

    def _open_journal(self, backend, str name, uint64_t resident_max):
        """The journal of a store that was just opened."""
        cdef Journal journal = Journal(backend, name, resident_max)
        cdef store_t* other
        cdef uint64_t taken = 0
        self.enter()
        try:
            other = self.e.stores
            while other != NULL:
                taken |= <uint64_t> 1 << other.slot
                other = other.next
            while taken >> journal.store.slot & 1:
                journal.store.slot += 1
                if journal.store.slot == STORES_MAX:
                    raise ValueError(f"an engine has at most {STORES_MAX} durable stores")
            journal.store.engine = &self.e
            journal.store.next = self.e.stores
            self.e.stores = &journal.store
            self.e.store_count += 1
            self.journals.append(journal)
            return journal
        finally:
            self.leave()

    def _recover(self, Recovery recovery not None):
        """Brings the queues of a store to life, held; returns how many messages there are."""
        self.enter()
        try:
            count = recovery.end()
            run(&self.e)
            return count
        finally:
            self.leave()

    def _create_recovered(self, QueueFace face, tuple properties, Journal journal, number):
        """A queue of a store that is being opened, with (limit, history_limit, auto_delete, dead_letter, delivery_limit);
        called by its recovery."""
        limit, history_limit, auto_delete, letters, delivery_limit = properties
        queue_create(&self.e, face, limit, history_limit, auto_delete, letters, delivery_limit, self.spare_slots, journal, number)
        face.queue.held = True

    # ---- a store goes

    def _quiet(self, Journal journal, list queues):
        """A store is about to be deleted: what is in its queues stays there, and nothing comes in."""
        cdef QueueFace face
        self.begin()
        try:
            if journal is not None:
                journal.store.leaving_engine = True
            for face in queues:
                if face.queue != NULL:
                    face.queue.held = True
        finally:
            self.leave()

    def _drop_store(self, Journal journal not None, list queues):
        """The store is not of this engine any more, and neither are its queues; its files keep what they have. So a message is
        there alone: what it came from is settled elsewhere, what it became elsewhere is deleted."""
        cdef QueueFace face
        cdef list owned = [entry for entry, owner in self.owners.items() if owner[0] == <uintptr_t> &journal.store]
        cdef bint failed = journal.store.failed
        self.begin()
        try:
            self.detach(journal)
            for entry in owned:
                message_delete(&self.e, <entry_t*> <uintptr_t> entry)
            for face in queues:
                if face.queue != NULL and not failed:       # what it did not write is recalled
                    pay_for_all(&self.e, face.queue)
            for face in queues:
                if face.queue != NULL:
                    queue_delete(&self.e, face.queue, self._selectors, self.spare_slots)
            go_on(&self.e)
        finally:
            self.leave()

    def _drop_queues(self, list queues):
        """The queues of a store in RAM go, as one: what is recalled from one of them does not go into the next."""
        cdef QueueFace face
        self.begin()
        try:
            for face in queues:
                if face.queue != NULL:      # it has not deleted itself with one before
                    queue_delete(&self.e, face.queue, self._selectors, self.spare_slots)
            go_on(&self.e)
        finally:
            self.leave()

    cdef int detach(self, Journal journal) except -1:
        """Nobody tells it anything any more, or waits for it. Its queues are about to be deleted."""
        cdef store_t** link = &self.e.stores
        cdef store_t* other = self.e.stores
        cdef queue_t* queue
        for address in journal.queues.values():
            queue = <queue_t*> <uintptr_t> address
            queue.durable = queue.touched = False
            queue.store = NULL
        for entry, owner in list(self.owners.items()):
            if owner[0] == <uintptr_t> &journal.store:
                (<entry_t*> <uintptr_t> entry).flags &= ~OWNED
                del self.owners[entry]
        while other != NULL:
            fences_forget(other, &journal.store)
            other = other.next
        while link[0] != &journal.store:
            link = &link[0].next
        link[0] = journal.store.next
        journal.store.failed = True         # whoever still waits for his turn finds nothing to write
        journal.store.touched = NULL
        journal.store.fence_count = 0
        undirty(&journal.store)
        fetched_forget(&self.e)
        self.e.store_count -= 1
        self.journals.remove(journal)
        return 0

    # ---- a group is written

    def _seal(self, Journal journal not None, bint exact=False):
        """The group to be written next, or None. `exact`: nothing comes after it."""
        if not self.enters():
            return journal.seal(exact, True)
        try:
            return journal.seal(exact, False)
        finally:
            self.leave()

    def _written(self, Journal journal not None, Group group not None, bint enough):
        """The group was written. `enough`: no sync will follow, so others that wait for what is in it wait no more."""
        if not self.enters():
            return journal.written(group, enough)
        try:
            journal.written(group, enough)
        finally:
            self.leave()

    def _has_room(self, Journal journal not None, int64_t room):
        """The store has so many bytes left; if these are more than before, who was refused tries again."""
        cdef int64_t before = journal.store.room
        if not self.enters():
            return
        try:
            journal.store.room = room - <int64_t> (journal.store.size - sizeof(group_record_t))
            journal.keep()
            if journal.store.refused and journal.store.room > before:
                journal.store.refused = False
                for address in journal.queues.values():
                    line_wake(&self.e, <queue_t*> <uintptr_t> address)
                choosy_wake(&self.e)        # and whoever overflows into one of them
                go_on(&self.e)
        finally:
            self.leave()

    cdef queue_t* with_room(self, queue_t* queue, object name, uint64_t bytes) except? NULL:
        """The queue of that name again. Its store cleans its log, if so many bytes are not left; the engine is left meanwhile:
        the call has not changed anything yet."""
        cdef Journal journal = <Journal> queue.store.face
        bytes += kept_bytes(queue.store, 0)
        if queue.store.room >= <int64_t> bytes or queue.store.failed or journal.make_room is None:
            return queue
        self.leave()
        try:
            journal.make_room(bytes)
        finally:
            self.enter()
            if self.clock is not None:
                self.read_clock()
        return self.queue_of(name)

    def _synced(self, Journal journal not None, uint64_t group):
        """All that was written, up to this group, is durable."""
        journal.made_durable(group)

    def _carry(self, Journal journal not None, data):
        """Gathers once more what is live of the oldest records."""
        self.enter()
        try:
            journal.carry(data)
        finally:
            self.leave()

    def _store_failed(self, Journal journal not None):
        """The store writes nothing more."""
        journal.fail()

    @property
    def _broken(self):
        """Whether it ran out of memory: nothing that it gathered is to be trusted."""
        return self.e.at_rest == BROKEN


cdef int pay_for_all(engine_t* engine, queue_t* queue) except -1:
    """Whoever supplied what is in the queue is paid."""
    cdef entry_t* parent
    cdef entry_t* entry = index_from(&queue.index, 1)
    while entry != NULL:
        parent = entry.parent
        if parent != NULL:
            entry.parent = NULL
            pay_for(engine, parent)
        entry = index_from(&queue.index, entry.id + 1)
    return 0


def queue_bytes(QueueFace face not None):
    """Bytes that the messages of a queue take in its store, as records; those of one that was just published do not count before
    they are written. O(messages)."""
    cdef uint64_t total = 0
    cdef cursor_t at
    cdef entry_t* entry
    if face.queue != NULL:
        at = start(face.queue)
        entry = step(&at)
        while entry != NULL:
            total += entry_charge(entry)
            entry = step(&at)
    return total
