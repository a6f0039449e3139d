"""Messages that fall due: delays and retries end, messages expire, deadlines pass (decisions 135 to 146).

A call does what fell due before anything else, moment by moment: each moment is a run at its own time. So it makes no difference
how many calls come in between. Within a moment expiries go first, then the rest, each by entry. Messages that a run makes due at
its own moment (a ttl of 0) follow when it has nothing else to do, and the run goes on.

In a store that was opened again, a message that falls due waits until its queue is released. That is its moment then, in order
of due time.

A message that expires waits, delayed, in the list `lacking` of its queue while a store has no room for its dead letter, or it
cannot be read for that (`expire_in_room` in `requeue.pyx`). One that your program has longer than it may, and too often, stays
with it, and is tried again each second.
"""

from heapq import heapify, heappop, heappush

from libc.stdint cimport uint8_t, uintptr_t

from xump_ext.errors import StoreFull
from xump_ext.log.fences cimport log_mark
from xump_ext.memory.canaries cimport EXPIRY, strikes
from xump_ext.message.times cimport later
from xump_ext.route.holding cimport hold_for
from xump_ext.route.ready cimport leave_ready
from xump_ext.state.queue_lists cimport mark_dirty, queue_list
from xump_ext.route.requeue cimport NACK_ASKS, expire_first, forget_nack, nack_entry, requeue_entry, send_away
from xump_ext.select.credit cimport wake_where_room_varies
from xump_ext.select.groups cimport group_enter
from xump_ext.select.unrouted cimport apart_add, goes_apart
from xump_ext.state.constants cimport (
    BOUND, DELAYED, DIRTY, HISTORY, LOGGED_NOTHING, MOVED, NEVER, OFFERED, OVERFULL, REASON_EXPIRED, TAKEN, TIMER_ACK,
    TIMER_DELAY, TIMER_EXPIRY, TIMER_MISSED, TIMER_RETRY, TIMER_ROOM, UNLIMITED, UNROUTED, WAITING,
)
from xump_ext.state.envelope cimport QueueRef
from xump_ext.state.extra cimport extra_free, is_first_delay
from xump_ext.state.graph cimport entry_t, extra_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.limits cimport count_delayed, count_ready, limit_changed
from xump_ext.state.run_queue cimport run_queue_push, run_queue_reserve
from xump_ext.state.schedule cimport (
    schedule_add, schedule_behind, schedule_front, schedule_front_gone, schedule_next, schedule_pop, schedule_reserve,
)


cdef int64_t ROOM_RETRY_NS = 1_000_000_000


cdef bint delay_ends(engine_t* engine) noexcept:
    """Most often a moment is that of one message. The graph is quiet."""
    cdef extra_t* extra = schedule_front(&engine.schedule)
    cdef entry_t* entry
    cdef queue_t* queue
    cdef int64_t moment
    if extra == NULL or extra.timer != TIMER_DELAY or extra.expires != NEVER:
        return False
    entry = extra.entry
    queue = entry.queue
    moment = max(extra.due, engine.time)
    if moment > engine.until or schedule_behind(&engine.schedule) <= moment or entry.state != DELAYED or queue.uncommon or (
            not queue.active or queue.held or queue.is_listed[DIRTY] or engine.building or engine.run_queue == NULL):
        return False
    schedule_front_gone(&engine.schedule, extra)
    engine.now = engine.time = moment
    queue.delayed -= 1
    queue.ready += 1
    if queue.limit_given != UNLIMITED:
        limit_changed(queue)        # it has no limit of bytes
    delay_over(engine, entry)
    run_queue_push(engine, entry, NULL)
    return True


cdef inline void delay_over(engine_t* engine, entry_t* entry) noexcept:
    """The entry is unrouted."""
    entry.state = UNROUTED
    entry.extra.ended.quiets = engine.quiets
    engine.events += 1
    entry.extra.came = engine.events
    entry.queue.unrouted += 1
    if entry.queue.drops_oldest:        # it may be dropped now
        queue_list(engine, entry.queue, OVERFULL)


cdef int do_due(engine_t* engine) except -1:
    """Does all that is due now, as far as it was due before this call; the run goes on then."""
    cdef extra_t* extra = schedule_pop(&engine.schedule, engine.time)
    if extra == NULL:
        return 0
    if schedule_next(&engine.schedule) > engine.time:       # most often a moment is that of one message
        return fall_due(engine, extra.entry, extra.timer) if is_still(extra.entry, extra.timer) else 0
    return do_all_due(engine, extra)


