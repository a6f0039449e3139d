"""Credit and room: which selectors can take a message, and which messages and selectors wait (rules 1, 4, 5, 8).

**Ready.** A consuming selector is ready while it is enabled, has credit (DISCARD and INFINITE always do) and is not known to lack
room. It is in its clause's heap `ready` then. Its key is the moment when it was last served, so the root is next in the round
robin. A selector that runs out of credit keeps its key, and so its turn.

**Waiting.** Entries wait in waitsets, and waitsets in lanes. A lane is a heap of waitsets, keyed by their oldest entries. Keys
are lazy: another selector may have taken that entry since. So a key is a lower bound, which is corrected when it comes to the
root. Each correction is paid for by an entry that left, so a credit finds its message in O(log waitsets) amortized.

**Room.** A selector that is tried and finds its target full leaves the heap and joins the target's waiting list. When room is
made, the list is woken. The first selector in it goes first, and joins the end again when it is next refused.

If a field names the target, one target may refuse a selector while another takes its message. So the selector stays in the heap,
and has a waiter in many waiting lists. Of its lanes only those are looked at where it may find room (`lanes.pyx`).

Where room depends on the message, the target's waiting list is in the engine's list ROOM_VARIES (`waiters_changed`). It is tried
whenever another message comes to wait, and its first selector still counts in the round robin.

A waiting list is not looked at in the middle of a step: the code that makes room may go on to give credit to the first selector
in it, or to bring back the message that this selector waits for. A waiting list that is woken gets the lowest key of all, LOOK.
So it is looked at before the next step, and at the end of the call.

**Waking.** A lane or waiting list that may go on is put into the engine's heap `runnable`, by the sequence of the message in
question; the run takes the oldest first. If it turns out that it cannot go on, waking it has cost one look.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from xump_ext.log.room cimport COMES_IN, USUAL_BYTES, message_bytes, store_takes, store_takes_beside, way_within
from xump_ext.memory.heap cimport heap_add, heap_change, heap_remove, heap_root, node_t
from xump_ext.message.content cimport content_release
from xump_ext.select.clause cimport Clause
from xump_ext.select.lanes cimport lane_first, lane_lower, lane_oldest, lane_open, lanes_reopen
from xump_ext.select.runnable cimport inside_invalidate, lane_key, runnable_remove, runnable_set, waiters_key
from xump_ext.state.constants cimport (
    BEHIND, COPY, FIELD_NONE, IN_RETURNED_HEAP, OVERFLOW, ROOM_VARIES, UNROUTED, WAITERS, WAITING,
)
from xump_ext.state.envelope cimport content_made, field_text, target_of
from xump_ext.state.graph cimport member_t
from xump_ext.state.index cimport prefetch_entry
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.limits cimport fits_without
from xump_ext.state.queue_lists cimport queue_list, queue_unlist
from xump_ext.state.returned_heap cimport order_of, returned_add, returned_remove, waitset_oldest
from xump_ext.state.waiter_table cimport waiter_add, waiter_in, waiter_remove

# ---- selectors that are ready

cdef int selector_wake(engine_t* engine, selector_t* selector) except -1:
    """The selector may have become able to take: if so, makes it ready, and wakes the lane or waiting list where it may go on."""
    cdef clause_t* clause = selector.clause
    cdef lane_t* lane
    if not can_take(selector):
        return 0
    if clause == NULL:
        return waiters_wake(engine, selector.source)
    if selector.verb == COPY:
        return 0
    if clause.names_queue:
        return named_wake(engine, selector)
    if selector.waiters != NULL:         # it waits for room
        return waiters_wake(engine, selector.waiters.target) if selector.waiters.target.is_listed[ROOM_VARIES] else 0
    if selector.ready.position == 0:
        heap_add(&clause.ready, &selector.ready, selector.ready.key)
    lane = clause.lanes
    if lane != NULL and lane.waitsets.count and lane.runnable.position == 0:
        lane_wake(engine, lane)
    return 0


cdef int named_wake(engine_t* engine, selector_t* selector) except -1:
    """`selector_wake` where a field names the target: the selector may also be the first in a waiting list of ROOM_VARIES."""
    if selector.ready.position == 0:
        selector_ready(selector)
    wake_where_room_varies(engine)
    return clause_wake(engine, selector.clause)


cdef int selector_ready(selector_t* selector) except -1:
    """Puts the selector into its clause's heap, by when it was last served."""
    heap_add(&selector.clause.ready, &selector.ready, selector.ready.key)
    return lanes_reopen(selector) if selector.clause.names_queue else 0


