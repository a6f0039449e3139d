"""Writes records into the buffer of a store's open group, one behind the other.

`log/fences.pyx` decides whether a record may be logged yet. A store without memory for a record is treated as one whose disk
failed: it writes nothing more, its committer says so (`Journal.seal` raises), and the engine goes on.
"""

from libc.stdlib cimport realloc
from libc.string cimport memcpy

from xump_ext.records.kinds cimport GONE, MARK, SETTLE, mark_record_t


cdef bint buffer_reserve(store_t* store, uint64_t bytes) noexcept:
    cdef uint64_t capacity = store.capacity
    cdef char* data
    while capacity < store.size + bytes:
        capacity *= 2
    data = <char*> realloc(store.data, capacity)
    if data == NULL:
        return False
    store.data = data
    store.capacity = capacity
    return True


cdef bint grow(store_t* store, uint64_t bytes) noexcept:
    if buffer_reserve(store, bytes):
        return True
    records_lost(store)
    return False


cdef void records_lost(store_t* store) noexcept:
    store.failed = store.is_incomplete = store.engine.store_failed = True
    if not store.is_changed:
        store_changed(store)        # so that its committer hears of it


cdef void store_changed(store_t* store) noexcept:
    store.is_changed = True
    store.next_changed = store.engine.changed_stores
    store.engine.changed_stores = store


cdef void settle_record(store_t* store, uint32_t number, uint64_t id, int flags, queue_t* queue) noexcept:
    """Record the end of a message; neighbouring ids share a record. SETTLEs count after all else in their group, so the last one
    of the queue may be extended. If it then stands before the ENTER that it ends, `merge_ends` moves it behind that."""
    cdef settle_record_t* record
    if queue != NULL and queue.settled_group == store.group and not store.failed:
        record = <settle_record_t*> (store.data + queue.settled_at)
        if record.head.flags == flags and (record.head.id + record.count == id or record.head.id == id + 1):
            record.head.id = min(record.head.id, id)
            record.count += 1
            store.ends_astray |= queue.settled_at + sizeof(settle_record_t) != store.size
            return
    record = <settle_record_t*> record_new(store, SETTLE, flags, sizeof(settle_record_t), number, id)
    if record != NULL:
        store.ends += 1
        record.count = 1
        if queue != NULL:
            queue.settled_group = store.group
            queue.settled_at = store.size - sizeof(settle_record_t)


cdef void mark_record(
    store_t* store, uint32_t queue, uint64_t id, uint64_t delivery_count, int flags, int64_t due, uint32_t closing
) noexcept:
    cdef mark_record_t* record = <mark_record_t*> record_new(store, MARK, flags, sizeof(mark_record_t), queue, id)
    if record != NULL:
        record.delivery_count = <uint32_t> delivery_count
        record.due = due
        record.closing = closing


cdef void gone_record(store_t* store, uint32_t number) noexcept:
    record_new(store, GONE, 0, sizeof(head_t), number, 0)


cdef head_t* record_again(store_t* store, const head_t* old) noexcept:
    """Write a record of the log once more; NULL when the store has failed."""
    cdef head_t* record = record_new(store, old.kind, old.flags, old.length, old.queue, old.id)
    if record != NULL:
        memcpy(record + 1, old + 1, old.length - sizeof(head_t))
    return record
