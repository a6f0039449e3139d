"""Owners: durable messages that went on in RAM, and how their store hears of their end.

A message may leave a durable queue for a queue in RAM for good, by INFINITE credit or as a dead letter. The log does not settle
it before it has ended in RAM, or has entered a durable queue again: else a crash would lose it. Until then the entry in RAM is
*owned* by the durable message. If the history of the durable queue has that message, it is a *shadow* there.

    entry in RAM, OWNED ── engine.owners ──► Owner: store, queue, id ──► durable message, SHADOW or in no index

`Owners` (`log/marks.pyx`) finds them both ways: a store that cleans its log asks for the message of each record, and a queue that
is deleted for those of its own.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint16_t, uintptr_t

from xump_ext.log.fences cimport end_is_held, end_waits, fence_push, log_late, log_mark, settle_or_fence
from xump_ext.log.live_sizes cimport live_remove
from xump_ext.log.marks cimport Owner, Owners, entry_says, owner_new, owner_of, owner_told
from xump_ext.log.writer cimport settle_record, store_queue, touch, went_to
from xump_ext.records.kinds cimport (
    COPIES_AWAITED, DOUBTFUL, MARK, NOT_HIDING, RECORD_COPIED, RECORD_MARKED, RECORD_REDELIVERED, RECORD_UNROUTED, SETTLE,
)
from xump_ext.state.constants cimport FOREIGN, OWNED, REDELIVERED, SHADOW, STAINED
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport fence_t
from xump_ext.state.index cimport index_get


cdef int owner_claim(engine_t* engine, entry_t* entry, queue_t* target) except -1:
    """`entry` is about to end for good, and its message enters `target`, in RAM. If there is a durable message behind `entry`, it
    ends with the new entry instead: the next entry takes this claim."""
    cdef Owner owner
    cdef uint16_t delivery_count = 0
    cdef int says = 0
    while entry != NULL:
        delivery_count = max(delivery_count, entry.delivery_count)
        says |= RECORD_REDELIVERED if entry.flags & REDELIVERED else 0
        if entry.queue.durable or entry.flags & OWNED:
            break
        entry = entry.parent
    if entry == NULL or target.durable or entry.flags & SHADOW:
        return 0
    if entry.flags & OWNED:
        owner = (<Owners> engine.owners).take(entry)
    else:
        owner = owner_new(entry)
        entry.flags |= SHADOW
    owner_told(owner, delivery_count, says)     # if it comes back when the store is reopened, it was delivered as often as that
    # Ends upstream, in other stores, wait until this store has made durable what it keeps.
    engine.entered_stores |= <uint64_t> 1 << owner.store.slot
    Py_INCREF(owner)
    engine.claim = <void*> owner
    return 0


cdef entry_t* durable_behind(entry_t* entry, queue_t** queue, uint64_t* id) except? NULL:
    """The entry, or the nearest one upstream, that a durable message stands behind: itself, or its owner. NULL: none does.
    `queue` and `id`: get those of that message."""
    cdef Owner owner
    while entry != NULL and not entry.queue.durable and not entry.flags & OWNED:
        entry = entry.parent
    if entry != NULL and entry.queue.durable:
        queue[0], id[0] = entry.queue, entry.id
    elif entry != NULL:
        owner = owner_of(entry)
        queue[0], id[0] = store_queue(owner.store, owner.queue), owner.id
    return entry


cdef int gone_note(engine_t* engine, entry_t* entry) except -1:
    """`entry` is about to end for good, since its message goes on elsewhere. Note which durable message ends with it: itself, or
    the nearest upstream."""
    cdef queue_t* queue = NULL
    cdef uint64_t id = 0
    cdef entry_t* durable = durable_behind(entry, &queue, &id)
    if durable == NULL:
        return 0
    engine.gone_store, engine.gone_queue, engine.gone_id = queue.store, queue.number, id
    if durable.queue.durable:
        engine.gone_foreign, engine.gone_held = durable.flags & FOREIGN != 0, end_is_held(durable)
    else:
        engine.gone_foreign, engine.gone_held = owner_of(durable).foreign, end_waits(queue, id)
    return 0


cdef store_t* store_behind(const entry_t* entry) except? NULL:
    cdef queue_t* queue = NULL
    cdef uint64_t id = 0
    durable_behind(<entry_t*> entry, &queue, &id)
    return NULL if queue == NULL else queue.store


cdef int claim_take(engine_t* engine, entry_t* entry) except -1:
    """The entry takes the claim that `owner_claim` left: from here on it is owned."""
    (<Owners> engine.owners).add(entry, <Owner> engine.claim)
    Py_XDECREF(<PyObject*> engine.claim)
    engine.claim = NULL
    return 0


cdef int hides_when(entry_t* entry) except -1:
    cdef queue_t* queue = NULL
    cdef uint64_t id = 0
    cdef entry_t* origin = durable_behind(entry.parent, &queue, &id)
    cdef bint unrouted = (entry_says(origin) if origin.queue.durable else owner_of(origin).says) & RECORD_UNROUTED
    if not unrouted and not is_copied_late(queue, id):
        return DOUBTFUL | NOT_HIDING
    extra_of(entry)                 # while a MARK of it waits it has one
    entry.flags |= STAINED
    fence_push(entry.queue.store, MARK, entry.queue.number, entry.id, 0, RECORD_COPIED)
    return DOUBTFUL | COPIES_AWAITED | (0 if unrouted else NOT_HIDING)


cdef int passes_through(engine_t* engine, entry_t* entry, entry_t* parent) except -1:
    cdef queue_t* queue = NULL
    cdef queue_t* upper = NULL
    cdef uint64_t id = 0
    if durable_behind(entry, &queue, &id) == NULL or durable_behind(parent, &upper, &id) == NULL or upper.store == queue.store:
        return 0
    went_to(engine, queue)
    return log_late(upper, id)


cdef bint is_copied_late(const queue_t* queue, uint64_t id) noexcept:
    """Whether the end of a message waits for copies though the frontier, which says that it is routed, does not."""
    return queue.late_waits and id >= queue.late_safe


cdef bint has_owner(const entry_t* entry) noexcept:
    """Whether a durable queue holds the message of this entry: here, upstream, or as its owner."""
    while entry != NULL:
        if entry.queue.durable or entry.flags & OWNED:
            return True
        entry = entry.parent
    return False


cdef int owner_settled(entry_t* entry) except -1:
    """An owned entry has ended, and so does the message that owns it."""
    cdef entry_t* durable
    cdef queue_t* queue
    cdef Owner owner = (<Owners> entry.queue.engine.owners).take(entry)
    if owner is None:
        return 0        # the engine is being closed: the store keeps what it has
    queue = store_queue(owner.store, owner.queue)
    durable = index_get(&queue.index, owner.id)
    if durable != NULL and durable.flags & SHADOW:
        shadow_ends(durable, owner)
    else:
        touch(queue)
        if owner.stained and end_waits(queue, owner.id):
            (<Owners> queue.engine.owners).end(owner)
        settle_or_fence(queue, owner.id, owner.charge, owner.stained)
    went_to(queue.engine, queue)        # ends further upstream wait for that
    return 0


cdef int shadow_ends(entry_t* durable, Owner owner) except -1:
    """Its entry says again what the owner has said; MARKs that waited say it before its end."""
    durable.flags &= ~SHADOW
    durable.flags |= (STAINED if owner.stained else 0) | (REDELIVERED if owner.says & RECORD_REDELIVERED else 0)
    durable.delivery_count = owner.delivery_count
    if owner.stained and end_is_held(durable):
        (<Owners> durable.queue.engine.owners).end(owner)
    return log_mark(durable)


cdef int owners_leave(store_t* store, uint32_t number) except -1:
    """The queue is about to be deleted. Its messages own no entries in RAM any more, and their ends are logged now, but for those
    that are in the history, which end with it."""
    cdef Owners owners = <Owners> store.engine.owners
    cdef Owner owner
    cdef entry_t* shadow
    for address in list(owners.ids_of(store).get(number, {}).values()):
        owner = owners.take(<entry_t*> <uintptr_t> address)
        shadow = index_get(&store_queue(store, number).index, owner.id)
        if shadow != NULL:
            shadow.flags |= STAINED if owner.stained else 0
        else:
            settle_record(store, number, owner.id, RECORD_MARKED if owner.stained else 0, NULL)
            live_remove(store, owner.charge)
    return 0


cdef class CarriedAnyway:
    def __cinit__(self):
        self.fenced = set()

    cdef bint has(self, uint32_t queue, uint64_t id) except -1:
        return (queue in self.owned and id in self.owned[queue]) or (len(self.fenced) > 0 and (queue, id) in self.fenced)


cdef CarriedAnyway carried_anyway(store_t* store):
    cdef CarriedAnyway found = CarriedAnyway.__new__(CarriedAnyway)
    cdef uint64_t i
    cdef fence_t* fence
    found.owned = (<Owners> store.engine.owners).ids_of(store)
    for i in range(store.fence_count):
        fence = &store.fences[(store.fence_head + i) & store.fence_mask]
        if fence.other == NULL and (fence.kind == SETTLE or fence.kind == MARK):
            found.fenced.add((fence.queue, fence.id))
    return found
