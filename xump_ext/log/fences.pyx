"""Fences: hold back records of one store until another store has made something durable.

A message that goes from one durable store to another must be in one of them after any crash. So these records of the first store
wait for the second:

    SETTLE, MARK, GONE      the end of a message that entered the second store, and of a queue with such messages; or that a
                            message whose copy entered the second store was routed out of turn
    STATE                   a frontier past a message whose copy entered the second store

A copy may also be made late: by a replay, or in a queue in RAM on behalf of the durable message upstream. The frontier is past
that message, so it cannot hold the copy's place. Then LATE stands behind the fence. It is no record; while it stands, the ends
of its message, and of those with higher ids in its queue, go behind it.

They stand in a ring, behind *fences*. A fence names another store and the group that has the message:

    fence: store B, group 12 │ SETTLE │ SETTLE │ fence: store C, group 7 │ STATE │ …

When that group is durable the fence is open, and the records behind it are logged. Fences are passed in order, so no two stores
wait for each other in a circle.
"""

from libc.stdint cimport uint8_t

from xump_ext.log.live_sizes cimport live_remove
from xump_ext.log.marks cimport Owner, Owners, entry_says, owner_mark
from xump_ext.log.writer cimport gone_record, mark_record, settle_record, store_queue, touch
from xump_ext.memory.canaries cimport SETTLEMENT
from xump_ext.memory.grow cimport ring_grow
from xump_ext.records.kinds cimport (
    GONE, MARK, RECORD_COPIED, RECORD_DEAD_ENTRY, RECORD_HISTORIC, RECORD_MARKED, RECORD_REDELIVERED, RECORD_ROUTED,
    RECORD_UNROUTED, SETTLE, STATE,
)
from xump_ext.state.constants cimport (
    HISTORY, LOGGED_NOTHING, LOGGED_ROUTED, LOGGED_UNROUTED, NEVER, SHADOW, STAINED, UNLIMITED, UNROUTED,
)
from xump_ext.state.extra cimport extra_of, is_out_of_turn
from xump_ext.state.graph cimport extra_t, fence_t
from xump_ext.state.index cimport index_get


cdef int fence_push(store_t* store, int kind, uint32_t queue, uint64_t id, uint64_t charge, int flags) except -1:
    """Add a record that waits for the open groups of the other stores that the current message entered, and for all fences
    before it."""
    fences_raise(store)
    return fence_add(store, NULL, 0, id, charge, queue, kind, flags)


cdef int fences_raise(store_t* store) except -1:
    """Add a fence for the open group of each other store that the current message entered."""
    cdef store_t* other = store.engine.stores
    while other != NULL:
        if other != store and store.engine.entered_stores >> other.slot & 1 and not fence_stands(store, other):
            fence_add(store, other, other.group, 0, 0, 0, 0, 0)
        other = other.next
    return 0


cdef bint fence_stands(const store_t* store, const store_t* other) noexcept:
    """Whether there is a fence for the open group of `other` already. Looks at 64 items only: one fence too many is harmless."""
    cdef uint64_t i = store.fence_count
    cdef const fence_t* fence
    while i:
        i -= 1
        fence = &store.fences[(store.fence_head + i) & store.fence_mask]
        if fence.other == other:
            return fence.group == other.group
        if store.fence_count - i > 64:
            return False
    return False


cdef int fence_add(
    store_t* store, store_t* other, uint64_t group, uint64_t id, uint64_t charge, uint32_t queue, int kind, int flags
) except -1:
    if store.fences == NULL or store.fence_count > store.fence_mask:
        ring_grow(<void**> &store.fences, &store.fence_head, store.fence_count, &store.fence_mask, sizeof(fence_t))
    store.fences[(store.fence_head + store.fence_count) & store.fence_mask] = fence_t(
        other, group, id, charge, queue, <uint8_t> kind, <uint8_t> flags)
    store.fence_count += 1
    return 0


cdef int fences_pass(store_t* store) except -1:
    """Log the records behind fences that are open now."""
    cdef fence_t* fence
    while store.fence_count:
        fence = &store.fences[store.fence_head & store.fence_mask]
        if fence.other != NULL:
            if fence.other.passed < fence.group:
                return 0        # for good, if that store failed: the messages behind are there again when this one is opened
        else:
            fence_end(store, fence)
        store.fence_head += 1
        store.fence_count -= 1
        store.fences_passed += 1
    return 0


cdef int queue_departs(store_t* store, uint32_t number) except -1:
    """The GONE of a queue whose messages were on their way to other stores is in the open group."""
    cdef dict departed = <dict> store.departed
    name, _, _ = (<dict> store.leaving).pop(number)
    if departed[name][0] == number:     # else a later queue of this name was deleted, too
        departed[name] = number, store.group
    return 0


