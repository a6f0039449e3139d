"""Declarations of `fences.pyx`, and the test for whether a record needs a fence."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.state.graph cimport entry_t, queue_t, store_t

cdef enum:
    LATE = 255      # stands among the kinds of records behind fences, and is none

cdef inline bint fences_needed(store_t* store) noexcept:
    """Whether the current message entered another durable store."""
    return store.engine.entered_stores & ~(<uint64_t> 1 << store.slot) != 0

cdef int fence_push(store_t* store, int kind, uint32_t queue, uint64_t id, uint64_t charge, int flags) except -1
cdef int fences_pass(store_t* store) except -1
cdef void fences_forget(store_t* store, const store_t* other) noexcept
cdef bint fences_stuck(const store_t* store) noexcept

# ---- records that are logged now, or wait behind a fence

# Whether the end of this message waits behind fences.
cdef bint end_waits(queue_t* queue, uint64_t id) noexcept
cdef bint end_is_held(const entry_t* entry) noexcept
cdef int settle_or_fence(queue_t* queue, uint64_t id, uint64_t charge, bint stained) except -1
# Writes a MARK, which completes the ENTER: how often the entry was delivered, whether it came back, is in the history, or is
# routed out of turn.
cdef int log_mark(entry_t* entry) except -1
# The same as `log_mark` for a message that a retry delays until `due`, at an orderly end.
cdef int log_retry(entry_t* entry, int64_t due, uint32_t closing) except -1
# The entry, which has an extra, was routed, and copies were made. If it was so out of turn, a MARK says it.
cdef int log_routed(entry_t* entry) except -1
# The entry is about to end as a dead letter in RAM. A MARK says whether it was routed, if the frontier may not tell.
cdef int log_lent(entry_t* entry, bint routed) except -1
# A copy of the entry entered another store. The frontier in the log may not pass the entry before that copy is durable.
cdef int log_copied(entry_t* entry) except -1
# The same for a message that the frontier has passed: its end, in whatever call it comes, waits for the copy.
cdef int log_late(queue_t* queue, uint64_t id) except -1
