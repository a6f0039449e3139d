"""The oldest ready message of a queue, whatever it waits for: to be taken by hand, or dropped from a full queue.

Ready messages lie in several places, each in order: the unrouted ones in the index or apart, those that wait in waitsets, and
those that are bound with their selectors. So to find the oldest of all costs a look at each waitset and each selector; and at
each bound message, if they are not in order.
"""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.route.holding cimport hold_for
from xump_ext.route.requeue cimport send_away
from xump_ext.select.unrouted cimport in_index
from xump_ext.state.constants cimport BEHIND, BOUND, DELAYED, OVERFULL, REASON_OVERFLOW, UNLIMITED, UNROUTED, WAITING
from xump_ext.state.drop_order cimport drop_order_least, worth_of
from xump_ext.state.envelope cimport QueueRef
from xump_ext.state.graph cimport selector_t, waitset_t
from xump_ext.state.group_line cimport is_behind
from xump_ext.state.index cimport index_until, unrouted_from
from xump_ext.state.limits cimport is_within_limits
from xump_ext.state.queue_lists cimport queue_unlist
from xump_ext.state.returned_heap cimport order_of, returned_merge, waitset_oldest


cdef entry_t* earlier(entry_t* one, entry_t* other) noexcept:
    """The one that goes first."""
    if one == NULL or other == NULL:
        return other if one == NULL else one
    return one if order_of(one) < order_of(other) else other


cdef entry_t* first_returning(queue_t* queue) noexcept:
    """The same, among those that came back to a held queue, of whatever rank. O(those) where there are ranks."""
    cdef entry_t* entry
    cdef entry_t* found = NULL
    if queue.top_priority == 0 or queue.returning == NULL or queue.returning.count == 0:
        return first_of_key(queue.returning)
    returned_merge(queue.returning)
    entry = queue.returning.head
    while entry != NULL:
        if entry.extra == NULL or not is_behind(entry):
            found = earlier(found, entry)
        entry = entry.next
    return found


cdef entry_t* first_of_key(waitset_t* waitset) noexcept:
    """The oldest entry that is not behind another one of its key, or NULL. O(those before it)."""
    cdef entry_t* entry
    if waitset == NULL or waitset.count == 0:
        return NULL
    entry = waitset_oldest(waitset)
    if entry.extra == NULL or not is_behind(entry):
        return entry
    returned_merge(waitset)
    entry = waitset.head
    while entry != NULL and entry.extra != NULL and is_behind(entry):
        entry = entry.next
    return entry


cdef entry_t* first_in_index(queue_t* queue) noexcept:
    """The same, among the unrouted entries that are in no list."""
    cdef entry_t* entry
    cdef uint64_t left = in_index(queue), id = queue.frontier
    while left:
        entry = unrouted_from(&queue.index, id)
        if entry.extra == NULL or not is_behind(entry):
            return entry
        id = entry.id + 1
        left -= 1
    return NULL


cdef entry_t* first_free(queue_t* queue) noexcept:
    cdef entry_t* found = NULL
    cdef waitset_t* waitset = queue.waitsets
    cdef uint32_t rank
    if not queue.active or queue.held:      # else they are still to be routed
        for rank in range(queue.top_priority + 1 if queue.apart != NULL else 0):
            found = earlier(found, first_of_key(&queue.apart.levels[rank]))
        found = earlier(found, first_in_index(queue))
    for rank in range(queue.top_priority + 1 if queue.kept != NULL else 0):
        found = earlier(found, first_of_key(&queue.kept.levels[rank]))
    found = earlier(found, first_returning(queue))
    while waitset != NULL:
        if not waitset.place & BEHIND:
            found = earlier(found, waitset_oldest(waitset))
        waitset = waitset.next
    return found


cdef entry_t* older(entry_t* one, entry_t* other) noexcept:
    if one == NULL or other == NULL:
        return other if one == NULL else one
    return one if one.sequence < other.sequence else other


cdef entry_t* oldest_ready(queue_t* queue) noexcept:
    cdef entry_t* found = NULL
    cdef entry_t* entry
    cdef waitset_t* waitset = queue.waitsets
    cdef selector_t* selector = queue.own
    cdef uint32_t rank
    for rank in range(queue.top_priority + 1 if queue.apart != NULL else 0):
        found = older(found, waitset_oldest(&queue.apart.levels[rank]))
    if in_index(queue):
        found = older(found, unrouted_from(&queue.index, queue.frontier))
    for rank in range(queue.top_priority + 1 if queue.kept != NULL else 0):
        found = older(found, waitset_oldest(&queue.kept.levels[rank]))
    if queue.returning != NULL:
        found = older(found, waitset_oldest(queue.returning))
    while waitset != NULL:
        found = older(found, waitset_oldest(waitset))
        waitset = waitset.next
    while selector != NULL:
        if selector.infinite:
            entry = selector.holding.head
            while entry != NULL:
                found = older(found, entry)
                entry = entry.next if selector.holds_mixed else NULL
        selector = selector.next_own
    return found


