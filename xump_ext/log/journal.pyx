"""The journal of a durable store: gathers the records of all changes, and seals them into groups.

`log/append.pyx` adds the records; `store.py` says how a group is handed to the store. A group is sealed between calls, never
inside one, so all that a run did is durable together or not at all. While one group is written, the next one is gathered in the
other buffer, without a lock between them.

Written contents need not stay in memory. Beyond a budget (`resident_max`) they are released, and read from the store on demand.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport UINT32_MAX, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from xump_ext.errors import StoreCorrupt, StoreFailed, StoreFull
from xump_ext.log.adopt cimport adoptions_of
from xump_ext.log.append cimport log_carried, log_queue, log_state, tells_its_marks
from xump_ext.log.contents cimport content_of_record
from xump_ext.log.fences cimport fences_pass, fences_stuck, log_mark, log_retry
from xump_ext.log.group cimport Group, merge_ends
from xump_ext.log.marks cimport Owner, Owners, owner_mark, owner_of, owner_told
from xump_ext.log.meta cimport Map, queue_map
from xump_ext.log.owners cimport CarriedAnyway, carried_anyway, shadow_ends
from xump_ext.log.seen cimport is_remembered
from xump_ext.log.tickets cimport ticket_of
from xump_ext.log.writer cimport record_again, settle_record, store_queue, stored_content, stored_position, touch
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t
from xump_ext.records.kinds cimport (
    ADOPT, ENTER, MARK, META, QUEUE, RECORD_MARKED, RECORD_REDELIVERED, SEEN, STATE, enter_record_t, group_record_t, head_t,
    queue_record_t, state_record_t,
)
from xump_ext.records.record cimport RECORD_WHOLE, incarnation_new, record_state
from xump_ext.state.constants cimport DELAYED, HISTORY, MOVED, OFFERED, REDELIVERED, SHADOW, STAINED, TAKEN
from xump_ext.state.extra cimport is_first_delay
from xump_ext.state.graph cimport entry_t
from xump_ext.state.index cimport index_from, index_get
from xump_ext.state.lazy_content cimport is_loaded

cdef uint64_t QUEUE_BYTES = sizeof(queue_record_t) + 32 + sizeof(state_record_t)   # with a name of usual length
cdef uint64_t FEW_ENDS = 16                         # so many SETTLE records are not worth sorting
cdef uint64_t BUFFER_BYTES = <uint64_t> 1 << 18     # size of a buffer at first, and again after a large group


cdef class Journal:
    """Stands between an engine and a store.

    `seal` gives the next group, `written` says that the store has it, `fail` that it writes nothing more.
    """

    def __cinit__(self, backend, str name, uint64_t resident_max):
        memset(&self.store, 0, sizeof(store_t))
        self.backend = backend
        self.name = name
        self.queues = {}
        self.map = Map.__new__(Map)
        self.unsynced = set()
        self.leaving = {}
        self.departed = {}
        self.copied = {}
        self.store.queues = <void*> self.queues
        self.store.leaving = <void*> self.leaving
        self.store.departed = <void*> self.departed
        self.store.handle = <void*> self
        self.store.fetch = journal_fetch
        self.store.salt = backend.salt
        self.store.group = 1
        self.group_bytes = self.crowded_at = backend.group_bytes
        self.store.resident_max = resident_max
        self.store.copies_forward = getattr(backend, "copies_forward", False)
        self.store.capacity = self.spare_capacity = BUFFER_BYTES
        self.store.data = <char*> malloc(BUFFER_BYTES)
        self.spare = <char*> malloc(BUFFER_BYTES)
        if self.store.data == NULL or self.spare == NULL:
            raise MemoryError()
        self.store.size = sizeof(group_record_t)

    def __dealloc__(self):
        free(self.store.data)
        free(self.spare)
        free(self.store.fences)

    cdef uint32_t number_new(self) except 0:
        """A number for a new queue. None is given twice: the log may have records of each."""
        if self.last_number == UINT32_MAX:
            raise StoreFull(f"store {self.name!r} has given all its {UINT32_MAX} numbers to queues: create this one in a new "
                            "store")
        return self.last_number + 1

    cdef int attach(self, queue_t* queue, uint32_t number) except -1:
        """The queue is in this store from here on, and has that number there."""
        self.last_number = max(self.last_number, number)
        queue.store = &self.store
        queue.durable = queue.uncommon = True
        queue.number = number
        self.queues[number] = <uintptr_t> queue
        return 0

    def connect(self, committer, bint each_call):
        """See `StorePort.connect`."""
        self.committer = committer
        self.wakeup = committer.wakeup
        self.changed = committer.changed
        self.each_call = each_call

    def open_at(self, uint64_t position, int64_t room):
        """The log goes on at `position`; `room` bytes may still be written."""
        self.store.position = self.synced = self.written_to = position
        self.store.room = room
        self.keep()

    cdef int keep(self) except -1:
        """Ask the store how much of its room publishes must leave (`Backend.kept_bytes`)."""
        self.store.kept = min(max(0, getattr(self.backend, "kept_bytes", 0)), 1 << 60)
        return 0

    @property
    def open_group(self):
        """The number of the group that is being gathered."""
        return self.store.group

    @property
    def open_bytes(self):
        """How many bytes were gathered for that group."""
        return self.store.size

    @property
    def ticket(self):
        """The number of the last group in which there is anything."""
        return ticket_of(&self.store)

    @property
    def passed(self):
        """All groups up to this one are as durable as the store promises."""
        return self.store.passed

    @property
    def fenced(self):
        """How many records and fences wait for other stores; 0 if they wait in vain, since one of those has failed."""
        return 0 if fences_stuck(&self.store) else self.store.fence_count

    @property
    def fences_passed(self):
        """How many records and fences went on, ever. Those behind them are numbered on."""
        return self.store.fences_passed

    def is_leaving(self, str name):
        """Whether a queue of this name was deleted here, and the store may still bring it back after a crash."""
        departed = self.departed.get(name)
        return departed is not None and not 0 < departed[1] <= self.store.passed

    @property
    def waiting(self):
        """Whether something was gathered that is not sealed yet, or waits behind fences."""
        return self.signalled or self.fenced > 0

    @property
    def live_bytes(self):
        """About how many bytes of the log are still needed: the records of messages, and for each queue a QUEUE and a STATE."""
        return self.store.live + len(self.queues) * QUEUE_BYTES

    @property
    def refused(self):
        """Whether a selector upstream waits for room in the store."""
        return bool(self.store.refused)

    def failure(self):
        """The error to raise when a call needs the failed store."""
        return StoreFailed(f"store {self.name!r} has failed") if self.committer is None else self.committer.failure()

    cdef int must_write(self) except -1:
        """Raises `StoreFailed` if the store writes nothing more: it has failed, or is being deleted."""
        if self.store.failed:
            raise self.failure()
        if self.store.leaving_engine:
            raise StoreFailed(f"store {self.name!r} is being deleted")
        return 0

    @property
    def failed(self):
        """Whether the store has failed: it writes nothing more."""
        return bool(self.store.failed)

    cdef Group seal(self, bint exact, bint closing):
        """Seal the gathered records; return them as the group to be written next, or None. Called between calls of the engine.

        `exact`: it is the last group, and says of each message whether it was handed out. `closing`: the engine is being closed,
        and its other stores have made durable what they got.
        """
        cdef Group group
        cdef store_t* store = &self.store
        cdef queue_t* queue
        cdef char* data
        cdef uint32_t number = 0
        self.signalled = False
        self.crowded_at = self.group_bytes
        fences_pass(&self.store)
        if exact:
            number = closing_number()
            self.mark_outstanding(closing, number)
            self.mark_owners(closing)
        while store.touched != NULL:
            queue = store.touched
            store.touched = queue.next_touched
            queue.touched = False
            log_state(queue, number)
        store_unchanged(store)
        if store.size > sizeof(group_record_t) and not store.failed and (store.ends > FEW_ENDS or store.ends_astray):
            merge_ends(store)
        if store.is_incomplete:         # memory ended now, or when these records were gathered
            raise StoreFailed("out of memory")
        if store.size == sizeof(group_record_t) or store.failed:
            return None
        data = self.spare if self.spare != NULL else <char*> malloc(BUFFER_BYTES)
        if data == NULL:
            raise MemoryError()
        group = Group.__new__(Group)
        group.data, group.size, group.capacity = store.data, store.size, store.capacity
        group.position, group.number, group.records = store.position, store.group, store.records
        group.salt, group.synced, group.carries = store.salt, self.synced, self.carries
        self.carries = False
        store.data = data
        store.capacity = self.spare_capacity if self.spare != NULL else BUFFER_BYTES
        self.spare = NULL
        store.position += store.size
        store.size = sizeof(group_record_t)
        store.records = 0
        store.group += 1
        store.ends = 0
        store.ends_astray = False
        store.room_is_old = True
        return group

    cdef int mark_outstanding(self, bint closing, uint32_t number) except -1:
        """Mark each outstanding message: when the store is opened it is ready again, redelivered, with its delivery count; and
        each one that a retry delays. `number`: of this orderly end.

        `closing`: if it goes on in a durable queue, it is settled here instead.
        """
        cdef queue_t* queue
        cdef entry_t* entry
        for address in self.queues.values():
            queue = <queue_t*> <uintptr_t> address
            touch(queue)
            entry = index_from(&queue.index, 1) if queue.outstanding or queue.handed or queue.delayed else NULL
            while entry != NULL:
                if closing and is_below(entry):
                    settle_record(&self.store, queue.number, entry.id, RECORD_MARKED if entry.flags & STAINED else 0, queue)
                elif entry.state == OFFERED or entry.state == TAKEN or entry.state == MOVED:
                    entry.flags |= REDELIVERED
                    entry.delivery_count = lowest(entry).delivery_count
                    log_mark(entry)
                elif entry.state == DELAYED and not is_first_delay(entry):
                    log_retry(entry, entry.extra.ended.retry if queue.awaits_release else entry.extra.due, number)
                elif entry.delivery_count and entry.state != HISTORY and not entry.flags & STAINED:
                    log_mark(entry)
                entry = index_from(&queue.index, entry.id + 1)
        return 0

    cdef int mark_owners(self, bint closing) except -1:
        """The same for messages that own an entry in RAM: each is ready again in its own queue, unless it goes on in a durable
        one."""
        cdef entry_t* entry
        cdef entry_t* low
        cdef Owner owner
        for address in (<Owners> self.store.engine.owners).entries_of(&self.store):
            entry = <entry_t*> <uintptr_t> address
            owner = owner_of(entry)
            if closing and is_below(entry):
                self.end_owner(owner)
                continue
            low = lowest(entry)
            came_back = entry.state in (OFFERED, TAKEN, MOVED) or low.flags & REDELIVERED
            owner_told(owner, low.delivery_count, RECORD_REDELIVERED if came_back else 0)
            if owner.delivery_count or owner.says & RECORD_REDELIVERED:
                owner_mark(owner, 0, 0)
        return 0

    cdef int end_owner(self, Owner owner) except -1:
        """The message ends: what it became is in a durable queue. One that is a shadow in its history is there from now on."""
        cdef queue_t* queue = store_queue(&self.store, owner.queue)
        cdef entry_t* durable = index_get(&queue.index, owner.id)
        if durable != NULL and durable.flags & SHADOW:
            return shadow_ends(durable, owner)
        settle_record(&self.store, owner.queue, owner.id, RECORD_MARKED if owner.stained else 0, NULL)
        return 0

    cdef int written(self, Group group, bint enough) except -1:
        """The store has the group. `enough`: fences for it are open now; they need not wait for a sync."""
        cdef store_t* store = &self.store
        cdef uint64_t at = 0
        cdef const head_t* head
        cdef queue_t* queue
        while at < group.size:
            head = <const head_t*> (group.data + at)
            if head.kind == STATE:
                queue = store_queue(store, head.queue)
                if queue != NULL:
                    queue.written_id = head.id - 1
                    self.unsynced.add(head.queue)
            at += head.length
        self.written_to = group.position + group.size
        if enough:
            store.passed = group.number
            self.forget_departed()
        if group.carries or store.resident > store.resident_max:
            self.forget_contents(group, store.resident > store.resident_max)
        if self.spare == NULL and group.capacity <= BUFFER_BYTES * 16:
            self.spare, self.spare_capacity = group.data, group.capacity
            group.data = NULL
            group.size = 0
        return 0

    cdef int made_durable(self, uint64_t group) except -1:
        """All groups up to this one are durable."""
        cdef queue_t* queue
        self.store.passed = self.store.durable = group
        self.synced = self.written_to
        self.forget_departed()
        for number in self.unsynced:
            queue = store_queue(&self.store, number)
            if queue != NULL:
                queue.durable_id = queue.written_id
        self.unsynced.clear()
        return 0

    cdef int forget_departed(self) except -1:
        """The names of queues whose ends are durable may be given to queues in other stores."""
        if self.departed:
            for name in [name for name, (_, group) in self.departed.items() if 0 < group <= self.store.passed]:
                del self.departed[name]
        return 0

    cdef int forget_contents(self, Group group, bint forget) except -1:
        """Release the contents that this group has written (`forget`): the store has them. Older ones stay in memory, since they
        are asked for first.

        Entries whose content is in the store get its new position if the record was copied forward.
        """
        cdef uint64_t at = 0
        cdef const head_t* head
        cdef entry_t* entry
        cdef queue_t* queue
        while at < group.size:
            head = <const head_t*> (group.data + at)
            if head.kind == ENTER:
                queue = store_queue(&self.store, head.queue)
                entry = NULL if queue == NULL else index_get(&queue.index, head.id)
                if entry != NULL and not is_loaded(entry):
                    entry.content.loaded = stored_content(head.position, head.length)
                elif entry != NULL and forget:
                    content_release(entry.content.loaded)
                    entry.content.loaded = stored_content(head.position, head.length)
                    self.store.resident -= head.length
            at += head.length
        return 0

    cdef int carry(self, data) except -1:
        """Copy forward: of these records, the oldest of the log, gather those once more that are still needed."""
        cdef Py_buffer view
        cdef uint64_t at = 0, before = self.store.size
        cdef const head_t* head
        cdef queue_t* queue
        cdef Map map
        cdef CarriedAnyway waiting = carried_anyway(&self.store)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while at < <uint64_t> view.len:
                head = <const head_t*> (<const char*> view.buf + at)
                queue = store_queue(&self.store, head.queue) if head.queue else NULL
                if self.copied and self.has_later_copy(head):
                    pass
                elif head.queue in self.leaving:
                    if self.is_last_of(head) or waiting.has(head.queue, head.id):
                        record_again(&self.store, head)
                elif queue != NULL and head.kind == ENTER:
                    log_carried(queue, <const enter_record_t*> head, waiting.has(head.queue, head.id))
                elif queue != NULL and head.kind == MARK:
                    if waiting.has(head.queue, head.id) and not tells_its_marks(index_get(&queue.index, head.id), True):
                        record_again(&self.store, head)
                elif queue != NULL and head.kind == SEEN:
                    if is_remembered(queue, head.id):
                        record_again(&self.store, head)
                elif head.kind == META and (queue != NULL or head.queue == 0):
                    map = self.map if queue == NULL else queue_map(queue)
                    if map is not None and head.id == map.number:
                        record_again(&self.store, head)
                elif queue != NULL and head.kind == ADOPT:
                    if adoptions_of(queue) is not None and head.id == adoptions_of(queue).number:
                        record_again(&self.store, head)
                elif queue != NULL and head.kind == QUEUE and head.position >= queue.described:     # else a later one is there
                    self.state_again(queue)     # with a QUEUE goes a STATE
                    log_queue(queue)
                elif queue != NULL and head.kind == STATE and head.position >= queue.stated:
                    self.state_again(queue)
                at += head.length
        finally:
            PyBuffer_Release(&view)
            self.carried_bytes += self.store.size - before
            if before == sizeof(group_record_t) and self.store.size != before:
                self.carried_bytes += before
        self.carries = True
        return 0

    cdef int state_again(self, queue_t* queue) except -1:
        """Its STATE is written when the group is sealed."""
        if not queue.touched:
            self.carried_bytes += sizeof(state_record_t)
        touch(queue)
        return 0

    cdef bint has_later_copy(self, const head_t* head) except -1:
        """Whether there is a later copy of this record. The store was closed, or killed, before the disk heard that its log
        begins behind this one. Copied each time, both would stay for ever."""
        key = head.kind, head.queue, head.id
        last = self.copied.get(key)
        if last is None:
            return False
        if head.position < last:
            return True
        del self.copied[key]
        return False

    cdef bint is_last_of(self, const head_t* head) except -1:
        """Whether this is the last QUEUE or STATE of a queue that is leaving."""
        _, described, stated = self.leaving[head.queue]
        return (head.kind == QUEUE and head.position >= described) or (head.kind == STATE and head.position >= stated)

    cdef void fail(self) noexcept:
        """The store writes nothing more. Records of other stores that wait for it are never logged, so those stores have the
        messages again when they are opened."""
        self.store.failed = True
        self.store.room = 0
        if self.store.engine != NULL:
            self.store.engine.store_failed = True


cdef uint32_t closing_number() except 0:
    """A number of this orderly end: what a MARK says of a retry counts as long as the STATE is of the same one."""
    return <uint32_t> incarnation_new() | 1


cdef entry_t* lowest(entry_t* entry) noexcept:
    """The last entry downstream that this one became by MOVE; itself, if it was not moved."""
    while entry.state == MOVED:
        entry = entry.below.child
    return entry


cdef bint is_below(const entry_t* entry) noexcept:
    """Whether a durable queue downstream has an entry that this one became, in any store that has not failed."""
    while entry.state == MOVED:
        entry = entry.below.child
        if entry.queue.durable and not entry.queue.store.failed:
            return True
    return False


cdef void store_unchanged(store_t* store) noexcept:
    """Take the store off the engine's list of changed stores: all that was gathered is sealed."""
    cdef store_t** link = &store.engine.changed_stores
    while link[0] != NULL and link[0] != store:
        link = &link[0].next_changed
    if link[0] != NULL:
        link[0] = store.next_changed
    store.is_changed = False


