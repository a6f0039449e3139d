"""Clauses, groups, lanes and lines under examination: the declarations of `check/waiting.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.check.structure cimport Books
from xump_ext.state.constants cimport IN_RETURNED_HEAP
from xump_ext.state.graph cimport entry_t, lane_t, waitset_t
from xump_ext.state.returned_heap cimport returned_position

cdef int check_waiting(Books books) except -1
cdef entry_t* oldest(const lane_t* lane) noexcept

cdef inline entry_t* next_in(const waitset_t* waitset, const entry_t* entry) noexcept:
    """The one after `entry` (NULL: the first) of all in a group: its list, then those aside; NULL at the end."""
    cdef entry_t* next = waitset.head if entry == NULL else NULL if entry.flags & IN_RETURNED_HEAP else entry.next
    cdef uint64_t at = returned_position(entry) + 1 if entry != NULL and entry.flags & IN_RETURNED_HEAP else 0
    if next == NULL and at < waitset.returned_count:
        next = waitset.returned[at]
    return next
