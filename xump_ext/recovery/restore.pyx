"""Restores queues that were read from a store: their books (counters), then the place of every entry.

The engine numbers its entries by age (`entry.sequence`), across all queues. The log does not keep these numbers, so the entries
of a store get new ones, in order of their timestamps. At one timestamp the queue with the lower number goes first, and within a
queue the lower id. A heap of the queues, by the timestamp of their next entries, merges them in that order.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from xump_ext.log.append cimport LOOK_AHEAD
from xump_ext.log.fences cimport log_mark
from xump_ext.log.live_sizes cimport live_add, live_remove
from xump_ext.log.writer cimport entry_charge, settle_record, store_queue, touch
from xump_ext.memory.heap cimport heap_add, heap_free, heap_remove, heap_root, heap_t, node_t
from xump_ext.records.kinds cimport RECORD_MARKED
from xump_ext.route.requeue cimport returning_add
from xump_ext.select.credit cimport waiting_remove
from xump_ext.state.constants cimport FOREIGN, HISTORY, REASON_COUNT, RECOVERED, REDELIVERED, STAINED, UNLIMITED, UNROUTED
from xump_ext.state.graph cimport entry_t, queue_t, waitset_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t, entry_free, index_remove, index_until, list_append

cdef struct reading_t:          # how far the entries of a queue have been placed
    node_t node                 # in the heap, by the time of `entry`
    queue_t* queue
    entry_t* entry              # the next one
    cursor_t at
    bint exact                  # its store was closed well


cdef int queue_take_over(queue_t* queue, recovered_t* found) except -1:
    """Give the queue the index that was read, and its counters."""
    cdef entry_t* last
    cdef uint64_t gone, dropped = 0
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
        dropped += queue.dropped[reason]
    last = index_until(&queue.index, UNLIMITED)
    if last != NULL:            # it has the highest id and the highest timestamp
        queue.next_id = max(queue.next_id, last.id + 1)
        queue.timestamp = max(queue.timestamp, last.timestamp)
    queue.frontier = queue.frontier_logged = min(found.state.frontier, queue.next_id)
    queue.durable_id = queue.next_id - 1
    # A message that ended while the record of its end waited behind a fence is here again, so `settled` is counted anew.
    gone = queue.next_id - 1 - found.count
    if queue.deleted + dropped > gone:
        queue.deleted = 0
        for reason in range(REASON_COUNT):
            queue.dropped[reason] = 0
        queue.settled = gone
    else:
        queue.settled = gone - queue.deleted - dropped
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
    queue.engine.sequence += 1
    entry.sequence = queue.engine.sequence
    entry.queue = queue
    live_add(queue.store, entry_charge(entry))
    if entry.state == HISTORY:
        list_append(&queue.history, entry)
        return 0
    if entry.id <= queue.promised or entry.flags & FOREIGN:
        mark_doubtful(reading, entry)
    queue.ready += 1
    if entry.id >= queue.frontier:
        queue.unrouted += 1
        return 0
    entry.flags |= RECOVERED
    return returning_add(entry)


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

cdef int hidden_end(queue_t* queue, entry_t* entry) except -1:
    """Settle an origin whose message goes on downstream: it was taken here, and will never be paid for."""
    if entry.state == UNROUTED:
        queue.unrouted -= 1
    else:
        waiting_remove(<waitset_t*> entry.holder, entry)
    queue.ready -= 1
    return forget_for_good(queue, entry)


cdef int forget_for_good(queue_t* queue, entry_t* entry) except -1:
    """Settle an entry that is in no list any more, and tell the store."""
    queue.settled += 1
    settle_record(queue.store, queue.number, entry.id, RECORD_MARKED if entry.flags & STAINED else 0, queue)
    live_remove(queue.store, entry_charge(entry))
    touch(queue)
    index_remove(&queue.index, entry)
    entry_free(queue.engine, entry)
    return 0
