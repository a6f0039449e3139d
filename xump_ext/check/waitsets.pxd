"""Declarations of `waitsets.pyx`, and a walk over all entries of a waitset."""

from libc.stdint cimport uint64_t

from xump_ext.select.plan cimport Plan
from xump_ext.state.constants cimport IN_RETURNED_HEAP
from xump_ext.state.graph cimport entry_t, queue_t, waitset_t
from xump_ext.state.returned_heap cimport returned_position

cdef int check_waitsets(Plan plan, set lanes) except -1
cdef int check_parked(Plan plan) except -1
cdef int check_returning(queue_t* queue) except -1

cdef inline entry_t* next_in(const waitset_t* waitset, const entry_t* entry) noexcept:
    """The entry after `entry` in a waitset: its list first, then its returned heap. NULL stands for the start, and the end."""
    cdef entry_t* next = waitset.head if entry == NULL else NULL if entry.flags & IN_RETURNED_HEAP else entry.next
    cdef uint64_t at = returned_position(entry) + 1 if entry != NULL and entry.flags & IN_RETURNED_HEAP else 0
    if next == NULL and at < waitset.returned_count:
        next = waitset.returned[at]
    return next
