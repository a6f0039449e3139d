"""The start of a run: finds the messages to be matched or routed in queues that a call changed (rules 6, 9, 10).

Messages that came back are matched anew. Then messages are routed, oldest first, that a queue did not route before: it was held,
had no selector, or was in a `building()` block. Parked messages are routed if a selector may act on them now.

The unrouted messages of a queue are not gathered one by one. The queue is in the heap of *backlogs* by its oldest one, and then
by the next. So ten million of them need no memory.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport qsort

from xump_ext.memory.heap cimport heap_remove, heap_root, heap_t, node_t
from xump_ext.route.copies cimport comes_now
from xump_ext.state.queue_lists cimport mark_dirty, queue_unlist
from xump_ext.select.credit cimport lane_wake, waiters_wake, waiting_add, waiting_remove, wake_where_room_varies
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.select.runnable cimport parked_key, runnable_remove, runnable_set
from xump_ext.select.unrouted cimport apart_add, backlog_add, goes_apart
from xump_ext.state.constants cimport (
    DEFAULTED, DIRTY, HOME_PARKED, HOME_WAITING, INSIDE, PARKED, QUEUED, RECOVERED, RETURNED, UNLIMITED, WAITERS,
)
from xump_ext.state.envelope cimport names_queue_now
from xump_ext.state.graph cimport queue_t, run_item_t, waitset_t
from xump_ext.state.returned_heap cimport order_of, returned_merge, waitset_oldest
from xump_ext.state.run_queue cimport parked_push, suspend
from xump_ext.state.visited cimport visited_release


cdef int rematch_returned(engine_t* engine) except -1:
    """Matches messages that came back anew, oldest first; they wait for the selectors that may take them now (rules 9, 10)."""
    cdef queue_t* queue = engine.lists[RETURNED]
    cdef queue_t* next
    if queue == NULL:
        return 0
    while queue != NULL:
        next = queue.listed[RETURNED].next
        if queue.held:          # it became held in this run
            queue_unlist(engine, queue, RETURNED)
        elif not engine.building or not is_recovered(queue):    # recovered messages are matched with the whole graph only
            while queue.returning.count:
                rematch(engine, waitset_oldest(queue.returning))
            queue_unlist(engine, queue, RETURNED)
        queue = next
    return waiters_wake_again(engine)


cdef int waiters_wake_again(engine_t* engine) except -1:
    """Has the runnable waiting lists looked at once more: they were woken before the messages that came back were matched, and
    one of those may be what their first selector has to take."""
    cdef uint32_t i
    for i in range(engine.runnable.count):
        if engine.runnable.nodes[i].kind == WAITERS or engine.runnable.nodes[i].kind == INSIDE:
            return runnable_waiters_wake(engine)
    return 0


cdef int runnable_waiters_wake(engine_t* engine) except -1:
    cdef list queues = []
    cdef node_t* node
    cdef uint32_t i
    nodes_of(&engine.runnable, WAITERS, queues)
    for i in range(engine.runnable.count):
        node = engine.runnable.nodes[i]
        if node.kind == INSIDE:
            nodes_of(&(<queue_t*> node.owner).runnable_inside, WAITERS, queues)
    for address in queues:
        waiters_wake(engine, <queue_t*> <uintptr_t> address)
    return 0


cdef int nodes_of(const heap_t* heap, uint32_t kind, list queues) except -1:
    """Adds the queues whose waiting lists, or parked entries, are in the heap."""
    cdef uint32_t i
    for i in range(heap.count):
        if heap.nodes[i].kind == kind:
            queues.append(<uintptr_t> heap.nodes[i].owner)
    return 0


cdef bint is_recovered(queue_t* queue) noexcept:
    """Whether the messages to be matched anew here were read from a store."""
    return queue.returning.count and waitset_oldest(queue.returning).flags & RECOVERED


cdef int rematch(engine_t* engine, entry_t* entry) except -1:
    """Matches an entry that came back, puts it into the waitset of its route, and wakes the lanes of that."""
    cdef Plan plan = <Plan> entry.queue.plan
    cdef route_t* route = plan.route(entry)
    cdef waitset_t* waitset
    cdef uint32_t i
    if entry.flags & RECOVERED:
        entry.flags &= ~RECOVERED
        if route.slot_count == 0 and plan.defaults:     # as if it were routed now
            entry.flags |= DEFAULTED
    waiting_remove(entry.queue.returning, entry)
    waitset = plan.waitset(route, entry, entry.flags & DEFAULTED, was_parked(entry))
    waiting_add(waitset, entry)
    if waitset.parked:
        for i in range(waitset.slot_count):         # a selector may act on it now
            plan.wake_clause(<Clause> plan.by_slot[waitset.slots[i]], entry.id)
    for i in range(waitset.member_count):
        lane_wake(engine, waitset.members[i].lane)
    return wake_where_room_varies(engine)


cdef bint was_parked(entry_t* entry) noexcept:
    """Whether the entry was parked when your program took it by hand; it is parked again."""
    if entry.extra == NULL or entry.extra.home != HOME_PARKED:
        return False
    entry.extra.home = HOME_WAITING
    return True


cdef int gather_dirty(engine_t* engine) except -1:
    """Makes backlogs of the dirty queues' unrouted entries, and gathers their parked entries on which a selector may act."""
    cdef queue_t* queue
    if engine.run_queue_count:       # entered in this call, perhaps into the same queues
        run_queue_postpone(engine)
    while engine.lists[DIRTY] != NULL:
        queue = engine.lists[DIRTY]
        if not queue.held:
            (<Plan> queue.plan).extend_pending()    # may be interrupted: then the queue is still dirty
        queue_unlist(engine, queue, DIRTY)
        if not queue.held:
            backlog_add(engine, queue)
            gather_parked(engine, queue)
    return 0


