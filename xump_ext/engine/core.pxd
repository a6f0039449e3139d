"""Declarations of `core.pyx`.

`Core` is the last part of the engine's class, after `reading.pxd`.
"""

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.reading cimport EngineReading
from xump_ext.state.graph cimport destination_t, queue_t

cdef class Core(EngineReading):
    cdef public dict _builders      # threads in building blocks -> how deep
    cdef public list _reopened      # queues that are held since their store was opened
    cdef int get_into(self, list taken, QueueHandle handle) except -1
    cdef int take_into(self, list taken, Py_ssize_t n, object destination) except -1
    cdef int take_offers(self, list taken, Py_ssize_t n, object destination, destination_t* found) except -1
    cdef int free_graph(self) except -1
    cdef int end_hold(self, queue_t* queue) except -1
