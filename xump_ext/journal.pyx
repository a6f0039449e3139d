"""The journal of a durable store: what runs change is gathered as records (`log.pyx`), and handed over as a group (`store.py`).

A group is sealed between calls, never inside one: so what a run did is durable as a whole or not at all. While a group is being
written the next one is gathered in the other buffer, without any lock. What was written need not stay in memory: beyond a budget
contents are forgotten, and read from the store when somebody asks.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint16_t, uintptr_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memmove, memset

from xump_ext.block cimport headers_of, text_new
from xump_ext.content cimport content_of_buffers, content_release
from xump_ext.crc cimport crc32c
from xump_ext.errors import StoreCorrupt
from xump_ext.fences cimport carried_anyway, fences_pass, fences_stuck
from xump_ext.graph cimport HISTORY, MOVED, OFFERED, REDELIVERED, STAINED, TAKEN, entry_t
from xump_ext.index cimport index_from, index_get
from xump_ext.log cimport (
    log_again, log_carried, log_mark, log_queue, log_state, mark_record, place_of, placed, settle_record, store_queue, touch,
)
from xump_ext.records cimport (
    ENTER, GROUP, MAGIC, MARK, NO_TEXT, QUEUE, RECORD_MARKED, RECORD_REDELIVERED, RECORD_WHOLE, SETTLE, STATE, enter_record_t,
    group_record_t, head_bytes, head_crc, head_t, payload_of, rare_of, rare_t, record_state, settle_record_t,
)
from xump_ext.source cimport is_made

cdef uint64_t FEW_ENDS = 16                         # records of ends that are not worth being put in order
cdef uint64_t BUFFER_BYTES = <uint64_t> 1 << 18     # at first, and again after a large group


cdef class Group:
    def __cinit__(self):
        self.data = NULL

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size

    def finish(self):
        """The CRCs, which are left to whoever writes the group: no lock is held for them."""
        cdef uint64_t at = 0
        cdef head_t* head
        cdef group_record_t* group = <group_record_t*> self.data
        cdef uint32_t fixed
        if self.finished or self.data == NULL:
            return
        with nogil:
            group.head.magic = MAGIC
            group.head.kind = GROUP
            group.head.flags = 0
            group.head.length = sizeof(group_record_t)
            group.head.queue = 0
            group.head.position = self.position
            group.head.id = self.number
            group.count = self.records
            group.bytes = self.size
            group.synced = self.synced
            while at < self.size:
                head = <head_t*> (self.data + at)
                if head.kind == ENTER:
                    fixed = head_bytes(head)
                    (<enter_record_t*> head).payload_crc = crc32c(self.salt, self.data + at + fixed, head.length - fixed)
                head.crc = head_crc(head, self.salt)
                at += head.length
        self.finished = True


cdef class Journal:
    """Between an engine and a store: `seal` gives the next group, `written` says that it is there, `fail` that none will be."""

    def __cinit__(self, backend, str name, uint64_t resident_max):
        memset(&self.store, 0, sizeof(store_t))
        self.backend = backend
        self.name = name
        self.queues = {}
        self.unsynced = set()
        self.leaving = set()
        self.store.queues = <void*> self.queues
        self.store.leaving = <void*> self.leaving
        self.store.face = <void*> self
        self.store.salt = backend.salt
        self.store.group = 1
        self.group_bytes = self.crowded_at = backend.group_bytes
        self.store.resident_max = resident_max
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

    cdef int attach(self, queue_t* queue, uint32_t number) except -1:
        """The queue is of this store from here on; 0: it is new there."""
        if number == 0:
            number = self.last_number + 1
        self.last_number = max(self.last_number, number)
        queue.store = &self.store
        queue.durable = True
        queue.number = number
        self.queues[number] = <uintptr_t> queue
        return 0

    def open_at(self, uint64_t position, int64_t room):
        """The log goes on there; so much may be written."""
        self.store.position = self.synced = self.written_to = position
        self.store.room = room
        self.keep()

    cdef int keep(self) except -1:
        """What the store says of its room."""
        self.store.kept = min(max(0, getattr(self.backend, "kept_bytes", 0)), 1 << 60)
        return 0

    @property
    def open_group(self):
        """The number of the group that is being gathered."""
        return self.store.group

    @property
    def fenced(self):
        """Records that wait for other stores, unless it is in vain."""
        return 0 if fences_stuck(&self.store) else self.store.fence_count

    @property
    def waiting(self):
        """Whether something was told that nobody has sealed, or stands behind fences."""
        return self.signalled or self.fenced > 0

    @property
    def live_bytes(self):
        """What the messages in the store take of it, about."""
        return self.store.live

    @property
    def refused(self):
        """Whether somebody upstream waits for room."""
        return bool(self.store.refused)

    @property
    def failed(self):
        """Whether the store is given up."""
        return bool(self.store.failed)

    cdef Group seal(self, bint exact, bint closing):
        """The gathered group, whose turn to be written it is, or None when there is nothing. Between two calls of the engine.
        `exact`: it is the last one, and what was handed out is told message by message. `closing`: of the engine, whose other
        stores have made durable what they got."""
        cdef Group group
        cdef store_t* store = &self.store
        cdef queue_t* queue
        cdef char* data
        self.signalled = False
        self.crowded_at = self.group_bytes
        fences_pass(&self.store)
        if exact:
            self.mark_outstanding(closing)
            self.mark_owners(closing)
        while store.touched != NULL:
            queue = store.touched
            store.touched = queue.next_touched
            queue.touched = False
            log_state(queue, exact)
        undirty(store)
        if store.size == sizeof(group_record_t) or store.failed:
            return None
        if store.ends > FEW_ENDS:
            merge_ends(store)
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
        return group

    cdef int mark_outstanding(self, bint closing) except -1:
        """What is outstanding will be ready again, and known to have been handed out as often as it was; but what goes on in a
        durable queue is there."""
        cdef queue_t* queue
        cdef entry_t* entry
        for address in self.queues.values():
            queue = <queue_t*> <uintptr_t> address
            touch(queue)
            entry = index_from(&queue.index, 1) if queue.outstanding or queue.handed else NULL
            while entry != NULL:
                if closing and is_below(entry):
                    settle_record(&self.store, queue.number, entry.id, RECORD_MARKED if entry.flags & STAINED else 0, queue)
                elif entry.state == OFFERED or entry.state == TAKEN or entry.state == MOVED:
                    entry.flags |= REDELIVERED
                    entry.delivery_count = lowest(entry).delivery_count
                    log_mark(entry)
                elif entry.delivery_count and entry.state != HISTORY and not entry.flags & STAINED:
                    log_mark(entry)
                entry = index_from(&queue.index, entry.id + 1)
        return 0

    cdef int mark_owners(self, bint closing) except -1:
        """What this store owns in RAM will be ready again in its queue, with what is known of it, if it does not go on in a
        durable one."""
        cdef entry_t* entry
        cdef entry_t* low
        for address, owner in (<dict> self.store.engine.owners).items():
            if owner[0] == <uintptr_t> &self.store:
                entry = <entry_t*> <uintptr_t> address
                if closing and is_below(entry):
                    settle_record(&self.store, owner[1], owner[2], RECORD_MARKED if owner[4] else 0, NULL)
                    continue
                low = lowest(entry)
                came_back = entry.state in (OFFERED, TAKEN, MOVED) or low.flags & REDELIVERED
                if low.delivery_count or came_back:
                    mark_record(&self.store, owner[1], owner[2], low.delivery_count, RECORD_REDELIVERED if came_back else 0)
        return 0

    cdef int written(self, Group group, bint enough) except -1:
        """The group is in the store. `enough`: fences of others need no sync of it."""
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
        if group.carries or store.resident > store.resident_max:
            self.forget_contents(group, store.resident > store.resident_max)
        if self.spare == NULL and group.capacity <= BUFFER_BYTES * 16:
            self.spare, self.spare_capacity = group.data, group.capacity
            group.data = NULL
            group.size = 0
        return 0

    cdef int made_durable(self, uint64_t group) except -1:
        """All that was written up to this group."""
        cdef queue_t* queue
        self.store.passed = self.store.durable = group
        self.synced = self.written_to
        for number in self.unsynced:
            queue = store_queue(&self.store, number)
            if queue != NULL:
                queue.durable_id = queue.written_id
        self.unsynced.clear()
        return 0

    cdef int forget_contents(self, Group group, bint forget) except -1:
        """What was written need not stay in memory. The oldest, which were there first, stay: they are asked for first. What was
        not in memory is in a new place if its record was carried forward."""
        cdef uint64_t at = 0
        cdef const head_t* head
        cdef entry_t* entry
        cdef queue_t* queue
        while at < group.size:
            head = <const head_t*> (group.data + at)
            if head.kind == ENTER:
                queue = store_queue(&self.store, head.queue)
                entry = NULL if queue == NULL else index_get(&queue.index, head.id)
                if entry != NULL and not is_made(entry):
                    entry.content = placed(head.position, head.length)
                elif entry != NULL and forget:
                    content_release(entry.content)
                    entry.content = placed(head.position, head.length)
                    self.store.resident -= head.length
            at += head.length
        return 0

    cdef int carry(self, data) except -1:
        """What of these records, the oldest of the log, is still needed is gathered once more."""
        cdef Py_buffer view
        cdef uint64_t at = 0, before = self.store.size
        cdef const head_t* head
        cdef queue_t* queue
        cdef set waiting = carried_anyway(&self.store)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while at < <uint64_t> view.len:
                head = <const head_t*> (<const char*> view.buf + at)
                queue = store_queue(&self.store, head.queue) if head.queue else NULL
                if head.queue in self.leaving:
                    if head.kind == QUEUE or head.kind == STATE or (head.queue, head.id) in waiting:
                        log_again(&self.store, head)
                elif queue != NULL and head.kind == ENTER:
                    log_carried(queue, <const enter_record_t*> head, (head.queue, head.id) in waiting)
                elif queue != NULL and head.kind == MARK:       # else the ENTER that is carried says it
                    if (head.queue, head.id) in waiting and index_get(&queue.index, head.id) == NULL:
                        log_again(&self.store, head)
                elif queue != NULL and head.kind == QUEUE and head.position >= queue.described:     # else it stands further on
                    log_queue(queue)
                elif queue != NULL and head.kind == STATE:
                    touch(queue)
                    self.carried_bytes += head.length       # when the group is sealed
                at += head.length
        finally:
            PyBuffer_Release(&view)
            self.carried_bytes += self.store.size - before
        self.carries = True
        return 0

    cdef void fail(self) noexcept:
        """Nothing is written any more. What others log only when this store is durable, they never do: they have it again when
        they are opened."""
        self.store.failed = True
        self.store.room = 0


cdef int by_run(const void* a, const void* b) noexcept nogil:
    """By queue, flags and id."""
    cdef const settle_record_t* x = <const settle_record_t*> a
    cdef const settle_record_t* y = <const settle_record_t*> b
    if x.head.queue != y.head.queue:
        return 1 if x.head.queue > y.head.queue else -1
    if x.head.flags != y.head.flags:
        return 1 if x.head.flags > y.head.flags else -1
    return (x.head.id > y.head.id) - (x.head.id < y.head.id)


cdef int merge_ends(store_t* store) except -1:
    """Messages that ended in one group, in whatever order, are runs of ids: an ack of a million takes as little as it can. In a
    group ends count after all else, so they may stand anywhere in it; the other records move up, and say where they stand."""
    cdef settle_record_t* ends = <settle_record_t*> malloc(store.ends * sizeof(settle_record_t))
    cdef settle_record_t* run
    cdef head_t* head
    cdef uint64_t at = sizeof(group_record_t), end = at, count = 0, length, i
    if ends == NULL:
        return 0            # it goes as it is
    while at < store.size:
        head = <head_t*> (store.data + at)
        length = head.length
        if head.kind == SETTLE:
            ends[count] = (<settle_record_t*> head)[0]
            count += 1
        else:
            memmove(store.data + end, head, length)
            (<head_t*> (store.data + end)).position = store.position + end
            end += length
        at += length
    store.records -= count
    qsort(ends, count, sizeof(settle_record_t), by_run)
    run = NULL
    for i in range(count):
        if run != NULL and run.head.queue == ends[i].head.queue and run.head.flags == ends[i].head.flags and (
                run.head.id + run.count == ends[i].head.id):
            run.count += ends[i].count
            continue
        run = <settle_record_t*> (store.data + end)
        run[0] = ends[i]
        run.head.position = store.position + end
        end += sizeof(settle_record_t)
        store.records += 1
    store.room += <int64_t> (store.size - end)
    store.size = end
    free(ends)
    return 0


cdef entry_t* lowest(entry_t* entry) noexcept:
    """What it is now, further down."""
    while entry.state == MOVED:
        entry = <entry_t*> entry.child
    return entry


cdef bint is_below(const entry_t* entry) noexcept:
    """Whether a durable queue has what became of it, further down, in whatever store that can be written."""
    while entry.state == MOVED:
        entry = <entry_t*> entry.child
        if entry.queue.durable and not entry.queue.store.failed:
            return True
    return False


cdef void undirty(store_t* store) noexcept:
    """What it was told of is sealed."""
    cdef store_t** link = &store.engine.dirty
    while link[0] != NULL and link[0] != store:
        link = &link[0].next_dirty
    if link[0] != NULL:
        link[0] = store.next_dirty
    store.dirty = False


cdef int tell_stores(engine_t* engine) except -1:
    cdef Journal journal
    cdef store_t* store
    cdef list changed = []
    while engine.dirty != NULL:
        store = engine.dirty
        engine.dirty = store.next_dirty
        store.dirty = False
        journal = <Journal> store.face
        if journal.changed is not None and (journal.each_call or not journal.signalled):
            journal.signalled = True
            changed.append(journal.changed)
        elif store.size > journal.crowded_at and journal.crowded is not None:
            journal.crowded_at *= 4
            changed.append(journal.crowded)
    error = None
    for call in changed:        # each, whatever others say
        try:
            call()
        except BaseException as raised:
            error = raised
    if error is not None:
        raise error
    return 0


# ---- contents

cdef content_t* journal_fetch(entry_t* entry) except NULL:
    """A new reference to the content of an entry that is in the store, or in a group on its way there."""
    cdef Journal journal = <Journal> entry.queue.store.face
    cdef uint64_t position = place_of(entry)
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
        raise StoreCorrupt(f"store {journal.name!r}: message {entry.id} of queue {(<object> entry.queue.face).name!r} is "
                           "damaged; delete it by its id, or close the engine and run: xump repair PATH")
    entry.queue.engine.unreadable = NULL
    return content


cdef content_t* content_in(Journal journal, entry_t* entry, uint64_t position) except? NULL:
    """From the window, if the record stands there, whole."""
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
    finally:
        PyBuffer_Release(&view)


cdef inline object text_of_record(const char** at, uint16_t size):
    """The text that stands there, or None; goes on behind it."""
    cdef const char* text = at[0]
    if size == NO_TEXT:
        return None
    at[0] += size
    return text_new(text, size)


cdef content_t* content_of_record(const enter_record_t* record) except NULL:
    """The texts, the headers and the body of a verified record."""
    cdef const char* at = payload_of(record)
    cdef const rare_t* rare = rare_of(record)
    cdef object address, reply_to = None, message_id = None, destination = None
    cdef content_t* content
    address = text_of_record(&at, record.address_bytes)
    if rare != NULL:
        reply_to = text_of_record(&at, rare.reply_to_bytes)
        message_id = text_of_record(&at, rare.message_id_bytes)
        destination = text_of_record(&at, rare.destination_bytes)
    content = content_of_buffers(
        address, at + record.header_bytes, record.body_bytes, reply_to, message_id, record.header_count, record.header_bytes)
    memcpy(<char*> headers_of(content), at, record.header_bytes)
    if destination is not None:
        Py_INCREF(destination)
        content.destination = <void*> destination
    return content
