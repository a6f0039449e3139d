"""What a store may log only when another one has made something durable, and what it does not log before somebody in RAM says so.

Between stores. What settles a message that went to another store, or puts it behind the frontier when a copy did, is logged
behind a *fence*: when that store has made durable what it got. Fences are passed in order, so nobody waits in a circle.

Through RAM. What leaves a durable queue for one in RAM for good (INFINITE, a dead letter) is not settled in the log before it has
its last word there, or has entered a durable queue: it is a *shadow*, and the entry in RAM is *owned*.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint32_t, uintptr_t

from xump_ext.graph cimport OWNED, SHADOW, STAINED, UNLIMITED, fence_t
from xump_ext.grow cimport ring_grow
from xump_ext.index cimport index_get
from xump_ext.log cimport (
    entry_charge, gone_record, log_mark, mark_record, settle_now_or_later, settle_record, store_queue, touch,
)
from xump_ext.records cimport GONE, MARK, RECORD_MARKED, SETTLE, STATE

# ---- owners

cdef int owner_claim(engine_t* engine, entry_t* entry, queue_t* target) except -1:
    """`entry` is about to end for good, and what becomes of it enters `target`, in RAM: the durable message that stands behind
    it, if there is one, will hear of that one's end instead. The next entry takes the claim."""
    cdef object owner
    while entry != NULL and not entry.queue.durable and not entry.flags & OWNED:
        entry = entry.parent
    if entry == NULL or target.durable or entry.flags & SHADOW:
        return 0
    if entry.flags & OWNED:
        owner = (<dict> engine.owners).pop(<uintptr_t> entry)
        entry.flags &= ~OWNED
    else:
        owner = (<uintptr_t> entry.queue.store, entry.queue.number, entry.id, entry_charge(entry), entry.flags & STAINED != 0)
        entry.flags |= SHADOW
    # What is settled upstream in other stores waits for what is kept here.
    engine.entered_stores |= <uint64_t> 1 << (<store_t*> <uintptr_t> owner[0]).slot
    Py_INCREF(owner)
    engine.claim = <void*> owner
    return 0


cdef int gone_note(engine_t* engine, entry_t* entry) except -1:
    """`entry` is about to end for good, since it goes on elsewhere: which durable message that is."""
    if entry.queue.durable:
        engine.gone_store, engine.gone_queue, engine.gone_id = entry.queue.store, entry.queue.number, entry.id
    elif entry.flags & OWNED:
        owner = (<dict> engine.owners)[<uintptr_t> entry]
        engine.gone_store = <store_t*> <uintptr_t> owner[0]
        engine.gone_queue, engine.gone_id = owner[1], owner[2]
    return 0


cdef int claim_take(engine_t* engine, entry_t* entry) except -1:
    """This entry is the one that was meant."""
    (<dict> engine.owners)[<uintptr_t> entry] = <object> engine.claim
    Py_XDECREF(<PyObject*> engine.claim)
    engine.claim = NULL
    entry.flags |= OWNED
    return 0


cdef bint has_owner(const entry_t* entry) noexcept:
    """Whether a durable queue holds the message for it."""
    while entry != NULL:
        if entry.queue.durable or entry.flags & OWNED:
            return True
        entry = entry.parent
    return False


cdef int owner_settled(entry_t* entry) except -1:
    """An owned entry has come to its end: so has the message that owns it."""
    cdef store_t* store
    cdef entry_t* owner = NULL
    cdef queue_t* queue
    entry.flags &= ~OWNED
    owned = (<dict> entry.queue.engine.owners).pop(<uintptr_t> entry, None)
    if owned is None:
        return 0        # the engine is being closed: the store keeps what it has
    address, number, id, charge, stained = owned
    store = <store_t*> <uintptr_t> address
    queue = store_queue(store, number)
    owner = index_get(&queue.index, id)
    if owner != NULL and owner.flags & SHADOW:
        owner.flags &= ~SHADOW
        return log_mark(owner)      # in the history
    touch(queue)
    return settle_now_or_later(queue, id, charge, stained)


