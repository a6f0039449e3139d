"""Declarations of `oldest.pyx`."""

from xump_ext.state.graph cimport engine_t, entry_t, queue_t

# The first ready message that your program may take by hand, or NULL.
cdef entry_t* first_free(queue_t* queue) noexcept
cdef int drop_oldest(engine_t* engine) except -1
# The ready message with the lowest id, or NULL. O(waitsets and selectors).
cdef entry_t* oldest_ready(queue_t* queue) noexcept
