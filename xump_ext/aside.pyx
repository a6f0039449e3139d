"""Who came back between others: the heap beside a group's list; see `aside.pxd`."""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, qsort, realloc

from xump_ext.graph cimport ASIDE, entry_t, group_t

cdef enum:
    CAPACITY_KEPT = 64      # places that an emptied heap keeps, so that a nack now and then does not call the allocator


cdef inline void put(group_t* group, uint32_t at, entry_t* entry) noexcept:
    group.aside[at] = entry
    entry.previous = <entry_t*> <uintptr_t> at


cdef void rise(group_t* group, uint32_t at, entry_t* entry) noexcept:
    cdef uint32_t above
    while at:
        above = (at - 1) >> 1
        if group.aside[above].sequence < entry.sequence:
            break
        put(group, at, group.aside[above])
        at = above
    put(group, at, entry)


cdef void sink(group_t* group, uint32_t at, entry_t* entry) noexcept:
    cdef uint64_t below = 2 * <uint64_t> at + 1
    while below < group.aside_count:
        if below + 1 < group.aside_count and group.aside[below + 1].sequence < group.aside[below].sequence:
            below += 1
        if entry.sequence < group.aside[below].sequence:
            break
        put(group, at, group.aside[below])
        at = <uint32_t> below
        below = 2 * <uint64_t> at + 1
    put(group, at, entry)


cdef int aside_add(group_t* group, entry_t* entry) except -1:
    cdef uint32_t capacity
    cdef entry_t** aside
    if group.aside_count == group.aside_capacity:
        capacity = group.aside_capacity * 2 if group.aside_capacity else 8
        aside = <entry_t**> realloc(group.aside, capacity * sizeof(entry_t*))
        if aside == NULL:
            raise MemoryError()
        group.aside = aside
        group.aside_capacity = capacity
    entry.flags |= ASIDE
    entry.next = NULL
    group.aside_count += 1
    rise(group, group.aside_count - 1, entry)
    return 0


cdef void aside_remove(group_t* group, entry_t* entry) noexcept:
    cdef uint32_t at = <uint32_t> aside_place(entry)
    cdef entry_t* last
    entry.flags &= ~ASIDE
    group.aside_count -= 1
    last = group.aside[group.aside_count]
    if last != entry:
        if last.sequence < entry.sequence:
            rise(group, at, last)
        else:
            sink(group, at, last)
    if group.aside_count == 0 and group.aside_capacity > CAPACITY_KEPT:
        aside_free(group)


cdef void aside_free(group_t* group) noexcept:
    free(group.aside)
    group.aside = NULL
    group.aside_count = group.aside_capacity = 0


cdef int by_age(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<entry_t**> a)[0].sequence, y = (<entry_t**> b)[0].sequence
    return (x > y) - (x < y)


cdef void aside_merge(group_t* group) noexcept:
    """Puts all of them into the list, for somebody who walks over all of it."""
    cdef entry_t* entry
    cdef entry_t* before = group.tail
    if group.aside_count == 0:
        return
    qsort(group.aside, group.aside_count, sizeof(entry_t*), by_age)
    while group.aside_count:
        group.aside_count -= 1
        entry = group.aside[group.aside_count]
        entry.flags &= ~ASIDE
        while before != NULL and before.sequence > entry.sequence:
            before = before.previous
        entry.previous = before
        entry.next = group.head if before == NULL else before.next
        if before == NULL:
            group.head = entry
        else:
            before.next = entry
        if entry.next == NULL:
            group.tail = entry
        else:
            entry.next.previous = entry
    aside_free(group)
