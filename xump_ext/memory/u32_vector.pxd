"""A growable array of 32-bit numbers, for what a look-up in a match index has hit.

It holds no Python object and raises only MemoryError.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc

cdef struct u32_vector_t:
    uint32_t* items
    uint32_t count
    uint32_t capacity

cdef inline int u32_vector_add(u32_vector_t* hits, uint32_t item) except -1 nogil:
    cdef uint32_t capacity
    cdef uint32_t* items
    if hits.count == hits.capacity:
        capacity = hits.capacity * 2 if hits.capacity else 16
        items = <uint32_t*> realloc(hits.items, capacity * sizeof(uint32_t))
        if items == NULL:
            with gil:
                raise MemoryError()
        hits.items = items
        hits.capacity = capacity
    hits.items[hits.count] = item
    hits.count += 1
    return 0

cdef inline void u32_vector_free(u32_vector_t* hits) noexcept nogil:
    free(hits.items)
    hits.items = NULL
    hits.count = hits.capacity = 0
