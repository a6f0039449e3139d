"""Declarations of `adopt.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.records.kinds cimport adopt_record_t
from xump_ext.state.graph cimport queue_t, store_t

cdef class Adoptions:
    cdef readonly list waiting      # of each adoption its staged queues (`QueueRef`) that have rows; the oldest one first
    cdef readonly uint64_t rows     # in all of them
    cdef readonly uint64_t first_id    # the next id here when the first row of the oldest one entered; 0: none has
    cdef uint64_t number            # of its newest ADOPT; 0: it has none
    cdef uint64_t charge            # what that takes of the store

# What the queue has adopted; None: nothing, ever.
cdef Adoptions adoptions_of(const queue_t* queue)
# The length of the ADOPT of a queue that has so many staged queues.
cdef uint64_t adopt_length(uint64_t queues) noexcept
cdef uint64_t queues_waiting(const queue_t* target)
# The target adopts these queues (`QueueRef`), none of which is empty.
cdef int adoption_begins(queue_t* target, list queues) except -1
# The first row of the oldest adoption is about to enter.
cdef int adoption_starts(queue_t* target) except -1
# A staged queue that was adopted is gone: empty, or with the rows that it still has.
cdef int adopted_gone(queue_t* queue) except -1
# The target is gone: its staged queues, which are returned, belong to nobody.
cdef list adoptions_end(queue_t* target)
# Its store hears of that, as far as the ADOPT goes.
cdef void adoptions_leave(queue_t* queue) noexcept

# What an ADOPT says: (number, first_id, [[number of a queue, ...] of each adoption]).
cdef tuple adopt_read(const adopt_record_t* record)
# The target has adopted what was read from its log, as far as it is there: gives it its staged queues, and returns those that are
# empty.
cdef list adoptions_come(queue_t* target, uint64_t number, uint64_t first_id, list numbers)
