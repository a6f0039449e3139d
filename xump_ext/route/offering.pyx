"""Deliveries: a selector offers a message to your program, which takes it and pays for it (rules 4, 8)."""

from libc.stdint cimport uint8_t, uint64_t

from xump_ext.log.append cimport log_handed, log_taken_again
from xump_ext.memory.canaries cimport ROTATION, strikes
from xump_ext.memory.heap cimport heap_sink
from xump_ext.memory.prefetch cimport prefetch
from xump_ext.route.ready cimport counts_apart, detach_ready, leave_ready
from xump_ext.route.settling cimport PROCESSED, selector_paid, settle
from xump_ext.select.credit cimport (
    can_take, room_made, room_taken, selector_idle, selector_ready, selector_wake, waiter_leave, waiters_wake,
    wake_where_room_varies,
)
from xump_ext.select.groups cimport group_hold
from xump_ext.select.unrouted cimport is_kept
from xump_ext.state.constants cimport (
    APART, BOUND, BROKEN, DELIVERIES_MAX, HOME_KEPT, HOME_PARKED, HOME_UNROUTED, HOME_WAITING, LOGGED_NOTHING, OFFERED, QUEUED,
    REDELIVERED, ROOM_VARIES, SUSPENDED, TAKEN, UNROUTED,
)
from xump_ext.state.drop_order cimport drop_order_add
from xump_ext.state.envelope cimport field_text
from xump_ext.state.extra cimport extra_of
from xump_ext.state.graph cimport destination_t, engine_t, entry_t, offer_t, queue_t, selector_t, waitset_t
from xump_ext.state.index cimport list_append, list_remove, prefetch_page, prefetch_place
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.limits cimport count_bytes
from xump_ext.state.offers cimport destination_named, offer_append, offer_new, offer_remove
from xump_ext.state.schedule cimport schedule_cancel, schedule_reserve


cdef int rotate(engine_t* engine, selector_t* selector) except -1:
    return served(engine, selector)


cdef inline int served(engine_t* engine, selector_t* selector) except -1:
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


cdef int next_waiter(engine_t* engine, selector_t* selector, queue_t* target) except -1:
    """The selector was served and has left the waiting list: wakes the list for the next one in it. Called once the message is in
    the target: before, the room that it takes would look free, and selectors without a message would leave the list for it."""
    waiters_wake(engine, target)
    return selector_wake(engine, selector)


cdef int offer(engine_t* engine, selector_t* selector, entry_t* entry) except -1:
    """DELIVER: offers the message to your program under its destination."""
    cdef destination_t* destination = selector.destination
    cdef queue_t* queue = entry.queue
    cdef offer_t* offer
    if destination == NULL:
        destination = destination_named(engine, field_text(&selector.to_destination, content_at(entry)))
    offer = offer_new(engine)
    if entry.state == UNROUTED and not entry.flags & (QUEUED | SUSPENDED | APART) and not queue.special and (
            entry.extra == NULL or not counts_apart(entry.extra)):
        if entry.extra != NULL and selector.infinite:
            bind_mixed(selector, entry)         # its delay has ended: it may be older than others
        queue.unrouted -= 1         # all that `detach_ready` does for it
        queue.ready -= not selector.infinite
    else:
        detach_mixed(engine, selector, entry)
    if selector.infinite:
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
    served(engine, selector)
    return offer_append(engine, destination, offer, entry)


cdef int offer_under(engine_t* engine, selector_t* selector, entry_t* entry) except -1:
    """`offer` under a window that several selectors share, which has credit. As with a target, the next one in its line is woken
    when the credit is used."""
    cdef bint left = selector.waiters != NULL
    if left:
        waiter_leave(engine, selector.waiters)
    selector.target.ready += 1
    room_taken(engine, selector.target)
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


cdef int detach_mixed(engine_t* engine, selector_t* selector, entry_t* entry) except -1:
    """The part of `offer` for an entry that waits, is out of its turn, or has a key, size or moment. A bound one stays ready. The
    entry lies anywhere in memory: the parts that taking and paying for it touch are fetched now."""
    cdef const entry_t* before = selector.holding.tail
    prefetch(<const void*> entry.content.bits)
    prefetch_place(&entry.queue.index, entry.id)
    if before != NULL:
        prefetch_page(&before.queue.index, before.id)
    if selector.infinite:
        if entry.queue.drop_order != NULL:
            drop_order_add(entry.queue, entry)
        bind_mixed(selector, entry)
        if entry.queue.unrouted > (entry.state == UNROUTED):    # they may be older, and are bound without a look at that
            selector.holds_mixed = True
    detach_ready(engine, entry)
    if entry.extra != NULL and counts_apart(entry.extra):
        group_hold(entry)
        if selector.infinite:
            count_bytes(entry, 1)
    entry.queue.ready += selector.infinite
    return 0


cdef int take_by_hand(engine_t* engine, entry_t* entry, entry_t** remembered) except -1:
    """Your program takes a ready message that no selector has; `remembered` leads to it until the delivery is stale."""
    cdef bint ended = False
    content_at(entry)           # these may fail, so they come before any change
    schedule_reserve(&engine.schedule, 1)
    extra_of(entry)
    try:
        in_hand(engine, entry, remembered)
        ended = True
    finally:
        if not ended:           # memory ended
            engine.at_rest = BROKEN
    return 0


cdef inline int in_hand(engine_t* engine, entry_t* entry, entry_t** remembered) except -1:
    cdef queue_t* queue = entry.queue
    cdef uint8_t home = HOME_WAITING
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
    cdef int at_rest = engine.at_rest
    engine.entered_stores = 0
    engine.at_rest = BROKEN     # should memory end half-way
    withdraw(engine, entry)
    leave_room(engine, entry)
    settle(engine, entry, PROCESSED, 0)
    engine.at_rest = at_rest
    return 0


cdef int reined_goes_on(engine_t* engine, selector_t* selector) except -1:
    """Your program has taken one of the messages that the selector had offered, so it may offer the next one."""
    try:
        return selector_wake(engine, selector)
    except MemoryError:
        engine.at_rest = BROKEN
        raise


cdef int unbind(engine_t* engine, entry_t* entry) except -1:
    return withdraw(engine, entry)


cdef inline int withdraw(engine_t* engine, entry_t* entry) except -1:
    """Withdraws the offer of a bound entry, which is in no list then. It still counts as ready."""
    cdef selector_t* selector = <selector_t*> entry.holder
    list_remove(&selector.holding, entry)
    entry.holder = NULL
    offer_remove(engine, entry)
    return selector_wake(engine, selector) if selector.reined else 0


cdef int room_left(engine_t* engine, entry_t* entry) except -1:
    return leave_room(engine, entry)


cdef inline int leave_room(engine_t* engine, entry_t* entry) except -1:
    """A message that was bound is not ready any more."""
    entry.queue.ready -= 1
    if entry.extra != NULL:
        count_bytes(entry, -1)
    return room_made(engine, entry.queue)


cdef int pay(engine_t* engine, entry_t* entry) except -1:
    """Your program pays for an entry that it has taken."""
    cdef bint ended = False
    try:
        paid(engine, entry)
        ended = True
    finally:
        if not ended:           # memory ended: for what a log has to remember, or to wake what the payment lets go on
            engine.at_rest = BROKEN
    return 0


cdef inline int paid(engine_t* engine, entry_t* entry) except -1:
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