cdef int do_all_due(engine_t* engine, extra_t* extra) except -1:
    """Does what is due now, of which `extra` is the first."""
    cdef list due = []
    while extra != NULL:
        extra.scheduled += 1        # it stays, should its entry end meanwhile
        due.append(<uintptr_t> extra)
        extra = schedule_pop(&engine.schedule, engine.time)
    try:
        for address in due:
            extra = <extra_t*> <uintptr_t> address
            if extra.entry != NULL and extra.due == NEVER and is_still(extra.entry, extra.timer):
                fall_due(engine, extra.entry, extra.timer)
    finally:
        for address in due:
            extra = <extra_t*> <uintptr_t> address
            extra.scheduled -= 1
            if extra.entry == NULL and extra.scheduled == 0:
                extra_free(extra)
    return 0


cdef bint is_still(const entry_t* entry, uint8_t timer) noexcept:
    """Whether the entry, which fell due, is still where it was: what fell due before may have changed that."""
    if timer == TIMER_ACK:
        return entry.state == TAKEN
    if timer == TIMER_EXPIRY:
        return entry.state != TAKEN and entry.state != MOVED and entry.state != HISTORY
    return entry.state == DELAYED


cdef int release_due(engine_t* engine, list queues) except -1:
    """The queues, whose store was opened again, are released: what fell due there until now does so now, in order of due time."""
    cdef list overdue = []
    cdef QueueRef handle
    cdef cursor_t at
    cdef entry_t* entry
    for handle in queues:
        if handle.queue.drops_oldest:
            queue_list(engine, handle.queue, OVERFULL)
        at = cursor_start(handle.queue)
        entry = cursor_step(&at) if handle.queue.has_awaiting else NULL
        handle.queue.awaits_release = handle.queue.has_awaiting = False
        while entry != NULL:
            if entry.extra != NULL:
                schedule_reserve(&engine.schedule, 1)
                due, timer = awaited(entry)
                if due > engine.time and due != NEVER:
                    schedule_add(&engine.schedule, entry.extra, due, timer)
                elif due != NEVER:
                    overdue.append((due, timer != TIMER_EXPIRY, entry.sequence, <uintptr_t> entry, timer))
            entry = cursor_step(&at)
    return do_overdue(engine, overdue)


cdef int do_overdue(engine_t* engine, list overdue) except -1:
    """Does what fell due before, each (moment, whether it is not an expiry, sequence, address of the entry, timer)."""
    heapify(overdue)
    while overdue:
        _, _, sequence, address, timer = heappop(overdue)
        entry = <entry_t*> <uintptr_t> address
        entry.extra.timer = timer
        fall_due(engine, entry, timer)
        if timer == TIMER_DELAY and entry.extra.expires <= engine.time:     # its time was over before it is handed out
            if entry.state == UNROUTED and entry.queue.durable and entry.extra.logged == LOGGED_NOTHING:
                log_mark(entry)     # no routing says that its delay has ended
            heappush(overdue, (entry.extra.expires, False, sequence, address, TIMER_EXPIRY))
    return 0


cdef tuple awaited(entry_t* entry):
    """(moment, timer) of what happens next to an entry whose queue was opened again, and is released. A retry whose message has
    expired since would end for nothing."""
    if is_first_delay(entry) and entry.extra.delayed_until < entry.extra.expires:
        return entry.extra.delayed_until, TIMER_DELAY
    if entry.state == DELAYED and not is_first_delay(entry) and entry.extra.ended.retry < entry.extra.expires and (
            entry.extra.expires > entry.queue.engine.time):
        return entry.extra.ended.retry, TIMER_RETRY
    if entry.state == DELAYED or entry.state == UNROUTED or entry.state == WAITING:
        return entry.extra.expires, TIMER_EXPIRY
    if (entry.state == OFFERED or entry.state == BOUND) and entry.below.offer.destination.outlet == NULL:
        return entry.extra.expires, TIMER_EXPIRY        # an overflow selector took it while the queue was held
    return NEVER, TIMER_EXPIRY