cdef int owners_leave(store_t* store, uint32_t number) except -1:
    """The queue is deleted: what it owned in RAM is nobody's, and its end is logged now."""
    cdef dict owners = <dict> store.engine.owners
    for address, owner in list(owners.items()):
        if owner[0] == <uintptr_t> store and owner[1] == number:
            (<entry_t*> <uintptr_t> address).flags &= ~OWNED
            del owners[address]
            if index_get(&store_queue(store, number).index, owner[2]) == NULL:
                settle_record(store, number, owner[2], RECORD_MARKED if owner[4] else 0, NULL)
                store.live -= <uint64_t> owner[3]
    return 0


# ---- fences

cdef int fence_push(store_t* store, int kind, uint32_t queue, uint64_t id, uint64_t charge, int flags) except -1:
    """Behind the open groups of the other stores that got the message at hand; in any case behind the fences before."""
    cdef store_t* other = store.engine.stores
    while other != NULL:
        if other != store and store.engine.entered_stores >> other.slot & 1 and not fence_stands(store, other):
            fence_add(store, other, other.group, 0, 0, 0, 0, 0)
        other = other.next
    return fence_add(store, NULL, 0, id, charge, queue, kind, flags)


cdef bint fence_stands(const store_t* store, const store_t* other) noexcept:
    """Whether the last fence for the other store is for its open group already."""
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
    """Logs what stood behind fences that are open now."""
    cdef fence_t* fence
    while store.fence_count:
        fence = &store.fences[store.fence_head & store.fence_mask]
        if fence.other != NULL:
            if fence.other.passed < fence.group:
                return 0        # for good, if that store failed: what is behind is there again when this one is opened
        else:
            fence_end(store, fence)
        store.fence_head += 1
        store.fence_count -= 1
    return 0


cdef int fence_end(store_t* store, const fence_t* fence) except -1:
    """What stood behind a fence is logged. Its queue may have been deleted meanwhile: that is logged behind it."""
    cdef queue_t* queue = store_queue(store, fence.queue)
    if queue != NULL:
        touch(queue)
    if fence.kind == SETTLE:
        settle_record(store, fence.queue, fence.id, fence.flags, queue)
        store.live -= fence.charge
    elif fence.kind == GONE:
        gone_record(store, fence.queue)
        (<set> store.leaving).discard(fence.queue)
    elif queue != NULL and fence.kind == MARK:
        mark_record(store, fence.queue, fence.id, fence.charge, fence.flags)
    elif queue != NULL:
        queue.frontier_safe = fence.id
        queue.frontier_waits -= 1
    return 0


cdef void fences_forget(store_t* store, const store_t* other) noexcept:
    """That one is no more: nobody waits for it, but for what it failed to make durable: for good."""
    cdef uint64_t i
    cdef fence_t* fence
    for i in range(store.fence_count):
        fence = &store.fences[(store.fence_head + i) & store.fence_mask]
        if fence.other == other:
            fence.other = store
            fence.group = UNLIMITED if other.failed and other.passed < fence.group else 0


cdef bint fences_stuck(const store_t* store) noexcept:
    """Whether the first fence is for what will never be durable."""
    cdef const fence_t* fence
    if store.fence_count == 0:
        return False
    fence = &store.fences[store.fence_head & store.fence_mask]
    return fence.other != NULL and fence.other.passed < fence.group and (fence.other.failed or fence.other == store)


cdef set carried_anyway(store_t* store):
    """(queue, id) of messages whose end is not in the log, though they are in no index: shadows, what stands behind a fence."""
    cdef uint64_t i
    cdef fence_t* fence
    cdef set found = set()
    for owner in (<dict> store.engine.owners).values():
        if owner[0] == <uintptr_t> store:
            found.add((owner[1], owner[2]))
    for i in range(store.fence_count):
        fence = &store.fences[(store.fence_head + i) & store.fence_mask]
        if fence.other == NULL:
            found.add((fence.queue, fence.id))
    return found


cdef int log_copied(entry_t* entry) except -1:
    cdef queue_t* queue = entry.queue
    if not fences_needed(queue.store):
        return 0
    if queue.frontier_waits == 0:
        queue.frontier_safe = entry.id
    fence_push(queue.store, STATE, queue.number, entry.id + 1, 0, 0)
    queue.frontier_waits += 1
    return 0