# ---- a queue that drops its oldest messages

cdef entry_t* lesser(entry_t* one, entry_t* other, const entry_t* newest) noexcept:
    """The one to be dropped first, if it is not the newest. That is the last one of its list: if it is the first, it is alone."""
    if other == NULL or other == newest:
        return one
    return one if one != NULL and worth_of(one) < worth_of(other) else other


cdef entry_t* least_returning(entry_t* found, queue_t* queue, const entry_t* newest) noexcept:
    """`lesser` for those that came back to a held queue. O(those) where there are ranks."""
    cdef entry_t* entry
    if queue.top_priority == 0:
        return lesser(found, waitset_oldest(queue.returning), newest)
    returned_merge(queue.returning)
    entry = queue.returning.head
    while entry != NULL:
        found = lesser(found, entry, newest)
        entry = entry.next
    return found


cdef entry_t* least(queue_t* queue, const entry_t* newest) except? NULL:
    """The ready message to be dropped first, or NULL if only the newest is left."""
    cdef entry_t* found = NULL
    cdef bint mixed = False
    cdef waitset_t* waitset = queue.waitsets
    cdef selector_t* selector = queue.own
    cdef uint32_t rank
    for rank in range(queue.top_priority + 1 if queue.apart != NULL else 0):
        found = lesser(found, waitset_oldest(&queue.apart.levels[rank]), newest)
    if in_index(queue):
        found = lesser(found, unrouted_from(&queue.index, queue.frontier), newest)
    for rank in range(queue.top_priority + 1 if queue.kept != NULL else 0):
        found = lesser(found, waitset_oldest(&queue.kept.levels[rank]), newest)
    if queue.returning != NULL and queue.returning.count:
        found = least_returning(found, queue, newest)
    while waitset != NULL:
        found = lesser(found, waitset_oldest(waitset), newest)
        waitset = waitset.next
    while selector != NULL:
        if selector.infinite and selector.holding.count:
            found = lesser(found, selector.holding.head, newest)
            mixed = mixed or (selector.holding.count > 1 and (selector.holds_mixed or queue.top_priority != 0))
        selector = selector.next_own
    return lesser(found, drop_order_least(queue, newest), newest) if mixed else found


cdef entry_t* newest_counted(const queue_t* queue) noexcept:
    """The newest message that the limits count: ready or delayed. One is."""
    cdef entry_t* entry = index_until(&queue.index, UNLIMITED)
    while entry.state != UNROUTED and entry.state != WAITING and entry.state != BOUND and entry.state != DELAYED:
        entry = index_until(&queue.index, entry.id - 1)
    return entry


cdef bint has_room_for(const queue_t* queue, const entry_t* newest) noexcept:
    """Whether the newest message would find room, were it not in the queue yet."""
    cdef uint64_t bytes = 0 if newest.extra == NULL else newest.extra.body_bytes
    return queue.ready + queue.delayed - 1 < queue.limit_given and queue.body_bytes - bytes < queue.limit_bytes


cdef queue_t* first_overfull(engine_t* engine) noexcept:
    """The one that was created first, so that it makes no difference in which order they became full."""
    cdef queue_t* queue = engine.lists[OVERFULL]
    cdef QueueRef handle
    if queue.listed[OVERFULL].next == NULL:
        return queue
    for handle in (<dict> engine.queues).values():
        if handle.queue.is_listed[OVERFULL]:
            return handle.queue
    return queue


cdef int drop_oldest(engine_t* engine) except -1:
    """Drops the oldest messages of a queue that is beyond its limits, until its newest has room, or until all that is left
    fits."""
    cdef queue_t* queue = first_overfull(engine)
    cdef entry_t* entry
    cdef entry_t* newest
    queue_unlist(engine, queue, OVERFULL)
    # Its dead letter queue may be in a store that is opened later. If a dead letter comes to the queue itself, that is routed
    # first, and the queue is listed again.
    while queue.ready and not queue.awaits_release and not queue.is_listed[OVERFULL]:
        if is_within_limits(queue) and (queue.drops_to_fit or queue.body_bytes < queue.limit_bytes):
            break               # as mostly, if the newest was taken: it is not looked for behind all others that were
        newest = NULL if queue.drops_to_fit else newest_counted(queue)
        entry = NULL if newest != NULL and has_room_for(queue, newest) else least(queue, newest)
        if entry == NULL:
            break
        try:
            send_away(engine, entry, REASON_OVERFLOW)
        except (OSError, KeyError) as error:        # its store cannot read it, so it has no dead letter: it stays
            hold_for(engine, queue, error)
            break
    return 0
