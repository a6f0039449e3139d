"""What waits for another store, or for somebody in RAM: the declarations of `fences.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.graph cimport engine_t, entry_t, queue_t, store_t

# `entry` is about to end for good, and what becomes of it enters `target`: the next entry takes the claim.
cdef int owner_claim(engine_t* engine, entry_t* entry, queue_t* target) except -1
# What `entry` becomes has this durable message as its origin, until `engine.gone_store` is NULL again.
cdef int gone_note(engine_t* engine, entry_t* entry) except -1
cdef int claim_take(engine_t* engine, entry_t* entry) except -1
# Whether a durable queue holds the message for it.
cdef bint has_owner(const entry_t* entry) noexcept
# A durable queue is deleted: it owns nothing in RAM any more.
cdef int owners_leave(store_t* store, uint32_t number) except -1
# An owned entry has come to its end: so has the message that owns it.
cdef int owner_settled(entry_t* entry) except -1

cdef inline bint fences_needed(store_t* store) noexcept:
    """Whether the message at hand went to another store."""
    return store.engine.entered_stores & ~(<uint64_t> 1 << store.slot) != 0

cdef int fence_push(store_t* store, int kind, uint32_t queue, uint64_t id, uint64_t charge, int flags) except -1
cdef int fences_pass(store_t* store) except -1
cdef void fences_forget(store_t* store, const store_t* other) noexcept
cdef bint fences_stuck(const store_t* store) noexcept
cdef set carried_anyway(store_t* store)
# A copy entered another store: the frontier of its source may not pass it before that is durable.
cdef int log_copied(entry_t* entry) except -1
