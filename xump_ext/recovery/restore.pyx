"""Restores queues that were read from a store: their books (counters), then the place of every entry.

The engine numbers its entries by age (`entry.sequence`), across all queues. The log does not keep these numbers, so the entries
of a store get new ones, in order of their timestamps. At one timestamp the queue with the lower number goes first, and within a
queue the lower id. A heap of the queues, by the timestamp of their next entries, merges them in that order.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memset

from xump_ext.log.append cimport LOOK_AHEAD
from xump_ext.log.fences cimport log_mark
from xump_ext.log.live_sizes cimport live_add, live_remove
from xump_ext.log.seen cimport seen_come
from xump_ext.log.writer cimport entry_charge, settle_record, store_queue, touch
from xump_ext.memory.heap cimport heap_add, heap_free, heap_remove, heap_root, heap_t, node_t
from xump_ext.memory.siphash cimport hash128_t
from xump_ext.message.times cimport later
from xump_ext.records.kinds cimport RECORD_MARKED, SEEN
from xump_ext.recovery.recovered cimport seen_t
from xump_ext.route.ready cimport leave_ready
from xump_ext.route.requeue cimport returning_add
from xump_ext.select.groups cimport group_enter, group_leave
from xump_ext.select.unrouted cimport apart_add, goes_apart
from xump_ext.state.constants cimport (
    DELAYED, FOREIGN, HISTORY, HOME_UNROUTED, HOME_WAITING, LOGGED_NOTHING, LOGGED_ROUTED, NEVER, REASON_COUNT, RECOVERED,
    REDELIVERED, STAINED, UNLIMITED, UNROUTED,
)
from xump_ext.state.extra cimport extra_of, is_first_delay
from xump_ext.state.graph cimport engine_t, entry_t, queue_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, entry_free, index_remove, index_until, list_append
from xump_ext.state.limits cimport count_delayed, count_ready
from xump_ext.state.schedule cimport extra_leave
from xump_ext.state.window cimport window_add, window_count, window_reserve, window_t

cdef struct reading_t:          # how far the entries of a queue have been placed
    node_t node                 # in the heap, by the time of `entry`
    queue_t* queue
    entry_t* entry              # the next one
    cursor_t at
    bint exact                  # its store was closed well


cdef int queue_take_over(Journal journal, queue_t* queue, recovered_t* found) except -1:
    """Give the queue the index that was read, and its counters."""
    cdef entry_t* last
    cdef uint64_t gone
    cdef int reason
    queue.engine.entries += found.count
    queue.index = found.index
    memset(&found.index, 0, sizeof(found.index))
    queue.described = found.described
    queue.incarnation = found.incarnation
    queue.stated = found.state.head.position
    queue.next_id = found.state.head.id
    queue.timestamp = found.state.timestamp
    queue.promised = found.state.handed
    queue.handed = max(found.state.handed, <uint64_t> LOOK_AHEAD) - LOOK_AHEAD     # the next STATE has the same watermark
    queue.deleted = found.state.deleted
    for reason in range(REASON_COUNT):
        queue.dropped[reason] = found.state.dropped[reason]
        queue.dead_lettered[reason] = found.state.dead_lettered[reason]
    last = index_until(&queue.index, UNLIMITED)
    if last != NULL:            # it has the highest id and the highest timestamp
        queue.next_id = max(queue.next_id, last.id + 1)
        queue.timestamp = max(queue.timestamp, last.timestamp)
    queue.frontier = queue.frontier_logged = 1 if queue.staged else max(
        <uint64_t> 1, min(found.state.frontier, queue.next_id))
    queue.durable_id = queue.next_id - 1
    # A message that ended while the record of its end waited behind a fence is here again, so `settled` is counted anew.
    gone = queue.next_id - 1 - found.count
    queue.settled = gone
    if not ends_counted(queue):
        queue.settled = gone
        queue.deleted = 0
        for reason in range(REASON_COUNT):
            queue.dropped[reason] = 0
    return 0 if queue.window == NULL else window_take_over(journal, queue, found)


cdef bint ends_counted(queue_t* queue) noexcept:
    """Takes what was deleted and dropped out of `settled`; False: that is more than there was."""
    cdef int reason
    if queue.deleted > queue.settled:
        return False
    queue.settled -= queue.deleted
    for reason in range(REASON_COUNT):
        if queue.dropped[reason] > queue.settled or (queue.staged and queue.dropped[reason]):
            return False
        queue.settled -= queue.dropped[reason]
    return True


cdef int by_id(const void* one, const void* other) noexcept nogil:
    """By id, and of one id by position."""
    cdef const seen_t* a = <const seen_t*> one
    cdef const seen_t* b = <const seen_t*> other
    if a.id == b.id:
        return -1 if a.position < b.position else a.position > b.position
    return -1 if a.id < b.id else 1


cdef int window_take_over(Journal journal, queue_t* queue, recovered_t* found) except -1:
    """Give the queue's window the message ids that were read."""
    cdef window_t* window = <window_t*> queue.window
    cdef hash128_t hash
    cdef uint64_t i, last = found.forgotten
    window.key, window.more_key = found.dedup_key, found.dedup_more_key
    if found.seen_count:            # else there is nothing that may be sorted
        qsort(found.seen, found.seen_count, sizeof(seen_t), by_id)
    for i in range(found.seen_count):
        if found.seen[i].id > last:
            last = found.seen[i].id
            hash.low, hash.high = found.seen[i].hash_low, found.seen[i].hash_high
            window_reserve(window)
            window_add(window, &hash, last, found.seen[i].time)
        elif found.seen[i].id == last and last != found.forgotten:     # it was copied forward, and the log has both
            journal.copied[SEEN, queue.number, last] = found.seen[i].position
    seen_come(queue, window_count(window))
    return 0


