"""The returned heap of a waitset: entries that came back between others, oldest first.

A waitset's list is in order of entry. A new entry goes to its end. An entry that comes back goes to its head if it is the
oldest. Else it would have to search for its place, past a backlog of any length: it goes into the returned heap instead.

So the oldest entry of a waitset is the older one of the list's head and the heap's root, and no search is needed. To come back,
and to leave, costs O(log entries in the heap). An entry in the heap needs no neighbours: `link.position` is its place there.
"""

from libc.stdint cimport uint64_t, uintptr_t

from xump_ext.state.graph cimport entry_t, waitset_t

cdef int returned_add(waitset_t* waitset, entry_t* entry) except -1
cdef void returned_remove(waitset_t* waitset, entry_t* entry) noexcept
cdef void returned_free(waitset_t* waitset) noexcept
cdef void returned_merge(waitset_t* waitset) noexcept

cdef enum:
    AGE_BITS = 54           # of an order: the sequence; the rank is above it

cdef inline uint64_t order_of(const entry_t* entry) noexcept nogil:
    """The order within a queue, lowest first: the highest priority, then the oldest. In most queues it is the
    sequence."""
    return <uint64_t> entry.rank << AGE_BITS | entry.sequence

cdef inline uintptr_t returned_position(const entry_t* entry) noexcept:
    return entry.link.position

cdef inline entry_t* waitset_oldest(const waitset_t* waitset) noexcept:
    """The entry of the waitset that entered first, or NULL."""
    if waitset.returned_count and (waitset.head == NULL or waitset.returned[0].sequence < waitset.head.sequence):
        return waitset.returned[0]
    return waitset.head
