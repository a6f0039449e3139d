"""Declarations of `engine_lock.pyx`, and the fast way through the engine lock.

`EngineLock` is the first of the parts of the engine's class; `sleepers.pxd` has the next.
"""

from cpython.object cimport PyObject
from cpython.pystate cimport PyThreadState_Get
from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.engine.graph_lock cimport GraphLock
from xump_ext.engine.teller cimport Teller
from xump_ext.log.marks cimport Owners
from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport Times
from xump_ext.route.clock cimport now_of, time_of
from xump_ext.state.constants cimport BUSY, IDLE, TIME_UNREAD
from xump_ext.state.graph cimport engine_t, queue_t
from xump_ext.state.schedule cimport schedule_is_due

cdef extern from "Python.h":
    Py_ssize_t size_of "PyList_GET_SIZE"(PyObject* items)

cdef struct lock_waiter_t:          # a thread that waits for the engine lock; on the stack of that thread
    void* lock                      # PyThread_type_lock; held until the thread is called
    lock_waiter_t* next
    bint overtaken                  # it was called, but another thread was faster

cdef class EngineLock:
    cdef engine_t e
    cdef int state
    cdef void* thread               # the thread that is inside
    cdef lock_waiter_t* queued_threads  # first come, first called
    cdef lock_waiter_t* last_queued_thread
    cdef lock_waiter_t* next_thread  # for which the lock is RESERVED
    cdef object clock               # None: the clock of the system, read in C
    cdef readonly dict _stores
    cdef readonly dict _queues
    cdef readonly dict _selectors
    cdef readonly dict _named       # selectors by name
    cdef readonly dict _windows     # those that selectors share, by name
    cdef dict destinations          # these three: see `engine_t`
    cdef dict nacked
    cdef Owners owners
    cdef list journals              # of the durable stores; they own the structs that `e.stores` links
    cdef list user_errors           # errors that user code raised in this call
    cdef Teller teller              # who is called back when the call is over
    cdef readonly GraphLock _graph_lock     # held by calls that change the graph
    cdef dict outlets               # those that have destinations, by their addresses
    cdef list sources_to_drop       # owners of lazy sources that are used up; dropped when the call ends
    cdef uint64_t checks            # number of the last `check_deliveries`
    cdef list spare_slots           # of deleted queues
    cdef list undelivered           # deliveries taken by a call that raised: the next call that takes hands them out first
    cdef object _dead_letter
    cdef dict publishers            # that wait for room, by the names of their queues; of one queue first come first
    cdef dict requests              # that wait for a reply, by message id
    cdef Py_ssize_t takers          # how many sleepers there are
    cdef Py_ssize_t waits           # how many sleepers and waiting publishers there are
    cdef bint catches_up            # a call does what fell due before it, moment by moment

    cdef inline int begin_call(self) except -1:
        """Take the engine lock, read the user's clock, if there is one, and do what fell due."""
        self.lock()
        if self.clock is not None:
            self.begin_with_clock()
        elif self.e.schedule.live:      # the system's clock cannot fail, and most often nothing is due
            if schedule_is_due(&self.e.schedule, max(now_of(&self.e), self.e.time)):
                self.begin_with_clock()
            else:
                time_of(&self.e)
        return 0

    cdef inline int lock(self) except -1:
        """Take the engine lock only: for calls that must not fail for the clock, or that read it later."""
        if self.state != IDLE:
            self.wait_for_lock()
        self.state = BUSY
        self.thread = <void*> PyThreadState_Get()
        self.e.now = TIME_UNREAD
        self.e.entered_stores = 0
        return 0

    cdef inline int unlock(self) except -1:
        # Most often all of these are zero, and one test says so.
        if <size_t> self.queued_threads | <size_t> self.e.changed_stores | <size_t> size_of(<PyObject*> self.user_errors) | (
                <size_t> size_of(<PyObject*> self.sources_to_drop)) | <size_t> self.waits | (
                <size_t> size_of(<PyObject*> self.teller.caused)):
            return self.unlock_slowly()
        if self.state == BUSY:      # else user code has forked, and this is the child
            self.state = self.e.at_rest
        return 0

    cdef inline int unlock_now(self) except -1:
        """The end of a call that only looked: it lets no publisher in."""
        return self.leave()

    cdef int let_in(self) except -1
    cdef bint make_room_for_letters(self) except -1
    cdef int leave(self) except -1
    cdef int run_until(self) except -1
    cdef int wait_for_lock(self) except -1
    cdef int wake_next(self) except -1
    cdef int raise_if_unusable(self) except -1
    cdef int wait_to_be_called(self, lock_waiter_t* own) except -1
    cdef bint lock_if_open(self) except -1
    cdef int begin_with_clock(self) except -1
    cdef int do_due_now(self) except -1
    cdef int read_clock(self) except -1
    cdef int unlock_slowly(self) except -1
    cdef uint64_t publish_content(self, object queue, content_t* content, Times times, int64_t delay) except? 0
    cdef int wake_waiting(self) except -1
    cdef queue_t* queue_of(self, object queue) except? NULL