cdef int order_all(Journal journal, set exact) except -1:
    """Place the entries of all queues of the store, oldest first. `exact`: the numbers of queues that were closed well."""
    cdef heap_t heap
    cdef reading_t* readings = <reading_t*> calloc(len(journal.queues) + 1, sizeof(reading_t))
    cdef reading_t* reading
    cdef uint32_t i = 0
    memset(&heap, 0, sizeof(heap_t))
    if readings == NULL:
        raise MemoryError()
    try:
        for number in sorted(journal.queues):
            reading = &readings[i]
            reading.queue = store_queue(&journal.store, number)
            reading.exact = number in exact
            reading.at = cursor_start(reading.queue)
            reading.entry = cursor_step(&reading.at)
            reading.node.owner = reading
            if reading.entry != NULL:
                heap_add(&heap, &reading.node, time_key(reading.entry))
            i += 1
        while heap.count:
            place_time(&heap, heap_root(&heap).key, readings)
    finally:
        heap_free(&heap)
        free(readings)
    return 0


cdef int place_time(heap_t* heap, uint64_t key, reading_t* readings) except -1:
    """Place the entries of the lowest time in the heap, queue by queue, in order of the queues' numbers."""
    cdef reading_t* reading = <reading_t*> heap_root(heap).owner
    cdef list equal
    heap_remove(heap, &reading.node)
    if heap.count == 0 or heap_root(heap).key != key:
        return place_of_queue(heap, reading, key, heap.count == 0)
    equal = [reading - readings]
    while heap.count and heap_root(heap).key == key:
        reading = <reading_t*> heap_root(heap).owner
        heap_remove(heap, &reading.node)
        equal.append(reading - readings)
    for number in sorted(equal):
        place_of_queue(heap, &readings[<uint32_t> number], key, False)
    return 0


cdef int place_of_queue(heap_t* heap, reading_t* reading, uint64_t key, bint alone) except -1:
    """Place the entries of a queue up to that time. `alone`: no other queue is left, so place all of them."""
    cdef entry_t* entry = reading.entry
    while entry != NULL and (alone or time_key(entry) <= key):
        place(reading, entry)
        entry = cursor_step(&reading.at)
    reading.entry = entry
    return 0 if entry == NULL else heap_add(heap, &reading.node, time_key(entry))


cdef inline uint64_t time_key(const entry_t* entry) noexcept:
    """The timestamp as an unsigned number, in the same order."""
    return <uint64_t> entry.timestamp ^ (<uint64_t> 1 << 63)


