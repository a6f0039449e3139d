"""The returned heap of a waitset: the entries that came back between others.

`returned_heap.pxd` explains it.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc

from xump_ext.state.constants cimport IN_RETURNED_HEAP
from xump_ext.state.graph cimport entry_t, waitset_t

cdef enum:
    CAPACITY_KEPT = 64      # an emptied heap keeps so many places, so that an occasional nack does not call the allocator


cdef inline void put(waitset_t* waitset, uint32_t at, entry_t* entry) noexcept:
    waitset.returned[at] = entry
    entry.link.position = at


cdef void rise(waitset_t* waitset, uint32_t at, entry_t* entry) noexcept:
    cdef uint32_t above
    while at:
        above = (at - 1) >> 1
        if waitset.returned[above].sequence < entry.sequence:
            break
        put(waitset, at, waitset.returned[above])
        at = above
    put(waitset, at, entry)


cdef void sink(waitset_t* waitset, uint32_t at, entry_t* entry) noexcept:
    cdef uint64_t below = 2 * <uint64_t> at + 1
    while below < waitset.returned_count:
        if below + 1 < waitset.returned_count and waitset.returned[below + 1].sequence < waitset.returned[below].sequence:
            below += 1
        if entry.sequence < waitset.returned[below].sequence:
            break
        put(waitset, at, waitset.returned[below])
        at = <uint32_t> below
        below = 2 * <uint64_t> at + 1
    put(waitset, at, entry)


cdef int returned_add(waitset_t* waitset, entry_t* entry) except -1:
    cdef uint32_t capacity
    cdef entry_t** returned
    if waitset.returned_count == waitset.returned_capacity:
        capacity = waitset.returned_capacity * 2 if waitset.returned_capacity else 8
        returned = <entry_t**> realloc(waitset.returned, capacity * sizeof(entry_t*))
        if returned == NULL:
            raise MemoryError()
        waitset.returned = returned
        waitset.returned_capacity = capacity
    entry.flags |= IN_RETURNED_HEAP
    entry.next = NULL
    waitset.returned_count += 1
    rise(waitset, waitset.returned_count - 1, entry)
    return 0


cdef void returned_remove(waitset_t* waitset, entry_t* entry) noexcept:
    cdef uint32_t at = <uint32_t> returned_position(entry)
    cdef entry_t* last
    entry.flags &= ~IN_RETURNED_HEAP
    waitset.returned_count -= 1
    last = waitset.returned[waitset.returned_count]
    if last != entry:
        if last.sequence < entry.sequence:
            rise(waitset, at, last)
        else:
            sink(waitset, at, last)
    if waitset.returned_count == 0 and waitset.returned_capacity > CAPACITY_KEPT:
        returned_free(waitset)


cdef void returned_free(waitset_t* waitset) noexcept:
    free(waitset.returned)
    waitset.returned = NULL
    waitset.returned_count = waitset.returned_capacity = 0


cdef int by_age(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<entry_t**> a)[0].sequence, y = (<entry_t**> b)[0].sequence
    return (x > y) - (x < y)


cdef void returned_merge(waitset_t* waitset) noexcept:
    """Merges the heap into the list, for a walk over the whole waitset."""
    cdef entry_t* entry
    cdef entry_t* before = waitset.tail
    if waitset.returned_count == 0:
        return
    qsort(waitset.returned, waitset.returned_count, sizeof(entry_t*), by_age)
    while waitset.returned_count:
        waitset.returned_count -= 1
        entry = waitset.returned[waitset.returned_count]
        entry.flags &= ~IN_RETURNED_HEAP
        while before != NULL and before.sequence > entry.sequence:
            before = before.link.previous
        entry.link.previous = before
        entry.next = waitset.head if before == NULL else before.next
        if before == NULL:
            waitset.head = entry
        else:
            before.next = entry
        if entry.next == NULL:
            waitset.tail = entry
        else:
            entry.next.link.previous = entry
    returned_free(waitset)