cdef int run_queue_postpone(engine_t* engine) except -1:
    """Empties the run queue and the backlogs: their queues become dirty, and the next run gathers their entries, as after
    `building()`. Visited sets are suspended, and go on with their entries."""
    cdef run_item_t item
    cdef queue_t* queue
    while engine.backlogs.count:
        queue = (<entry_t*> heap_root(&engine.backlogs).owner).queue
        heap_remove(&engine.backlogs, &queue.backlog)
        mark_dirty(engine, queue)
    while engine.run_queue_count:
        item = engine.run_queue[engine.run_queue_head & engine.run_queue_mask]
        engine.run_queue_head += 1
        engine.run_queue_count -= 1
        if item.entry != NULL:
            mark_dirty(engine, item.entry.queue)
            if goes_apart(item.entry):
                apart_add(item.entry)
            if item.visited != NULL:
                suspend(engine, item.entry, item.visited)
        visited_release(engine, item.visited)
    return 0


cdef int gather_parked(engine_t* engine, queue_t* queue) except -1:
    """Gathers the entries parked with a woken clause on which a selector may act now."""
    cdef Plan plan = <Plan> queue.plan
    cdef Clause clause
    for clause in plan.woken:
        for address in clause.parked:
            gather_waitset(engine, plan, <waitset_t*> <uintptr_t> address, clause.c.woken_from)
        clause.c.woken_from = UNLIMITED
    plan.woken.clear()
    return 0


cdef int gather_waitset(engine_t* engine, Plan plan, waitset_t* waitset, uint64_t first) except -1:
    """Gathers those of a parked waitset from the id `first` on, which are its last ones. A message that was not in its place
    before it was parked may be older, and has just come for a selector all the same."""
    cdef route_t* route = plan.parked_route(waitset)
    cdef entry_t* entry
    if waitset.late_from:
        first = min(first, waitset.late_from)
    returned_merge(waitset)
    entry = waitset.tail
    while entry != NULL and entry.id >= first:
        if not entry.flags & QUEUED and may_act(route, entry):
            parked_push(engine, entry)
        entry = entry.link.previous
    return 0


