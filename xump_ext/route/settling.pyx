"""Settling: how a message ends in its queue, and which selector is paid (rules 7, 8).

Every message that enters a queue leaves it once. If a MOVE supplied it, the selector of that MOVE is paid then. A message that
was moved stays outstanding in its queue, linked with the entry that it became. When that entry is settled, the link is followed
upwards, with one payment a step. INFINITE credit leaves no link of its own: it passes the message's link to its parent on.
"""

from libc.stdint cimport uint16_t, uint64_t, uintptr_t

from xump_ext.log.append cimport log_settle
from xump_ext.log.fences cimport log_mark
from xump_ext.log.marks cimport ending_told
from xump_ext.log.owners cimport owner_settled
from xump_ext.log.writer cimport went_to
from xump_ext.memory.canaries cimport PAYMENT, strikes
from xump_ext.select.groups cimport group_leave
from xump_ext.state.constants cimport DEAD_ENTRY, HISTORY, NACKED, OWNED, REASON_COUNT, SHADOW
from xump_ext.state.constants import REASONS
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t
from xump_ext.state.index cimport entry_free, index_remove, list_append, list_remove, plain_entry_free
from xump_ext.state.lazy_content cimport content_drop
from xump_ext.state.schedule cimport extra_leave


cdef dict counts_by_reason(const uint64_t* counts):
    """The counts that are not zero, by the names of the reasons."""
    cdef int reason
    return {REASONS[reason]: counts[reason] for reason in range(REASON_COUNT) if counts[reason]}


cdef int settle(engine_t* engine, entry_t* entry, int how, int reason) except -1:
    """Ends an entry, which is in no list any more, in its queue, and pays for it upwards."""
    cdef entry_t* parent = entry.parent
    cdef queue_t* queue = entry.queue
    entry.parent = NULL
    end_here(engine, entry, how, reason)
    return 0 if parent == NULL else pay_for(engine, parent, queue)


cdef int pay_for(engine_t* engine, entry_t* entry, queue_t* below) except -1:
    """The message that this one was moved on as, in queue `below`, is settled: pays the selector that took this one, settles it,
    and so on upwards.

    An end upstream, in another store, waits until those below are durable: copies that were made there are so then, too.
    """
    cdef entry_t* parent
    cdef selector_t* supplier
    while entry != NULL:
        went_to(engine, below)
        below = entry.queue
        supplier = <selector_t*> entry.holder
        entry.below.any = NULL
        list_remove(&supplier.holding, entry)
        entry.queue.outstanding -= 1
        if not strikes(PAYMENT, engine.sequence):
            supplier.available += 1
            supplier.paid += 1
        selector_paid(engine, supplier)
        parent = entry.parent
        entry.parent = NULL
        end_here(engine, entry, PROCESSED, 0)
        entry = parent
    return 0


cdef int end(engine_t* engine, entry_t* entry, int how, int reason) except -1:
    return end_here(engine, entry, how, reason)


cdef inline int end_here(engine_t* engine, entry_t* entry, int how, int reason) except -1:
    """Puts the entry into the history, or counts and destroys it. Pays for nothing."""
    cdef queue_t* queue = entry.queue
    if entry.flags & (NACKED | OWNED) or entry.extra != NULL or queue.history_limit or queue.durable:
        return end_marked(engine, entry, how, reason)
    if how == PROCESSED:
        queue.settled += 1
    elif how == DROPPED:
        queue.dropped[reason] += 1
    else:
        queue.deleted += 1
    index_remove(&queue.index, entry)
    content_drop(engine, entry)
    plain_entry_free(engine, entry)
    return 0


cdef int end_marked(engine_t* engine, entry_t* entry, int how, int reason) except -1:
    """`end_here` for an entry that leaves more behind than its place."""
    cdef queue_t* queue = entry.queue
    if entry.extra != NULL:
        ending_told(entry)
        group_leave(engine, entry)
        extra_leave(engine, entry)
    if how == DROPPED:
        queue.dropped[reason] += 1
    elif how == DELETED:
        queue.deleted += 1
    elif queue.history_limit:
        if entry.flags & DEAD_ENTRY:
            entry.hops = <uint16_t> hops_of(engine, entry)      # for good: whether it has waited shows only now
            entry.flags &= ~DEAD_ENTRY
        entry.state = HISTORY
        entry.holder = NULL
        entry.below.any = NULL
        list_append(&queue.history, entry)
        if queue.durable:
            if not entry.flags & SHADOW:
                log_mark(entry)
        elif entry.flags & OWNED:
            owner_settled(entry)
        if queue.history.count <= queue.history_limit:
            return 0
        entry = queue.history.head
        list_remove(&queue.history, entry)
        queue.settled += 1
    else:
        queue.settled += 1
    return destroy(engine, entry)


cdef inline int destroy(engine_t* engine, entry_t* entry) except -1:
    """Takes a settled entry out of its queue, tells the store of its end, and frees it."""
    if entry.flags & NACKED:
        del (<dict> engine.nacked)[<uintptr_t> entry]
    if entry.queue.durable:
        log_settle(entry)
    elif entry.flags & OWNED:
        owner_settled(entry)
    index_remove(&entry.queue.index, entry)
    content_drop(engine, entry)
    entry_free(engine, entry)
    return 0


cdef int copy_nack(engine_t* engine, entry_t* entry, uint64_t number) except -1:
    """Gives the entry the number of a nack. NULL: what the message became has ended already."""
    if entry != NULL:
        entry.flags |= NACKED
        (<dict> engine.nacked)[<uintptr_t> entry] = number
    return 0


cdef uint64_t nacked(engine_t* engine, const entry_t* entry) except? 0:
    """The number of the entry's last nack; 0 for none."""
    return (<dict> engine.nacked)[<uintptr_t> entry] if entry.flags & NACKED else 0
