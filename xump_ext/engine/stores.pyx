"""Durable stores of an engine, and the port between the engine and the committer of a store.

The engine is one class in nine files (`engine_lock.pyx` says why). `EngineStores` comes after `EngineSleepers` in
`sleepers.pyx`. It adds the calls by which a store comes (`_open_journal`, `_create_recovered`, `_recover`) and goes (`_quiet`,
`_drop_store`, `_drop_queues`), and for the other files `with_room`. `enqueue.pyx` goes on.

The engine touches no file but to fetch a content, and the committer touches no queue. They meet in the port:

    ┌──────────┐  changed, crowded, make_room                        ┌───────────┐                  ┌──────────┐
    │ engine   ├────────────────────────────────────────────────────►│           │  write, sync     │          │
    │          │          ┌───────────┐  seal, written, synced       │ committer ├─────────────────►│ back-end │
    │ journal  │◄─────────┤ StorePort │◄─────────────────────────────┤           │  room, oldest,   │          │
    └────┬─────┘          └───────────┘  has_room, copy_forward,     └───────────┘  release         └──────────┘
         │                               failed, demand                                                  ▲
         └──────────────────────── fetch: a content that is not in memory ───────────────────────────────┘

    1. A call changes messages in the store. The journal gathers records; when the call ends, the engine tells `changed`.
    2. The committer seals the group, which takes the engine lock for an instant, and writes and syncs it without that lock.
    3. It tells the port `written` and `synced`. Fences of other stores open, and ids become durable.
    4. If the back-end needs space, it gives its oldest part: `copy_forward` gathers the live records of it once more.

`xump/durability/` has the committer, and opens stores. `xump_ext/store.py` is the contract of committer and back-end.
"""

from libc.stdint cimport int64_t, uint64_t, uintptr_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.queue_edit cimport message_delete, queue_create, queue_delete
from xump_ext.log.fences cimport fences_forget
from xump_ext.log.group cimport Group
from xump_ext.log.journal cimport Journal, store_unchanged
from xump_ext.log.live_sizes cimport largest_live
from xump_ext.log.room cimport COMES_IN, kept_bytes
from xump_ext.log.writer cimport enter_bytes, entry_charge
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t
from xump_ext.records.kinds cimport group_record_t
from xump_ext.recovery.log_reader cimport Recovery
from xump_ext.route.clock cimport time_of
from xump_ext.route.requeue cimport expire_in_room
from xump_ext.route.settling cimport pay_for
from xump_ext.route.routing cimport go_on, run
from xump_ext.select.credit cimport waiters_wake, wake_where_room_varies
from xump_ext.state.constants cimport BROKEN, SPECIAL_NOT, TIME_UNREAD
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, index_from
from xump_ext.state.lazy_content cimport content_shown, fetched_forget
from xump_ext.store import Demand

STORES_MAX = 64


