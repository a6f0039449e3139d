"""The way back (rules 9, 10): what was taken is released, from the lowest link up, and waits again at its old place.

Whoever had it has it no more: a delivery is stale, an offer is withdrawn, what the message became is deleted, and the credit is
available again, unpaid.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc

from xump_ext.log.fences cimport log_mark
from xump_ext.route.ledger cimport DELETED, carry_nack, end, forget_delivery, leave_ready, mark_dirty, nacked, room_left, unbind
from xump_ext.select.credit cimport selector_wake, waiting_add
from xump_ext.state.constants cimport BOUND, MOVED, OFFERED, REDELIVERED, RETURNED, TAKEN
from xump_ext.state.graph cimport queue_t, selector_t, waitset_t
from xump_ext.state.index cimport list_remove
from xump_ext.state.offers cimport offer_remove
from xump_ext.state.queue_lists cimport queue_list


cdef int give_back(engine_t* engine, entry_t* entry) except -1:
    """An outstanding entry, whose child is gone, leaves its selector; the credit is available again, unpaid."""
    cdef selector_t* selector = <selector_t*> entry.holder
    if entry.state == TAKEN:
        forget_delivery(entry, NULL)
        list_remove(&selector.taken, entry)
    else:
        if entry.state == OFFERED:
            offer_remove(engine, entry)
        list_remove(&selector.held, entry)
    entry.below.any = NULL
    entry.holder = NULL
    entry.queue.outstanding -= 1
    selector.available += 1
    selector.returned += 1
    return selector_wake(engine, selector)


cdef int release(engine_t* engine, entry_t* entry) except -1:
    """Takes an outstanding entry back from whoever has it: what it became is deleted, from the lowest link up. The entry
    is then in no list."""
    cdef entry_t* lowest = entry
    cdef entry_t* parent
    cdef uint64_t nack
    while lowest.state == MOVED:
        lowest = lowest.below.child
    while lowest != entry:
        if lowest.state == OFFERED or lowest.state == TAKEN or lowest.state == MOVED:
            give_back(engine, lowest)
        elif lowest.state == BOUND:
            unbind(engine, lowest)
            room_left(engine, lowest.queue)
        else:
            leave_ready(engine, lowest)
        parent = lowest.parent
        lowest.parent = NULL
        parent.below.any = NULL
        parent.delivery_count = lowest.delivery_count
        parent.flags |= lowest.flags & REDELIVERED
        nack = nacked(engine, lowest)
        if nack:
            carry_nack(engine, parent, nack)
        end(engine, lowest, DELETED, 0)
        lowest = parent
    return give_back(engine, entry)


cdef int requeue_entry(engine_t* engine, entry_t* entry) except -1:
    """An entry that was released waits again at its old place."""
    entry.queue.ready += 1
    if entry.queue.durable:
        log_mark(entry)
    returning_add(entry)
    return rematch(engine, entry.queue)


cdef int returning_add(entry_t* entry) except -1:
    """A message that was routed waits, and is to be matched anew."""
    cdef queue_t* queue = entry.queue
    if queue.returning == NULL:
        queue.returning = <waitset_t*> calloc(1, sizeof(waitset_t))
        if queue.returning == NULL:
            raise MemoryError()
        queue.returning.queue = queue
        queue.returning.pinned = True
    waiting_add(queue.returning, entry)
    return 0


cdef int rematch(engine_t* engine, queue_t* queue) except -1:
    """What came back will be matched by `routing.go_on`; in a held queue, when that is released."""
    if not queue.held:
        queue_list(engine, queue, RETURNED)
    mark_dirty(engine, queue)
    return 0


cdef int note_nack(engine_t* engine, entry_t* entry) except -1:
    """An iteration that began before does not yield this message again."""
    engine.nacks += 1
    return carry_nack(engine, entry, engine.nacks)
