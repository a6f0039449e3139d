"""Adoptions of a queue: staged queues whose rows enter it one after the other, and the record that says so.

A staged queue is adopted whole, and only by a queue of its own store. So nothing is copied or moved by an adoption: each ADOPT
has the numbers of all staged queues that the target has still to let in, in order, and the newest one counts. One is written when
queues are adopted, when the first row of an adoption enters, and when nothing is left.

A row enters in one group: the ENTER in the target, and the SETTLE in the staged queue. So what is still in the staged queues is
what has not entered, and no record counts it. An empty staged queue is deleted; an ADOPT that still names it means no more than
the others.
"""

from cpython.ref cimport Py_INCREF
from libc.string cimport memset

from xump_ext.log.live_sizes cimport live_add, live_remove
from xump_ext.log.writer cimport charge_of, record_new, store_queue, touch
from xump_ext.records.kinds cimport ADOPT, adopted_t
from xump_ext.records.record cimport padded
from xump_ext.state.envelope cimport QueueRef


cdef class Adoptions:
    """The staged queues that one queue has adopted."""

    def __cinit__(self):
        self.waiting = []


cdef Adoptions adoptions_of(const queue_t* queue):
    return None if queue.adoptions == NULL else <Adoptions> queue.adoptions


cdef Adoptions adoptions_made(queue_t* queue):
    if queue.adoptions == NULL:
        adoptions = Adoptions.__new__(Adoptions)
        Py_INCREF(adoptions)
        queue.adoptions = <void*> adoptions
    return <Adoptions> queue.adoptions


cdef uint64_t adopt_length(uint64_t queues) noexcept:
    return padded(sizeof(adopt_record_t) + queues * sizeof(adopted_t))


cdef uint64_t queues_waiting(const queue_t* target):
    cdef Adoptions adoptions = adoptions_of(target)
    return 0 if adoptions is None else sum([len(queues) for queues in adoptions.waiting])


cdef int adoption_begins(queue_t* target, list queues) except -1:
    cdef Adoptions adoptions = adoptions_made(target)
    cdef QueueRef ref
    adoptions.waiting.append(queues)
    for ref in queues:
        ref.queue.adopter = target
        adoptions.rows += ref.queue.ready
    return adopt_write(target, adoptions)


cdef int adoption_starts(queue_t* target) except -1:
    cdef Adoptions adoptions = adoptions_of(target)
    adoptions.first_id = target.next_id
    return adopt_write(target, adoptions)


cdef int adopted_gone(queue_t* queue) except -1:
    cdef Adoptions adoptions = adoptions_of(queue.adopter)
    cdef list queues
    for queues in adoptions.waiting:
        if <object> queue.handle in queues:
            break
    queues.remove(<object> queue.handle)
    adoptions.rows -= queue.ready
    if not queues:
        if queues is adoptions.waiting[0]:
            adoptions.first_id = 0
        adoptions.waiting.remove(queues)
        if not adoptions.waiting:
            adopt_write(queue.adopter, adoptions)
    queue.adopter = NULL
    return 0


cdef list adoptions_end(queue_t* target):
    cdef Adoptions adoptions = adoptions_of(target)
    cdef QueueRef ref
    cdef list ended
    if adoptions is None:
        return []
    ended = [ref for queues in adoptions.waiting for ref in queues]
    for ref in ended:
        ref.queue.adopter = NULL
    adoptions.waiting = []
    adoptions.rows = adoptions.first_id = 0
    return ended


cdef void adoptions_leave(queue_t* queue) noexcept:
    cdef Adoptions adoptions = adoptions_of(queue)
    if adoptions is not None and adoptions.charge:
        live_remove(queue.store, adoptions.charge)
        adoptions.charge = 0


# ---- the record

cdef int adopt_write(queue_t* target, Adoptions adoptions) except -1:
    cdef store_t* store = target.store
    cdef uint64_t count = queues_waiting(target)
    cdef adopt_record_t* record
    cdef adopted_t* at
    cdef QueueRef ref
    if store == NULL:
        return 0
    adoptions_leave(target)
    adoptions_charged(target, count)
    adoptions.number += 1
    touch(target)
    record = <adopt_record_t*> record_new(store, ADOPT, 0, adopt_length(count), target.number, adoptions.number)
    if record == NULL:
        return 0
    memset(<char*> record + sizeof(record.head), 0, adopt_length(count) - sizeof(record.head))
    record.first_id = adoptions.first_id
    record.count = <uint32_t> count
    at = <adopted_t*> (record + 1)
    for queues in adoptions.waiting:
        for position, ref in enumerate(queues):
            at[0] = adopted_t(ref.queue.number, position == 0)
            at += 1
    return 0


cdef int adoptions_charged(queue_t* target, uint64_t queues) except -1:
    adoptions_of(target).charge = charge_of(adopt_length(queues))
    live_add(target.store, adoptions_of(target).charge)
    return 0


cdef tuple adopt_read(const adopt_record_t* record):
    cdef const adopted_t* at = <const adopted_t*> (record + 1)
    cdef list waiting = []
    cdef uint32_t i
    for i in range(record.count):
        if at[i].begins or not waiting:
            waiting.append([])
        waiting[len(waiting) - 1].append(at[i].queue)
    return record.head.id, record.first_id, waiting


cdef list adoptions_come(queue_t* target, uint64_t number, uint64_t first_id, list numbers):
    cdef Adoptions adoptions = adoptions_made(target)
    cdef queue_t* queue
    cdef list empty = [], found
    cdef uint64_t count = 0
    adoptions.number = number
    for position, these in enumerate(numbers):
        count += <uint64_t> len(these)
        found = []
        for one in these:
            queue = store_queue(target.store, one)
            if queue == NULL or not queue.staged or queue.adopter != NULL:      # it was deleted, or its record is lost
                continue
            if queue.ready:
                queue.adopter = target
                adoptions.rows += queue.ready
                found.append(<object> queue.handle)
            else:
                empty.append(<object> queue.handle)
        if found:
            adoptions.waiting.append(found)
            if position == 0:
                adoptions.first_id = first_id
    adoptions_charged(target, count)
    return empty