cdef class EngineStores(EngineSleepers):
    """A part of the engine's class: durable stores come and go."""

    # ---- a store comes

    def _open_journal(self, backend, str name, uint64_t resident_max):
        """A journal for a store that was just opened; from here on the engine has the store."""
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
            self.unlock_now()

    def _recover(self, Recovery recovery not None):
        """Make the queues of a store that was read, held; return how many messages there are."""
        self.lock()
        try:
            self.read_clock()
            time_of(&self.e)
            count = recovery.end()
            for staged in recovery.empty:
                queue_delete(&self.e, (<QueueHandle> staged).queue, self._selectors, self.spare_slots)
            run(&self.e)
            return count
        finally:
            self.unlock_now()

    def _create_recovered(self, QueueHandle handle, dict properties, Journal journal, number):
        """Create a queue of a store that is being opened. Called inside `_recover`, which has taken the engine lock.

        `properties` are as `QueueHandle._properties` gives them.
        """
        queue_create(&self.e, handle, properties, self.spare_slots, journal, number)
        if self.e.is_watched:
            self.teller.caused.append(("queue", True, handle))
        handle.queue.held = True
        handle.queue.awaits_release = not handle.queue.staged

    # ---- a store goes

    def _quiet(self, Journal journal, list queues, list begun not None):
        """Prepare the deletion of a store: messages in its queues stay there, and none comes in. If it raises while `begun` is
        empty, nothing has changed."""
        cdef QueueHandle handle
        self.begin_call()
        try:
            if journal is not None:
                journal.store.leaving_engine = True
            for handle in queues:
                if handle.queue != NULL:
                    handle.queue.held = True
            begun.append(True)
        finally:
            self.unlock()

    def _drop_store(self, Journal journal not None, list queues):
        """Take a store and its queues out of the engine; its files keep their messages.

        No message may live on in two places. So the parents of these messages are settled, and what they became elsewhere is
        deleted.
        """
        cdef QueueHandle handle
        cdef list owned
        cdef bint failed
        self.begin_call()
        try:
            # What fell due until now, and other calls, may have ended some of them.
            owned = self.owners.entries_of(&journal.store)
            failed = journal.store.failed
            self.detach(journal)
            for entry in owned:
                message_delete(&self.e, <entry_t*> <uintptr_t> entry)
            for handle in queues:
                if handle.queue != NULL and not failed:       # else it may not have them: they are recalled
                    pay_for_all(&self.e, handle.queue)
            for handle in queues:
                if handle.queue != NULL:
                    queue_delete(&self.e, handle.queue, self._selectors, self.spare_slots)
            expire_in_room(&self.e)
            go_on(&self.e)
        finally:
            self.unlock()

    def _drop_queues(self, list queues):
        """Delete the queues of a store in RAM together: a message recalled from one of them does not go into the next."""
        cdef QueueHandle handle
        self.begin_call()
        try:
            for handle in queues:
                if handle.queue != NULL:      # else it has deleted itself with one before
                    queue_delete(&self.e, handle.queue, self._selectors, self.spare_slots)
            expire_in_room(&self.e)
            go_on(&self.e)
        finally:
            self.unlock()

    cdef int detach(self, Journal journal) except -1:
        """Cut a store off: no queue logs to it any more, and no other store waits for it. Its queues are about to be deleted."""
        cdef store_t** link = &self.e.stores
        cdef store_t* other = self.e.stores
        cdef queue_t* queue
        for address in journal.queues.values():
            queue = <queue_t*> <uintptr_t> address
            queue.durable = queue.touched = False
            queue.uncommon = queue.special != SPECIAL_NOT
            queue.store = NULL
        self.owners.leave(&journal.store)
        self.e.wanting = NULL
        while other != NULL:
            fences_forget(other, &journal.store)
            other = other.next
        while link[0] != &journal.store:
            link = &link[0].next
        link[0] = journal.store.next
        journal.store.failed = True         # a committer that still waits for its turn finds nothing to write
        journal.store.touched = NULL
        journal.store.fence_count = 0
        store_unchanged(&journal.store)
        fetched_forget(&self.e)
        self.e.store_count -= 1
        self.journals.remove(journal)
        return 0

    cdef queue_t* with_room(self, queue_t* queue, object name, uint64_t bytes, uint64_t largest) except? NULL:
        """Let the store clean its log if it has no room for so many bytes; return the queue of that name anew, or NULL.
        `largest`: of them, those of the largest message.

        The engine lock is given up meanwhile, so the call must not have changed anything yet.
        """
        bytes += kept_bytes(queue.store, <int64_t> largest, COMES_IN)
        return self.queue_of(name) if self.make_room(<Journal> queue.store.handle, <int64_t> bytes) else queue

    cdef int make_room(self, Journal journal, int64_t bytes) except -1:
        """The same for a store that should have so many bytes of room: True if the lock was given up. The call keeps its time:
        at a later one something may be due that nothing here has done."""
        cdef int64_t now
        cdef bint catches_up
        if journal.store.room >= bytes or journal.store.failed or journal.committer is None or self.keeps_lock:
            return False
        if self.e.now == TIME_UNREAD:       # nothing is scheduled
            self.read_clock()
        now, catches_up = self.e.now, self.catches_up
        self.catches_up = False
        self.teller.wait_begin()        # the call is not over yet
        try:
            self.unlock_now()
            journal.committer.make_room(bytes)
        finally:
            self.teller.wait_end()
            self.lock()
            self.teller.put_back()
            self.catches_up = catches_up
            self.e.now = now
        return True

    cdef bint make_room_for_letters(self) except -1:
        """A call has raised StoreFull, perhaps for want of room for dead letters: let that store make it. True: the lock was
        given up meanwhile, and the call is to be tried anew."""
        cdef store_t* store = self.e.wanting
        self.e.wanting = NULL
        return store != NULL and self.make_room(<Journal> store.handle, self.e.wanted)

    cdef int run_in_room(self) except -1:
        """Run the graph because a store has room again. A message that moves on may make room once more when it is written,
        and so on: these runs are one, until another call brings a message. So a message that goes in a circle comes to its
        end (decision 303)."""
        if self.e.building == 0:
            self.e.room_run = self.e.run_start
            if self.e.run_start == self.room_end:
                self.e.run_start = self.room_start
            self.room_start = self.e.run_start
        expire_in_room(&self.e)
        go_on(&self.e)
        self.room_end = self.e.run_start
        return 0

    @property
    def _broken(self):
        """Whether the engine ran out of memory in the middle of a step: then the records that it gathered may be wrong."""
        return self.e.at_rest == BROKEN


