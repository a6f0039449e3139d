"""The visited set of a message: its memory, and the hash table that a long one becomes.

`visited.pxd` explains it.
"""


cdef visited_t* visited_alloc() except NULL:
    cdef visited_t* visited = <visited_t*> malloc(sizeof(visited_t))
    if visited != NULL:
        visited.slots = <uint32_t*> malloc(VISITED_LIST * sizeof(uint32_t))
    if visited == NULL or visited.slots == NULL:
        free(visited)
        raise MemoryError()
    visited.capacity = VISITED_LIST
    visited.tally = NULL
    return visited


cdef void visited_free(engine_t* engine) noexcept:
    cdef visited_t* visited
    while engine.spare_visited != NULL:
        visited = engine.spare_visited
        engine.spare_visited = visited.next
        free(visited.slots)
        free(visited)


cdef inline uint32_t home(const visited_t* visited, uint32_t slot) noexcept:
    return (slot * <uint32_t> 0x9E3779B1) & (visited.capacity - 1)


cdef void visited_put(visited_t* visited, uint32_t slot) noexcept:
    cdef uint32_t at = home(visited, slot)
    while visited.slots[at] != NO_SLOT:
        at = (at + 1) & (visited.capacity - 1)
    visited.slots[at] = slot


cdef int visited_grow(visited_t* visited) except -1:
    cdef uint32_t* old = visited.slots
    cdef uint32_t i, had = visited.capacity, capacity = had * 4
    cdef uint32_t* slots = <uint32_t*> malloc(capacity * sizeof(uint32_t))
    if slots == NULL:
        raise MemoryError()
    for i in range(capacity):
        slots[i] = NO_SLOT
    visited.slots = slots
    visited.capacity = capacity
    for i in range(had):
        if old[i] != NO_SLOT:
            visited_put(visited, old[i])
    free(old)
    return 0


cdef bint visited_search(const visited_t* visited, uint32_t slot) noexcept:
    cdef uint32_t at
    if visited.capacity == VISITED_LIST:
        for at in range(visited.count):
            if visited.slots[at] == slot:
                return True
        return False
    at = home(visited, slot)
    while visited.slots[at] != NO_SLOT:
        if visited.slots[at] == slot:
            return True
        at = (at + 1) & (visited.capacity - 1)
    return False
