"""Which message comes first of those that may go on in a queue that goes by priority (`select/runnable.pyx`)."""

from libc.stdint cimport uint64_t

from xump_ext.memory.heap cimport heap_remove, heap_root, node_t
from xump_ext.route.gather cimport parked_look
from xump_ext.select.credit cimport clause_wake, has_room, lane_wake, waiter_oldest, waiters_wake
from xump_ext.select.lanes cimport lane_oldest
from xump_ext.select.runnable cimport heap_set, lane_key, runnable_remove, waiters_key
from xump_ext.state.constants cimport PARKED, ROOM_VARIES, WAITERS
from xump_ext.state.graph cimport entry_t, lane_t
from xump_ext.state.returned_heap cimport AGE_BITS


cdef int inside_look(engine_t* engine, queue_t* queue) except -1:
    cdef node_t* first = heap_root(&queue.runnable_inside)
    while first != NULL and not is_right(engine, queue, first):
        first = heap_root(&queue.runnable_inside)
    if first == NULL:
        heap_remove(&engine.runnable, &queue.inside)
        return 0
    return heap_set(&engine.runnable, &queue.inside, first.key & ((<uint64_t> 1 << (AGE_BITS + 2)) - 1))


cdef bint is_right(engine_t* engine, queue_t* queue, node_t* node) except -1:
    """Whether the node's key is that of its oldest message. If not, it gets it, or leaves the queue's heap."""
    cdef uint64_t key = node.key
    if node.kind == WAITERS:
        return is_awaited(engine, queue, <queue_t*> node.owner, key)
    if node.kind != PARKED:
        return is_lane_right(engine, queue, <lane_t*> node.owner)
    parked_look(engine, queue)
    return node.position != 0 and node.key == key


cdef bint is_awaited(engine_t* engine, queue_t* queue, queue_t* target, uint64_t key) except -1:
    """`is_right` for a waiting list. If it is about another message now, it is looked at before the next step. If there is no
    room for its message, it does not hold up the queue's others."""
    cdef entry_t* entry = NULL if target.waiters_head == NULL else waiter_oldest(target.waiters_head)
    if entry == NULL or entry.queue != queue or waiters_key(entry) != key:
        runnable_remove(engine, queue, &target.runnable)
        waiters_wake(engine, target)
        return False
    if has_room(target, entry, target.waiters_head.selector):
        return True
    runnable_remove(engine, queue, &target.runnable)
    return False


cdef bint is_lane_right(engine_t* engine, queue_t* queue, lane_t* lane) except -1:
    """`is_right` for a lane. Where a field names the target, another lane of the clause may have an older message now."""
    cdef entry_t* entry
    if lane.clause.ready.count == 0 and engine.lists[ROOM_VARIES] == NULL:      # one that becomes ready wakes it again
        runnable_remove(engine, queue, &lane.runnable)
        return False
    entry = lane_oldest(lane)
    if entry != NULL and lane_key(entry) == lane.runnable.key:
        return True
    runnable_remove(engine, queue, &lane.runnable)
    if lane.clause.names_queue:
        clause_wake(engine, lane.clause)
    else:
        lane_wake(engine, lane)
    return False
