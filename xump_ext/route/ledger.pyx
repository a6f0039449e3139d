"""The ledger: the books of entering, taking, moving and dead-lettering (rules 1, 4, 11, 12), which call each other.

The books are the counters and links of the engine. Every message that enters a queue leaves it once: `settling.pyx` has how it
ends, `offering.pyx` how your program gets it, `requeue.pyx` the way back.

Every function has all counters and links right when it returns. It may leave behind only what a run has to do: entries in the
run queue, lanes and waiting lists in the heap `runnable`, and dirty queues.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

from xump_ext.log.append cimport log_enter, log_reserve
from xump_ext.log.fences cimport log_lent
from xump_ext.log.owners cimport claim_take, gone_note, has_owner, owner_claim, passes_through, store_behind
from xump_ext.log.room cimport ENDS, store_takes, way_from
from xump_ext.log.writer cimport touch, went_to
from xump_ext.memory.canaries cimport LINK, strikes
from xump_ext.message.content cimport content_release
from xump_ext.message.headers cimport content_t, expires_of
from xump_ext.message.times cimport later
from xump_ext.route.clock cimport system_time, time_of
from xump_ext.route.letters cimport (
    dead_letter_of, is_barred, letter_bars, letter_made, letter_trip, letters_t, own_dead_letter, tally_left,
)
from xump_ext.route.offering cimport next_waiter, offer_under, rotate
from xump_ext.route.ready cimport delay, detach_ready, expiry_set, leave_ready
from xump_ext.route.settling cimport DROPPED, PROCESSED, clamp, copy_nack, end, ends_fresh, hops_of, is_fresh, nacked, settle
from xump_ext.select.credit cimport overflow_has_room, overflow_takes, room_made, room_taken, waiter_leave
from xump_ext.select.groups cimport group_enter, group_hold
from xump_ext.select.unrouted cimport apart_add, backlog_apart
from xump_ext.state.constants cimport (
    BROKEN, DEAD_ENTRY, DEAD_IN_RUN, DIRTY, FOUND_ROOM, MOVED, NEVER, OUTCOME_DEAD_LETTERED, OUTCOME_DROPPED, OVERFULL,
    REASON_DELIVERY_LIMIT, REASON_EXPIRED, REASON_HOPS, REASON_OVERFLOW, REASON_REJECTED, REASON_UNROUTABLE, REDELIVERED,
    SPECIAL_ENTERED, TIMER_DELAY, TIME_UNREAD, UNLIMITED, UNROUTED,
)
from xump_ext.state.constants import REASONS
from xump_ext.state.envelope cimport content_made, name_text, queue_named, target_of
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport PUTS_INTO, engine_t, entry_t, queue_t, selector_t, tally_t, visited_t
from xump_ext.state.index cimport entry_new, index_add, index_get, index_reserve, list_append
from xump_ext.state.lazy_content cimport content_at, is_loaded
from xump_ext.state.limits cimport count_ready, drops, is_within_limits
from xump_ext.state.queue_lists cimport mark_dirty, queue_list
from xump_ext.state.run_queue cimport run_queue_push, run_queue_reserve, suspend
from xump_ext.state.schedule cimport schedule_cancel, schedule_reserve
from xump_ext.state.visited cimport visited_add, visited_new, visited_release, visited_share
from xump_ext.state.waiter_table cimport waiter_in


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
    room_taken(engine, queue)
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
    """The new entry is counted, and routed."""
    queue.unrouted += 1
    queue.ready += 1
    if queue.ready >= queue.limit:
        return entry_fills(engine, queue, entry, visited)
    return entry_goes_on(engine, queue, entry, visited)


cdef int entry_fills(engine_t* engine, queue_t* queue, entry_t* entry, visited_t* visited) except -1:
    """The new entry takes the last room; beyond the limit the overflow selector takes it."""
    room_taken(engine, queue)
    if queue.ready > queue.limit:
        return take_overflow(engine, entry, visited)
    return entry_goes_on(engine, queue, entry, visited)


cdef inline int entry_goes_on(engine_t* engine, queue_t* queue, entry_t* entry, visited_t* visited) except -1:
    """Has the run route the new entry, or the next run."""
    if not queue.active or queue.held:
        # it may expire in this run, or be dropped, or find a selector at the end of the block
        if visited != NULL and (entry.extra != NULL or queue.drops_oldest or engine.building):
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
        room_taken(engine, queue)
        if entry.extra != NULL and entry.extra.expires < engine.time:
            dead_letter(engine, entry, REASON_EXPIRED, None, visited)       # it needs no room, and is not routed
        elif due != NEVER:
            delay(engine, entry, due, TIMER_DELAY)
        else:
            enter_now(engine, entry, content, visited, flags & FOUND_ROOM)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    return id


cdef uint64_t enter_staged(engine_t* engine, queue_t* queue, content_t* content, visited_t* visited, int64_t due) except 0:
    """`enter` for a staged queue: the message waits as it came. Its times count when it enters its target."""
    cdef entry_t* entry = entry_made(engine, queue, queue.next_id, content, 0, 0, 0, NULL, queue.durable)
    try:
        if due != NEVER:
            extra_of(entry).delayed_until = due
        entry_comes(engine, queue, entry, visited, queue.durable)
        room_taken(engine, queue)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    queue.unrouted += 1
    queue.ready += 1
    return entry.id


cdef int extra_filled(entry_t* entry, const content_t* content, int64_t due) except -1:
    """Time, order and size, as the message and its queue have them."""
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


cdef int enter_now(engine_t* engine, entry_t* entry, content_t* content, visited_t* visited, bint found_room) except -1:
    """The rest of `enter_special` for a message that is ready. If it found room, the overflow selector is not asked again: the
    message's record may have taken what was left in the store of both queues, and a MOVE drops nothing."""
    cdef queue_t* queue = entry.queue
    cdef bint full = queue.ready >= queue.limit
    cdef bint overflows = full and (found_room or not queue.drops_oldest or overflow_takes(queue, content, NULL, True))
    queue.unrouted += 1
    count_ready(entry, 1)
    expiry_set(engine, entry)
    if queue.drops_oldest and (full or queue.drops_to_fit and not is_within_limits(queue)):
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


