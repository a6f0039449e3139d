"""The door of the engine; the declarations of `engine/engine_lock.pyx`."""

from cpython.object cimport PyObject
from cpython.pystate cimport PyThreadState_Get
from libc.stdint cimport uint32_t, uint64_t

from xump_ext.state.constants cimport BUSY, IDLE, TIME_UNREAD
from xump_ext.state.graph cimport engine_t, queue_t

cdef extern from "Python.h":
    Py_ssize_t size_of "PyList_GET_SIZE"(PyObject* items)

cdef struct lock_waiter_t:               # a thread that waits to get in, on its own stack
    void* lock                      # PyThread_type_lock; held until it is its turn to look
    lock_waiter_t* next
    bint overtaken                  # it was called, and found somebody else inside

cdef class EngineLock:
    cdef engine_t e
    cdef int state
    cdef void* owner                # the thread that is inside
    cdef lock_waiter_t* waiting          # first come, first called
    cdef lock_waiter_t* last_waiting
    cdef lock_waiter_t* next_owner             # whose turn it is while the state is RESERVED
    cdef object clock               # None: the system's, read in C
    cdef readonly dict _stores
    cdef readonly dict _queues
    cdef readonly dict _selectors
    cdef readonly dict _named       # selectors by name
    cdef dict destinations
    cdef dict nacked
    cdef dict owners
    cdef list journals              # of durable stores: they hold what `e.stores` links
    cdef list user_errors
    cdef list spent
    cdef uint64_t checks            # of deliveries given together
    cdef list spare_slots
    cdef list undelivered             # deliveries that were taken by a call that raised: the next one that takes hands them out
    cdef object _dead_letter
    cdef uint64_t offered_before
    cdef dict wakers                # threads and tasks that wait for deliveries: by destination, then by number, what wakes them
    cdef Py_ssize_t takers          # how many
    cdef uint64_t last_waiter

    cdef inline int begin_call(self) except -1:
        self.lock()
        if self.clock is not None:
            self.begin_with_clock()
        return 0

    cdef inline int lock(self) except -1:
        """`begin_call` for a call that does not fail for its clock: it reads that by itself, if at all."""
        if self.state != IDLE:
            self.wait_for_lock()
        self.state = BUSY
        self.owner = <void*> PyThreadState_Get()
        self.e.now = TIME_UNREAD
        self.e.entered_stores = 0
        return 0

    cdef inline int unlock(self) except -1:
        if self.state == BUSY:      # a fork in user code has left the child outside
            self.state = self.e.at_rest
        if <Py_ssize_t> (self.waiting != NULL) | size_of(<PyObject*> self.user_errors) | self.takers | (
                size_of(<PyObject*> self.spent)) or self.e.changed_stores != NULL:
            self.unlock_slowly()
        return 0

    cdef int wait_for_lock(self) except -1
    cdef int wake_next(self) except -1
    cdef int check_state(self) except -1
    cdef int wait_for_turn(self, lock_waiter_t* own) except -1
    cdef bint lock_if_open(self) except -1
    cdef int begin_with_clock(self) except -1
    cdef int read_clock(self) except -1
    cdef int unlock_slowly(self) except -1
    cdef int wake_offered(self) except -1
    cdef int wake(self, set destinations) except -1
    cdef queue_t* queue_of(self, object queue) except? NULL
