"""A lane: the messages that wait for one clause, and which of a clause's lanes a credit has to look at.

A clause whose selectors name their target has one lane. If a field of the message names the target, the clause has a lane for
each target that messages wait for. A selector may be refused in some of these lanes and find room in others. So that a credit
does not look at all of them, such a lane is open or closed:

    open        It is in its clause's heap `open`, by its oldest entry. A credit looks only at the root of that heap.
    closed      Every ready selector of the clause has been refused here: it is in the waiting list of the target, or no queue
                has that name.

A lane is closed when no ready selector could take its oldest entry, or one that came to wait. It is opened when a selector of
its clause leaves the target's waiting list, whether it has taken a message or not, and when a queue of the target's name is
created. Then this lane is looked at again, and no other. Room wakes the waiting list of the target, not the lane.

A selector that was not ready when a lane was closed has not been refused there. So closings are numbered within the clause, the
closed lanes are linked in order of closing, and a selector remembers the number of the last closing while it was ready
(`refusals`). For every lane closed up to that number it is in the target's waiting list, or the lane would have been opened. When
the selector is ready again, only the lanes closed since are looked at. Those are opened where it is not in the target's waiting
list. Each closing comes from an entry that was tried in vain, and that pays for it.

A key in the heap may be lower than the sequence of the lane's oldest entry, when others have taken the entry of that key. It is
corrected when it comes to the root.
"""

from libc.stdint cimport uint32_t

from xump_ext.memory.heap cimport heap_add, heap_change, heap_remove, heap_t
from xump_ext.state.envelope cimport queue_named
from xump_ext.state.graph cimport queue_t
from xump_ext.state.waiter_table cimport waiter_in

ctypedef entry_t* (*oldest_t)(void* owner) noexcept


cdef entry_t* oldest_of_waitset(void* owner) noexcept:
    return waitset_oldest(<waitset_t*> owner)


cdef entry_t* oldest_of_lane(void* owner) noexcept:
    return lane_oldest(<lane_t*> owner)


cdef entry_t* corrected(heap_t* heap, oldest_t oldest) noexcept:
    """The oldest entry that any owner in the heap has, which is then the root's; NULL if none has any.

    Keys that are too low are corrected on the way, and owners without an entry leave the heap. O(log owners) amortized.
    """
    cdef node_t* node = heap_root(heap)
    cdef entry_t* entry
    while node != NULL:
        entry = oldest(node.owner)
        if entry == NULL:
            heap_remove(heap, node)
        elif order_of(entry) != node.key:
            heap_change(heap, node, order_of(entry))
        else:
            return entry
        node = heap_root(heap)
    return NULL


cdef entry_t* lane_corrected(lane_t* lane) noexcept:
    """`lane_oldest`, after others have taken the entry of the root's key."""
    return corrected(&lane.waitsets, oldest_of_waitset)


cdef lane_t* lane_first(clause_t* clause) noexcept:
    """The open lane with the oldest entry, or NULL. O(log lanes) amortized."""
    return NULL if corrected(&clause.open, oldest_of_lane) == NULL else <lane_t*> heap_root(&clause.open).owner


cdef int lane_lower(lane_t* lane, uint64_t order) except -1:
    """An entry of this order waits in the lane, and may be its first."""
    if lane.closed:
        return 0
    if lane.open.position == 0:
        return heap_add(&lane.clause.open, &lane.open, order)
    if order < lane.open.key:
        heap_change(&lane.clause.open, &lane.open, order)
    return 0


cdef int lane_open(lane_t* lane) except -1:
    """Opens the lane: a selector may find room here."""
    closed_part(lane)
    return lane_lower(lane, heap_root(&lane.waitsets).key) if lane.waitsets.count else 0


cdef int lane_close(lane_t* lane) except -1:
    """Closes the lane: no ready selector finds room here."""
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


cdef int waitset_waited(waitset_t* waitset) except -1:
    """An entry of the waitset came to wait: every ready selector has just been refused for it."""
    cdef uint32_t i
    for i in range(waitset.member_count):
        if waitset.members[i].lane.target != NULL:
            lane_waited(waitset.members[i].lane)
    return 0


cdef int lane_waited(lane_t* lane) except -1:
    """Closes the lane if all ready selectors are in the target's waiting list. Costs O(ready selectors) if the lane was open."""
    cdef heap_t* ready = &lane.clause.ready
    cdef queue_t* target
    cdef uint32_t i
    if lane.closed or ready.count == 0:
        return 0
    target = queue_named(lane.queue.engine, <object> lane.target)
    for i in range(ready.count if target != NULL else 0):
        if waiter_in(<selector_t*> ready.nodes[i].owner, target) == NULL:
            return 0
    return lane_close(lane)


cdef void lane_part(lane_t* lane) noexcept:
    """Takes the lane out of its clause's structures; it is about to be freed."""
    closed_part(lane)
    heap_remove(&lane.clause.open, &lane.open)


cdef void closed_part(lane_t* lane) noexcept:
    """Takes the lane out of the list of closed ones, if it is in it."""
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
    """The selector is ready: opens the lanes that were closed while it was not, where it may find room."""
    cdef lane_t* lane = selector.clause.closed_last
    cdef lane_t* before
    cdef queue_t* target
    while lane != NULL and lane.closed > selector.refusals:
        before = lane.closed_before
        target = queue_named(lane.queue.engine, <object> lane.target)
        if target != NULL and waiter_in(selector, target) == NULL:
            lane_open(lane)
        lane = before
    selector.refusals = selector.clause.closings
    return 0
