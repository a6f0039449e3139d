"""Requeueing: a message that was taken is released, and waits again at its old place (rules 9, 10).

The messages that a MOVE or BOUNCE made of it downstream are deleted, from the lowest link up. Its delivery is stale, or its offer
is withdrawn. The credit of the selectors that took it is available again, without a payment.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc

from xump_ext.log.fences cimport log_mark
from xump_ext.message.times cimport later
from xump_ext.route.clock cimport time_of
from xump_ext.route.holding cimport hold_for
from xump_ext.route.ledger cimport dead_letter
from xump_ext.route.letter_room cimport letter_fits, letter_room
from xump_ext.route.letters cimport dead_letter_of
from xump_ext.route.offering cimport forget_delivery, room_left, unbind, window_left
from xump_ext.route.ready cimport delay, expiry_set, leave_ready, wait_for_room
from xump_ext.route.settling cimport DELETED, copy_nack, end, nacked
from xump_ext.state.queue_lists cimport mark_dirty, queue_list
from xump_ext.select.credit cimport selector_wake, waiting_add
from xump_ext.select.groups cimport group_enter
from xump_ext.select.unrouted cimport apart_add, goes_apart, kept_add, kept_try
from xump_ext.state.constants cimport (
    BOUND, BROKEN, FOREIGN, HOME_KEPT, HOME_PARKED, HOME_WAITING, MOVED, NACKED, NEVER, OFFERED, OVERFULL, REASON_DELIVERY_LIMIT,
    REASON_EXPIRED, REDELIVERED, RETURNED, TAKEN, TIMER_RETRY, UNLIMITED, UNROUTED,
)
from xump_ext.state.envelope cimport QueueRef
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport PUTS_UNDER, queue_t, selector_t, visited_t, waitset_t
from xump_ext.state.index cimport list_remove
from xump_ext.state.lazy_content cimport content_at, is_in_reach
from xump_ext.state.limits cimport count_ready
from xump_ext.state.offers cimport offer_remove
from xump_ext.state.run_queue cimport suspended_visited
from xump_ext.state.schedule cimport schedule_cancel, schedule_reserve
from xump_ext.state.visited cimport visited_release, visited_share


cdef int give_back(engine_t* engine, entry_t* entry) except -1:
    """Takes an outstanding entry without a child back from its selector, whose credit is available again, unpaid."""
    cdef selector_t* selector = <selector_t*> entry.holder
    if entry.state == TAKEN:
        forget_delivery(entry, NULL)
        list_remove(&entry.queue.by_hand if selector == NULL else &selector.taken, entry)
    else:
        if entry.state == OFFERED:
            offer_remove(engine, entry)
        list_remove(&selector.holding, entry)
    if entry.extra != NULL:
        schedule_cancel(&engine.schedule, entry.extra)
    entry.below.any = NULL
    entry.holder = NULL
    entry.queue.outstanding -= 1
    if selector == NULL:        # it was taken by hand
        return 0
    selector.available += 1
    selector.returned += 1
    if selector.puts == PUTS_UNDER:
        window_left(engine, selector, 1)
    return selector_wake(engine, selector)


cdef int recall(engine_t* engine, entry_t* entry) except -1:
    """Takes an outstanding entry back: deletes what it became, from the lowest link up. The entry is in no list then."""
    cdef entry_t* lowest = entry
    cdef entry_t* parent
    cdef uint64_t nack, stores = 0
    while lowest.state == MOVED:
        lowest = lowest.below.child
    while lowest != entry:
        if lowest.state == OFFERED or lowest.state == TAKEN or lowest.state == MOVED:
            give_back(engine, lowest)
        elif lowest.state == BOUND:
            unbind(engine, lowest)
            room_left(engine, lowest)
        else:
            leave_ready(engine, lowest)
        parent = lowest.parent
        if lowest.queue.durable:
            stores |= <uint64_t> 1 << lowest.queue.store.slot
        if parent.queue.durable and stores & ~(<uint64_t> 1 << parent.queue.store.slot):
            parent.flags |= FOREIGN     # a crash may bring back what it was elsewhere
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


cdef int send_away(engine_t* engine, entry_t* entry, int reason) except -1:
    """Dead-letters or drops an entry that your program does not have: it is ready, bound, delayed or offered. If it cannot be
    read for its dead letter, this raises, and nothing has changed; but one that expires waits then, as for room."""
    cdef queue_t* namer
    cdef visited_t* visited
    cdef bint ends = reason != REASON_EXPIRED or can_expire(engine, entry)
    if ends and dead_letter_of(engine, entry, &namer) != NULL:
        content_at(entry)
    visited = visited_share(suspended_visited(engine, entry))       # it may have entered in this run
    try:
        if entry.state == OFFERED:
            recall(engine, entry)
        elif entry.state == BOUND:
            unbind(engine, entry)
            room_left(engine, entry)
        else:
            leave_ready(engine, entry)
        return dead_letter(engine, entry, reason, None, visited) if ends else wait_for_room(engine, entry)
    finally:
        visited_release(engine, visited)


cdef int requeue_entry(engine_t* engine, entry_t* entry) except -1:
    """Lets an entry that was released wait again at its old place. If its time was over meanwhile, it expires now."""
    if not is_in_reach(entry):      # its store was closed, and its queue is about to end
        count_ready(entry, 1)
        return returning_add(entry)
    if returns_not(engine, entry, False):
        return expire_released(engine, entry)
    if entry.queue.durable:
        log_mark(entry)
    if entry.queue.groups != NULL and not entry.queue.dying:
        group_enter(engine, entry)
    if entry.extra != NULL:
        schedule_reserve(&engine.schedule, 1)
        expiry_set(engine, entry)
    count_ready(entry, 1)
    over_limit_look(engine, entry.queue)
    if entry.extra != NULL and entry.extra.home != HOME_WAITING and entry.extra.home != HOME_PARKED:
        return go_home(engine, entry)
    returning_add(entry)
    return mark_returned(engine, entry.queue)


cdef int expire_released(engine_t* engine, entry_t* entry) except -1:
    """The time of an entry is over that was released, so it is in no list."""
    if can_expire(engine, entry):
        return dead_letter(engine, entry, REASON_EXPIRED, None, NULL)
    if entry.queue.durable:
        log_mark(entry)
    return wait_for_room(engine, entry)


cdef int expire_in_room(engine_t* engine) except -1:
    if engine.lacks_room:
        engine.lacks_room = False
        for handle in list((<dict> engine.queues).values()):
            expire_first(engine, (<QueueRef> handle).queue)
    return 0


cdef int expire_first(engine_t* engine, queue_t* queue) except -1:
    """Messages of the queue that wait for room for their dead letters go on, the first ones first, as far as there is room."""
    cdef entry_t* entry = queue.lacking.head
    while entry != NULL and can_expire_now(engine, entry):
        leave_ready(engine, entry)
        dead_letter(engine, entry, REASON_EXPIRED, None, NULL)
        entry = queue.lacking.head
    if entry != NULL:
        engine.lacks_room = True
    return 0


cdef bint can_expire(engine_t* engine, entry_t* entry) except -1:
    """Whether an entry whose time is over can end now. Those of its queue that wait for that have the first turn."""
    if not entry.queue.has_awaiting:        # else the first of them could not be read, and waits for the release
        expire_first(engine, entry.queue)
        if entry.queue.lacking.count:
            return False
    return can_expire_now(engine, entry)


cdef bint can_expire_now(engine_t* engine, entry_t* entry) except -1:
    """Whether it can be read for its dead letter, and a store has room for that. Its queue is held if it cannot be read."""
    cdef queue_t* namer
    cdef bint fits
    try:
        if dead_letter_of(engine, entry, &namer) == NULL:
            return True
        content_at(entry)
        fits = letter_fits(engine, entry, REASON_EXPIRED)
        engine.wanting = NULL       # no call asks for that room
        return fits
    except (OSError, KeyError) as error:        # a store raises these
        hold_for(engine, entry.queue, error)
        return False


cdef int go_home(engine_t* engine, entry_t* entry) except -1:
    """A message that was not routed when your program took it by hand is that again."""
    cdef queue_t* queue = entry.queue
    cdef bint kept = entry.extra.home == HOME_KEPT
    entry.extra.home = HOME_WAITING
    engine.events += 1
    entry.extra.came = engine.events
    entry.state = UNROUTED
    queue.unrouted += 1
    if kept:
        kept_add(entry)
    elif goes_apart(entry):
        apart_add(entry)
    if queue.active and not queue.held:
        kept_try(queue)         # selectors may have come meanwhile
        mark_dirty(engine, queue)
    return 0


cdef inline int over_limit_look(engine_t* engine, queue_t* queue) except -1:
    """A message that comes home passes the limits; a queue that drops its oldest messages drops for it, too."""
    if queue.drops_oldest:
        queue_list(engine, queue, OVERFULL)
    return 0


cdef int retry_later(engine_t* engine, entry_t* entry, int64_t delay_ns) except -1:
    """Lets an entry that was released wait, delayed, before it is ready again. If its time was over meanwhile, it expires now."""
    if returns_not(engine, entry, False):
        return expire_released(engine, entry)
    if entry.queue.durable:
        log_mark(entry)
    schedule_reserve(&engine.schedule, 1)
    extra_of(entry)
    if entry.queue.limit_bytes != UNLIMITED and entry.extra.body_bytes == 0:
        entry.extra.body_bytes = content_at(entry).body_bytes       # `return_reads` had it read
    if entry.queue.groups != NULL:
        group_enter(engine, entry)
    if entry.queue.awaits_release:
        entry.extra.ended.retry = later(time_of(engine), delay_ns)
    delay(engine, entry, later(time_of(engine), delay_ns), TIMER_RETRY)
    return 0


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


cdef int forget_nack(engine_t* engine, entry_t* entry) except -1:
    """The message came back by time: an iteration that goes on gets it again."""
    if entry.flags & NACKED:
        entry.flags &= ~NACKED
        del (<dict> engine.nacked)[<uintptr_t> entry]
    return 0


cdef int note_nack(engine_t* engine, entry_t* entry) except -1:
    """Numbers a nack, so that an iteration that began before it does not yield this message again."""
    engine.nacks += 1
    return copy_nack(engine, entry, engine.nacks)


cdef int nack_entry(engine_t* engine, entry_t* entry, int64_t delay_ns, bint by_hand, int how) except -1:
    """Returns the message to its old place, or dead-letters it if your program has taken it too often (rule 10).

    `delay_ns`: how long it is delayed there; NEVER: as the queue says, or the nearest one upstream that still waits for its
    payment and says so. Then the message is recalled to that queue, and waits there. `by_hand`: your program nacks it, and the
    same iteration does not get it again. `how`: NACK_ASKS ..
    """
    cdef bint over_limit = how != NACK_RETURNS and is_over_limit(entry)
    cdef entry_t* holder = entry if over_limit else returns_as(entry, &delay_ns)
    cdef bint ended = False
    if how == NACK_ASKS:
        prepare_return(engine, holder, over_limit)
    elif how == NACK_RETURNS and not returns_not(engine, holder, False) and return_reads(engine, holder, False):
        content_at(holder)
    try:
        recall(engine, holder)
        if over_limit:
            dead_letter(engine, entry, REASON_DELIVERY_LIMIT, None, NULL)
        else:
            come_back(engine, holder, delay_ns, by_hand)
        ended = True
    finally:
        if not ended:               # memory ended, and the entry may be in no list
            engine.at_rest = BROKEN
    return 0


cdef int return_unseen(engine_t* engine, entry_t* entry) except -1:
    """Returns a message that your program has taken as if it had not: that was no delivery."""
    entry.delivery_count -= 1
    try:
        return nack_entry(engine, entry, 0, False, NACK_RETURNS)
    except BaseException:
        if entry.state == TAKEN:        # it could not be read, and stays where it is
            entry.delivery_count += 1
        raise


cdef inline int come_back(engine_t* engine, entry_t* entry, int64_t delay_ns, bint by_hand) except -1:
    """The entry, which was released by a nack, waits again."""
    if by_hand:
        note_nack(engine, entry)
    else:
        forget_nack(engine, entry)
    return requeue_entry(engine, entry) if delay_ns == 0 else retry_later(engine, entry, delay_ns)


cdef entry_t* returns_as(entry_t* entry, int64_t* delay_ns) noexcept:
    cdef entry_t* holder = entry
    if delay_ns[0] != NEVER:
        if entry.queue.transit:     # it keeps nothing until later
            delay_ns[0] = 0
        return entry
    while holder != NULL and holder.queue.retry_delays == NULL:
        holder = holder.parent
    delay_ns[0] = 0 if holder == NULL else retry_delay_of(holder.queue, entry.delivery_count)
    return entry if holder == NULL else holder


cdef int prepare_return(engine_t* engine, entry_t* entry, bint refused) except -1:
    if return_reads(engine, entry, refused):
        content_at(entry)
        if refused:             # what expires waits for room
            letter_room(engine, entry)
    return 0


cdef bint return_reads(engine_t* engine, entry_t* entry, bint refused) except -1:
    cdef queue_t* namer
    if not is_in_reach(entry):
        return False
    if returns_not(engine, entry, refused):
        return dead_letter_of(engine, entry, &namer) != NULL
    return entry.queue.limit_bytes != UNLIMITED and (entry.extra == NULL or entry.extra.body_bytes == 0)    # its size counts


cdef bint returns_not(engine_t* engine, const entry_t* entry, bint refused) except -1:
    return refused or (entry.extra != NULL and entry.extra.expires <= time_of(engine))


cdef int64_t retry_delay_of(const queue_t* queue, uint32_t delivery_count) noexcept:
    return queue.retry_delays[min(max(delivery_count, 1), queue.retry_count) - 1]


cdef bint is_over_limit(const entry_t* entry) noexcept:
    """Whether your program has taken the message as often as it may, so that a nack dead-letters it."""
    cdef uint32_t limit = delivery_limit_of(entry)
    return limit and entry.delivery_count >= limit


cdef uint32_t delivery_limit_of(const entry_t* entry) noexcept:
    """The limit of the queue, else of the nearest queue upstream that still waits for its payment (rule 10); 0: none."""
    while entry != NULL:
        if entry.queue.delivery_limit:
            return entry.queue.delivery_limit
        entry = entry.parent
    return 0
