"""Declarations of `requeue.pyx`."""

from libc.stdint cimport int64_t

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
# The entry is ready, bound, delayed or offered: it is dead-lettered, or dropped.
cdef int send_away(engine_t* engine, entry_t* entry, int reason) except -1
