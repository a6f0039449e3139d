"""Declarations of `owners.pyx`."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t


@cython.final
cdef class Owner:
    """The durable message that ends when an entry in RAM ends."""
    cdef store_t* store
    cdef uint32_t queue             # its number in the store
    cdef uint64_t id
    cdef uint64_t charge            # bytes that it takes of the store
    cdef uint16_t delivery_count    # how often the application took it, or what became of it
    cdef bint redelivered           # it came back before
    cdef bint stained               # the store has a MARK of it
    cdef bint foreign               # it came from another store
    cdef int said                   # ROUTED, if its MARKs have to say that


@cython.final
cdef class Owners:
    """All owners of an engine, each found in O(1) by the entry that it owns, and that entry by its durable message."""
    cdef dict by_entry              # {address of an entry in RAM: Owner}
    cdef dict by_message            # {address of a store: {number of a queue: {id: address of the entry in RAM}}}

    cdef int add(self, entry_t* entry, Owner owner) except -1
    cdef Owner take(self, entry_t* entry)
    cdef dict ids_of(self, const store_t* store)
    cdef list entries_of(self, const store_t* store)


@cython.final
cdef class CarriedAnyway:
    """Messages of a store that have ended, though the log does not say so yet: they own an entry in RAM, or a record of theirs
    waits behind a fence."""
    cdef dict owned                 # as `Owners.ids_of`
    cdef set fenced                 # (number of a queue, id)

    cdef bint has(self, uint32_t queue, uint64_t id) except -1


# The owner of an entry that is OWNED.
cdef Owner owner_of(const entry_t* entry)
# `entry` is about to end for good, and its message enters `target`: the next entry takes the claim.
cdef int owner_claim(engine_t* engine, entry_t* entry, queue_t* target) except -1
# New entries have the durable message of `entry` as their origin, until `engine.gone_store` is NULL again.
cdef int gone_note(engine_t* engine, entry_t* entry) except -1
# The store that holds the durable message behind an entry: the entry itself, one upstream, or its owner; NULL: none does.
cdef store_t* store_behind(const entry_t* entry) except? NULL
# The origin of what enters now, a message of this store: whether late copies of it may be missing in another store. Then a MARK
# says when they are there: before that what enters does not hide its origin after a crash, so that they are made again.
cdef bint copies_awaited(store_t* store, entry_t* parent) except -1
# `entry`, out of its queue, ends for good; what it becomes has `parent` upstream. Where another store holds the message upstream,
# its end there waits for what the store of `entry` has of it: copies, perhaps.
cdef int passes_through(engine_t* engine, entry_t* entry, entry_t* parent) except -1
cdef int claim_take(engine_t* engine, entry_t* entry) except -1
# Whether a durable queue holds the message of this entry.
cdef bint has_owner(const entry_t* entry) noexcept
# A durable queue is deleted: its messages own no entries in RAM any more.
cdef int owners_leave(store_t* store, uint32_t number) except -1
# An owned entry has ended, and so does the message that owns it.
cdef int owner_settled(entry_t* entry) except -1
# What a store that cleans its log carries forward though it has no entry. O(records behind fences); valid until the next change.
cdef CarriedAnyway carried_anyway(store_t* store)
