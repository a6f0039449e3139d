"""Clauses, groups, lanes and lines under examination: the declarations of `check_waiting.pyx`."""

from xump_ext.check_structure cimport Books
from xump_ext.graph cimport entry_t, lane_t

cdef int check_waiting(Books books) except -1
cdef entry_t* oldest(const lane_t* lane) noexcept