cdef bint some_may_act(const route_t* route, entry_t* entry) except -1:
    cdef uint32_t i
    for i in range(route.clause_count):
        if route.clauses[i].enabled:
            return True
    for i in range(route.copy_count):
        if entry.id < route.copies[i].selector.start and not comes_now(route.copies[i].selector, entry):
            if has_acted(route.copies[i].selector, entry):
                return True
        elif route.copies[i].selector.enabled and names_queue_now(route.copies[i].selector, entry):
            return True
    return False


cdef int by_queue(const void* a, const void* b) noexcept nogil:
    """Queue by queue, and in the order of the queue."""
    cdef entry_t* one = (<run_item_t*> a).entry
    cdef entry_t* other = (<run_item_t*> b).entry
    cdef uint64_t x = <uintptr_t> one.queue, y = <uintptr_t> other.queue
    if x == y:
        x = order_of(one)
        y = order_of(other)
    return (x > y) - (x < y)


cdef int parked_place(engine_t* engine) except -1:
    """Sorts the parked entries to be routed again, and gives their queues a place among what may go on. Those that a failed run
    left may have been taken meanwhile: they are dropped from the array."""
    cdef uint64_t i, kept = 0
    cdef entry_t* entry
    parked_leave(engine)
    for i in range(engine.parked_count):
        if engine.parked[i].entry == NULL:
            visited_release(engine, engine.parked[i].visited)
        else:
            engine.parked[kept] = engine.parked[i]
            kept += 1
    engine.parked_count = kept
    engine.parked_done = 0
    qsort(engine.parked, kept, sizeof(run_item_t), by_queue)
    for i in range(kept):
        entry = engine.parked[i].entry
        entry.below.position = i + 1
        if i == 0 or engine.parked[i - 1].entry.queue != entry.queue:
            entry.queue.parked_from = i
        entry.queue.parked_end = i + 1
    i = 0
    while i < kept:
        parked_look(engine, engine.parked[i].entry.queue)
        i = engine.parked[i].entry.queue.parked_end
    return 0


cdef int parked_leave(engine_t* engine) except -1:
    """Queues that a failed run left among what may go on leave it, to come again in another place."""
    cdef list queues = []
    cdef node_t* node
    cdef queue_t* queue
    cdef uint32_t i
    nodes_of(&engine.runnable, PARKED, queues)
    for i in range(engine.runnable.count):
        node = engine.runnable.nodes[i]
        if node.kind == INSIDE:
            nodes_of(&(<queue_t*> node.owner).runnable_inside, PARKED, queues)
    for address in queues:
        queue = <queue_t*> <uintptr_t> address
        queue.parked_from = queue.parked_end = 0
        runnable_remove(engine, queue, &queue.parked)
    return 0


cdef int parked_look(engine_t* engine, queue_t* queue) except -1:
    """Gives the queue its place among what may go on, by the first of its parked entries that were not taken meanwhile."""
    while queue.parked_from < queue.parked_end and engine.parked[queue.parked_from].entry == NULL:
        parked_pass(engine, queue)
    if queue.parked_from == queue.parked_end:
        return runnable_remove(engine, queue, &queue.parked)
    queue.parked.kind = PARKED
    queue.parked.owner = queue
    return runnable_set(engine, queue, &queue.parked, parked_key(engine.parked[queue.parked_from].entry))


cdef int parked_pass(engine_t* engine, queue_t* queue) except -1:
    """The first of the queue's parked entries has had its turn, or was taken before that."""
    visited_release(engine, engine.parked[queue.parked_from].visited)
    engine.parked[queue.parked_from].visited = NULL
    queue.parked_from += 1
    engine.parked_done += 1
    if engine.parked_done == engine.parked_count:
        engine.parked_done = engine.parked_count = 0
    return 0