cdef void selector_idle(selector_t* selector) noexcept:
    """Takes the selector out of its clause's heap: it has no credit, is disabled, or waits for room."""
    if selector.clause != NULL:
        heap_remove(&selector.clause.ready, &selector.ready)
        inside_invalidate(selector.source)


# ---- entries that wait

cdef int waiting_add(waitset_t* waitset, entry_t* entry) except -1:
    """Lets the entry wait in the waitset: a new one at the end, one that came back at the head or in the returned heap."""
    cdef entry_t* last = waitset.tail
    if last == NULL or last.sequence < entry.sequence:
        entry.next = NULL
        entry.link.previous = last
        if last == NULL:
            waitset.head = entry
        else:
            last.next = entry
        waitset.tail = entry
    elif entry.sequence < waitset.head.sequence:
        entry.link.previous = NULL
        entry.next = waitset.head
        waitset.head.link.previous = entry
        waitset.head = entry
    else:
        returned_add(waitset, entry)
    entry.holder = waitset
    entry.state = WAITING
    waitset.count += 1
    if waitset.parked and entry.extra != NULL and entry.extra.came and not 0 < waitset.late_from < entry.id:
        waitset.late_from = entry.id
    return members_lower(waitset, order_of(entry)) if waitset_oldest(waitset) == entry else 0


cdef int members_lower(waitset_t* waitset, uint64_t order) except -1:
    """The waitset has a new oldest entry, of this order: lowers its keys in all its lanes. One of entries that are behind others
    is in the heap of no lane."""
    cdef uint32_t i
    if waitset.place & BEHIND:
        return 0
    for i in range(waitset.member_count):
        member_lower(waitset.members[i], order)
    return 0


cdef int member_lower(member_t* member, uint64_t order) except -1:
    if member.node.position == 0:
        heap_add(&member.lane.waitsets, &member.node, order)
    elif order < member.node.key:
        heap_change(&member.lane.waitsets, &member.node, order)
    return 0 if member.lane.target == NULL else lane_lower(member.lane, order)


cdef void waiting_remove(waitset_t* waitset, entry_t* entry) noexcept:
    waitset.count -= 1
    entry.holder = NULL
    if entry.flags & IN_RETURNED_HEAP:
        returned_remove(waitset, entry)
    else:
        waiting_unlink(waitset, entry)
    inside_invalidate(entry.queue)


cdef inline void waiting_unlink(waitset_t* waitset, entry_t* entry) noexcept:
    if entry.next == NULL:
        waitset.tail = entry.link.previous
    else:
        entry.next.link.previous = entry.link.previous
    if entry.link.previous == NULL:
        waitset.head = entry.next
        if entry.next != NULL:
            prefetch_entry(entry.next.next)         # it is the next one that is looked at
    else:
        entry.link.previous.next = entry.next


cdef int lane_wake(engine_t* engine, lane_t* lane) except -1:
    """Makes the lane runnable, by its oldest entry: a selector may be able to take that."""
    cdef entry_t* entry
    if lane.waitsets.count == 0 or lane.queue.held:
        return 0
    entry = lane_oldest(lane)
    return 0 if entry == NULL else runnable_set(engine, lane.queue, &lane.runnable, lane_key(entry))


cdef int clause_wake(engine_t* engine, clause_t* clause) except -1:
    """Wakes the open lane with the oldest entry, where a field names the target, if a selector is ready. That lane's step wakes
    the next one."""
    cdef lane_t* lane
    if clause.ready.count == 0:
        return 0
    lane = lane_first(clause)
    return 0 if lane == NULL else lane_wake(engine, lane)


cdef lane_t* lane_of(const selector_t* selector, queue_t* target) except? NULL:
    """The lane of the messages that the selector would put into `target`, or NULL. Costs one look-up."""
    if not selector.clause.names_queue:
        return selector.clause.lanes
    found = (<Clause> selector.clause.handle).lanes.get((<object> target.handle).name)
    return NULL if found is None else <lane_t*> <uintptr_t> found


# ---- room

cdef bint has_room_below_limit(const queue_t* queue, const entry_t* leaving) noexcept:
    """Whether the queue is below its limits. A message that moves within its queue makes its own room."""
    if leaving != NULL and leaving.queue == queue and (leaving.state == WAITING or leaving.state == UNROUTED):
        return fits_without(queue, leaving)
    return queue.ready < queue.limit


