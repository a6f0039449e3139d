"""Sleepers: threads and tasks that wait until a call of somebody else brings them something.

A thread sleeps at a lock of its own, without the interpreter; who wakes it releases that lock. A task is woken by a callable,
which asks its loop. Waking carries nothing: who wakes looks for what there is. It is remembered, so who is woken before it sleeps
does not sleep, and who is woken twice wakes once.
"""

from libc.stdint cimport int64_t

from xump_ext.message.times cimport NEVER

cdef extern from "pythread.h":
    ctypedef long long PY_TIMEOUT_T
    ctypedef int PyLockStatus
    PyLockStatus PY_LOCK_FAILURE
    PyLockStatus PY_LOCK_ACQUIRED
    PY_TIMEOUT_T PY_TIMEOUT_MAX
    void* PyThread_allocate_lock() nogil
    int PyThread_acquire_lock(void*, int) nogil
    PyLockStatus PyThread_acquire_lock_timed(void*, PY_TIMEOUT_T microseconds, int interruptible) nogil
    void PyThread_release_lock(void*) nogil
    void PyThread_free_lock(void*) nogil

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


cdef class Sleeper:
    """One that waits."""

    def __dealloc__(self):
        if self.lock != NULL:
            if not self.woken:
                PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    cdef int wake(self) except -1:
        """Wake it, or have it not sleep at all."""
        if self.call is not None:
            self.call()
        elif not self.woken:
            self.woken = True
            if self.lock != NULL:
                PyThread_release_lock(self.lock)
        return 0

    cdef int serve(self) except -1:
        """Wake it for good: it has what it waited for."""
        self.served = True
        return self.wake()

    cdef bint sleep(self, int64_t until) except -1:
        """Sleep until woken, or until that moment of `steady_time`. False: nobody woke it. Raises what the handler of a signal
        raises."""
        cdef PY_TIMEOUT_T microseconds = -1
        cdef PyLockStatus status
        if self.lock == NULL and not self.woken:
            self.lock = PyThread_allocate_lock()
            if self.lock == NULL:
                raise MemoryError()
            PyThread_acquire_lock(self.lock, 1)
        while not self.woken:
            if until != NEVER:
                microseconds = min(max(until - steady_time() + 999, 0) // 1000, PY_TIMEOUT_MAX)
            with nogil:
                status = PyThread_acquire_lock_timed(self.lock, microseconds, 1)
            if status == PY_LOCK_ACQUIRED:
                self.woken = False
                return True
            if status == PY_LOCK_FAILURE and not self.woken:
                return False
            PyErr_CheckSignals()
        self.woken = False
        if self.lock != NULL:
            PyThread_acquire_lock(self.lock, 0)
        return True
