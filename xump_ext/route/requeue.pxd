"""Declarations of `requeue.pyx`."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.state.graph cimport engine_t, entry_t, queue_t

cdef int recall(engine_t* engine, entry_t* entry) except -1
cdef int requeue_entry(engine_t* engine, entry_t* entry) except -1
cdef int returning_add(entry_t* entry) except -1
cdef int mark_returned(engine_t* engine, queue_t* queue) except -1
cdef enum:
    # how a nack is carried out
    NACK_ASKS = 0           # it reads what it needs, and asks for room for a dead letter: if it raises, nothing has changed
    NACK_PREPARED = 1       # that was done
    NACK_RETURNS = 2        # the message returns, however often it was taken: there is no room for its dead letter
cdef int nack_entry(engine_t* engine, entry_t* entry, int64_t delay_ns, bint by_hand, int how) except -1
cdef int return_unseen(engine_t* engine, entry_t* entry) except -1
cdef int forget_nack(engine_t* engine, entry_t* entry) except -1
cdef int note_nack(engine_t* engine, entry_t* entry) except -1
# Whether a nack dead-letters the message.
cdef bint is_over_limit(const entry_t* entry) noexcept
# How long the message is delayed after so many deliveries, by a queue that has retry delays, in ns.
cdef int64_t retry_delay_of(const queue_t* queue, uint32_t delivery_count) noexcept
# The entry that waits again if this one is nacked: itself, or one upstream whose queue says how long it is delayed. `delay_ns`:
# the delay that the nack gives, or NEVER; gets the delay.
cdef entry_t* returns_as(entry_t* entry, int64_t* delay_ns) noexcept
# Whether the content of an entry has to be read before it is taken back. `refused`: it is not to return, but to be dead-lettered.
cdef bint return_reads(engine_t* engine, entry_t* entry, bint refused) except -1
# Reads it if so, and if it is not to return, asks for room for its dead letter. If it raises, nothing has changed.
cdef int prepare_return(engine_t* engine, entry_t* entry, bint refused) except -1
# Whether such an entry is dead-lettered, or dropped: it is refused, or its time is over.
cdef bint returns_not(engine_t* engine, const entry_t* entry, bint refused) except -1
# There may be room: what has expired and waits for some goes on, from each queue the first ones. The run is still to come.
cdef int expire_in_room(engine_t* engine) except -1
# The same in one queue.
cdef int expire_first(engine_t* engine, queue_t* queue) except -1
# The entry is ready, bound, delayed or offered: it is dead-lettered, or dropped; or it has expired, and waits until it can.
cdef int send_away(engine_t* engine, entry_t* entry, int reason) except -1