cdef int tell_stores(engine_t* engine) except -1:
    cdef Journal journal
    cdef store_t* store
    cdef list changed = []
    while engine.changed_stores != NULL:
        store = engine.changed_stores
        engine.changed_stores = store.next_changed
        store.is_changed = False
        journal = <Journal> store.handle
        if journal.changed is not None and (journal.each_call or not journal.signalled):
            if not journal.each_call:
                journal.wakeup.wake()       # at once: the call of `changed` may be interrupted before it begins
            journal.signalled = True
            changed.append(journal.changed)
        elif store.size > journal.crowded_at and journal.committer is not None:
            journal.crowded_at *= 4
            changed.append(journal.committer.crowded)
    error = None
    for call in changed:        # all of them, whatever the others raise
        try:
            call()
        except BaseException as raised:
            error = raised
    if error is not None:
        raise error
    return 0


cdef int when_passed(Journal journal, uint64_t ticket, object told) except -1:
    """Have `told(error)` called once, when that ticket is passed: see `tickets.pxd`. Called without the engine lock."""
    journal.committer.when(ticket, 0, told)
    return 0


# ---- contents

cdef content_t* journal_fetch(entry_t* entry) except NULL:
    """A new reference to the content of an entry that is in the store, or in a group on its way there."""
    cdef Journal journal = <Journal> entry.queue.store.handle
    cdef uint64_t position = stored_position(entry)
    cdef content_t* content
    if journal.window is not None:
        content = content_in(journal, entry, position)
        if content != NULL:
            return content
    entry.queue.engine.unreadable = entry.queue
    at, window = journal.backend.fetch(entry.queue.number, entry.id, position)
    journal.window, journal.window_position = window, at
    content = content_in(journal, entry, position)
    if content == NULL:
        journal.window = None
        raise StoreCorrupt(f"store {journal.name!r}: message {entry.id} of queue {(<object> entry.queue.handle).name!r} is "
                           "damaged; delete it by its id, or close the engine and run: xump repair PATH")
    entry.queue.engine.unreadable = NULL
    return content


cdef content_t* content_in(Journal journal, entry_t* entry, uint64_t position) except? NULL:
    """The content from the window; NULL: the record is not there as a whole, or no engine wrote it so."""
    cdef Py_buffer view
    cdef const enter_record_t* record
    cdef uint64_t offset
    if position < journal.window_position:
        return NULL
    offset = position - journal.window_position
    PyObject_GetBuffer(journal.window, &view, PyBUF_SIMPLE)
    try:
        if offset + sizeof(enter_record_t) > <uint64_t> view.len:
            return NULL
        record = <const enter_record_t*> (<const char*> view.buf + offset)
        if (record_state(<const char*> record, view.len - offset, record.head.position, journal.store.salt) != RECORD_WHOLE
                or record.head.kind != ENTER or record.head.id != entry.id or record.head.queue != entry.queue.number):
            return NULL
        return content_of_record(record)
    except UnicodeDecodeError:
        return NULL
    finally:
        PyBuffer_Release(&view)
