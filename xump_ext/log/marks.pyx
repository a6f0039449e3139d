"""The MARKs of messages that have left their entries, and so what such a MARK has to say.

A store that finds records by key keeps the last MARK of a message only. So each MARK says all that was ever said of it: how often
it was delivered, whether it came back, is routed, and was copied. As long as the message is in its queue, its entry knows that.
Here it is kept for messages that have left their entries:

    owners    they go on in RAM (`log/owners.pyx`), and end when the entries that they own end
    ended     their end waits behind fences (`log/fences.pyx`), and MARKs of them before it

A MARK that was gathered earlier and waited behind a fence so says what was said meanwhile, too.
"""

from libc.stdint cimport uintptr_t

from xump_ext.log.writer cimport entry_charge, mark_record
from xump_ext.records.kinds cimport RECORD_COPIED, RECORD_REDELIVERED, RECORD_ROUTED, RECORD_UNROUTED
from xump_ext.state.constants cimport (
    FOREIGN, LOGGED_NOTHING, LOGGED_ROUTED, NEVER, OWNED, REDELIVERED, SHADOW, STAINED,
)


cdef class Owners:
    def __cinit__(self):
        self.by_entry, self.by_message, self.ended = {}, {}, {}

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

    cdef int end(self, Owner owner) except -1:
        cdef dict found = self.ended.get(<uintptr_t> owner.store)
        if found is None:
            found = self.ended[<uintptr_t> owner.store] = {}
        found[owner.queue, owner.id] = owner
        return 0

    cdef int forget_ended(self, const store_t* store, uint32_t queue, uint64_t id) except -1:
        cdef dict found
        if self.ended:
            found = self.ended.get(<uintptr_t> store)
            if found is not None and found.pop((queue, id), None) is not None and not found:
                del self.ended[<uintptr_t> store]
        return 0

    cdef int leave(self, const store_t* store) except -1:
        for address in self.entries_of(store):
            self.take(<entry_t*> <uintptr_t> address)
        self.ended.pop(<uintptr_t> store, None)
        return 0

    cdef Owner of_message(self, const store_t* store, uint32_t queue, uint64_t id):
        cdef dict ended = self.ended.get(<uintptr_t> store)
        address = self.ids_of(store).get(queue, {}).get(id)
        if address is not None:
            return self.by_entry[address]
        return None if ended is None else ended.get((queue, id))

    cdef dict ids_of(self, const store_t* store):
        """{number of a queue: {id: address of the entry that the message owns}}."""
        return self.by_message.get(<uintptr_t> store, {})

    cdef list entries_of(self, const store_t* store):
        """The addresses of the entries that messages of the store own. O(them)."""
        return [address for ids in self.ids_of(store).values() for address in ids.values()]


cdef Owner owner_of(const entry_t* entry):
    return (<Owners> entry.queue.engine.owners).by_entry[<uintptr_t> entry]


cdef int entry_says(const entry_t* entry) noexcept:
    """Routed or not: nothing, if the frontier tells."""
    cdef int flags = RECORD_REDELIVERED if entry.flags & REDELIVERED else 0
    if entry.extra != NULL:
        if entry.extra.logged != LOGGED_NOTHING:
            flags |= RECORD_ROUTED if entry.extra.logged == LOGGED_ROUTED else RECORD_UNROUTED
        if entry.extra.copied:
            flags |= RECORD_COPIED
    return flags


cdef Owner owner_new(const entry_t* entry):
    cdef Owner owner = Owner.__new__(Owner)
    owner.store = entry.queue.store
    owner.queue = entry.queue.number
    owner.id = entry.id
    owner.charge = entry_charge(entry)
    owner.delivery_count = entry.delivery_count
    owner.says = entry_says(entry)
    owner.stained = entry.flags & STAINED != 0
    owner.foreign = entry.flags & FOREIGN != 0
    return owner


cdef void owner_told(Owner owner, uint64_t delivery_count, int flags) noexcept:
    """As when a log with all MARKs is read: none of them takes anything back."""
    owner.delivery_count = <uint16_t> max(<uint64_t> owner.delivery_count, delivery_count)
    owner.says |= flags
    if owner.says & RECORD_ROUTED:
        owner.says &= ~RECORD_UNROUTED


cdef void owner_mark(Owner owner, uint64_t delivery_count, int flags) noexcept:
    owner_told(owner, delivery_count, flags)
    owner.stained = True
    mark_record(owner.store, owner.queue, owner.id, owner.delivery_count, owner.says, NEVER, 0)


cdef int ending_told(const entry_t* entry) except -1:
    """Every entry of which a MARK waits has an extra. A shadow has an owner, which tells it."""
    if entry.flags & STAINED and not entry.flags & SHADOW and entry.queue.durable and entry.queue.store.fence_count:
        (<Owners> entry.queue.engine.owners).end(owner_new(entry))
    return 0
