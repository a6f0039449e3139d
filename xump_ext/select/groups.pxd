"""Declarations of `groups.pyx`."""

from xump_ext.state.graph cimport engine_t, entry_t, queue_t

# The text by which a queue orders this message, or None.
cdef object group_key(entry_t* entry)
# An entry is ready, or delayed by a retry: it stands in the line of its key.
cdef int group_enter(engine_t* engine, entry_t* entry) except -1
# It leaves the line: an action takes it, or it ends.
cdef int group_part(entry_t* entry) except -1
# It is outstanding or bound: the others of its key wait for it.
cdef int group_hold(entry_t* entry) except -1
# It ends here, in whatever state: the next one of its key may go on.
cdef int group_leave(engine_t* engine, entry_t* entry) except -1
cdef void groups_free(queue_t* queue) noexcept