cdef bint has_room(queue_t* target, entry_t* entry, const selector_t* selector) except -1:
    """Whether `target` can take the message that `selector` would make of `entry`: below its limit, or by its overflow
    selector."""
    cdef bint short = target.durable and not store_takes(target, content_at(entry), way_within(target.store, entry))
    cdef queue_t* further
    cdef content_t* content
    if not has_room_below_limit(target, entry):
        if target.overflow == NULL:
            return False
        if names_by_field(target.overflow):
            content = content_made(selector, entry)
            try:
                return overflow_has_room(target, content, entry) and not short
            finally:
                content_release(content)
        if not overflow_has_room(target, NULL, entry):
            further = target.overflow.target
            if further == NULL or not further.durable or not has_room_below_limit(further, entry):
                return False
            short = True
    if short and not target.short:      # a store lacks room for this message, and may have it for a smaller one
        target.short = True
        waiters_changed(target.engine, target)
    return not short


cdef inline bint names_by_field(const selector_t* selector) noexcept:
    return selector.to_queue.kind != FIELD_NONE or selector.to_destination.kind != FIELD_NONE


cdef bint overflow_would(queue_t* queue, content_t* content, queue_t** target) except -1:
    """Whether the queue's overflow selector would take this content if it had credit and its target had room. `target` is set to
    that target, or to NULL if it puts messages into no queue."""
    cdef selector_t* overflow = queue.overflow
    target[0] = NULL
    if overflow == NULL or not overflow.enabled:
        return False
    if overflow.to_destination.kind != FIELD_NONE and field_text(&overflow.to_destination, content) is None:
        return False
    if not overflow.puts:
        return True
    target[0] = target_of(overflow, content)
    return target[0] != NULL and target[0] != queue and not target[0].dying


cdef bint overflow_takes(queue_t* queue, content_t* content, entry_t* leaving, bint has_entered) except -1:
    """Whether the queue's overflow selector can take this content, which may be NULL if no field of it names its target or
    destination. Until the message has entered the queue, its record there needs room, too."""
    cdef queue_t* target
    cdef int64_t beside = 0
    if not overflow_would(queue, content, &target) or not has_credit(queue.overflow):
        return False
    if target == NULL:
        return True
    if target.durable:
        if content == NULL and leaving != NULL:
            content = content_at(leaving)
        if content != NULL and queue.durable and queue.store == target.store and not has_entered:
            beside = USUAL_BYTES + message_bytes(content, True)
        if not store_takes_beside(target, content, COMES_IN, beside):
            return False
    return has_room_below_limit(target, leaving)


cdef bint room_for_any(queue_t* queue) except -1:
    """Whether the queue has room for any message. An overflow selector that goes by a field of the message does not count."""
    cdef selector_t* overflow = queue.overflow
    if queue.durable and not store_takes(queue, NULL, COMES_IN):
        return False
    if queue.ready < queue.limit:
        return True
    if overflow == NULL or names_by_field(overflow):
        return False
    return overflow_has_room(queue, NULL, NULL)


# ---- waiting lists

cdef bint may_put(engine_t* engine, selector_t* selector, entry_t* entry, queue_t* target) except -1:
    """Whether the selector may put the message into the target: it has room, and no other selector waits before this one. If not,
    the selector joins the waiting list."""
    if has_room(target, entry, selector):
        if target.waiters_head == NULL:
            return True
        waiters_prune(engine, target)
        if target.waiters_head == NULL or target.waiters_head.selector == selector or (
                target.waiters_head.selector.turn > selector.turn):
            return True
    waiter_join(engine, selector, target)
    return False


cdef int waiter_join(engine_t* engine, selector_t* selector, queue_t* target) except -1:
    """Adds the selector to the waiting list, behind all of its rank, unless it is in it."""
    cdef waiter_t* waiter
    if waiter_in(selector, target) != NULL:
        return 0
    waiter = <waiter_t*> calloc(1, sizeof(waiter_t))
    if waiter == NULL:
        raise MemoryError()
    waiter.selector = selector
    waiter.target = target
    waiter_add(selector, waiter)
    waiter.previous = target.waiters_tail
    while waiter.previous != NULL and waiter.previous.selector.turn > selector.turn:       # a higher rank goes before
        waiter.previous = waiter.previous.previous
    waiter.next = target.waiters_head if waiter.previous == NULL else waiter.previous.next
    if waiter.previous == NULL:
        target.waiters_head = waiter
    else:
        waiter.previous.next = waiter
    if waiter.next == NULL:
        target.waiters_tail = waiter
    else:
        waiter.next.previous = waiter
        waiters_wake(engine, target)
    target.own_room += makes_own_room(waiter)
    waiters_changed(engine, target)
    if not selector.clause.names_queue:
        selector_idle(selector)
    return 0


