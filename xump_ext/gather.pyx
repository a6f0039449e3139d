"""What a run begins with: messages that came back are matched anew, and what was held, inactive, being built or parked is routed,
oldest first (rules 6, 9, 10).

The unrouted messages of a queue are not gathered one by one: the queue stands in the heap of *backlogs* with its oldest one, and
moves on. So ten million of them need no memory.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport qsort

from xump_ext.aside cimport aside_merge, group_oldest
from xump_ext.credit cimport choosy_wake, lane_wake, line_wake, waiting_add, waiting_remove
from xump_ext.envelope cimport names_queue_now
from xump_ext.graph cimport LINE, MARKED, QUEUED, RECOVERED, RETURNED, STIRRED, UNLIMITED, group_t, queue_t, work_t
from xump_ext.heap cimport heap_add, heap_remove, heap_root, heap_sink
from xump_ext.index cimport unrouted_from
from xump_ext.ledger cimport stir
from xump_ext.listed cimport queue_unlist
from xump_ext.plan cimport Clause, Plan
from xump_ext.trip cimport trip_release
from xump_ext.work cimport parked_push, pause_trip

cdef int rematch_returned(engine_t* engine) except -1:
    """What came back is matched anew, oldest first, and waits for whoever may take it now (rules 9, 10)."""
    cdef queue_t* queue = engine.lists[RETURNED]
    cdef queue_t* next
    if queue == NULL:
        return 0
    while queue != NULL:
        next = queue.listed[RETURNED].next
        if queue.held:          # it came to be held in this run
            queue_unlist(engine, queue, RETURNED)
        elif not engine.building or not is_recovered(queue):    # those want to see the whole graph
            while queue.returning.count:
                rematch(engine, group_oldest(queue.returning))
            queue_unlist(engine, queue, RETURNED)
        queue = next
    return lines_wake_again(engine)


cdef int lines_wake_again(engine_t* engine) except -1:
    """Lines where there may be room now have got it while what came back waited for nobody yet: it may be what they wait for
    most."""
    cdef list lines = []
    cdef uint32_t i
    for i in range(engine.able.count):
        if engine.able.nodes[i].kind == LINE:
            lines.append(<uintptr_t> engine.able.nodes[i].owner)
    for address in lines:
        line_wake(engine, <queue_t*> <uintptr_t> address)
    return 0


cdef bint is_recovered(queue_t* queue) noexcept:
    """Whether what is to be matched anew here was read from a store."""
    return queue.returning.count and group_oldest(queue.returning).flags & RECOVERED


cdef int rematch(engine_t* engine, entry_t* entry) except -1:
    cdef Plan plan = <Plan> entry.queue.plan
    cdef route_t* route = plan.route(entry)
    cdef group_t* group
    cdef uint32_t i
    if entry.flags & RECOVERED:
        entry.flags &= ~RECOVERED
        if route.slot_count == 0 and plan.defaults:     # as if it had been routed now
            entry.flags |= MARKED
    waiting_remove(entry.queue.returning, entry)
    group = plan.group(route, entry, entry.flags & MARKED, False)
    waiting_add(group, entry)
    for i in range(group.member_count):
        lane_wake(engine, group.members[i].lane)
    return choosy_wake(engine)


cdef int stirred_gather(engine_t* engine) except -1:
    """Unrouted entries of queues that were held, inactive or being built become backlogs; parked ones are gathered."""
    cdef queue_t* queue
    cdef bint parked = False
    if engine.work_count:       # of this call; it may be of the same queues
        work_put_off(engine)
    while engine.lists[STIRRED] != NULL:
        queue = engine.lists[STIRRED]
        if not queue.held:
            (<Plan> queue.plan).extend_pending()    # may be interrupted: then the queue is still stirred
        queue_unlist(engine, queue, STIRRED)
        if not queue.held:
            backlog_add(engine, queue)
            parked |= gather_parked(engine, queue)
    if parked:
        parked_sort(engine)
    return 0


cdef int work_put_off(engine_t* engine) except -1:
    """What is still to be routed will be gathered, as what came inside `building()` is; trips go on with it."""
    cdef work_t item
    cdef queue_t* queue
    while engine.backlogs.count:
        queue = (<entry_t*> heap_root(&engine.backlogs).owner).queue
        heap_remove(&engine.backlogs, &queue.backlog)
        stir(engine, queue)
    while engine.work_count:
        item = engine.work[engine.work_head & engine.work_mask]
        engine.work_head += 1
        engine.work_count -= 1
        if item.entry != NULL:
            stir(engine, item.entry.queue)
            if item.trip != NULL:
                pause_trip(engine, item.entry, item.trip)
        trip_release(engine, item.trip)
    return 0


cdef int backlog_add(engine_t* engine, queue_t* queue) except -1:
    cdef entry_t* entry
    if queue.active and queue.unrouted:
        entry = unrouted_from(&queue.index, queue.frontier)
        heap_add(&engine.backlogs, &queue.backlog, entry.sequence)
        queue.backlog.owner = entry
        queue.backlog_left = queue.unrouted
    return 0


cdef void backlog_forward(engine_t* engine, queue_t* queue) noexcept:
    """The turn of its oldest one has come. What enters from here on is work."""
    cdef entry_t* entry = <entry_t*> queue.backlog.owner
    queue.backlog_left -= 1
    if queue.backlog_left == 0:
        heap_remove(&engine.backlogs, &queue.backlog)
        return
    entry = unrouted_from(&queue.index, entry.id + 1)
    queue.backlog.owner = entry
    queue.backlog.key = entry.sequence      # higher than before: it can only sink
    heap_sink(&engine.backlogs, &queue.backlog, queue.backlog.position - 1)


cdef bint gather_parked(engine_t* engine, queue_t* queue) except -1:
    """Parked entries of whose hit set somebody was enabled, and may act now."""
    cdef Plan plan = <Plan> queue.plan
    cdef Clause clause
    cdef bint found = False
    for clause in plan.woken:
        for address in clause.parked:
            found |= gather_group(engine, plan, <group_t*> <uintptr_t> address, clause.c.woken_from)
        clause.c.woken_from = UNLIMITED
    plan.woken.clear()
    return found


cdef bint gather_group(engine_t* engine, Plan plan, group_t* group, uint64_t first) except -1:
    """Those of a parked group from the id `first` on, which are its last."""
    cdef route_t* route = plan.parked_route(group)
    cdef entry_t* entry
    cdef bint found = False
    aside_merge(group)
    entry = group.tail
    while entry != NULL and entry.id >= first:
        if not entry.flags & QUEUED and may_act(route, entry):
            parked_push(engine, entry)
            found = True
        entry = entry.previous
    return found


cdef bint some_may_act(const route_t* route, entry_t* entry) except -1:
    cdef uint32_t i
    for i in range(route.clause_count):
        if route.clauses[i].enabled:
            return True
    for i in range(route.copy_count):
        if entry.id < route.copies[i].selector.start:
            if entry.id >= route.copies[i].selector.replayed:
                return True
        elif route.copies[i].selector.enabled and names_queue_now(route.copies[i].selector, entry):
            return True
    return False


cdef int by_sequence(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<work_t*> a).entry.sequence, y = (<work_t*> b).entry.sequence
    return (x > y) - (x < y)


cdef void parked_sort(engine_t* engine) noexcept:
    """Those to be routed again, oldest first. What a run that failed has left of them may have been taken meanwhile."""
    cdef uint64_t i, kept = engine.parked_head
    for i in range(engine.parked_head, engine.parked_count):
        if engine.parked[i].entry == NULL:
            trip_release(engine, engine.parked[i].trip)
        else:
            engine.parked[kept] = engine.parked[i]
            kept += 1
    engine.parked_count = kept
    qsort(&engine.parked[engine.parked_head], kept - engine.parked_head, sizeof(work_t), by_sequence)
    for i in range(engine.parked_head, kept):
        engine.parked[i].entry.child = <void*> <uintptr_t> (i + 1)