cdef int place(const reading_t* reading, entry_t* entry) except -1:
    """Give the entry the next sequence number, count it, and put it into its list."""
    cdef queue_t* queue = reading.queue
    cdef engine_t* engine = queue.engine
    cdef uint32_t body_bytes = <uint32_t> entry.sequence
    engine.sequence += 1
    entry.sequence = engine.sequence
    entry.queue = queue
    live_add(queue.store, entry_charge(entry))
    if entry.state == HISTORY:
        entry.rank = 0
        if entry.extra != NULL:
            extra_leave(engine, entry)
        list_append(&queue.history, entry)
        return 0
    if queue.staged:
        return place_staged(entry)
    time_given(entry, body_bytes)
    if entry.extra != NULL and entry.state == UNROUTED and entry.extra.logged == LOGGED_NOTHING and (
            entry.extra.delayed_until != NEVER):
        entry.state = DELAYED
    if entry.id <= queue.promised or entry.flags & FOREIGN:
        mark_doubtful(reading, entry)
    if entry.state == DELAYED:
        return place_delayed(entry)
    if queue.groups != NULL:
        group_enter(engine, entry)
    count_ready(entry, 1)
    if is_routed(entry):
        entry.flags |= RECOVERED
        return returning_add(entry)
    queue.unrouted += 1
    return apart_add(entry) if goes_apart(entry) else 0


cdef int place_staged(entry_t* entry) except -1:
    """It waits as it came: what it says of time counts when it enters its target."""
    entry.rank = 0
    entry.state = UNROUTED
    if entry.extra != NULL:
        entry.extra.expires = NEVER
    entry.queue.unrouted += 1
    entry.queue.ready += 1
    return 0


cdef int time_given(entry_t* entry, uint32_t body_bytes) except -1:
    """Time, order and size, as the message and its queue have them."""
    cdef queue_t* queue = entry.queue
    cdef int64_t since = entry.timestamp
    entry.rank = <uint8_t> (queue.top_priority - min(queue.top_priority, <uint32_t> entry.rank)) if queue.top_priority else 0
    if queue.limit_bytes != UNLIMITED:
        extra_of(entry).body_bytes = body_bytes
    if queue.ttl != NEVER:
        extra_of(entry)
        if entry.extra.delayed_until != NEVER:
            since = entry.extra.delayed_until
        entry.extra.expires = min(entry.extra.expires, later(since, queue.ttl))
    if entry.extra != NULL:
        entry.extra.came = entry.extra.logged != LOGGED_NOTHING     # its delay is over
        queue.has_awaiting |= entry.extra.expires != NEVER
    return 0


cdef inline bint is_routed(const entry_t* entry) noexcept:
    if entry.extra != NULL and entry.extra.logged != LOGGED_NOTHING:
        return entry.extra.logged == LOGGED_ROUTED
    return entry.id < entry.queue.frontier


cdef int place_delayed(entry_t* entry) except -1:
    """Its next step waits for the release of the queue."""
    cdef queue_t* queue = entry.queue
    queue.has_awaiting = True
    if is_first_delay(entry):
        entry.extra.left = queue.engine.events
    else:
        entry.extra.home = HOME_WAITING if is_routed(entry) else HOME_UNROUTED
        if entry.extra.home == HOME_WAITING:
            entry.flags |= RECOVERED
        if queue.groups != NULL:
            group_enter(queue.engine, entry)
    count_delayed(entry, 1)
    return 0


cdef int mark_doubtful(const reading_t* reading, entry_t* entry) except -1:
    """Mark the entry as redelivered, in the log, too: it may have been handed out before a crash, or be in another store."""
    cdef bint handed = entry.id <= reading.queue.promised
    cdef bint foreign = entry.flags & FOREIGN and not reading.exact
    if (foreign or handed) and not entry.flags & REDELIVERED or handed and entry.delivery_count == 0:
        entry.flags |= REDELIVERED
        entry.delivery_count = max(entry.delivery_count, <uint16_t> handed)
        log_mark(entry)
    return 0


# ---- messages that are gone after all

cdef int hidden_end(engine_t* engine, entry_t* entry) except -1:
    """Settle an origin whose message goes on downstream: it was taken here, and will never be paid for."""
    leave_ready(engine, entry)
    if entry.extra != NULL:
        group_leave(engine, entry)
        extra_leave(engine, entry)
    return forget_for_good(entry.queue, entry)


cdef int forget_for_good(queue_t* queue, entry_t* entry) except -1:
    """Settle an entry that is in no list any more, and tell the store."""
    queue.settled += 1
    settle_record(queue.store, queue.number, entry.id, RECORD_MARKED if entry.flags & STAINED else 0, queue)
    live_remove(queue.store, entry_charge(entry))
    touch(queue)
    index_remove(&queue.index, entry)
    entry_free(queue.engine, entry)
    return 0
