"""Durable stores of an engine: how one comes and goes, and the port through which its committer takes what was gathered.

Files are read and written outside, without any lock of the engine's.
"""

from libc.stdint cimport int64_t, uint64_t, uintptr_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.topology_edit cimport message_delete, queue_create, queue_delete
from xump_ext.log.fences cimport fences_forget
from xump_ext.log.group cimport Group
from xump_ext.log.journal cimport Journal, store_unchanged
from xump_ext.log.owners cimport Owner
from xump_ext.log.room cimport kept_bytes
from xump_ext.log.writer cimport entry_charge
from xump_ext.records.kinds cimport group_record_t
from xump_ext.recovery.log_reader cimport Recovery
from xump_ext.route.ledger cimport pay_for
from xump_ext.route.routing cimport go_on, run
from xump_ext.select.credit cimport waiters_wake, wake_where_room_varies
from xump_ext.state.constants cimport BROKEN, OWNED
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, index_from
from xump_ext.state.lazy_content cimport fetched_forget
from xump_ext.store import Demand

STORES_MAX = 64


cdef class EngineStores(EngineLock):
    """The part of the engine that is for durable stores: how one comes and goes."""

    # ---- a store comes

    def _open_journal(self, backend, str name, uint64_t resident_max):
        """The journal of a store that was just opened."""
        cdef Journal journal = Journal(backend, name, resident_max)
        cdef store_t* other
        cdef uint64_t taken = 0
        self.lock()
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
            self.unlock()

    def _recover(self, Recovery recovery not None):
        """Brings the queues of a store to life, held; returns how many messages there are."""
        self.lock()
        try:
            count = recovery.end()
            run(&self.e)
            return count
        finally:
            self.unlock()

    def _create_recovered(self, QueueHandle handle, tuple properties, Journal journal, number):
        """A queue of a store that is being opened, with (limit, history_limit, auto_delete, dead_letter, delivery_limit);
        called by its recovery."""
        limit, history_limit, auto_delete, letters, delivery_limit = properties
        queue_create(&self.e, handle, limit, history_limit, auto_delete, letters, delivery_limit, self.spare_slots, journal, number)
        handle.queue.held = True

    # ---- a store goes

    def _quiet(self, Journal journal, list queues):
        """A store is about to be deleted: what is in its queues stays there, and nothing comes in."""
        cdef QueueHandle handle
        self.begin_call()
        try:
            if journal is not None:
                journal.store.leaving_engine = True
            for handle in queues:
                if handle.queue != NULL:
                    handle.queue.held = True
        finally:
            self.unlock()

    def _drop_store(self, Journal journal not None, list queues):
        """The store is not of this engine any more, and neither are its queues; its files keep what they have. So a message is
        there alone: what it came from is settled elsewhere, what it became elsewhere is deleted."""
        cdef QueueHandle handle
        cdef Owner owner
        cdef list owned = [entry for entry, owner in self.owners.items() if owner.store == &journal.store]
        cdef bint failed = journal.store.failed
        self.begin_call()
        try:
            self.detach(journal)
            for entry in owned:
                message_delete(&self.e, <entry_t*> <uintptr_t> entry)
            for handle in queues:
                if handle.queue != NULL and not failed:       # what it did not write is recalled
                    pay_for_all(&self.e, handle.queue)
            for handle in queues:
                if handle.queue != NULL:
                    queue_delete(&self.e, handle.queue, self._selectors, self.spare_slots)
            go_on(&self.e)
        finally:
            self.unlock()

    def _drop_queues(self, list queues):
        """The queues of a store in RAM go, as one: what is recalled from one of them does not go into the next."""
        cdef QueueHandle handle
        self.begin_call()
        try:
            for handle in queues:
                if handle.queue != NULL:      # it has not deleted itself with one before
                    queue_delete(&self.e, handle.queue, self._selectors, self.spare_slots)
            go_on(&self.e)
        finally:
            self.unlock()

    cdef int detach(self, Journal journal) except -1:
        """Nobody tells it anything any more, or waits for it. Its queues are about to be deleted."""
        cdef store_t** link = &self.e.stores
        cdef store_t* other = self.e.stores
        cdef queue_t* queue
        cdef Owner owner
        for address in journal.queues.values():
            queue = <queue_t*> <uintptr_t> address
            queue.durable = queue.touched = False
            queue.store = NULL
        for entry, owner in list(self.owners.items()):
            if owner.store == &journal.store:
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
        store_unchanged(&journal.store)
        fetched_forget(&self.e)
        self.e.store_count -= 1
        self.journals.remove(journal)
        return 0

    cdef queue_t* with_room(self, queue_t* queue, object name, uint64_t bytes) except? NULL:
        """The queue of that name again. Its store cleans its log, if so many bytes are not left; the engine is left meanwhile:
        the call has not changed anything yet."""
        cdef Journal journal = <Journal> queue.store.handle
        bytes += kept_bytes(queue.store, 0)
        if queue.store.room >= <int64_t> bytes or queue.store.failed or journal.committer is None:
            return queue
        self.unlock()
        try:
            journal.committer.make_room(bytes)
        finally:
            self.lock()
            if self.clock is not None:
                self.read_clock()
        return self.queue_of(name)

    @property
    def _broken(self):
        """Whether it ran out of memory: nothing that it gathered is to be trusted."""
        return self.e.at_rest == BROKEN


