"""Requeueing: a message that was taken is released, and waits again at its old place (rules 9, 10).

What the message became downstream is deleted, from the lowest link up. Its delivery is stale, or its offer is withdrawn. The
credit of the selectors that took it is available again, without a payment.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc

from xump_ext.log.fences cimport log_mark
from xump_ext.route.ledger cimport DELETED, copy_nack, end, forget_delivery, leave_ready, mark_dirty, nacked, room_left, unbind
from xump_ext.select.credit cimport selector_wake, waiting_add
from xump_ext.state.constants cimport BOUND, MOVED, OFFERED, REDELIVERED, RETURNED, TAKEN
from xump_ext.state.graph cimport queue_t, selector_t, waitset_t
from xump_ext.state.index cimport list_remove
from xump_ext.state.offers cimport offer_remove
from xump_ext.state.queue_lists cimport queue_list


cdef int give_back(engine_t* engine, entry_t* entry) except -1:
    """Takes an outstanding entry without a child back from its selector, whose credit is available again, unpaid."""
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
    """Takes an outstanding entry back: deletes what it became, from the lowest link up. The entry is in no list then."""
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
            copy_nack(engine, parent, nack)
        end(engine, lowest, DELETED, 0)
        lowest = parent
    return give_back(engine, entry)


cdef int requeue_entry(engine_t* engine, entry_t* entry) except -1:
    """Lets an entry that was released wait again at its old place."""
    entry.queue.ready += 1
    if entry.queue.durable:
        log_mark(entry)
    returning_add(entry)
    return mark_returned(engine, entry.queue)


cdef int returning_add(entry_t* entry) except -1:
    """Lets a routed message wait in its queue's `returning`, to be matched anew."""
    cdef queue_t* queue = entry.queue
    if queue.returning == NULL:
        queue.returning = <waitset_t*> calloc(1, sizeof(waitset_t))
        if queue.returning == NULL:
            raise MemoryError()
        queue.returning.queue = queue
        queue.returning.pinned = True
    waiting_add(queue.returning, entry)
    return 0


cdef int mark_returned(engine_t* engine, queue_t* queue) except -1:
    """Has the next run match the messages that came back; in a held queue, the run after its release."""
    if not queue.held:
        queue_list(engine, queue, RETURNED)
    mark_dirty(engine, queue)
    return 0


cdef int note_nack(engine_t* engine, entry_t* entry) except -1:
    """Numbers a nack, so that an iteration that began before it does not yield this message again."""
    engine.nacks += 1
    return copy_nack(engine, entry, engine.nacks)
