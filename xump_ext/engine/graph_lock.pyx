"""The lock of calls that change the graph: creating and deleting stores, queues, selectors and windows, one at a time.

It is taken beside the engine lock, and for longer: a store is read as a whole under it. Other calls do not wait for it.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pystate cimport PyThreadState_Get

from xump_ext.engine.teller cimport Teller
from xump_ext.memory.pythread cimport (
    PY_LOCK_ACQUIRED, PY_LOCK_INTR, PyLockStatus, PyThread_acquire_lock, PyThread_acquire_lock_timed,
    PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock,
)


cdef class GraphLock:
    """The lock of calls that change the graph: one thread at a time, which may enter it again. A context manager.

    The engine owns it, so it borrows the engine: else only the collector would free that. A signal ends the wait for it.
    """

    def __cinit__(self, Teller teller not None, engine):
        self.teller = teller
        self.engine = <void*> engine
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def __enter__(self):
        cdef void* thread = <void*> PyThreadState_Get()
        if self.teller.graph_thread != thread:
            if not PyThread_acquire_lock(self.lock, 0):
                self.wait()
            self.teller.graph_thread = thread
        self.depth += 1

    cdef int wait(self) except -1:
        cdef PyLockStatus status = PY_LOCK_INTR
        while status != PY_LOCK_ACQUIRED:
            PyErr_CheckSignals()
            with nogil:
                status = PyThread_acquire_lock_timed(self.lock, -1, 1)
        return 0

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            self.teller.graph_thread = NULL
            PyThread_release_lock(self.lock)
        if self.teller.due:
            self.teller.call_over(<object> self.engine)
