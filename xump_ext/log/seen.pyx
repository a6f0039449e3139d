"""Records which message ids a queue has seen, so that it knows duplicates when its store is opened again.

Each publish with a `message_id` writes a SEEN, in the group of its ENTER, and the SEEN outlives the message. When the queue's
window forgets some, a FORGET says up to which. SEENs count as live bytes of the store, as messages do.
"""

from xump_ext.log.live_sizes cimport live_add, live_remove
from xump_ext.log.writer cimport record_new, touch
from xump_ext.records.kinds cimport FORGET, SEEN, head_t, seen_record_t
from xump_ext.state.window cimport record_numbered, record_t, window_count, window_t


cdef void log_seen(queue_t* queue) noexcept:
    cdef const window_t* window = <const window_t*> queue.window
    cdef const record_t* seen = record_numbered(window, window.next - 1)
    cdef seen_record_t* record = <seen_record_t*> record_new(
        queue.store, SEEN, 0, sizeof(seen_record_t), queue.number, seen.id)
    touch(queue)
    live_add(queue.store, sizeof(seen_record_t))
    if record != NULL:
        record.hash_low = seen.hash.low
        record.hash_high = seen.hash.high
        record.time = seen.time


cdef void log_forget(queue_t* queue, uint64_t upto, uint64_t count) noexcept:
    touch(queue)
    record_new(queue.store, FORGET, 0, sizeof(head_t), queue.number, upto)
    seen_leave(queue, count)


cdef bint is_remembered(const queue_t* queue, uint64_t id) noexcept:
    cdef const window_t* window = <const window_t*> queue.window
    return window != NULL and window_count(window) > 0 and record_numbered(window, window.first).id <= id


cdef uint64_t seen_bytes(const queue_t* queue) noexcept:
    return 0 if queue.window == NULL else window_count(<const window_t*> queue.window) * sizeof(seen_record_t)


cdef void seen_come(queue_t* queue, uint64_t count) noexcept:
    while count:
        live_add(queue.store, sizeof(seen_record_t))
        count -= 1


cdef void seen_leave(queue_t* queue, uint64_t count) noexcept:
    while count:
        live_remove(queue.store, sizeof(seen_record_t))
        count -= 1
