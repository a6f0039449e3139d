"""Declarations of `owners.pyx`."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from xump_ext.log.marks cimport Owner
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t


@cython.final
cdef class CarriedAnyway:
    """Messages of a store that have ended, though the log does not say so yet: they own an entry in RAM, or a record of theirs
    waits behind a fence."""
    cdef dict owned                 # as `Owners.ids_of`
    cdef set fenced                 # (number of a queue, id)

    cdef bint has(self, uint32_t queue, uint64_t id) except -1


# `entry` is about to end for good, and its message enters `target`: the next entry takes the claim.
cdef int owner_claim(engine_t* engine, entry_t* entry, queue_t* target) except -1
# New entries have the durable message of `entry` as their origin, until `engine.gone_store` is NULL again.
cdef int gone_note(engine_t* engine, entry_t* entry) except -1
# The store that holds the durable message behind an entry: the entry itself, one upstream, or its owner; NULL: none does.
cdef store_t* store_behind(const entry_t* entry) except? NULL
# The end of the origin of this entry, which enters the same store, waits: when the entry hides it after a crash, as `foreign` of
# an ENTER. Until then copies of the origin may be missing in another store, and are made again. Most often it has to be routed. A
# MARK of the entry says COPIED where that is not enough, since there are late copies, or cannot be, since it ended unrouted.
cdef int hides_when(entry_t* entry) except -1
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
# What the shadow `durable` became has ended: it is in the history from here on.
cdef int shadow_ends(entry_t* durable, Owner owner) except -1
# What a store that cleans its log carries forward though it has no entry. O(records behind fences); valid until the next change.
cdef CarriedAnyway carried_anyway(store_t* store)
