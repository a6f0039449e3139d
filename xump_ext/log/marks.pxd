"""Declarations of `marks.pyx`."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from xump_ext.state.graph cimport entry_t, store_t


@cython.final
cdef class Owner:
    """A durable message that no entry of its own tells of any more, and all that its MARKs have to say."""
    cdef store_t* store
    cdef uint32_t queue             # its number in the store
    cdef uint64_t id
    cdef uint64_t charge            # bytes that it takes of the store
    cdef uint16_t delivery_count    # how often the application took it, or what became of it
    cdef int says                   # flags of a record: REDELIVERED, COPIED, and ROUTED or UNROUTED
    cdef bint stained               # the store has a MARK of it
    cdef bint foreign               # it came from another store


@cython.final
cdef class Owners:
    """All owners of an engine, each found in O(1) by the entry that it owns, and that entry by its durable message."""
    cdef dict by_entry              # {address of an entry in RAM: Owner}
    cdef dict by_message            # {address of a store: {number of a queue: {id: address of the entry in RAM}}}
    cdef dict ended                 # {address of a store: {(number of a queue, id): Owner}}: own nothing, and their ends wait

    cdef int add(self, entry_t* entry, Owner owner) except -1
    cdef Owner take(self, entry_t* entry)
    # The message ends behind fences. Until its end passes there, MARKs that wait before it say all that was said.
    cdef int end(self, Owner owner) except -1
    cdef int forget_ended(self, const store_t* store, uint32_t queue, uint64_t id) except -1
    # The store leaves the engine.
    cdef int leave(self, const store_t* store) except -1
    # What a message that has left its entry has to say; None: its entry does.
    cdef Owner of_message(self, const store_t* store, uint32_t queue, uint64_t id)
    cdef dict ids_of(self, const store_t* store)
    cdef list entries_of(self, const store_t* store)


# What a MARK of the entry says, as far as it has not ended.
cdef int entry_says(const entry_t* entry) noexcept
# The message of an entry that leaves its queue.
cdef Owner owner_new(const entry_t* entry)
# The owner of an entry that is OWNED.
cdef Owner owner_of(const entry_t* entry)
# This is to be said of it, too, from here on.
cdef void owner_told(Owner owner, uint64_t delivery_count, int flags) noexcept
# The same, and a MARK says it, with all that was said before.
cdef void owner_mark(Owner owner, uint64_t delivery_count, int flags) noexcept
# A durable entry ends, and with it its extra: MARKs of it may wait behind fences.
cdef int ending_told(const entry_t* entry) except -1
