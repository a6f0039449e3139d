"""Clauses, groups, lanes and lines under examination: the declarations of `check_waiting.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.aside cimport aside_place
from xump_ext.check_structure cimport Books
from xump_ext.graph cimport ASIDE, entry_t, group_t, lane_t

cdef int check_waiting(Books books) except -1
cdef entry_t* oldest(const lane_t* lane) noexcept

cdef inline entry_t* next_in(const group_t* group, const entry_t* entry) noexcept:
    """The one after `entry` (NULL: the first) of all in a group: its list, then those aside; NULL at the end."""
    cdef entry_t* next = group.head if entry == NULL else NULL if entry.flags & ASIDE else entry.next
    cdef uint64_t at = aside_place(entry) + 1 if entry != NULL and entry.flags & ASIDE else 0
    if next == NULL and at < group.aside_count:
        next = group.aside[at]
    return next
