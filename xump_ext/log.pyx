"""Records of what happens in durable queues, behind each other in the buffer of their store's journal.

The ledger tells of every entry that comes into a durable queue and of its end; a queue whose books changed is *touched* and gets
a STATE when the group is sealed. A MOVE with finite credit writes the ENTER alone, which names its *origin*, the nearest durable
queue upstream: that message stays outstanding there, and hidden when the log is read. A payment settles both, in one group.
INFINITE writes the end of the one and the ENTER of the other. So a message is in one place.

What was handed out is told by a watermark that looks ahead, so that no message that was delivered comes back from a crash as new.

A store without memory for its journal is as one whose disk failed: it writes nothing more, and the engine goes on.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from xump_ext.block cimport headers_of, raw_text_of
from xump_ext.errors import StoreFailed, StoreFull
from xump_ext.fences cimport fence_push, fences_needed, owners_leave
from xump_ext.graph cimport DEAD_ENTRY, HISTORY, LINKED, OWNED, REASON_COUNT, REDELIVERED, SHADOW, STAINED
from xump_ext.index cimport index_from, index_get, unrouted_from
from xump_ext.records cimport (
    ENTER, GONE, MAGIC, MARK, NO_TEXT, QUEUE, RECORD_AUTO_DELETE, RECORD_DEAD_ENTRY, RECORD_EXACT, RECORD_HISTORIC, RECORD_MARKED,
    RECORD_RARE, RECORD_REDELIVERED, SETTLE, STATE, enter_record_t, head_t, mark_record_t, padded, payload_of, queue_record_t,
    rare_of, rare_t, settle_record_t, state_record_t,
)
from xump_ext.source cimport is_made

cdef uint64_t SLACK = 4096          # kept free beside what `log_reserve` reserves: for a few small records
cdef uint64_t SETTLE_BYTES = sizeof(settle_record_t)


cdef bint grow(store_t* store, uint64_t bytes) noexcept:
    """Room for so many bytes more; False, and the store has failed, when there is no memory."""
    cdef uint64_t capacity = store.capacity
    cdef char* data
    while capacity < store.size + bytes:
        capacity *= 2
    data = <char*> realloc(store.data, capacity)
    if data == NULL:
        store.failed = True
        return False
    store.data = data
    store.capacity = capacity
    return True


cdef head_t* record_new(store_t* store, int kind, int flags, uint64_t length, uint32_t queue, uint64_t id) noexcept:
    """The head of a record behind the last one; NULL when the store has failed."""
    cdef head_t* head
    if store.failed or (store.size + length > store.capacity and not grow(store, length)):
        return NULL
    head = <head_t*> (store.data + store.size)
    head.magic = MAGIC
    head.kind = <uint8_t> kind
    head.flags = <uint8_t> flags
    head.length = <uint32_t> length
    head.queue = queue
    head.position = store.position + store.size
    head.id = id
    store.size += length
    store.records += 1
    store.room -= <int64_t> length
    if not store.dirty:
        make_dirty(store)
    return head


cdef void make_dirty(store_t* store) noexcept:
    store.dirty = True
    store.next_dirty = store.engine.dirty
    store.engine.dirty = store


cdef void touch(queue_t* queue) noexcept:
    """Its state goes into the open group."""
    cdef store_t* store = queue.store
    if not queue.touched:
        queue.touched = True
        queue.next_touched = store.touched
        store.touched = queue
    if not store.dirty:
        make_dirty(store)


# ---- entries come

cdef inline uint64_t text_size(const void* text) noexcept:
    """Bytes of a str or NULL; it has UTF-8, since it was checked when the message was made."""
    cdef Py_ssize_t size = 0
    if text != NULL:
        raw_text_of(<object> text, &size)
    return size


cdef inline bint has_texts(const content_t* content) noexcept:
    """Beside its address."""
    return content.reply_to != NULL or content.message_id != NULL or content.destination != NULL


cdef uint64_t enter_bytes(const content_t* content, bint linked) noexcept:
    cdef uint64_t size = sizeof(enter_record_t) + content.header_bytes + content.body_bytes + text_size(content.address)
    if linked or has_texts(content):
        size += sizeof(rare_t)
        size += text_size(content.reply_to) + text_size(content.message_id) + text_size(content.destination)
    return padded(size)


cdef uint64_t made_bytes(const entry_t* entry) noexcept:
    return enter_bytes(entry.content, entry.flags & LINKED)


cdef inline uint64_t charge_of(uint64_t length) noexcept:
    """What a message of that record's length takes of a store, with the record of its end."""
    return class_bytes(length_class(length)) + SETTLE_BYTES


