"""Owners: durable messages that went on in RAM, and how their store hears of their end.

A message may leave a durable queue for a queue in RAM for good, by INFINITE credit or as a dead letter. The log does not settle
it before it has ended in RAM, or has entered a durable queue again: else a crash would lose it. Until then the entry in RAM is
*owned* by the durable message. If the history of the durable queue has that message, it is a *shadow* there.

    entry in RAM, OWNED ── engine.owners ──► Owner: store, queue, id ──► durable message, SHADOW or in no index

`Owners` finds them both ways: a store that cleans its log asks for the message of each record, and a queue that is deleted for
those of its own.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint16_t, uintptr_t

from xump_ext.log.fences cimport end_is_held, end_waits, fence_push, log_late, log_mark, settle_or_fence
from xump_ext.log.live_sizes cimport live_remove
from xump_ext.log.writer cimport entry_charge, settle_record, store_queue, touch, went_to
from xump_ext.records.kinds cimport MARK, RECORD_COPIED, RECORD_MARKED, RECORD_ROUTED, RECORD_UNROUTED, SETTLE
from xump_ext.state.constants cimport FOREIGN, LOGGED_NOTHING, LOGGED_ROUTED, OWNED, REDELIVERED, SHADOW, STAINED
from xump_ext.state.graph cimport fence_t
from xump_ext.state.index cimport index_get


cdef class Owners:
    def __cinit__(self):
        self.by_entry, self.by_message = {}, {}

    cdef int add(self, entry_t* entry, Owner owner) except -1:
        """The entry is owned from here on."""
        cdef dict queues = self.by_message.get(<uintptr_t> owner.store)
        if queues is None:
            queues = self.by_message[<uintptr_t> owner.store] = {}
        cdef dict ids = queues.get(owner.queue)
        if ids is None:
            ids = queues[owner.queue] = {}
        ids[owner.id] = <uintptr_t> entry
        self.by_entry[<uintptr_t> entry] = owner
        entry.flags |= OWNED
        return 0

    cdef Owner take(self, entry_t* entry):
        """The entry is owned no more. None: the store of its owner was closed."""
        cdef Owner owner = self.by_entry.pop(<uintptr_t> entry, None)
        cdef dict queues, ids
        entry.flags &= ~OWNED
        if owner is not None:
            queues = self.by_message[<uintptr_t> owner.store]
            ids = queues[owner.queue]
            del ids[owner.id]
            if not ids:
                del queues[owner.queue]
            if not queues:
                del self.by_message[<uintptr_t> owner.store]
        return owner

    cdef dict ids_of(self, const store_t* store):
        """{number of a queue: {id: address of the entry that the message owns}}."""
        return self.by_message.get(<uintptr_t> store, {})

    cdef list entries_of(self, const store_t* store):
        """The addresses of the entries that messages of the store own. O(them)."""
        return [address for ids in self.ids_of(store).values() for address in ids.values()]


cdef Owner owner_of(const entry_t* entry):
    return (<Owners> entry.queue.engine.owners).by_entry[<uintptr_t> entry]


cdef int owner_claim(engine_t* engine, entry_t* entry, queue_t* target) except -1:
    """`entry` is about to end for good, and its message enters `target`, in RAM. If there is a durable message behind `entry`, it
    ends with the new entry instead: the next entry takes this claim."""
    cdef Owner owner
    cdef uint16_t delivery_count = 0
    cdef bint redelivered = False
    while entry != NULL:
        delivery_count = max(delivery_count, entry.delivery_count)
        redelivered = redelivered or entry.flags & REDELIVERED != 0
        if entry.queue.durable or entry.flags & OWNED:
            break
        entry = entry.parent
    if entry == NULL or target.durable or entry.flags & SHADOW:
        return 0
    if entry.flags & OWNED:
        owner = (<Owners> engine.owners).take(entry)
    else:
        owner = Owner.__new__(Owner)
        owner.store = entry.queue.store
        owner.queue = entry.queue.number
        owner.id = entry.id
        owner.charge = entry_charge(entry)
        owner.stained = entry.flags & STAINED != 0
        owner.foreign = entry.flags & FOREIGN != 0
        owner.said = said_of(entry)
        entry.flags |= SHADOW
    # If the message comes back to its queue when the store is reopened, it was delivered as often as that.
    owner.delivery_count = max(owner.delivery_count, delivery_count)
    owner.redelivered = owner.redelivered or redelivered
    # Ends upstream, in other stores, wait until this store has made durable what it keeps.
    engine.entered_stores |= <uint64_t> 1 << owner.store.slot
    Py_INCREF(owner)
    engine.claim = <void*> owner
    return 0


cdef int said_of(const entry_t* entry) noexcept:
    """The routing in its MARK; none, if the frontier tells."""
    if entry.extra == NULL or entry.extra.logged == LOGGED_NOTHING:
        return 0
    return RECORD_ROUTED if entry.extra.logged == LOGGED_ROUTED else RECORD_UNROUTED


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


cdef bint copies_awaited(store_t* store, entry_t* parent) except -1:
    cdef queue_t* queue = NULL
    cdef uint64_t id = 0
    cdef entry_t* entry = durable_behind(parent, &queue, &id)
    if not is_copied_late(queue, id) or (entry.queue.durable and entry.extra != NULL and entry.extra.copied):
        return False
    if entry.queue.durable:
        entry.flags |= STAINED
    else:
        owner_of(entry).stained = True
    fence_push(store, MARK, queue.number, id, 0, RECORD_COPIED)
    return True


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
        durable.flags &= ~SHADOW
        log_mark(durable)       # it is in the history now
    else:
        touch(queue)
        settle_or_fence(queue, owner.id, owner.charge, owner.stained)
    went_to(queue.engine, queue)        # ends further upstream wait for that
    return 0


cdef int owners_leave(store_t* store, uint32_t number) except -1:
    """The queue is deleted. Its messages own no entries in RAM any more, and their ends are logged now."""
    cdef Owners owners = <Owners> store.engine.owners
    cdef Owner owner
    for address in list(owners.ids_of(store).get(number, {}).values()):
        owner = owners.take(<entry_t*> <uintptr_t> address)
        if index_get(&store_queue(store, number).index, owner.id) == NULL:
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