cdef int fence_end(store_t* store, const fence_t* fence) except -1:
    """Log a record that waited. Its queue may have been deleted meanwhile: then the GONE of the queue waits further on."""
    cdef queue_t* queue = store_queue(store, fence.queue)
    if fence.kind == LATE:
        if queue != NULL:
            queue.late_waits -= 1
        return 0
    if queue != NULL:
        touch(queue)
    if fence.kind == SETTLE:
        settle_record(store, fence.queue, fence.id, fence.flags, queue)
        live_remove(store, fence.charge)
        (<Owners> store.engine.owners).forget_ended(store, fence.queue, fence.id)
    elif fence.kind == GONE:
        gone_record(store, fence.queue)
        queue_departs(store, fence.queue)
    elif queue != NULL and fence.kind == MARK:
        fence_mark(store, queue, fence)
    elif queue != NULL:
        queue.frontier_safe = fence.id
        queue.frontier_waits -= 1
    return 0


cdef int fence_mark(store_t* store, queue_t* queue, const fence_t* fence) except -1:
    """Log a MARK that waited. Others may have been logged meanwhile, so this one says all that they did: as the entry is now or,
    if the message has left it, as its owner tells. If the log has the end of the message, there is nothing more to say."""
    cdef Owners owners = <Owners> store.engine.owners
    cdef entry_t* entry = index_get(&queue.index, fence.id)
    cdef Owner owner
    if fence.flags & RECORD_HISTORIC:
        owners.forget_ended(store, fence.queue, fence.id)
    else:
        owner = owners.of_message(store, fence.queue, fence.id)
        if owner is not None:
            owner_mark(owner, fence.charge, fence.flags)
            return 0
    if entry == NULL:
        if fence.flags & RECORD_HISTORIC:       # it has left its history, and its SETTLE waits further on
            mark_record(store, fence.queue, fence.id, fence.charge, fence.flags, NEVER, 0)
        return 0
    if fence.flags & RECORD_ROUTED and entry.extra != NULL:
        entry.extra.logged = LOGGED_ROUTED
    if fence.flags & RECORD_COPIED:
        extra_of(entry).copied = True
    mark_record(store, fence.queue, fence.id, entry.delivery_count, mark_flags(entry) | fence.flags & RECORD_ROUTED, NEVER, 0)
    return 0


cdef void fences_forget(store_t* store, const store_t* other) noexcept:
    """Open the fences for `other`, which leaves the engine. Those for groups that it failed to make durable stay closed for
    good."""
    cdef uint64_t i
    cdef fence_t* fence
    for i in range(store.fence_count):
        fence = &store.fences[(store.fence_head + i) & store.fence_mask]
        if fence.other == other:
            fence.other = store
            fence.group = UNLIMITED if other.failed and other.passed < fence.group else 0


cdef bint fences_stuck(const store_t* store) noexcept:
    """Whether the first fence is for a group that will never be durable."""
    cdef const fence_t* fence
    if store.fence_count == 0:
        return False
    fence = &store.fences[store.fence_head & store.fence_mask]
    return fence.other != NULL and fence.other.passed < fence.group and (fence.other.failed or fence.other == store)


# ---- records that are logged now, or wait behind a fence

cdef bint end_waits(queue_t* queue, uint64_t id) noexcept:
    """Whether the end of a message waits for other stores: it went there just now, or copies of it did before."""
    return fences_needed(queue.store) or (queue.frontier_waits and id >= queue.frontier_safe) or (
        queue.late_waits and id >= queue.late_safe)


cdef bint end_is_held(const entry_t* entry) noexcept:
    """The same for an entry; the end of one that has MARKs goes behind those."""
    return end_waits(entry.queue, entry.id) or (entry.flags & STAINED and entry.queue.store.fence_count)


cdef int settle_or_fence(queue_t* queue, uint64_t id, uint64_t charge, bint stained) except -1:
    cdef store_t* store = queue.store
    if end_waits(queue, id) and not SETTLEMENT:
        fence_push(store, SETTLE, queue.number, id, charge, RECORD_MARKED if stained else 0)
    else:
        settle_record(store, queue.number, id, RECORD_MARKED if stained else 0, queue)
        live_remove(store, charge)
    return 0


cdef int mark_flags(entry_t* entry) noexcept:
    """The content of a MARK of the entry as it is now."""
    if entry.state == HISTORY and not entry.flags & SHADOW:
        return entry_says(entry) & RECORD_REDELIVERED | RECORD_HISTORIC | (RECORD_DEAD_ENTRY if entry.hops == 0 else 0)
    if entry.extra != NULL and entry.extra.logged == LOGGED_NOTHING and is_out_of_turn(entry):
        entry.extra.logged = LOGGED_UNROUTED
    return entry_says(entry)