cdef uint64_t entry_charge(const entry_t* entry) noexcept:
    if is_made(entry):
        return charge_of(made_bytes(entry))
    return class_bytes((<uintptr_t> entry.content >> 2) & ((1 << LENGTH_BITS) - 1)) + SETTLE_BYTES


cdef bint store_has_room(queue_t* queue, content_t* content) noexcept:
    cdef store_t* store = queue.store
    cdef int64_t bytes = <int64_t> charge_of(enter_bytes(content, False))
    return not store.failed and not store.leaving_engine and store.room >= bytes + kept_bytes(store, bytes)


cdef object no_room(queue_t* queue):
    cdef store_t* store = queue.store
    name = (<object> queue.face).name
    if store.failed:
        return StoreFailed(f"the store of queue {name!r} was given up; close the engine, see to the disk, and open it anew")
    if store.leaving_engine:
        return StoreFailed(f"the store of queue {name!r} is being deleted, and the queue with it")
    return StoreFull(f"the store of queue {name!r} is full: {max(store.room - kept_bytes(store, 0), 0)} bytes are left; take "
                     "messages out, or allow it more bytes")


cdef int64_t kept_bytes(const store_t* store, int64_t charge) noexcept:
    """What is left to messages that are in the store already, so that they can go on when it is full: what comes in leaves it."""
    return max(store.kept, 2 * max(store.largest, charge))


cdef int steps_down(const store_t* store, const entry_t* entry) noexcept:
    """How often a message was moved within its store, this time included: each step may take all but a quarter of what the one
    before has to leave. With the same for all, those that begin could take what those need that are about to end."""
    cdef int steps = 0
    if entry.queue.store != store:
        return COMES_IN
    while entry != NULL and steps < ENDS:
        steps += entry.queue.store == store
        entry = entry.parent
    return steps


cdef bint store_takes(queue_t* queue, content_t* content, int steps) noexcept:
    cdef store_t* store = queue.store
    cdef int64_t bytes = USUAL_BYTES
    if store.leaving_engine:
        return False
    if content != NULL:
        bytes += charge_of(enter_bytes(content, True))
        bytes += kept_bytes(store, bytes) >> (2 * steps)
    if not store.failed and store.room >= bytes:
        return True
    if not store.refused and not store.failed:      # its committer cleans the log, if that helps
        store.refused = True
        if not store.dirty:
            make_dirty(store)
    return False


cdef int log_reserve(queue_t* queue, content_t* content) except -1:
    cdef store_t* store = queue.store
    cdef uint64_t bytes = enter_bytes(content, True) + SLACK
    if not store.failed and store.size + bytes > store.capacity:
        grow(store, bytes)
    return 0


cdef char* text_put(char* at, const void* text, uint16_t* size) noexcept:
    cdef Py_ssize_t length
    cdef const char* bytes
    if text == NULL:
        size[0] = NO_TEXT
        return at
    bytes = raw_text_of(<object> text, &length)
    memcpy(at, bytes, length)
    size[0] = <uint16_t> length
    return at + length


