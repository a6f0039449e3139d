"""Declarations of `append.pyx`. Every queue that these functions get is durable."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.message.headers cimport content_t
from xump_ext.records.kinds cimport enter_record_t
from xump_ext.state.graph cimport entry_t, queue_t, store_t

cdef enum:
    LOOK_AHEAD = 1024       # how many more messages may be handed out before the log must say so

# Reserves buffer for an ENTER of this content, so that `log_enter` finds it. Call it before anything has changed.
cdef int log_reserve(queue_t* queue, content_t* content) except -1
# The same for all messages of a call, of so many bytes (`admission_bytes`).
cdef int log_reserve_all(store_t* store, int64_t bytes) except -1
cdef int log_enter(entry_t* entry) except -1
cdef int log_carried(queue_t* queue, const enter_record_t* old, bint anyway) except -1
# Whether the ENTER that `log_carried` writes says all that MARKs said before. Those of the others are copied, too.
cdef bint tells_its_marks(const entry_t* entry, bint anyway) noexcept
cdef int log_settle(entry_t* entry) except -1
cdef int log_queue(queue_t* queue) except -1
cdef int log_queue_gone(queue_t* queue) except -1
# From here on the entry may be handed out. The log hears it for the entry and for its parents in durable queues.
cdef int log_handed(entry_t* entry) except -1
# The application takes an entry again that came back before. Writes MARKs: the watermark cannot say how often it was taken.
cdef int log_taken_again(entry_t* entry) except -1
cdef int log_hands(queue_t* queue) except -1
cdef void log_state(queue_t* queue, uint32_t closing) noexcept