cdef bint can_enter(queue_t* queue, content_t* content, const entry_t* ending) except -1:
    """Whether the queue is below its limit, or its overflow selector can take the content; and whether its store has room. The
    store asks for less room for what becomes of `ending`, least if that ends in the same store."""
    if queue.durable:
        behind = NULL if ending == NULL else store_behind(ending)
        if not store_takes(queue, content, way_from(queue.store, behind, ENDS)):
            return False
    return queue.ready < queue.limit or overflow_has_room(queue, content, NULL) or drops(queue)


cdef int take_away(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1:
    """`take` by a selector that discards, that puts messages into a queue, or that shares a window."""
    if selector.puts and not is_loaded(entry):
        content_at(entry)       # may fail, so it comes before any change
    engine.served += 1
    selector.served += 1
    if selector.puts:
        return put(engine, selector, entry, visited) if selector.puts == PUTS_INTO else offer_under(engine, selector, entry)
    leave_ready(engine, entry)
    rotate(engine, selector)
    return settle(engine, entry, PROCESSED, 0)


cdef int put(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1:
    """MOVE, BOUNCE or DELIVER into a queue: puts the message into the target, which has room."""
    cdef queue_t* queue = entry.queue
    cdef queue_t* target = target_of(selector, content_at(entry))
    cdef uint32_t hops = hops_of(engine, entry) + 1
    cdef int flags = (entry.flags & REDELIVERED) | FOUND_ROOM | (DEAD_IN_RUN if is_fresh(engine, entry) else 0)
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
            if parent != NULL:
                passes_through(engine, entry, parent)
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


cdef int dead_letter(engine_t* engine, entry_t* entry, int reason, object detail, visited_t* visited) except -1:
    """Bounces an entry, which is in no list any more, into its dead letter queue, else drops it. Settles it either way. A
    message that your program refused begins a new trip there, at 0 hops: each round of such a cycle has a decision of your
    program in it."""
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
    if letters != NULL and not ends_fresh(engine, entry, reason) and (reason != REASON_EXPIRED or hops < engine.hop_limit):
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
    if letters == NULL and queue.dead_letter != NULL and not queue.has_missed and reason != REASON_UNROUTABLE:
        warn_of_missing_letters(queue, reason)
    if letters != NULL and letters.durable and letters.store.failed:
        went_to(engine, letters)        # its own store does not hear of its end: it is there again when that one is opened
    if tally != NULL:
        tally_left(tally, queue, reason, OUTCOME_DROPPED)
    return settle(engine, entry, DROPPED, reason)


cdef int warn_of_missing_letters(queue_t* queue, int reason) except -1:
    """The queue drops a message for the first time whose dead letter queue does not exist: its name is misspelt, perhaps."""
    cdef object name = <object> queue.dead_letter
    if queue_named(queue.engine, name) == NULL:
        queue.has_missed = True
        (<list> queue.engine.user_errors).append(((<object> queue.handle).name, (name_text(name), REASONS[reason])))
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
