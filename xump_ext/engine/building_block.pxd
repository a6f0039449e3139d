"""Declarations of `building_block.pyx`."""

from xump_ext.engine.core cimport Core

cdef class BuildingBlock:
    cdef Core engine
    cdef object thread      # the one that entered; None: none has
    cdef int end(self, bint releases) except -1

cdef class GraphChange(BuildingBlock):
    pass
