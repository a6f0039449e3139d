"""The locks of CPython, which it lends to C code. A thread that waits for one gives up the GIL meanwhile, if you say `nogil`."""

cdef extern from "pythread.h":
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    void* PyThread_allocate_lock()
    int PyThread_acquire_lock(void* lock, int waits) nogil
    PyLockStatus PyThread_acquire_lock_timed(void* lock, long long microseconds, int interruptible) nogil
    void PyThread_release_lock(void* lock)
    void PyThread_free_lock(void* lock)
