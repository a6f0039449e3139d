"""Declarations of `requeue.pyx`."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.state.graph cimport engine_t, entry_t, queue_t

cdef int recall(engine_t* engine, entry_t* entry) except -1
cdef int requeue_entry(engine_t* engine, entry_t* entry) except -1
cdef int returning_add(entry_t* entry) except -1
cdef int mark_returned(engine_t* engine, queue_t* queue) except -1
cdef int nack_entry(engine_t* engine, entry_t* entry, int64_t delay_ns, bint by_hand) except -1
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
# The entry is ready, bound, delayed or offered: it is dead-lettered, or dropped.
cdef int send_away(engine_t* engine, entry_t* entry, int reason) except -1