cdef int waiter_leave(engine_t* engine, waiter_t* waiter) except -1:
    """Takes the waiter out of the waiting list and frees it; its selector is ready again if it can take."""
    cdef selector_t* selector = waiter.selector
    cdef queue_t* target = waiter.target
    cdef lane_t* lane
    waiter_remove(selector, waiter)
    if waiter.previous == NULL:
        target.waiters_head = waiter.next
    else:
        waiter.previous.next = waiter.next
    if waiter.next == NULL:
        target.waiters_tail = waiter.previous
    else:
        waiter.next.previous = waiter.previous
    target.own_room -= makes_own_room(waiter)
    if target.waiters_head == NULL:
        target.short = False
    free(waiter)
    waiters_changed(engine, target)
    if can_take(selector) and selector.ready.position == 0:
        selector_ready(selector)
    if not selector.clause.names_queue:
        return 0
    lane = lane_of(selector, target)
    if lane != NULL:
        lane_open(lane)
    return clause_wake(engine, selector.clause)


cdef entry_t* waiter_oldest(const waiter_t* waiter) except? NULL:
    """The message that the selector would put into the target now. NULL: none waits, or the selector has no credit, is disabled
    or has a held source."""
    cdef lane_t* lane
    if not can_take(waiter.selector) or waiter.selector.source.held:
        return NULL
    lane = lane_of(waiter.selector, waiter.target)
    return NULL if lane == NULL else lane_oldest(lane)


cdef bint waits_for(const waiter_t* waiter) except -1:
    """Whether the selector has a message for the target, if that had room."""
    return waiter_oldest(waiter) != NULL


cdef int waiters_prune(engine_t* engine, queue_t* queue) except -1:
    """If the queue has room for any message, takes those selectors off the head of its waiting list that have none for it."""
    while queue.waiters_head != NULL and waiter_oldest(queue.waiters_head) == NULL and room_for_any(queue):
        waiter_leave(engine, queue.waiters_head)
    return 0


cdef entry_t* waiters_next(engine_t* engine, queue_t* queue) except? NULL:
    """The message that the first selector in the waiting list would put here; NULL if it has none, or no selector waits."""
    waiters_prune(engine, queue)
    return NULL if queue.waiters_head == NULL else waiter_oldest(queue.waiters_head)


cdef int waiters_wake(engine_t* engine, queue_t* queue) except -1:
    """There may be room in this queue: has its waiting list looked at before the next step."""
    return 0 if queue.waiters_head == NULL else waiters_stand(engine, queue, NULL, LOOK)


cdef int source_waiters_note(engine_t* engine, queue_t* queue) except -1:
    """A message of the queue does not wait any more, in a building block. Before the call's end the waiting lists are looked at
    in which selectors of the queue stand, once for all messages."""
    if engine.noted != queue:
        if engine.noted != NULL:
            source_waiters_wake(engine, engine.noted)
        engine.noted = queue
    return 0


cdef int noted_waiters_look(engine_t* engine) except -1:
    """At the end of a call in a building block: looks at every waiting list that was woken, or may have lost a message."""
    cdef queue_t* noted = engine.noted
    engine.noted = NULL
    if noted != NULL:
        source_waiters_wake(engine, noted)
    return woken_waiters_look(engine)


cdef int source_waiters_wake(engine_t* engine, queue_t* queue) except -1:
    """Has the waiting lists looked at in which selectors of this queue stand. In a building block a selector may have nothing to
    take now, and something again at its end: if a list has room for any message meanwhile, it leaves that. O(selectors, and lists
    in which they stand)."""
    cdef selector_t* selector = queue.own
    while selector != NULL:
        selector_waiters_wake(engine, selector)
        selector = selector.next_own
    return 0


cdef int selector_waiters_wake(engine_t* engine, selector_t* selector) except -1:
    """The same for one selector."""
    cdef waiter_t* waiter = selector.waiters
    while waiter != NULL:
        waiters_wake(engine, waiter.target)
        waiter = waiter.next_of_selector
    return 0