cdef class StorePort:
    """What the committer of a store asks of the engine; `xump_ext.store` draws it. Each call takes the engine's lock for an instant."""

    def __cinit__(self, EngineStores core not None, Journal journal not None):
        self.core = core
        self.journal = journal

    def connect(self, committer, bint each_call):
        """From here on the engine calls `committer.changed()` after a call that has changed something in the store, for the first
        time in a group or (`each_call`) each time, `committer.crowded()` when much was gathered, and
        `committer.make_room(bytes)` when a call lacks room."""
        self.journal.connect(committer, each_call)

    def seal(self, bint last=False):
        """The group to be written next, or None. `last`: nothing comes after it."""
        if not self.core.lock_if_open():
            return self.journal.seal(last, True)
        try:
            return self.journal.seal(last, False)
        finally:
            self.core.unlock()

    def written(self, Group group not None, bint final):
        """The group was written. `final`: no sync will follow, so other stores that wait for what is in it wait no more."""
        if not self.core.lock_if_open():
            self.journal.written(group, final)
            return
        try:
            self.journal.written(group, final)
        finally:
            self.core.unlock()

    def synced(self, uint64_t group):
        """All groups up to this one are durable."""
        self.journal.made_durable(group)

    def has_room(self, int64_t room):
        """The store has so many bytes left; if these are more than before, selectors that were refused try again."""
        cdef EngineStores core = self.core
        cdef Journal journal = self.journal
        cdef int64_t before = journal.store.room
        if not core.lock_if_open():
            return
        try:
            journal.store.room = room - <int64_t> (journal.store.size - sizeof(group_record_t))
            journal.keep()
            if journal.store.refused and journal.store.room > before:
                journal.store.refused = False
                for address in journal.queues.values():
                    waiters_wake(&core.e, <queue_t*> <uintptr_t> address)
                wake_where_room_varies(&core.e)     # and queues that overflow into one of them
                go_on(&core.e)
        finally:
            core.unlock()

    def copy_forward(self, data):
        """Gathers once more what is live of the oldest records."""
        self.core.lock()
        try:
            self.journal.carry(data)
        finally:
            self.core.unlock()

    def failed(self):
        """The store writes nothing more."""
        self.journal.fail()

    @property
    def demand(self):
        """What the store has to know before it gives its oldest part."""
        return Demand(0, self.journal.live_bytes, self.journal.carried_bytes)

    @property
    def open_group(self):
        """The number of the group that is being gathered."""
        return self.journal.open_group

    @property
    def waiting(self):
        """Whether there is something to write, or something waits for another store."""
        return self.journal.waiting

    @property
    def fenced(self):
        """How many records wait for other stores."""
        return self.journal.fenced

    @property
    def refused(self):
        """Whether a selector waits for room in the store."""
        return self.journal.refused


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


def queue_bytes(QueueHandle handle not None):
    """Bytes that the messages of a queue take in its store, as records; those of one that was just published do not count before
    they are written. O(messages)."""
    cdef uint64_t total = 0
    cdef cursor_t at
    cdef entry_t* entry
    if handle.queue != NULL:
        at = cursor_start(handle.queue)
        entry = cursor_step(&at)
        while entry != NULL:
            total += entry_charge(entry)
            entry = cursor_step(&at)
    return total
