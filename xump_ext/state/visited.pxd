"""The visited set: the queues that a message has entered in one run, so that two paths give one copy (rule 3).

It is a small set of queue numbers (`queue_t.slot`), shared by all the messages that one message becomes. Up to 16 numbers are a
list, and a mask of the numbers modulo 64 answers most look-ups. Beyond that they are a hash table: a copy to 10,000 recipients
of a Parrot costs as much for each of them as a copy to ten.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from xump_ext.state.graph cimport engine_t, queue_t, tally_t, visited_t

cdef enum:
    VISITED_LIST = 16
    NO_SLOT = 0xFFFFFFFF
    TALLY_MAX = 255

cdef int visited_grow(visited_t* visited) except -1
cdef bint visited_search(const visited_t* visited, uint32_t slot) noexcept
cdef void visited_put(visited_t* visited, uint32_t slot) noexcept
cdef visited_t* visited_alloc() except NULL
cdef void visited_free(engine_t* engine) noexcept

cdef inline visited_t* visited_new(engine_t* engine, uint32_t slot) except NULL:
    """A set with one queue in it; the caller has its reference."""
    cdef visited_t* visited = engine.spare_visited
    if visited != NULL:
        engine.spare_visited = visited.next
    else:
        visited = visited_alloc()
    visited.references = 1
    visited.count = 1
    visited.mask = <uint64_t> 1 << (slot & 63)
    visited.slots[0] = slot
    return visited

cdef inline visited_t* visited_share(visited_t* visited) noexcept:
    if visited != NULL:
        visited.references += 1
    return visited

cdef inline void visited_release(engine_t* engine, visited_t* visited) noexcept:
    if visited == NULL:
        return
    visited.references -= 1
    if visited.references == 0:
        if visited.capacity > VISITED_LIST:
            free(visited.slots)
            free(visited)
        else:
            visited.next = engine.spare_visited
            engine.spare_visited = visited

# A publisher may ask what becomes of its message. Then the tally of the message hangs on its visited set, which goes along with
# whatever the message becomes; the call that published takes it off again.

cdef inline void tally_begin(visited_t* visited, tally_t* tally) noexcept:
    tally.visited = visited
    visited.tally = tally

cdef inline void tally_end(engine_t* engine, tally_t* tally) noexcept:
    """Ends a tally: its counts are not asked for any more."""
    if tally.visited != NULL:
        tally.visited.tally = NULL
        visited_release(engine, tally.visited)
        tally.visited = NULL

cdef inline bint rests(const queue_t* queue) noexcept:
    """Whether what enters the queue is there, for now. It only passes through a transit queue."""
    return not queue.transit or queue.held or queue.engine.building

cdef inline void tally_refused(tally_t* tally) noexcept:
    tally.refused += tally.refused < TALLY_MAX

cdef inline void tally_flag(const visited_t* visited, uint8_t flags) noexcept:
    if visited != NULL and visited.tally != NULL:
        visited.tally.flags |= flags

cdef inline bint visited_has(const visited_t* visited, uint32_t slot) noexcept:
    return (visited.mask >> (slot & 63)) & 1 and visited_search(visited, slot)

cdef inline int visited_add(visited_t* visited, uint32_t slot) except -1:
    if visited_has(visited, slot):
        return 0
    if visited.count == VISITED_LIST or (visited.capacity > VISITED_LIST and visited.count * 2 >= visited.capacity):
        visited_grow(visited)
    visited.mask |= <uint64_t> 1 << (slot & 63)
    if visited.capacity == VISITED_LIST:
        visited.slots[visited.count] = slot
    else:
        visited_put(visited, slot)
    visited.count += 1
    return 0
