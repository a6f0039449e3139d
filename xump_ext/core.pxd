"""The engine as Python calls it; the declarations of `core.pyx`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.admission cimport Admissions
from xump_ext.faces cimport QueueFace, SelectorFace
from xump_ext.graph cimport engine_t, entry_t, offer_t, queue_t, selector_t
from xump_ext.message cimport Message, content_t

cdef enum:
    IDLE = 0
    BUSY = 1
    CLOSED = 2
    FORKED = 3

cdef class Core:
    cdef engine_t e
    cdef int state
    cdef void* owner                # the thread that is inside
    cdef uint32_t contenders        # threads that wait to get in
    cdef void* turn                 # PyThread_type_lock
    cdef object clock               # None: the system's, read in C
    cdef readonly dict _queues
    cdef readonly dict _selectors
    cdef dict destinations
    cdef dict nacked
    cdef list troubles
    cdef list spare_slots
    cdef uint32_t selector_count
    cdef uint64_t no_queue          # dead-lettered: published to a queue that does not exist
    cdef uint64_t offered_before
    cdef public list _waiters       # callables for threads and tasks that wait for deliveries

    cdef object _dead_letter
    cdef int begin(self) except -1
    cdef int read_clock(self) except -1
    cdef object admit_all(self, Admissions batch, queue_t* queue)
    cdef Admissions transaction_batch(self, list operations, Admissions contents)
    cdef int set_start(self, selector_t* selector, object start) except -1
    cdef int enable(self, selector_t* selector) except -1
    cdef int check_replay(self, selector_t* selector, list ids) except -1
    cdef int stir_queue(self, queue_t* queue) except -1
    cdef entry_t* entry_of(self, QueueFace face, object id) except? NULL
    cdef int begin_slowly(self) except -1
    cdef int leave(self) except -1
    cdef int end_slowly(self) except -1
    cdef queue_t* queue_of(self, object queue) except? NULL
    cdef uint64_t admit(self, queue_t* queue, object name, content_t* content) except? 0
    cdef offer_t* first_offer(self, object destination) except? NULL
    cdef Delivery hand_over(self, offer_t* offer)
    cdef int close_books(self) except -1

cdef class Delivery:
    cdef entry_t* entry             # NULL: stale
    cdef readonly Message message
    cdef readonly object destination
    cdef readonly QueueFace queue
    cdef readonly SelectorFace selector
    cdef readonly uint32_t delivery_count
    cdef readonly bint redelivered
    cdef bint settled               # by the taking: INFINITE
    cdef bint marked                # while it is checked
    cdef bint answered              # acked, nacked or rejected by the application
    cdef Core core(self)
    cdef int give_back(self, bint requeue, object detail) except -1

cdef class DeliveryIterator:
    cdef object engine
    cdef Core core
    cdef object destination
    cdef object timeout
    cdef uint64_t began
    cdef offer_t* passed            # the last one that was skipped,
    cdef uint64_t passed_number     # and its number then
    cpdef Delivery take(self)
    cdef offer_t* next_offer(self) except? NULL
