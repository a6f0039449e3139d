"""Arrays and rings of C structs that grow by doubling, so that each item costs O(1) in the long run."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef inline int array_grow(void** items, uint64_t count, uint64_t* capacity, uint64_t item_bytes) except -1:
    """Makes room for one more item. Without memory it raises MemoryError and changes nothing."""
    cdef uint64_t grown
    cdef void* more
    if count == capacity[0]:
        grown = capacity[0] * 2 if capacity[0] else 64
        more = realloc(items[0], grown * item_bytes)
        if more == NULL:
            raise MemoryError()
        items[0] = more
        capacity[0] = grown
    return 0

cdef inline int ring_grow(void** items, uint64_t* head, uint64_t count, uint64_t* mask, uint64_t item_bytes) except -1:
    """Doubles a ring that is full or not allocated yet, and puts its oldest item at 0. `mask` is its size - 1."""
    cdef uint64_t size = mask[0] + 1 if items[0] != NULL else 0
    cdef uint64_t grown = size * 2 if size else 64
    cdef uint64_t straight = min(count, size - (head[0] & mask[0]))
    cdef char* more = <char*> malloc(grown * item_bytes)
    if more == NULL:
        raise MemoryError()
    if count:
        memcpy(more, <char*> items[0] + (head[0] & mask[0]) * item_bytes, straight * item_bytes)
        memcpy(more + straight * item_bytes, items[0], (count - straight) * item_bytes)
    free(items[0])
    items[0] = more
    head[0] = 0
    mask[0] = grown - 1
    return 0
