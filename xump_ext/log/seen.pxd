"""Declarations of `seen.pyx`. Every queue that these functions get is durable, and looks for duplicates."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.state.graph cimport queue_t

# The newest message of the window was published. MemoryError: the store fails.
cdef void log_seen(queue_t* queue) noexcept
# The window forgets what is too old, and the log with it.
cdef void log_forget(queue_t* queue, uint64_t upto, uint64_t count) noexcept
# Whether the window has the SEEN of this message.
cdef bint is_remembered(const queue_t* queue, uint64_t id) noexcept
# The bytes of the log that the SEENs of a queue take.
cdef uint64_t seen_bytes(const queue_t* queue) noexcept
# As many SEENs as that count as live from here on, or do not any more.
cdef void seen_come(queue_t* queue, uint64_t count) noexcept
cdef void seen_leave(queue_t* queue, uint64_t count) noexcept