cdef int log_mark(entry_t* entry) except -1:
    cdef store_t* store = entry.queue.store
    cdef int flags = mark_flags(entry)
    cdef bint waits = flags & RECORD_HISTORIC and end_is_held(entry)        # it has ended, though it stays in the history
    touch(entry.queue)
    entry.flags |= STAINED
    if waits:
        fence_push(store, MARK, entry.queue.number, entry.id, entry.delivery_count, flags)
    else:
        mark_record(store, entry.queue.number, entry.id, entry.delivery_count, flags, NEVER, 0)
    return 0


cdef int log_lent(entry_t* entry, bint routed) except -1:
    """The message goes on in RAM, and comes back if it is lost there: routed or not, wherever the frontier is then."""
    if routed:
        return log_routed(entry) if entry.extra != NULL else 0
    if entry.state == UNROUTED:
        extra_of(entry)
    elif entry.extra == NULL or not is_out_of_turn(entry):
        return 0
    if entry.extra.logged != LOGGED_NOTHING:
        return 0
    entry.extra.logged = LOGGED_UNROUTED
    return log_mark(entry)


cdef int log_retry(entry_t* entry, int64_t due, uint32_t closing) except -1:
    touch(entry.queue)
    entry.flags |= STAINED
    mark_record(entry.queue.store, entry.queue.number, entry.id, entry.delivery_count, mark_flags(entry), due, closing)
    return 0


cdef int log_routed(entry_t* entry) except -1:
    cdef store_t* store = entry.queue.store
    cdef extra_t* extra = entry.extra
    if extra.logged == LOGGED_ROUTED or (extra.logged == LOGGED_NOTHING and extra.delayed_until == NEVER):
        return 0
    if not fences_needed(store):
        extra.logged = LOGGED_ROUTED
        return log_mark(entry)
    extra.logged = LOGGED_UNROUTED      # until the copies are durable
    entry.flags |= STAINED
    return fence_push(store, MARK, entry.queue.number, entry.id, entry.delivery_count, mark_flags(entry) & ~RECORD_UNROUTED
                      | RECORD_ROUTED)


cdef int log_copied(entry_t* entry) except -1:
    """A message that was routed before has passed the frontier already: a replay of it, or its routing after it was parked, moves
    nothing, and its copy is late. A message that is copied into several stores passes when all of them have it."""
    cdef queue_t* queue = entry.queue
    cdef store_t* store = queue.store
    if not fences_needed(store):
        return 0
    if entry.id < queue.frontier_logged or (queue.frontier_waits and entry.id + 1 < queue.frontier_promised):
        if entry.state == UNROUTED and entry.id >= queue.frontier_logged:
            say_unrouted(entry)     # younger ones were routed before it by priority: their fences let the frontier past it
        return log_late(queue, entry.id)
    if queue.frontier_waits == 0:
        queue.frontier_safe = entry.id
    elif queue.frontier_promised == entry.id + 1:
        hold_back(store, queue)
    fence_push(store, STATE, queue.number, entry.id + 1, 0, 0)
    queue.frontier_waits += 1
    queue.frontier_promised = entry.id + 1
    queue.frontier_fence = store.fences_passed + store.fence_count
    return 0


cdef int say_unrouted(entry_t* entry) except -1:
    """A MARK says that the entry is not routed, wherever the frontier is, until one behind a fence says that it is."""
    extra_of(entry)
    if entry.extra.logged == LOGGED_UNROUTED:
        return 0
    entry.extra.logged = LOGGED_UNROUTED
    return log_mark(entry)


cdef int log_late(queue_t* queue, uint64_t id) except -1:
    """One LATE stands for many copies: for all that a queue makes while no fence is added."""
    cdef store_t* store = queue.store
    cdef const fence_t* last
    if not fences_needed(store):
        return 0
    queue.late_safe = min(queue.late_safe, id) if queue.late_waits else id
    fences_raise(store)
    if store.fence_count:
        last = &store.fences[(store.fence_head + store.fence_count - 1) & store.fence_mask]
        if last.other == NULL and last.kind == LATE and last.queue == queue.number:
            return 0
    queue.late_waits += 1
    return fence_add(store, NULL, 0, id, 0, queue.number, LATE, 0)


cdef void hold_back(store_t* store, queue_t* queue) noexcept:
    """The last fence of this queue's frontier lets it go up to the message only, not past it: the next one does that."""
    cdef uint64_t place = queue.frontier_fence - store.fences_passed - 1
    cdef fence_t* fence
    if place >= store.fence_count:
        return
    fence = &store.fences[(store.fence_head + place) & store.fence_mask]
    if fence.other == NULL and fence.kind == STATE and fence.queue == queue.number and fence.id == queue.frontier_promised:
        fence.id -= 1
