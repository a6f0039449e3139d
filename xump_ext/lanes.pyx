"""Lanes: what waits for a clause, oldest first, and which of them a credit has to look at.

A clause whose selectors name their target has one lane. Where a field of the message names it, there is one for each target
that is waited for; a selector may be refused in some of them and welcome in others. So that a credit does not look at all of
them, such a lane is

    open        it stands in its clause's heap, by its oldest entry, and the first one there is all that a credit looks at
    closed      whoever is ready has been refused there: he stands in the line of the target, or no queue has its name

and it is closed when nobody could take its oldest entry, or one that came to wait. It is opened when somebody of its clause
leaves the line of the target, by taking or without, and when a queue of its name is created: then it is looked at again, and no
other. What makes room wakes the line, not the lane.

Who was not ready when a lane was closed has not been refused there. Closings are numbered within the clause, its closed lanes
are linked in order of closing, and a selector remembers the last one while it was ready (`refusals`): in lanes closed up to then
it stands in line, or they would have been opened. So when it is ready again only those closed since are looked at, and those are
opened where it stands in no line. Each closing comes from an entry that was tried in vain, and pays for that.

A key in the heap may be below the lane's oldest entry, which others have taken; it is corrected when it comes to the root.
"""

from libc.stdint cimport uint32_t

from xump_ext.envelope cimport queue_named
from xump_ext.graph cimport queue_t
from xump_ext.heap cimport heap_add, heap_change, heap_remove, heap_t
from xump_ext.places cimport place_in


ctypedef entry_t* (*oldest_t)(void* owner) noexcept


cdef entry_t* oldest_of_group(void* owner) noexcept:
    return group_oldest(<group_t*> owner)


cdef entry_t* oldest_of_lane(void* owner) noexcept:
    return lane_oldest(<lane_t*> owner)


cdef entry_t* corrected(heap_t* heap, oldest_t oldest) noexcept:
    """The oldest entry of the root's owner, when others may have taken those that keys stand for; who has none is out of the
    heap. NULL: nobody has. O(log owners) amortized."""
    cdef node_t* node = heap_root(heap)
    cdef entry_t* entry
    while node != NULL:
        entry = oldest(node.owner)
        if entry == NULL:
            heap_remove(heap, node)
        elif entry.sequence != node.key:
            heap_change(heap, node, entry.sequence)
        else:
            return entry
        node = heap_root(heap)
    return NULL


cdef entry_t* lane_corrected(lane_t* lane) noexcept:
    """`lane_oldest`, when others have taken the entry that the root stands for."""
    return corrected(&lane.groups, oldest_of_group)


cdef lane_t* lane_first(clause_t* clause) noexcept:
    """The open lane with the oldest entry, or NULL. O(log lanes) amortized."""
    return NULL if corrected(&clause.open, oldest_of_lane) == NULL else <lane_t*> heap_root(&clause.open).owner


cdef int lane_lower(lane_t* lane, uint64_t sequence) except -1:
    """An entry waits here that may be its oldest."""
    if lane.closed:
        return 0
    if lane.open.position == 0:
        return heap_add(&lane.clause.open, &lane.open, sequence)
    if sequence < lane.open.key:
        heap_change(&lane.clause.open, &lane.open, sequence)
    return 0


cdef int lane_open(lane_t* lane) except -1:
    """Somebody may be welcome here."""
    closed_part(lane)
    return lane_lower(lane, heap_root(&lane.groups).key) if lane.groups.count else 0


cdef int lane_close(lane_t* lane) except -1:
    """Nobody who is ready is."""
    cdef clause_t* clause = lane.clause
    cdef uint32_t i
    if lane.closed:
        return 0
    heap_remove(&clause.open, &lane.open)
    clause.closings += 1
    for i in range(clause.ready.count):
        (<selector_t*> clause.ready.nodes[i].owner).refusals = clause.closings
    lane.closed = clause.closings
    lane.closed_after = NULL
    lane.closed_before = clause.closed_last
    if lane.closed_before != NULL:
        lane.closed_before.closed_after = lane
    clause.closed_last = lane
    return 0


cdef int group_waited(group_t* group) except -1:
    """Who waits in these lanes has just been refused by all who are ready."""
    cdef uint32_t i
    for i in range(group.member_count):
        if group.members[i].lane.target != NULL:
            lane_waited(group.members[i].lane)
    return 0


cdef int lane_waited(lane_t* lane) except -1:
    """If they all stand in the line, the lane is closed. Cost: those who are ready, when it was open."""
    cdef heap_t* ready = &lane.clause.ready
    cdef queue_t* target
    cdef uint32_t i
    if lane.closed or ready.count == 0:
        return 0
    target = queue_named(lane.queue.engine, <object> lane.target)
    for i in range(ready.count if target != NULL else 0):
        if place_in(<selector_t*> ready.nodes[i].owner, target) == NULL:
            return 0
    return lane_close(lane)


cdef void lane_part(lane_t* lane) noexcept:
    """It is about to be freed."""
    closed_part(lane)
    heap_remove(&lane.clause.open, &lane.open)


cdef void closed_part(lane_t* lane) noexcept:
    """Out of the list of closed ones, if it is there."""
    if lane.closed == 0:
        return
    lane.closed = 0
    if lane.closed_after == NULL:
        lane.clause.closed_last = lane.closed_before
    else:
        lane.closed_after.closed_before = lane.closed_before
    if lane.closed_before != NULL:
        lane.closed_before.closed_after = lane.closed_after


cdef int lanes_reopen(selector_t* selector) except -1:
    """It is ready, and was not when lanes were closed: it may be welcome there."""
    cdef lane_t* lane = selector.clause.closed_last
    cdef lane_t* before
    cdef queue_t* target
    while lane != NULL and lane.closed > selector.refusals:
        before = lane.closed_before
        target = queue_named(lane.queue.engine, <object> lane.target)
        if target != NULL and place_in(selector, target) == NULL:
            lane_open(lane)
        lane = before
    selector.refusals = selector.clause.closings
    return 0
