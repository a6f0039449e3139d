"""The limits of a queue: how many messages may be ready, or delayed, and how many bytes their bodies may have.

Most queues have a limit of messages at most, and nothing delayed. So that an entering message compares two numbers only, `limit`
is how many messages may be *ready* now: the limit given less what is delayed, and none while there are too many bytes.
"""

from libc.stdint cimport uint64_t

from xump_ext.state.constants cimport DELAYED, UNLIMITED
from xump_ext.state.graph cimport entry_t, queue_t

cdef inline bint is_limited(const queue_t* queue) noexcept:
    return queue.limit_given != UNLIMITED or queue.limit_bytes != UNLIMITED

cdef inline void limit_changed(queue_t* queue) noexcept:
    """Works out the limit of ready messages anew: the delayed ones, or the bytes, have changed."""
    if queue.body_bytes >= queue.limit_bytes:
        queue.limit = 0
    elif queue.limit_given == UNLIMITED:
        queue.limit = UNLIMITED
    else:
        queue.limit = queue.limit_given - queue.delayed if queue.limit_given > queue.delayed else 0

cdef inline void count_bytes(entry_t* entry, int change) noexcept:
    """The bytes of a ready message more, or less (1, -1)."""
    if entry.extra.body_bytes:
        entry.queue.body_bytes += change * <int> entry.extra.body_bytes
        limit_changed(entry.queue)

cdef inline void count_ready(entry_t* entry, int change) noexcept:
    """One message more is ready, or one less (1, -1)."""
    entry.queue.ready += change
    if entry.extra != NULL:
        count_bytes(entry, change)

cdef inline void count_delayed(entry_t* entry, int change) noexcept:
    """One message more is delayed, or one less (1, -1)."""
    cdef queue_t* queue = entry.queue
    queue.delayed += change
    queue.body_bytes += change * <int> entry.extra.body_bytes
    queue.delayed_bytes += change * <int> entry.extra.body_bytes
    limit_changed(queue)

cdef inline bint fits_without(const queue_t* queue, const entry_t* leaving) noexcept:
    """Whether one more fits once `leaving`, which is ready here, is out of the queue."""
    cdef uint64_t bytes = 0 if leaving.extra == NULL else leaving.extra.body_bytes
    return queue.body_bytes - bytes < queue.limit_bytes and queue.ready - 1 + queue.delayed < queue.limit_given

cdef inline bint drops(const queue_t* queue) noexcept:
    """Whether it takes a message beyond its limits, and drops its oldest ones for it."""
    return queue.drops_oldest and droppable_room(queue, queue.delayed, queue.delayed_bytes)

cdef inline bint droppable_room(const queue_t* queue, uint64_t delayed, uint64_t bytes) noexcept:
    """Whether so many delayed messages, which are not dropped, leave room. One that drops to fit may have a limit of 0."""
    if queue.drops_to_fit:
        return (delayed == 0 or delayed < queue.limit_given) and (bytes == 0 or bytes < queue.limit_bytes)
    return delayed < queue.limit_given and bytes < queue.limit_bytes

cdef inline bint is_within_limits(const queue_t* queue) noexcept:
    """Whether it holds no more than its limits allow."""
    return queue.ready + queue.delayed <= queue.limit_given and queue.body_bytes <= queue.limit_bytes