cdef void log_enter(entry_t* entry) noexcept:
    cdef store_t* store = entry.queue.store
    cdef const content_t* content = entry.content
    cdef int flags = RECORD_DEAD_ENTRY if entry.flags & DEAD_ENTRY else 0
    cdef enter_record_t* record
    cdef rare_t* rare
    cdef rare_t found
    cdef uint64_t length
    cdef uint16_t size
    cdef char* at
    touch(entry.queue)
    if origin_found(store, entry.parent, &found):
        entry.flags |= LINKED
    length = made_bytes(entry)
    store.live += charge_of(length)
    store.largest = max(store.largest, <int64_t> charge_of(length))
    store.resident += length
    flags |= RECORD_REDELIVERED if entry.flags & REDELIVERED else 0
    flags |= RECORD_RARE if entry.flags & LINKED or has_texts(content) else 0
    record = <enter_record_t*> record_new(store, ENTER, flags, length, entry.queue.number, entry.id)
    if record == NULL:
        return
    record.timestamp = entry.timestamp
    record.payload_crc = 0
    record.body_bytes = content.body_bytes
    record.header_bytes = content.header_bytes
    record.header_count = content.header_count
    record.delivery_count = entry.delivery_count
    record.hops = entry.hops
    record.reserved = 0
    at = text_put(<char*> payload_of(record), content.address, &size)
    record.address_bytes = size
    rare = rare_of(record)
    if rare != NULL:
        at = text_put(at, content.reply_to, &size)
        found.reply_to_bytes = size
        at = text_put(at, content.message_id, &size)
        found.message_id_bytes = size
        at = text_put(at, content.destination, &size)
        found.destination_bytes = size
        rare[0] = found
    memcpy(at, headers_of(content), content.header_bytes)
    at += content.header_bytes
    memcpy(at, headers_of(content) + content.header_bytes if content.body_inline else PyBytes_AS_STRING(<object> content.body),
           content.body_bytes)
    at += content.body_bytes
    memset(at, 0, <char*> record + length - at)


cdef head_t* log_again(store_t* store, const head_t* old) noexcept:
    """The same record once more; NULL when the store has failed."""
    cdef head_t* record = record_new(store, old.kind, old.flags, old.length, old.queue, old.id)
    if record != NULL:
        memcpy(record + 1, old + 1, old.length - sizeof(head_t))
    return record


cdef int log_carried(queue_t* queue, const enter_record_t* old, bint anyway) except -1:
    """The record of a live message once more, with what is known of it now. `anyway`: its end is not in the log yet."""
    cdef entry_t* entry = index_get(&queue.index, old.head.id)
    cdef enter_record_t* record
    if entry == NULL and not anyway:
        return 0
    record = <enter_record_t*> log_again(queue.store, &old.head)
    if record != NULL and entry != NULL and not entry.flags & SHADOW:
        record.delivery_count = entry.delivery_count
        record.head.flags = (RECORD_REDELIVERED if entry.flags & REDELIVERED else 0) | (
            RECORD_HISTORIC if entry.state == HISTORY and not anyway else 0) | (
            old.head.flags & (RECORD_DEAD_ENTRY | RECORD_RARE))
    return 0


cdef bint origin_found(store_t* store, const entry_t* parent, rare_t* found) noexcept:
    """The nearest message upstream that a durable queue holds for this one; False: there is none."""
    cdef queue_t* queue
    cdef store_t* other
    memset(found, 0, sizeof(rare_t))
    while parent != NULL and not parent.queue.durable and not parent.flags & OWNED:
        parent = parent.parent
    if parent == NULL:
        other = store.engine.gone_store
        if other != NULL and other != store:        # its end waits until this one is durable: a crash may leave both
            found.origin_store, found.origin_queue, found.origin_id = other.salt, store.engine.gone_queue, store.engine.gone_id
        return found.origin_id != 0
    if parent.flags & OWNED:
        owner = (<dict> store.engine.owners)[<uintptr_t> parent]
        found.origin_queue = owner[1]
        found.origin_id = owner[2]
        other = <store_t*> <uintptr_t> owner[0]
        found.origin_store = 0 if other == store else other.salt
    else:
        queue = parent.queue
        found.origin_queue = queue.number
        found.origin_id = parent.id
        found.origin_store = 0 if queue.store == store else queue.store.salt
    return True


# ---- entries go

