"""Declarations of `waiting.pyx`."""

from xump_ext.check.structure cimport Books
from xump_ext.state.graph cimport entry_t, lane_t

cdef int check_waiting(Books books) except -1
cdef entry_t* oldest(const lane_t* lane) noexcept
