"""Declarations of `graph_lock.pyx`."""

from xump_ext.engine.teller cimport Teller

cdef class GraphLock:
    cdef Teller teller
    cdef void* engine
    cdef void* lock         # PyThread_type_lock
    cdef int depth          # how often its thread has entered

    cdef int wait(self) except -1
