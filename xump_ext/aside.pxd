"""Who came back between others: entries of a group that stand aside of its list, in a heap by age.

A group's list is in order of entry. What is new goes to its end, what is the oldest again to its head. What comes back between
them would have to look for its place, past a backlog of any length: it stands aside instead. The oldest of a group is the
older one of its head and of the heap's root, so nobody ever looks for a place; to come back, and to go, costs O(log of those
aside). An entry that stands aside needs no neighbours: `previous` is its place in the heap.
"""

from libc.stdint cimport uintptr_t

from xump_ext.graph cimport entry_t, group_t

cdef int aside_add(group_t* group, entry_t* entry) except -1
cdef void aside_remove(group_t* group, entry_t* entry) noexcept
cdef void aside_free(group_t* group) noexcept
cdef void aside_merge(group_t* group) noexcept

cdef inline uintptr_t aside_place(const entry_t* entry) noexcept:
    return <uintptr_t> entry.previous

cdef inline entry_t* group_oldest(const group_t* group) noexcept:
    """The entry of the group that entered first, or NULL."""
    if group.aside_count and (group.head == NULL or group.aside[0].sequence < group.head.sequence):
        return group.aside[0]
    return group.head
