"""What the engine and the journals of its durable stores have to do with each other: the declarations of `durable.pyx`."""

from xump_ext.door cimport Door
from xump_ext.journal cimport Journal

cdef class Durable(Door):
    cdef int detach(self, Journal journal) except -1
