"""Declarations of `building_block.pyx`."""

from xump_ext.engine.core cimport Core

cdef class BuildingBlock:
    cdef Core engine
    cdef bint finishes
    cdef object thread      # the one that entered; None: none has