cdef class StorePort:
    """The engine, as the committer of one store sees it (drawn at the head of this file).

    Where a call needs the engine lock, it takes it for an instant.
    """

    def __cinit__(self, EngineStores core not None, Journal journal not None):
        self.core = core
        self.journal = journal

    def connect(self, committer, bint each_call):
        """Connect the committer. From here on the engine calls:

        - `committer.changed()` after the first call in a group that changed something in the store; with `each_call`, after each
        - `committer.crowded()` when much was gathered
        - `committer.make_room(bytes)` when a call lacks room
        """
        self.journal.connect(committer, each_call)

    def later(self):
        """A context manager: this thread makes no call-backs of the engine before it ends. They may call the engine, which may
        wait for what the committer holds."""
        return self.core._later()

    def seal(self, bint last=False):
        """Seal the group to be written next and return it; None: there is nothing. `last`: no group comes after it."""
        if not self.core.lock_if_open():
            return self.journal.seal(last, True)
        try:
            return self.journal.seal(last, False)
        finally:
            self.core.unlock_now()

    def written(self, Group group not None, bint final):
        """The store has the group. `final`: no sync will follow, so other stores need not wait for one."""
        if not self.core.lock_if_open():
            self.journal.written(group, final)
            return
        try:
            self.journal.written(group, final)
        finally:
            self.core.unlock_now()

    def synced(self, uint64_t group):
        """All groups up to this one are durable."""
        self.journal.made_durable(group)

    def has_room(self, int64_t room):
        """The store has so many bytes left. If that is more than before, or it keeps less of them since its largest message has
        ended, selectors that were refused try again."""
        cdef EngineStores core = self.core
        cdef Journal journal = self.journal
        cdef int64_t before
        if not core.lock_if_open():
            return
        try:
            if core.clock is not None:      # nobody calls, so it is not read
                core.e.now = core.e.time
            elif journal.store.refused or core.publishers:
                core.do_due_now()           # before what enters now
            before = journal.store.room
            journal.store.room = room - <int64_t> (journal.store.size - sizeof(group_record_t))
            journal.store.room_is_old = False
            journal.keep()
            if journal.store.refused and (
                    journal.store.room > before or journal.store.size_top + 1 < journal.store.refused):
                journal.store.refused = 0
                journal.store.refused_bytes = 0
                for address in journal.queues.values():
                    waiters_wake(&core.e, <queue_t*> <uintptr_t> address)
                wake_where_room_varies(&core.e)     # queues that overflow into one of these, too
                core.run_in_room()
        finally:
            core.unlock()

    def copy_forward(self, data):
        """Gather the live ones of these records, the oldest of the log, once more."""
        self.core.lock()
        try:
            self.journal.carry(data)
        finally:
            self.core.unlock_now()

    def failed(self):
        """The store has failed: it writes nothing more."""
        self.journal.fail()

    def demand(self, int64_t wanted, bint stands_still=False):
        """The figures by which the back-end chooses its oldest part; `wanted`: bytes that a call lacks room for."""
        cdef store_t* store = &self.journal.store
        return Demand(wanted, self.journal.live_bytes, largest_live(store), self.journal.carried_bytes, store.refused_bytes,
                      stands_still)

    @property
    def alone(self):
        """Whether no other durable store is in the engine."""
        return self.core.e.store_count == 1

    @property
    def open_group(self):
        """The number of the group that is being gathered."""
        return self.journal.open_group

    @property
    def open_bytes(self):
        """How many bytes were gathered for that group."""
        return self.journal.open_bytes

    @property
    def ticket(self):
        """The number of the last group in which there is anything."""
        return self.journal.ticket

    @property
    def passed(self):
        """All groups up to this one are as durable as the store promises."""
        return self.journal.passed

    @property
    def waiting(self):
        """Whether there is something to write, or something waits for another store."""
        return self.journal.waiting

    @property
    def fenced(self):
        """How many records and fences wait for other stores; 0 if they wait in vain."""
        return self.journal.fenced

    @property
    def fences_passed(self):
        """How many records and fences went on since the store was opened. The next one has the number behind."""
        return self.journal.fences_passed

    @property
    def refused(self):
        """Whether a selector waits for room in the store."""
        return self.journal.refused


cdef int pay_for_all(engine_t* engine, queue_t* queue) except -1:
    """Pay the selectors that supplied the messages in the queue."""
    cdef entry_t* parent
    cdef entry_t* entry = index_from(&queue.index, 1)
    try:
        while entry != NULL:
            parent = entry.parent
            if parent != NULL:
                entry.parent = NULL
                pay_for(engine, parent, queue)
            entry = index_from(&queue.index, entry.id + 1)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    return 0


def ram_bytes(EngineStores core not None, store):
    """Bytes that the messages of a store in RAM would take as records, each counted in every queue that it is in. O(messages)."""
    cdef uint64_t total = 0
    cdef QueueHandle handle
    cdef cursor_t at
    cdef entry_t* entry
    cdef content_t* content
    core.lock()
    try:
        for handle in core._queues.values():
            if handle.store is not store:
                continue
            at = cursor_start(handle.queue)
            entry = cursor_step(&at)
            while entry != NULL:
                content = content_shown(entry)
                total += enter_bytes(content, False)
                content_release(content)
                entry = cursor_step(&at)
        return total
    finally:
        core.unlock_now()


def queue_bytes(QueueHandle handle not None):
    """Bytes that the messages of a queue take in its store, as records. O(messages)."""
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
