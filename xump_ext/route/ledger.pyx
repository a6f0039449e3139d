"""The ledger: the books of entering, taking, moving, settling and paying (rules 1, 7 to 12).

The books are the counters and links of the engine. Every message that enters a queue leaves it once. If a MOVE supplied it, the
selector of that MOVE is paid then.

A message that was moved stays outstanding in its queue, linked with the entry that it became. When that entry is settled, the
link is followed upwards, with one payment a step. INFINITE credit leaves no link of its own: it passes the message's link to
its parent on. `requeue.pyx` has the way back.

Every function has all counters and links right when it returns. It may leave behind only what a run has to do: entries in the
run queue, lanes and waiting lists in the heap `runnable`, and dirty queues.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

from xump_ext.log.append cimport log_enter, log_handed, log_reserve, log_settle, log_taken_again
from xump_ext.log.fences cimport log_lent, log_mark
from xump_ext.log.owners cimport claim_take, gone_note, has_owner, owner_claim, owner_settled
from xump_ext.log.room cimport COMES_IN, ENDS, store_takes
from xump_ext.log.writer cimport touch, went_to
from xump_ext.memory.heap cimport heap_sink
from xump_ext.memory.canaries cimport LINK, PAYMENT, ROTATION, strikes
from xump_ext.message.content cimport content_bounced, content_release
from xump_ext.message.headers cimport expires_of
from xump_ext.message.rewriter cimport Rewriter, death_t, rewritten
from xump_ext.message.times cimport later
from xump_ext.select.credit cimport (
    can_take, overflow_has_room, room_made, selector_idle, selector_ready, selector_wake, waiter_leave, waiters_wake,
    waiting_remove, wake_where_room_varies,
)
from xump_ext.select.groups cimport group_enter, group_hold, group_leave, group_part
from xump_ext.select.plan cimport Plan
from xump_ext.select.unrouted cimport apart_add, apart_remove, backlog_apart, is_kept
from xump_ext.state.constants cimport (
    APART, BOUND, BROKEN, DELAYED, DISCARD, HISTORY, HOME_KEPT, HOME_PARKED, HOME_UNROUTED, HOME_WAITING, LOGGED_NOTHING, MOVED,
    NACKED, OFFERED, OUTCOME_DEAD_LETTERED, OUTCOME_DROPPED, OUTCOME_UNROUTABLE, OVERFULL, OWNED, QUEUED, REASON_COUNT,
    REASON_DELIVERY_LIMIT, REASON_EXPIRED, REASON_HOPS, REASON_OVERFLOW, REASON_REJECTED, REASON_UNROUTABLE, REDELIVERED,
    ROOM_VARIES, SHADOW, SPECIAL_ENTERED, SUSPENDED, TIMER_ACK, TIMER_DELAY, TIMER_EXPIRY, TIME_UNREAD, UNLIMITED, UNROUTED,
    WAITING,
)
from xump_ext.state.constants import REASONS
from xump_ext.state.envelope cimport content_made, field_text, queue_named, target_of
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport PUTS_INTO, destination_t, extra_t, offer_t, tally_t, waitset_t
from xump_ext.state.index cimport (
    entry_free, entry_new, index_add, index_get, index_remove, index_reserve, list_append, list_remove, plain_entry_free,
)
from xump_ext.state.lazy_content cimport content_at, content_drop, is_loaded
from xump_ext.state.limits cimport count_bytes, count_delayed, count_ready, drops
from xump_ext.state.offers cimport destination_named, offer_append, offer_new, offer_remove
from xump_ext.state.queue_lists cimport queue_list
from xump_ext.state.run_queue cimport forget_suspended, parked_forget, run_queue_push, run_queue_reserve, suspend
from xump_ext.state.schedule cimport extra_leave, schedule_add, schedule_cancel, schedule_reserve
from xump_ext.state.visited cimport visited_add, visited_new, visited_release, visited_share
from xump_ext.state.waiter_table cimport waiter_in


cdef str reason_name(int reason):
    return REASONS[reason]


cdef dict counts_by_reason(const uint64_t* counts):
    """The counts that are not zero, by the names of the reasons."""
    cdef int reason
    return {REASONS[reason]: counts[reason] for reason in range(REASON_COUNT) if counts[reason]}


# ---- entry (rule 1)

cdef uint64_t enter(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited
) except 0:
    """Enters the message into the queue, and returns its id there. Takes over the reference to `content`. Beyond the limit the
    overflow selector takes the message at once; the caller has made sure that it can."""
    cdef entry_t* entry
    cdef uint64_t id = queue.next_id
    if queue.uncommon or (<uintptr_t> content & 3 == 0 and content.has_trailer):
        return enter_uncommon(engine, queue, content, hops, delivery_count, flags, parent, visited)
    entry = entry_made(engine, queue, id, content, hops, delivery_count, flags, parent, False)
    entry_comes(engine, queue, entry, visited, False)
    entry_is_ready(engine, queue, entry, visited)
    return id


cdef uint64_t enter_uncommon(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited
) except 0:
    """`enter` for a queue that is durable or special, or a message that may have a time; a lazy content has none."""
    cdef entry_t* entry
    cdef uint64_t id = queue.next_id
    if queue.special == SPECIAL_ENTERED or (<uintptr_t> content & 3 == 0 and content.has_trailer):
        return enter_special(engine, queue, content, hops, delivery_count, flags, parent, visited, NEVER)
    entry = entry_made(engine, queue, id, content, hops, delivery_count, flags, parent, queue.durable)
    entry_comes(engine, queue, entry, visited, queue.durable)
    entry_is_ready(engine, queue, entry, visited)
    return id


cdef inline entry_t* entry_made(
    engine_t* engine, queue_t* queue, uint64_t id, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, bint durable
) except NULL:
    """A new entry with the next id, which is `id`. Takes over the reference to `content`, unless memory ends."""
    cdef entry_t* entry
    if durable:
        log_reserve(queue, content)
    run_queue_reserve(engine)            # these three lines take memory; after them a message that no selector takes needs none
    index_reserve(&queue.index, id)
    entry = entry_new(engine)
    queue.next_id = id + 1
    engine.sequence += 1
    if engine.now == TIME_UNREAD:
        engine.now = system_time()
    if queue.timestamp < engine.now:
        queue.timestamp = engine.now
    entry.id = id
    entry.sequence = engine.sequence
    entry.timestamp = queue.timestamp
    entry.content.loaded = content
    entry.queue = queue
    entry.link.previous = entry.next = NULL
    entry.holder = entry.below.any = NULL
    entry.hops = <uint16_t> hops
    entry.delivery_count = <uint16_t> delivery_count
    entry.flags = <uint16_t> flags
    entry.state = UNROUTED
    entry.parent = parent
    if parent != NULL and not strikes(LINK, engine.sequence):
        parent.below.child = entry
    return entry


cdef inline int entry_comes(engine_t* engine, queue_t* queue, entry_t* entry, visited_t* visited, bint durable) except -1:
    """The new entry is in its queue, and its store hears of it."""
    index_add(&queue.index, entry)
    if durable:
        log_enter(entry)
    elif engine.claim != NULL:
        claim_take(engine, entry)
    if visited != NULL:
        visited_add(visited, queue.slot)
    return 0


cdef inline int entry_is_ready(engine_t* engine, queue_t* queue, entry_t* entry, visited_t* visited) except -1:
    """The new entry is counted, and routed; beyond the limit the overflow selector takes it."""
    queue.unrouted += 1
    queue.ready += 1
    if queue.ready > queue.limit:
        return take_overflow(engine, entry, visited)
    return entry_goes_on(engine, queue, entry, visited)


cdef inline int entry_goes_on(engine_t* engine, queue_t* queue, entry_t* entry, visited_t* visited) except -1:
    """Has the run route the new entry, or the next run."""
    if not queue.active or queue.held:
        if visited != NULL and (entry.extra != NULL or queue.drops_oldest):     # it may expire in this run, or be dropped
            suspend(engine, entry, visited)
        return 0
    if engine.building or queue.is_listed[DIRTY]:      # the next run gathers it
        mark_dirty(engine, queue)
        if visited != NULL:
            suspend(engine, entry, visited)
        return 0
    run_queue_push(engine, entry, visited)
    return 0


cdef uint64_t enter_special(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited, int64_t due
) except 0:
    """`enter` for a message that has a time, or into a queue that goes by time or order, or has limits of its own. `due`: until
    then the message is delayed; NEVER: not at all. If memory ends after the entry is made, the engine is broken."""
    cdef entry_t* entry
    cdef uint64_t id = queue.next_id
    if queue.staged:
        return enter_staged(engine, queue, content, visited, due)
    schedule_reserve(&engine.schedule, 2)
    time_of(engine)
    entry = entry_made(engine, queue, id, content, hops, delivery_count, flags, parent, queue.durable)
    try:
        extra_filled(entry, content, due)
        entry_comes(engine, queue, entry, visited, queue.durable)
        if entry.extra != NULL and entry.extra.expires < engine.time:
            dead_letter(engine, entry, REASON_EXPIRED, None, visited)       # it needs no room, and is not routed
        elif due != NEVER:
            delay(engine, entry, due, TIMER_DELAY)
        else:
            enter_now(engine, entry, content, visited)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    return id


cdef uint64_t enter_staged(engine_t* engine, queue_t* queue, content_t* content, visited_t* visited, int64_t due) except 0:
    """`enter` for a staged queue: the message waits as it came. What it says of time counts when it enters its target."""
    cdef entry_t* entry = entry_made(engine, queue, queue.next_id, content, 0, 0, 0, NULL, queue.durable)
    try:
        if due != NEVER:
            extra_of(entry).delayed_until = due
        entry_comes(engine, queue, entry, visited, queue.durable)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    queue.unrouted += 1
    queue.ready += 1
    return entry.id


cdef int extra_filled(entry_t* entry, const content_t* content, int64_t due) except -1:
    """What the message and its queue say of time, order and size."""
    cdef queue_t* queue = entry.queue
    cdef int64_t expires = expires_of(content)
    if queue.top_priority:
        entry.rank = <uint8_t> (queue.top_priority - min(queue.top_priority, <uint32_t> content.priority))
    if queue.ttl != NEVER:
        expires = min(expires, later(entry.queue.engine.time if due == NEVER else due, queue.ttl))
    if expires != NEVER or due != NEVER or queue.limit_bytes != UNLIMITED:
        extra_of(entry)
        entry.extra.expires = expires
        entry.extra.delayed_until = due
        entry.extra.left = queue.engine.events
        if queue.limit_bytes != UNLIMITED:
            entry.extra.body_bytes = content.body_bytes
    return 0


cdef int enter_now(engine_t* engine, entry_t* entry, content_t* content, visited_t* visited) except -1:
    """The rest of `enter_special` for a message that is ready."""
    cdef queue_t* queue = entry.queue
    cdef bint full = queue.ready >= queue.limit
    cdef bint overflows = full and (not queue.drops_oldest or overflow_has_room(queue, content, NULL))
    queue.unrouted += 1
    count_ready(entry, 1)
    expiry_set(engine, entry)
    if full and queue.drops_oldest:
        queue_list(engine, queue, OVERFULL)     # what overflows is still ready, if it is bound
    if overflows:
        return take_overflow(engine, entry, visited)
    if queue.groups != NULL:
        group_enter(engine, entry)
    if queue.top_priority == 0:
        return entry_goes_on(engine, queue, entry, visited)
    apart_add(entry)
    if visited != NULL:
        suspend(engine, entry, visited)
    if queue.active and not queue.held:
        if engine.building or queue.is_listed[DIRTY]:
            mark_dirty(engine, queue)
        else:
            backlog_apart(engine, queue)
    return 0


# ---- time

cdef int delay(engine_t* engine, entry_t* entry, int64_t due, uint8_t timer) except -1:
    """The entry, which is in no list, is delayed until then, or until it expires. The schedule has room for it."""
    entry.state = DELAYED
    count_delayed(entry, 1)
    if entry.queue.drops_oldest:        # the limits count what is delayed, too
        queue_list(engine, entry.queue, OVERFULL)
    if entry.extra.expires <= due:
        due = entry.extra.expires
        timer = TIMER_EXPIRY
    if entry.queue.awaits_release:
        entry.queue.has_awaiting = True
    else:
        schedule_add(&engine.schedule, entry.extra, due, timer)
    return 0


cdef int deadline_set(engine_t* engine, entry_t* entry, int64_t timeout) except -1:
    schedule_reserve(&engine.schedule, 1)
    extra_of(entry)
    if timeout == NEVER:
        schedule_cancel(&engine.schedule, entry.extra)
    else:
        schedule_add(&engine.schedule, entry.extra, later(time_of(engine), timeout), TIMER_ACK)
    return 0


cdef void expiry_set(engine_t* engine, entry_t* entry) noexcept:
    """The entry is ready or offered: it expires in its time. The schedule has room for it."""
    if entry.extra == NULL or entry.extra.expires == NEVER:
        return
    if entry.queue.awaits_release:
        entry.queue.has_awaiting = True
    else:
        schedule_add(&engine.schedule, entry.extra, entry.extra.expires, TIMER_EXPIRY)


cdef uint64_t enter_waiting(engine_t* engine, queue_t* queue, content_t* content, uint64_t count) except? 0:
    """Enters `count` messages with this lazy content into a queue in RAM that has no limit and routes nothing, so that no run
    follows from it. If memory ends, the messages before have entered."""
    cdef entry_t* entry
    cdef uint64_t left = count
    if engine.now == TIME_UNREAD:
        engine.now = system_time()
    if count:
        queue.timestamp = max(queue.timestamp, engine.now)
    while left:
        left -= 1
        index_reserve(&queue.index, queue.next_id)
        entry = entry_new(engine)
        engine.sequence += 1
        entry.id = queue.next_id
        entry.sequence = engine.sequence
        entry.timestamp = queue.timestamp
        entry.content.loaded = content
        entry.queue = queue
        entry.link.previous = entry.next = entry.parent = NULL
        entry.holder = entry.below.any = NULL
        entry.delivery_count = entry.hops = entry.flags = 0
        entry.state = UNROUTED
        index_add(&queue.index, entry)
        queue.next_id += 1
        queue.unrouted += 1
        queue.ready += 1
    return count


cdef int take_overflow(engine_t* engine, entry_t* entry, visited_t* visited) except -1:
    """The overflow selector takes the entry. If memory ends, the engine is broken: the entry is in the queue already, and the
    caller cannot take it back."""
    try:
        return take(engine, entry.queue.overflow, entry, visited)
    except MemoryError:
        engine.at_rest = BROKEN
        raise


cdef bint can_enter(queue_t* queue, content_t* content, entry_t* entry) except -1:
    """Whether the queue is below its limit, or its overflow selector can take the content; and whether its store has room. The
    store asks for less room for what becomes of `entry`, if that ends in the same store."""
    cdef bint ends = entry != NULL and entry.queue.store == queue.store
    if queue.durable and not store_takes(queue, content, ENDS if ends else COMES_IN):
        return False
    return queue.ready < queue.limit or overflow_has_room(queue, content, NULL) or drops(queue)


cdef int leave_ready(engine_t* engine, entry_t* entry) except -1:
    """Takes the entry out of the unrouted or waiting ones, which makes room. It is in no list then."""
    detach_ready(engine, entry)
    return room_made(engine, entry.queue)


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


cdef inline bint counts_apart(const extra_t* extra) noexcept:
    """Whether it is in a group, or counts for a limit of bytes: more is to be done than for others that are ready."""
    return extra.group != NULL or extra.body_bytes != 0


cdef bint detach_marked(engine_t* engine, entry_t* entry) except -1:
    """Takes the entry out of what its flags say. True: it was delayed, so it is in nothing else."""
    if entry.flags & QUEUED:
        parked_forget(engine, entry)
    if entry.flags & SUSPENDED:
        forget_suspended(engine, entry)
    if entry.flags & APART:
        apart_remove(entry)
    if entry.extra != NULL:
        group_part(entry)
        if entry.state == DELAYED:
            count_delayed(entry, -1)
            return True
        count_bytes(entry, -1)
    return False


# ---- settling (rules 7, 8)

cdef int settle(engine_t* engine, entry_t* entry, int how, int reason) except -1:
    """Ends an entry, which is in no list any more, in its queue, and pays for it upwards."""
    cdef entry_t* parent = entry.parent
    entry.parent = NULL
    end_here(engine, entry, how, reason)
    return 0 if parent == NULL else pay_for(engine, parent)


cdef int pay_for(engine_t* engine, entry_t* entry) except -1:
    """What this moved message became is settled: pays the selector that took it, settles it, and so on upwards."""
    cdef entry_t* parent
    cdef selector_t* supplier
    while entry != NULL:
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


# ---- taking (rules 4, 8)

cdef int take(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1:
    """The selector takes a ready message; the caller has made sure that it can."""
    if selector.puts and not is_loaded(entry):
        content_at(entry)       # may fail, so it comes before any change
    engine.served += 1
    selector.served += 1
    if selector.puts:
        return put(engine, selector, entry, visited) if selector.puts == PUTS_INTO else offer_under(engine, selector, entry)
    if selector.verb == DISCARD:
        leave_ready(engine, entry)
        rotate(engine, selector)
        return settle(engine, entry, PROCESSED, 0)
    return offer(engine, selector, entry)


cdef inline int rotate(engine_t* engine, selector_t* selector) except -1:
    """The selector was served just now: makes it the last of the ready ones, or not ready if it has no credit left."""
    cdef uint64_t key = selector.turn | (<uint64_t> 1 << 32) + engine.served    # never served: its id, which is lower
    if selector.ready.position == 0:
        return rotate_in(selector, key)
    if not can_take(selector):
        selector_idle(selector)
        selector.ready.key = key
    elif not strikes(ROTATION, engine.sequence):
        selector.ready.key = key            # the highest of its rank, so it can only sink
        if selector.clause.ready.count > 1:
            heap_sink(&selector.clause.ready, &selector.ready, selector.ready.position - 1)
    return 0


cdef int rotate_in(selector_t* selector, uint64_t key) except -1:
    """`rotate` for a selector that was not ready."""
    if selector.clause == NULL:
        return 0
    selector.ready.key = key
    return selector_ready(selector) if can_take(selector) and (selector.waiters == NULL or selector.clause.names_queue) else 0


cdef int put(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1:
    """MOVE, BOUNCE or DELIVER into a queue: puts the message into the target, which has room."""
    cdef queue_t* queue = entry.queue
    cdef queue_t* target = target_of(selector, content_at(entry))
    cdef uint32_t hops = hops_of(engine, entry) + 1
    cdef int flags = (entry.flags & REDELIVERED) | (DEAD_IN_RUN if is_fresh(engine, entry) else 0)
    cdef uint32_t delivery_count = entry.delivery_count
    cdef uint64_t id, nack = nacked(engine, entry)
    cdef content_t* content
    cdef entry_t* parent = entry
    cdef bint left = False
    if selector.waiters != NULL and waiter_in(selector, target) != NULL:
        waiter_leave(engine, waiter_in(selector, target))
        left = True
    if hops > engine.hop_limit:     # as if taken and paid for at once (decision 20)
        selector.paid += not selector.infinite
        leave_ready(engine, entry)
        rotate(engine, selector)
        dead_letter(engine, entry, REASON_HOPS, None, visited)
        return next_waiter(engine, selector, target) if left else 0
    content = content_made(selector, entry)
    detach_ready(engine, entry)
    visited = visited_share(visited) if visited != NULL else visited_new(engine, queue.slot)
    if selector.infinite:
        parent = entry.parent
        entry.parent = NULL
        rotate(engine, selector)
        if engine.store_count:
            went_to(engine, target)
            if target.durable:
                gone_note(engine, entry)
            if not has_owner(parent):
                owner_claim(engine, entry, target)
        end(engine, entry, PROCESSED, 0)
    else:
        selector.available -= 1
        queue.outstanding += 1
        entry.state = MOVED
        entry.holder = selector
        list_append(&selector.holding, entry)
        if entry.extra != NULL:
            schedule_cancel(&engine.schedule, entry.extra)
            group_hold(entry)
        rotate(engine, selector)
    id = enter(engine, target, content, hops, delivery_count, flags, parent, visited)
    engine.gone_store = NULL
    visited_release(engine, visited)
    if nack:
        copy_nack(engine, index_get(&target.index, id), nack)
    if left:
        next_waiter(engine, selector, target)
    return room_made(engine, queue)


cdef int next_waiter(engine_t* engine, selector_t* selector, queue_t* target) except -1:
    """The selector was served and has left the waiting list: wakes the list for the next one in it. Called once the message is in
    the target: before, the room that it takes would look free, and selectors without a message would leave the list for it."""
    waiters_wake(engine, target)
    return selector_wake(engine, selector)


# ---- dead letters (rule 11)

cdef queue_t* own_dead_letter(queue_t* queue) except? NULL:
    """The dead letter queue that the queue itself names, or NULL. A queue that names itself counts as one without."""
    cdef queue_t* found
    if queue.dead_letter == NULL:
        return NULL
    found = queue_named(queue.engine, <object> queue.dead_letter)
    return NULL if found == queue or (found != NULL and found.dying) else found


cdef queue_t* dead_letter_of(engine_t* engine, const entry_t* entry, queue_t** namer) except? NULL:
    """The dead letter queue of a message: its queue's own, else that of the nearest queue upstream that still waits for its
    payment, else the engine's. NULL if there is none, or it is the queue that the message is in. `namer`: gets the queue that
    names it, or NULL."""
    cdef queue_t* queue = entry.queue
    cdef queue_t* found = NULL
    namer[0] = NULL
    while found == NULL and entry != NULL:
        found = own_dead_letter(entry.queue)
        namer[0] = entry.queue if found != NULL else NULL
        entry = entry.parent
    if found == NULL and engine.dead_letter != NULL:
        found = queue_named(engine, <object> engine.dead_letter)
    return NULL if found == queue or (found != NULL and found.dying) else found


cdef content_t* letter_made(
    engine_t* engine, const letters_t* letters, content_t* content, object origin, int reason, object detail,
    const entry_t* entry, list barred
) except NULL:
    """The content of a dead letter: as the rewriter makes it if the queue that names the dead letter queue has one, else with
    a bounced envelope. `entry`: the message, if it has entered. `barred`: gets names if the letter begins a trip of its own."""
    cdef death_t death
    cdef content_t* made
    cdef str name
    if letters.namer == NULL or letters.namer.rewriter == NULL:
        return content_bounced(content, origin, REASONS[reason], detail, False)
    name = (<object> letters.queue.handle).name
    death.reason, death.queue, death.letters = <void*> REASONS[reason], <void*> origin, <void*> name
    death.argument, death.detail = letters.namer.rewriter_argument, <void*> detail if detail is not None else NULL
    death.time = time_of(engine)
    death.id, death.timestamp, death.hops = 0, 0, 0
    if entry != NULL:
        death.id, death.timestamp, death.hops = entry.id, entry.timestamp, hops_of(engine, entry)
    made = rewritten(<Rewriter> letters.namer.rewriter, content, &death, barred)
    if made == NULL:
        return content_bounced(content, origin, REASONS[reason], detail, False)
    if death.begins:
        barred.append(None)         # even if no name is there
    return made


cdef list letter_bars(const letters_t* letters):
    """Where a rewriter puts names of barred queues; None if there is none."""
    return None if letters.namer == NULL or letters.namer.rewriter == NULL else []


cdef bint is_barred(const letters_t* letters, list barred):
    """Whether the dead letter may not even enter the dead letter queue."""
    return barred is not None and (<object> letters.queue.handle).name in barred


cdef visited_t* letter_trip(engine_t* engine, const letters_t* letters, list barred) except NULL:
    """The trip of a dead letter that begins one: it has been in the dead letter queue, and does not enter what is barred."""
    cdef visited_t* trip = visited_new(engine, letters.queue.slot)
    cdef queue_t* queue
    try:
        for name in barred or ():
            queue = queue_named(engine, name)
            if queue != NULL:
                visited_add(trip, queue.slot)
    except BaseException:
        visited_release(engine, trip)
        raise
    return trip


cdef int dead_letter(engine_t* engine, entry_t* entry, int reason, object detail, visited_t* visited) except -1:
    """Bounces an entry, which is in no list any more, into its dead letter queue, else drops it. Settles it either way. What your
    program refused begins a new trip there, at 0 hops: each round of such a cycle has a decision of your program in it."""
    cdef queue_t* queue = entry.queue
    cdef bint refused = reason == REASON_REJECTED or reason == REASON_DELIVERY_LIMIT
    cdef letters_t to
    cdef queue_t* letters
    cdef list barred
    cdef uint32_t hops = hops_of(engine, entry)
    cdef content_t* content
    cdef visited_t* own
    cdef tally_t* tally = NULL if visited == NULL or is_fresh(engine, entry) else visited.tally
    to.namer = queue
    to.queue = letters = own_dead_letter(queue) if reason == REASON_OVERFLOW else dead_letter_of(engine, entry, &to.namer)
    if letters != NULL and not is_fresh(engine, entry) and (reason != REASON_EXPIRED or hops < engine.hop_limit):
        barred = letter_bars(&to)
        content = letter_made(
            engine, &to, content_at(entry), (<object> queue.handle).name, reason, detail, entry, barred)
        if not is_barred(&to, barred) and can_enter(letters, content, entry):
            queue.dead_lettered[reason] += 1
            if queue.durable:
                touch(queue)
            if refused or barred:
                own = letter_trip(engine, &to, barred)
            else:
                own = visited_share(visited) if visited != NULL else visited_new(engine, queue.slot)
            if engine.store_count:
                went_to(engine, letters)
                if letters.durable:
                    gone_note(engine, entry)
                elif queue.durable:
                    log_lent(entry, not refused and reason != REASON_EXPIRED and reason != REASON_OVERFLOW)
                owner_claim(engine, entry, letters)
            # An expiry does not start the hops at 0: a cycle of queues in which messages expire would go on with the clock alone.
            enter(engine, letters, content, 0 if refused else clamp(hops + 1), 0,
                  DEAD_IN_RUN if reason == REASON_EXPIRED else DEAD_IN_RUN | DEAD_ENTRY, NULL, own)
            engine.gone_store = NULL
            visited_release(engine, own)
            if tally != NULL:
                tally_left(tally, queue, reason, OUTCOME_DEAD_LETTERED)
            return settle(engine, entry, PROCESSED, 0)
        content_release(content)
    if tally != NULL:
        tally_left(tally, queue, reason, OUTCOME_DROPPED)
    return settle(engine, entry, DROPPED, reason)


cdef int tally_left(tally_t* tally, const queue_t* queue, int reason, uint8_t flags) except -1:
    """The message, of which its publisher asks, left the queue. Where it was unroutable nobody has it."""
    tally.flags |= flags
    if reason == REASON_UNROUTABLE:
        tally.flags |= OUTCOME_UNROUTABLE
        tally.copies -= not queue.transit
    return 0


cdef bint letters_would_take(engine_t* engine, entry_t* entry) except -1:
    """Whether the dead letter queue of an unroutable message exists, and would take it."""
    cdef letters_t to
    cdef list barred
    cdef content_t* content
    to.queue = dead_letter_of(engine, entry, &to.namer)
    if to.queue == NULL or is_fresh(engine, entry):
        return False
    barred = letter_bars(&to)
    content = letter_made(
        engine, &to, content_at(entry), (<object> entry.queue.handle).name, REASON_UNROUTABLE, None, entry, barred)
    count_ready(entry, -1)          # it would have left its queue, into which the dead letter may overflow
    try:
        return not is_barred(&to, barred) and can_enter(to.queue, content, entry)
    finally:
        count_ready(entry, 1)
        content_release(content)


# ---- deliveries

cdef int offer(engine_t* engine, selector_t* selector, entry_t* entry) except -1:
    """DELIVER: offers the message to your program under its destination."""
    cdef destination_t* destination = selector.destination
    cdef queue_t* queue = entry.queue
    cdef offer_t* offer
    if destination == NULL:
        destination = destination_named(engine, field_text(&selector.to_destination, content_at(entry)))
    offer = offer_new(engine)
    if selector.infinite and (entry.state == WAITING or entry.extra != NULL or queue.special):
        bind_mixed(selector, entry)
    detach_ready(engine, entry)
    if entry.extra != NULL and counts_apart(entry.extra):
        hold_extra(entry, selector.infinite)
    if selector.infinite:
        queue.ready += 1
        entry.state = BOUND
        if engine.lists[ROOM_VARIES] != NULL:
            wake_where_room_varies(engine)
    else:
        room_made(engine, queue)
        selector.available -= 1
        queue.outstanding += 1
        entry.state = OFFERED
        if engine.store_count:
            log_handed(entry)
    entry.holder = selector
    list_append(&selector.holding, entry)
    rotate(engine, selector)
    return offer_append(engine, destination, offer, entry)


cdef int offer_under(engine_t* engine, selector_t* selector, entry_t* entry) except -1:
    """`offer` under a window that several selectors share, which has credit. As with a target, the next one in its line is woken
    when the credit is used."""
    cdef bint left = selector.waiters != NULL
    if left:
        waiter_leave(engine, selector.waiters)
    selector.target.ready += 1
    offer(engine, selector, entry)
    return next_waiter(engine, selector, selector.target) if left else 0


cdef int window_left(engine_t* engine, selector_t* selector, uint64_t count) except -1:
    """So many messages are not outstanding any more under the window that the selector shares."""
    selector.target.ready -= count
    return waiters_wake(engine, selector.target)


cdef void bind_mixed(selector_t* selector, const entry_t* entry) noexcept:
    """Remembers whether bound entries are in order of age. One that is routed in its turn is younger than all that were routed
    before; so this is asked only where that may not be."""
    selector.holds_mixed = selector.holding.tail != NULL and (
        selector.holds_mixed or selector.holding.tail.sequence > entry.sequence)


cdef int hold_extra(entry_t* entry, bint still_ready) except -1:
    """What the key and the size of an entry add to `offer`."""
    group_hold(entry)
    if still_ready:
        count_bytes(entry, 1)
    return 0


cdef int take_by_hand(engine_t* engine, entry_t* entry, entry_t** remembered) except -1:
    """Your program takes a ready message that no selector has; `remembered` leads to it until the delivery is stale."""
    cdef queue_t* queue = entry.queue
    cdef uint8_t home = HOME_WAITING
    content_at(entry)           # these may fail, so they come before any change
    schedule_reserve(&engine.schedule, 1)
    extra_of(entry)
    if is_kept(entry):
        home = HOME_KEPT
    elif entry.state == UNROUTED:
        home = HOME_UNROUTED
    elif entry.holder != NULL and (<waitset_t*> entry.holder).parked:
        home = HOME_PARKED
    leave_ready(engine, entry)
    schedule_cancel(&engine.schedule, entry.extra)
    group_hold(entry)
    entry.extra.home = home
    if home == HOME_UNROUTED or home == HOME_KEPT:
        entry.extra.left = engine.events
        entry.extra.replayable = True
        if queue.durable and entry.extra.logged == LOGGED_NOTHING:
            queue.hands_unsaid = True
    entry.delivery_count += entry.delivery_count < DELIVERIES_MAX
    queue.outstanding += 1
    entry.state = TAKEN
    entry.holder = NULL
    list_append(&queue.by_hand, entry)
    entry.below.delivery = remembered
    remembered[0] = entry
    if engine.store_count:
        log_handed(entry)
        if entry.delivery_count > 1 or entry.flags & REDELIVERED:
            log_taken_again(entry)
    return 0


cdef int accept_bound(engine_t* engine, entry_t* entry) except -1:
    """Your program takes a bound message (INFINITE credit): it is settled at once."""
    engine.entered_stores = 0
    unbind(engine, entry)
    room_left(engine, entry)
    return settle(engine, entry, PROCESSED, 0)


cdef int unbind(engine_t* engine, entry_t* entry) except -1:
    """Withdraws the offer of a bound entry, which is in no list then. It still counts as ready."""
    cdef selector_t* selector = <selector_t*> entry.holder
    list_remove(&selector.holding, entry)
    entry.holder = NULL
    offer_remove(engine, entry)
    return selector_wake(engine, selector) if selector.reined else 0


cdef int room_left(engine_t* engine, entry_t* entry) except -1:
    """A message that was bound is not ready any more."""
    entry.queue.ready -= 1
    if entry.extra != NULL:
        count_bytes(entry, -1)
    return room_made(engine, entry.queue)


cdef int pay(engine_t* engine, entry_t* entry) except -1:
    """Your program pays for an entry that it has taken."""
    cdef selector_t* selector = <selector_t*> entry.holder
    engine.entered_stores = 0
    forget_delivery(entry, PAID)
    entry.holder = NULL
    list_remove(&entry.queue.by_hand if selector == NULL else &selector.taken, entry)
    entry.queue.outstanding -= 1
    if selector == NULL:
        return settle(engine, entry, PROCESSED, 0)
    selector.available += 1
    selector.paid += 1
    if selector.puts:
        window_left(engine, selector, 1)
    settle(engine, entry, PROCESSED, 0)
    return selector_paid(engine, selector)


cdef inline int selector_paid(engine_t* engine, selector_t* selector) except -1:
    """Wakes a selector that was paid. One that is ready, and whose clause has no lane, needs no waking."""
    if selector.ready.position and selector.clause.lanes == NULL:
        return 0
    return selector_wake(engine, selector)


# ---- nacks

cdef int copy_nack(engine_t* engine, entry_t* entry, uint64_t number) except -1:
    """Gives the entry the number of a nack. NULL: what the message became has ended already."""
    if entry != NULL:
        entry.flags |= NACKED
        (<dict> engine.nacked)[<uintptr_t> entry] = number
    return 0


cdef uint64_t nacked(engine_t* engine, const entry_t* entry) except? 0:
    """The number of the entry's last nack; 0 for none."""
    return (<dict> engine.nacked)[<uintptr_t> entry] if entry.flags & NACKED else 0
