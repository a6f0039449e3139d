"""Declarations of `ready.pyx`, and the way out of what is ready, inline."""

from libc.stdint cimport int64_t, uint8_t

from xump_ext.select.credit cimport room_made, waiting_remove
from xump_ext.select.plan cimport Plan
from xump_ext.state.constants cimport APART, DELAYED, QUEUED, SUSPENDED, WAITING
from xump_ext.state.graph cimport engine_t, entry_t, extra_t, queue_t, waitset_t

cdef int delay(engine_t* engine, entry_t* entry, int64_t due, uint8_t timer) except -1
# The entry, which is in no list, has expired, and waits, delayed, until a store has room for its dead letter.
cdef int wait_for_room(engine_t* engine, entry_t* entry) except -1
cdef int deadline_set(engine_t* engine, entry_t* entry, int64_t timeout) except -1
cdef void expiry_set(engine_t* engine, entry_t* entry) noexcept
cdef int leave_ready(engine_t* engine, entry_t* entry) except -1
cdef bint detach_marked(engine_t* engine, entry_t* entry) except -1

cdef inline bint counts_apart(const extra_t* extra) noexcept:
    """Whether it is in a group, or counts for a limit of bytes: more is to be done than for others that are ready."""
    return extra.group != NULL or extra.body_bytes != 0

cdef inline int detach_ready(engine_t* engine, entry_t* entry) except -1:
    """`leave_ready`, without waking what waits for room: the message may enter the same queue again in this step."""
    cdef queue_t* queue = entry.queue
    cdef waitset_t* waitset
    if (entry.flags & (QUEUED | SUSPENDED | APART) or entry.extra != NULL and (
            entry.state == DELAYED or counts_apart(entry.extra))) and detach_marked(engine, entry):
        return 0
    if entry.state == WAITING:
        waitset = <waitset_t*> entry.holder
        waiting_remove(waitset, entry)
        if waitset.count == 0 and not waitset.pinned:
            (<Plan> queue.plan).waitset_left(waitset)
    else:
        queue.unrouted -= 1
    queue.ready -= 1
    return 0
