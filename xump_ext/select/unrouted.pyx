"""Unrouted entries that are kept apart: in their turn the index of their queue would not find them.

Most unrouted entries are in no list: the index finds them in order of id, from the frontier on. Those of a queue that goes by
priority have another order, and those whose delay has ended lie behind the frontier. They wait here, by rank, and within a rank
by age.

A run takes the unrouted entries of a queue one by one, as its *backlog*: the queue is in the heap of backlogs by the age of the
one that goes first in it.
"""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.memory.heap cimport heap_add, heap_change, heap_remove
from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.select.credit cimport waiting_add, waiting_remove
from xump_ext.state.constants cimport APART, KEPT_BEFORE, KEPT_NOW, UNROUTED
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport apart_t, waitset_t
from xump_ext.state.index cimport unrouted_from
from xump_ext.state.returned_heap cimport returned_free, waitset_oldest

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long bits) noexcept


cdef size_t apart_bytes(const queue_t* queue) noexcept:
    return sizeof(apart_t) + queue.top_priority * sizeof(waitset_t)


cdef int apart_add(entry_t* entry) except -1:
    return ranked_add(&entry.queue.apart, entry)


cdef void apart_remove(entry_t* entry) noexcept:
    if is_kept(entry):
        kept_remove(entry)
    else:
        ranked_remove(entry.queue.apart, entry)


cdef entry_t* apart_first(const queue_t* queue) noexcept:
    return ranked_first(queue.apart)


cdef int ranked_add(apart_t** place, entry_t* entry) except -1:
    """Adds the entry to those of its rank."""
    if place[0] == NULL:
        place[0] = <apart_t*> cell_zeroed(apart_bytes(entry.queue))
    waiting_add(&place[0].levels[entry.rank], entry)
    entry.state = UNROUTED
    entry.holder = NULL
    entry.flags |= APART
    place[0].count += 1
    place[0].used[entry.rank >> 6] |= <uint64_t> 1 << (entry.rank & 63)
    return 0


cdef void ranked_remove(apart_t* apart, entry_t* entry) noexcept:
    waiting_remove(&apart.levels[entry.rank], entry)
    entry.flags &= ~APART
    apart.count -= 1
    if apart.levels[entry.rank].count == 0:
        apart.used[entry.rank >> 6] &= ~(<uint64_t> 1 << (entry.rank & 63))


cdef entry_t* ranked_first(apart_t* apart) noexcept:
    """The oldest one of the lowest rank, or NULL."""
    cdef int word
    if apart != NULL and apart.count:
        for word in range(4):
            if apart.used[word]:
                return waitset_oldest(&apart.levels[64 * word + lowest_bit(apart.used[word])])
    return NULL


cdef void ranked_free(apart_t** place, const queue_t* queue) noexcept:
    cdef uint32_t rank
    if place[0] != NULL:
        for rank in range(queue.top_priority + 1):
            returned_free(&place[0].levels[rank])
        cell_put(place[0], apart_bytes(queue))
        place[0] = NULL


cdef uint64_t unrouted_lowest(queue_t* queue) noexcept:
    cdef uint64_t found = queue.next_id
    cdef uint32_t rank
    if in_index(queue):
        queue.frontier = found = unrouted_from(&queue.index, queue.frontier).id     # those before it are not looked at again
    for rank in range(queue.top_priority + 1):
        if queue.apart != NULL and queue.apart.levels[rank].count:
            found = min(found, waitset_oldest(&queue.apart.levels[rank]).id)
        if queue.kept != NULL and queue.kept.levels[rank].count:
            found = min(found, waitset_oldest(&queue.kept.levels[rank]).id)
    return found


cdef void apart_free(queue_t* queue) noexcept:
    ranked_free(&queue.kept, queue)
    ranked_free(&queue.apart, queue)


# ---- entries that no selector matches

cdef int kept_add(entry_t* entry) except -1:
    extra_of(entry).kept = KEPT_NOW
    return ranked_add(&entry.queue.kept, entry)


cdef void kept_remove(entry_t* entry) noexcept:
    ranked_remove(entry.queue.kept, entry)
    entry.extra.kept = KEPT_BEFORE


cdef bint kept_try(queue_t* queue) except -1:
    cdef entry_t* entry
    if queue.kept == NULL or queue.kept.count == 0:
        return False
    while queue.kept.count:
        entry = ranked_first(queue.kept)
        kept_remove(entry)
        apart_add(entry)
    return True


# ---- backlogs

cdef int backlog_add(engine_t* engine, queue_t* queue) except -1:
    if queue.active and queue.unrouted:
        queue.backlog_left = in_index(queue)
        queue.backlog_from = queue.frontier
        backlog_next(engine, queue)
    return 0


cdef int backlog_next(engine_t* engine, queue_t* queue) except -1:
    """Gives the queue its place among the backlogs, by the entry that goes first in it; none, if there is no more."""
    cdef entry_t* entry = apart_first(queue)
    cdef entry_t* found
    if queue.backlog_left:
        found = unrouted_from(&queue.index, queue.backlog_from)
        queue.backlog_from = found.id
        if entry == NULL or found.sequence < entry.sequence:
            entry = found
    queue.backlog.owner = entry
    if entry == NULL:
        heap_remove(&engine.backlogs, &queue.backlog)
    elif queue.backlog.position == 0:
        heap_add(&engine.backlogs, &queue.backlog, entry.sequence)
    else:
        heap_change(&engine.backlogs, &queue.backlog, entry.sequence)
    return 0


cdef int backlog_apart(engine_t* engine, queue_t* queue) except -1:
    """An entry came that is kept apart: the queue may have another one to be routed next."""
    if queue.backlog.position == 0:
        queue.backlog_left = 0
    return backlog_next(engine, queue)


cdef int backlog_forward(engine_t* engine, entry_t* entry) except -1:
    """The turn of this entry, the first of its queue's backlog, has come: moves the backlog on."""
    cdef queue_t* queue = entry.queue
    if entry.flags & APART:
        apart_remove(entry)
    else:
        queue.backlog_left -= 1
        queue.backlog_from = entry.id + 1
    return backlog_next(engine, queue)
