"""Room in a store: whether one more message fits, and how much of it stays reserved for messages in the store.

Messages in a full store must be able to move on and end, since only that makes room. So each step of a message leaves some room
to later steps:

    a publish, or a message from another store      leaves `kept_bytes`
    the first MOVE within the store                 leaves a quarter of that
    the second                                      leaves a sixteenth, and so on

With one limit for all steps, messages at the beginning of their way could take the room that others need to end.
"""

from xump_ext.errors import StoreFailed, StoreFull
from xump_ext.log.writer cimport charge_of, enter_bytes, store_changed


cdef bint store_has_room(queue_t* queue, content_t* content) noexcept:
    cdef store_t* store = queue.store
    cdef int64_t bytes = <int64_t> charge_of(enter_bytes(content, False))
    return not store.failed and not store.leaving_engine and store.room >= bytes + kept_bytes(store, bytes)


cdef object no_room(queue_t* queue):
    cdef store_t* store = queue.store
    name = (<object> queue.handle).name
    if store.failed:
        return StoreFailed(
            f"the store of queue {name!r} has failed: close the engine, look after the disk, and open the store again")
    if store.leaving_engine:
        return StoreFailed(f"the store of queue {name!r} is being deleted, and the queue with it")
    return StoreFull(f"the store of queue {name!r} is full: {max(store.room - kept_bytes(store, 0), 0)} bytes are left; take "
                     "messages out, or allow it more bytes")


cdef int64_t kept_bytes(const store_t* store, int64_t charge) noexcept:
    """The room that an entering message leaves to those that are in the store. `charge`: what it takes itself."""
    return max(store.kept, 2 * max(store.largest, charge))


cdef int steps_down(const store_t* store, const entry_t* entry) noexcept:
    """How often the message was moved within the store, this time included; COMES_IN: it comes from outside the store."""
    cdef int steps = 0
    if entry.queue.store != store:
        return COMES_IN
    while entry != NULL and steps < ENDS:
        steps += entry.queue.store == store
        entry = entry.parent
    return steps


cdef bint store_takes(queue_t* queue, content_t* content, int steps) noexcept:
    cdef store_t* store = queue.store
    cdef int64_t bytes = USUAL_BYTES
    if store.leaving_engine:
        return False
    if content != NULL:
        bytes += charge_of(enter_bytes(content, True))
        bytes += kept_bytes(store, bytes) >> (2 * steps)
    if not store.failed and store.room >= bytes:
        return True
    if not store.refused and not store.failed:      # tell the committer, which cleans the log if that helps
        store.refused = True
        if not store.is_changed:
            store_changed(store)
    return False