cdef int waiters_stand(engine_t* engine, queue_t* queue, queue_t* inside, uint64_t key) except -1:
    """Makes the queue's waiting list runnable with this key: about a message of the queue `inside`, if one is known."""
    if inside != NULL and inside.top_priority == 0:
        inside = NULL
    if queue.stands_in != inside:
        runnable_remove(engine, queue.stands_in, &queue.runnable)
        queue.stands_in = inside
    queue.runnable.kind = WAITERS
    queue.runnable.owner = queue
    return runnable_set(engine, inside, &queue.runnable, key)


cdef int woken_waiters_look(engine_t* engine) except -1:
    """Looks at every waiting list that was woken."""
    cdef node_t* node = heap_root(&engine.runnable)
    while node != NULL and node.key == LOOK:
        waiters_look(engine, <queue_t*> node.owner)
        node = heap_root(&engine.runnable)
    return 0


cdef int waiters_look(engine_t* engine, queue_t* queue) except -1:
    """Gives the waiting list its key by the message that its first selector would put here; it is not runnable without one."""
    cdef entry_t* entry = waiters_next(engine, queue)
    if entry != NULL:
        return waiters_stand(engine, queue, entry.queue, waiters_key(entry))
    return runnable_remove(engine, queue.stands_in, &queue.runnable)


cdef inline bint makes_own_room(const waiter_t* waiter) noexcept:
    """Whether a message that leaves for this waiter's target makes room there: it moves within its queue, or the target overflows
    into the queue that it leaves."""
    cdef selector_t* overflow = waiter.target.overflow
    return waiter.selector.source == waiter.target or (overflow != NULL and overflow.target == waiter.selector.source)


cdef void waiters_changed(engine_t* engine, queue_t* queue) noexcept:
    """Keeps the queue in the list ROOM_VARIES while selectors wait for room in it and room depends on the message.

    Room may depend on the queue that a field of the message names for the overflow selector, on the room that the message makes
    by leaving, or, in a store, on its size. Then any message that leaves, or comes to wait, may be the one that finds room.
    """
    if queue.waiters_head != NULL and (
            queue.own_room or queue.short or (queue.overflow != NULL and names_by_field(queue.overflow))):
        queue_list(engine, queue, ROOM_VARIES)
    else:
        queue_unlist(engine, queue, ROOM_VARIES)


cdef void overflow_changed(engine_t* engine, queue_t* queue) noexcept:
    """The queue has another overflow selector, or none: works out anew what its waiting list's room depends on."""
    cdef waiter_t* waiter = queue.waiters_head
    if not queue.durable and (queue.overflow == NULL or queue.overflow.target == NULL or not queue.overflow.target.durable):
        queue.short = False
    queue.own_room = 0
    while waiter != NULL:
        queue.own_room += makes_own_room(waiter)
        waiter = waiter.next
    waiters_changed(engine, queue)


cdef int wake_where_room_varies(engine_t* engine) except -1:
    """Wakes the waiting lists in ROOM_VARIES: another message waits, or one has left, and may be the one that finds room."""
    return varying_changed(engine, True)


cdef int varying_changed(engine_t* engine, bint is_made) except -1:
    cdef queue_t* queue = engine.lists[ROOM_VARIES]
    while queue != NULL:
        waiters_room_changed(engine, queue, is_made)
        queue = queue.listed[ROOM_VARIES].next
    return 0


cdef int room_changed(engine_t* engine, queue_t* queue, bint is_made) except -1:
    """There is more room in `queue`, if `is_made`, or less: tells all waiting lists for which that counts."""
    cdef selector_t* selector
    waiters_room_changed(engine, queue, is_made)
    if queue.overflown:
        selector = queue.sources
        while selector != NULL:
            if selector.role == OVERFLOW:
                waiters_room_changed(engine, selector.source, is_made)
            selector = selector.next_same_target
    return varying_changed(engine, is_made)


cdef inline int waiters_room_changed(engine_t* engine, queue_t* target, bint is_made) except -1:
    """With more room the list may go on. With less, the queue with priorities whose message is next in it may have another one
    that comes first."""
    if is_made:
        return waiters_wake(engine, target)
    if target.runnable.position and target.stands_in != NULL:
        inside_invalidate(target.stands_in)
    return 0