cdef int log_settle(entry_t* entry) except -1:
    """The end of an entry, unless somebody in RAM has its last word."""
    cdef queue_t* queue = entry.queue
    touch(queue)
    if is_made(entry):
        queue.store.resident -= made_bytes(entry)
    if entry.flags & SHADOW:
        return 0
    if entry.state == HISTORY and queue.store.fence_count:      # that it has left may stand behind a fence: it goes before
        return fence_push(queue.store, SETTLE, queue.number, entry.id, entry_charge(entry),
                          RECORD_MARKED if entry.flags & STAINED else 0)
    return settle_now_or_later(queue, entry.id, entry_charge(entry), entry.flags & STAINED != 0)


cdef int settle_now_or_later(queue_t* queue, uint64_t id, uint64_t charge, bint stained) except -1:
    cdef store_t* store = queue.store
    if fences_needed(store) or (queue.frontier_waits and id >= queue.frontier_safe):    # its copies elsewhere are on their way
        fence_push(store, SETTLE, queue.number, id, charge, RECORD_MARKED if stained else 0)
    else:
        settle_record(store, queue.number, id, RECORD_MARKED if stained else 0, queue)
        store.live -= charge
    return 0


cdef void settle_record(store_t* store, uint32_t number, uint64_t id, int flags, queue_t* queue) noexcept:
    """Runs of ids are one record: in a group settles count after all else, so the one before may be extended."""
    cdef settle_record_t* record
    if queue != NULL and queue.settled_group == store.group and not store.failed:
        record = <settle_record_t*> (store.data + queue.settled_at)
        if record.head.flags == flags and (record.head.id + record.count == id or record.head.id == id + 1):
            record.head.id = min(record.head.id, id)
            record.count += 1
            return
    record = <settle_record_t*> record_new(store, SETTLE, flags, SETTLE_BYTES, number, id)
    if record != NULL:
        store.ends += 1
        record.count = 1
        if queue != NULL:
            queue.settled_group = store.group
            queue.settled_at = store.size - SETTLE_BYTES


cdef int log_mark(entry_t* entry) except -1:
    cdef store_t* store = entry.queue.store
    cdef bint historic = entry.state == HISTORY and not entry.flags & SHADOW
    cdef int flags = (RECORD_REDELIVERED if entry.flags & REDELIVERED else 0) | (RECORD_HISTORIC if historic else 0)
    touch(entry.queue)
    entry.flags |= STAINED
    if historic and fences_needed(store):
        fence_push(store, MARK, entry.queue.number, entry.id, entry.delivery_count, flags)
    else:
        mark_record(store, entry.queue.number, entry.id, entry.delivery_count, flags)
    return 0


cdef void mark_record(store_t* store, uint32_t queue, uint64_t id, uint64_t delivery_count, int flags) noexcept:
    cdef mark_record_t* record = <mark_record_t*> record_new(store, MARK, flags, sizeof(mark_record_t), queue, id)
    if record != NULL:
        record.delivery_count = <uint32_t> delivery_count
        record.reserved = 0


cdef int log_handed(entry_t* entry) except -1:
    cdef queue_t* queue
    while entry != NULL:
        if entry.queue.durable:
            handed(entry.queue, entry.id)
        elif entry.flags & OWNED:
            owner = (<dict> entry.queue.engine.owners)[<uintptr_t> entry]
            queue = store_queue(<store_t*> <uintptr_t> owner[0], owner[1])
            handed(queue, owner[2])
        entry = entry.parent
    return 0


cdef int log_taken_again(entry_t* entry) except -1:
    cdef uint16_t count = entry.delivery_count
    cdef dict owners = <dict> entry.queue.engine.owners
    while entry != NULL:
        if entry.queue.durable:
            entry.delivery_count = count
            entry.flags |= REDELIVERED
            log_mark(entry)
        elif entry.flags & OWNED:
            store, number, id, charge, _ = owners[<uintptr_t> entry]
            mark_record(<store_t*> <uintptr_t> store, number, id, count, RECORD_REDELIVERED)
            owners[<uintptr_t> entry] = store, number, id, charge, True
        entry = entry.parent
    return 0