cdef int due_again(engine_t* engine, queue_t* queue) except -1:
    cdef list overdue = []
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    queue.has_awaiting = False
    while entry != NULL:
        timer = missed_timer(entry)
        if timer != TIMER_MISSED and entry.extra.expires <= engine.time and timer != TIMER_ACK:
            timer = TIMER_EXPIRY
        if timer != TIMER_MISSED:
            overdue.append((engine.time, timer != TIMER_EXPIRY, entry.sequence, <uintptr_t> entry, timer))
        entry = cursor_step(&at)
    do_overdue(engine, overdue)
    return expire_first(engine, queue)


cdef int missed_timer(const entry_t* entry) noexcept:
    """The timer that fell due for an entry while it could not be read; TIMER_MISSED: none."""
    if entry.extra == NULL or entry.extra.due != NEVER:
        return TIMER_MISSED
    if entry.state == TAKEN and entry.extra.timer == TIMER_MISSED:
        return TIMER_ACK
    return entry.extra.timer if entry.state == DELAYED and entry.extra.timer != TIMER_ROOM else TIMER_MISSED


cdef int fall_due(engine_t* engine, entry_t* entry, int timer) except -1:
    """A message that cannot be read from its store stays where it is, or waits in `lacking` if it has expired; its queue is held.
    It falls due again when the queue is released (`due_again`)."""
    try:
        schedule_reserve(&engine.schedule, 2)
        run_queue_reserve(engine)
        if timer == TIMER_EXPIRY:
            expire(engine, entry)
        elif timer == TIMER_DELAY:
            end_delay(engine, entry)
        elif timer == TIMER_ACK:
            nack_entry(engine, entry, NEVER, False, NACK_ASKS)
        else:
            end_retry(engine, entry)
    except StoreFull:               # it stays with your program, and is taken back when there is room for its dead letter
        schedule_add(&engine.schedule, entry.extra, later(engine.time, ROOM_RETRY_NS), TIMER_ACK)
    except (OSError, KeyError) as error:        # a store raises these
        if timer == TIMER_ACK:
            entry.extra.timer = TIMER_MISSED        # else it looks like one that has no deadline
        hold_for(engine, entry.queue, error)
    return 0


cdef int expire(engine_t* engine, entry_t* entry) except -1:
    if strikes(EXPIRY, entry.sequence):
        return 0
    return send_away(engine, entry, REASON_EXPIRED)


cdef int end_delay(engine_t* engine, entry_t* entry) except -1:
    """The delay that the message entered with has ended: it is routed as if it had just come, at its old place."""
    cdef queue_t* queue = entry.queue
    if queue.groups != NULL:
        content_at(entry)           # it has the key; this may fail, so it comes before any change
    count_delayed(entry, -1)
    delay_over(engine, entry)
    count_ready(entry, 1)
    if queue.groups != NULL:
        group_enter(engine, entry)
        wake_where_room_varies(engine)      # others may be behind it now
    if entry.extra.expires != NEVER:
        schedule_add(&engine.schedule, entry.extra, entry.extra.expires, TIMER_EXPIRY)
    if comes_last(engine, entry):
        run_queue_push(engine, entry, NULL)
        return 0
    if goes_apart(entry):
        apart_add(entry)
    if queue.active and not queue.held:
        mark_dirty(engine, queue)
    if queue.durable and (engine.building or queue.held or not queue.active):
        log_mark(entry)         # else it is routed now, which says it, too
    return 0


cdef bint comes_last(const engine_t* engine, const entry_t* entry) noexcept:
    """Whether this run routes the entry, and before it all that is in the run queue. Nothing else is to be routed when something
    falls due. (A durable queue works out its frontier in between.)"""
    cdef const queue_t* queue = entry.queue
    if not queue.active or queue.held or queue.top_priority or queue.durable or queue.is_listed[DIRTY] or engine.building:
        return False
    return engine.run_queue_count == 0 or (
        engine.run_queue[(engine.run_queue_head + engine.run_queue_count - 1) & engine.run_queue_mask].entry.sequence
        < entry.sequence)


cdef int end_retry(engine_t* engine, entry_t* entry) except -1:
    """The message is back. An iterator of deliveries yields it again: it came back by time, not by a nack."""
    leave_ready(engine, entry)
    forget_nack(engine, entry)
    return requeue_entry(engine, entry)
