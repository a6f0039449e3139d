"""Wakes the thread of a store.

A `threading.Event` is Python code: an exception that the handler of a signal raises in the middle of its `set` leaves its lock
taken, and whoever comes next waits for ever. Nothing comes in the middle of this one. The GIL guards its fields.
"""

from xump_ext.memory.pythread cimport (
    PY_LOCK_ACQUIRED, PyLockStatus, PyThread_acquire_lock, PyThread_acquire_lock_timed, PyThread_allocate_lock,
    PyThread_free_lock, PyThread_release_lock,
)


cdef class Wakeup:
    """An event: `set` wakes those that wait, and those that wait later, until `clear`."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.lock, 0)

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef void wake(self) noexcept:
        self.flag = True
        if not self.is_free:
            self.is_free = True
            PyThread_release_lock(self.lock)

    def set(self):
        """Wake those that wait, and those that wait later."""
        self.wake()

    def clear(self):
        """Those that wait from now on wait for the next `set`."""
        self.flag = False
        if self.is_free and PyThread_acquire_lock(self.lock, 0):
            self.is_free = False

    def is_set(self):
        """Whether `wait` would return at once."""
        return self.flag

    def wait(self, timeout=None):
        """Wait for `set`, at most so many seconds; None: for ever. A signal does not end it. Returns `is_set()`."""
        cdef long long microseconds = -1 if timeout is None else <long long> (<double> timeout * 1e6)
        cdef PyLockStatus status
        while not self.flag:
            with nogil:
                status = PyThread_acquire_lock_timed(self.lock, microseconds, 0)
            if status != PY_LOCK_ACQUIRED:
                break
            self.is_free = False        # it was left free by a `set` that is over, else
            if self.flag:
                self.wake()             # for others that wait
        return self.flag
