"""What the engine and the journals of its durable stores have to do with each other: the declarations of `durable.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.door cimport Door
from xump_ext.graph cimport queue_t
from xump_ext.journal cimport Journal

cdef class Durable(Door):
    cdef queue_t* with_room(self, queue_t* queue, object name, uint64_t bytes) except? NULL
    cdef int detach(self, Journal journal) except -1