cdef inline void handed(queue_t* queue, uint64_t id) noexcept:
    if id > queue.handed:
        queue.handed = id
        if id > queue.promised:
            touch(queue)


# ---- queues

cdef int log_queue(queue_t* queue) except -1:
    """The queue was made, or is described once more."""
    cdef Py_ssize_t name_bytes, letter_bytes = 0
    cdef const char* letters = NULL
    cdef str text = (<object> queue.face).name
    cdef const char* name = raw_text_of(text, &name_bytes)
    cdef uint64_t length
    cdef queue_record_t* record
    if queue.dead_letter != NULL:
        letters = raw_text_of(<object> queue.dead_letter, &letter_bytes)
    length = padded(sizeof(queue_record_t) + name_bytes + letter_bytes)
    record = <queue_record_t*> record_new(
        queue.store, QUEUE, RECORD_AUTO_DELETE if queue.auto_delete else 0, length, queue.number, 0)
    touch(queue)
    queue.described = queue.store.position
    if record == NULL:
        return 0
    record.limit = queue.limit
    record.history_limit = queue.history_limit
    record.delivery_limit = queue.delivery_limit
    record.name_bytes = <uint16_t> name_bytes
    record.dead_letter_bytes = NO_TEXT if letters == NULL else <uint16_t> letter_bytes
    memset(<char*> (record + 1), 0, length - sizeof(queue_record_t))
    memcpy(<char*> (record + 1), name, name_bytes)
    if letters != NULL:
        memcpy(<char*> (record + 1) + name_bytes, letters, letter_bytes)
    return 0


cdef int log_queue_gone(queue_t* queue) except -1:
    """With all that it holds, which is told one by one: a store that finds records by key knows no other way. What of it is on
    its way to other stores has left before, and is behind fences: so is the queue's own end."""
    cdef store_t* store = queue.store
    cdef entry_t* entry = index_from(&queue.index, 1)
    cdef queue_t** link = &store.touched
    while entry != NULL:
        if entry.state == HISTORY and store.fence_count:
            fence_push(store, SETTLE, queue.number, entry.id, entry_charge(entry), RECORD_MARKED if entry.flags & STAINED else 0)
        else:
            settle_record(store, queue.number, entry.id, RECORD_MARKED if entry.flags & STAINED else 0, queue)
            store.live -= entry_charge(entry)
        if is_made(entry):
            store.resident -= made_bytes(entry)
        entry = index_from(&queue.index, entry.id + 1)
    owners_leave(store, queue.number)
    if store.fence_count or fences_needed(store):
        fence_push(store, GONE, queue.number, 0, 0, 0)
        (<set> store.leaving).add(queue.number)
    else:
        gone_record(store, queue.number)
    while queue.touched and link[0] != queue:
        link = &link[0].next_touched
    if queue.touched:
        link[0] = queue.next_touched
    del (<dict> store.queues)[queue.number]
    return 0


cdef void frontier_forward(queue_t* queue) noexcept:
    """Past all that was routed: entries that end before their turn leave it behind."""
    queue.frontier = unrouted_from(&queue.index, queue.frontier).id if queue.unrouted else queue.next_id


cdef void gone_record(store_t* store, uint32_t number) noexcept:
    record_new(store, GONE, 0, sizeof(head_t), number, 0)


cdef void log_state(queue_t* queue, bint exact) noexcept:
    cdef state_record_t* record
    cdef int reason
    record = <state_record_t*> record_new(
        queue.store, STATE, RECORD_EXACT if exact else 0, sizeof(state_record_t), queue.number, queue.next_id)
    if record == NULL:
        return
    frontier_forward(queue)
    if queue.handed and not exact:
        queue.promised = queue.handed + LOOK_AHEAD
    record.frontier = queue.frontier_safe if queue.frontier_waits else queue.frontier
    record.handed = 0 if exact else queue.promised
    record.timestamp = queue.timestamp
    record.settled = queue.settled
    record.deleted = queue.deleted
    for reason in range(REASON_COUNT):
        record.dropped[reason] = queue.dropped[reason]
        record.dead_lettered[reason] = queue.dead_lettered[reason]
