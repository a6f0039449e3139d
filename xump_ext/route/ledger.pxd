"""Declarations of `ledger.pyx`, and the small steps of taking and paying, inline."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from xump_ext.log.append cimport log_taken_again
from xump_ext.message.headers cimport content_t
from xump_ext.select.credit cimport selector_wake
from xump_ext.state.constants cimport (
    BOUND, DEAD_IN_RUN, DEAD_ENTRY, DELIVERIES_MAX, DIRTY, NEVER, REDELIVERED, TAKEN, TIME_UNREAD,
)
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t, visited_t
from xump_ext.state.index cimport list_append, list_remove
from xump_ext.state.offers cimport offer_remove
from xump_ext.state.queue_lists cimport queue_list

cdef enum:
    # how a message ends in its queue
    PROCESSED = 0
    DROPPED = 1
    DELETED = 2

cdef extern from *:
    """
    /* What a delivery remembers in place of its entry once that was paid for, by whomever. */
    #define XUMP_PAID ((void *) 1)
    """
    entry_t* PAID "XUMP_PAID"

cdef extern from *:
    """
    #include <time.h>
    static inline long long xump_system_time(void) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        return (long long) t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    """
    int64_t system_time "xump_system_time"() noexcept nogil

cdef inline int64_t now_of(engine_t* engine) noexcept:
    """The time of this call, which reads the clock once."""
    if engine.now == TIME_UNREAD:
        engine.now = system_time()
    return engine.now

cdef inline int64_t time_of(engine_t* engine) noexcept:
    """The highest time that there was, now included: spans are counted from it. A clock that runs backwards undoes nothing."""
    cdef int64_t now = now_of(engine)
    if engine.time < now:
        engine.time = now
    return engine.time

cdef inline bint in_hands(const entry_t* remembered) noexcept:
    """Whether your program still has the entry that a delivery remembers: it was neither paid for nor taken back."""
    return <uintptr_t> remembered > 1

cdef inline void forget_delivery(entry_t* entry, entry_t* instead) noexcept:
    """The entry's delivery, if your program has one, remembers `instead` from here on: NULL if it is stale, PAID if it needs
    no answer any more."""
    if entry.below.delivery != NULL:
        entry.below.delivery[0] = instead
        entry.below.delivery = NULL

cdef inline bint is_fresh(const engine_t* engine, const entry_t* entry) noexcept:
    """Whether the message was dead-lettered and has not waited anywhere since (rule 12)."""
    return entry.flags & DEAD_IN_RUN and entry.sequence >= engine.run_start

cdef inline uint32_t hops_of(const engine_t* engine, const entry_t* entry) noexcept:
    """The hops of the message; 0 once it has waited in a dead letter queue (rule 12)."""
    return 0 if entry.flags & DEAD_ENTRY and entry.sequence < engine.run_start else entry.hops

cdef inline uint32_t clamp(uint32_t hops) noexcept:
    """The hops, as far as an entry can count them."""
    return hops if hops < 65535 else 65535

cdef inline void mark_dirty(engine_t* engine, queue_t* queue) noexcept:
    """Has the next run look at this queue."""
    queue_list(engine, queue, DIRTY)

cdef uint64_t enter(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited
) except 0
cdef uint64_t enter_waiting(engine_t* engine, queue_t* queue, content_t* content, uint64_t count) except? 0
cdef uint64_t enter_special(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited, int64_t due
) except 0
# The entry, which is in no list, is delayed until `due`, or until it expires. The schedule has room for it.
cdef int delay(engine_t* engine, entry_t* entry, int64_t due, uint8_t timer) except -1
cdef void expiry_set(engine_t* engine, entry_t* entry) noexcept
cdef bint can_enter(queue_t* queue, content_t* content, entry_t* entry) except -1
cdef int take(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1
cdef int settle(engine_t* engine, entry_t* entry, int how, int reason) except -1
# What this moved message became is settled: pays for the message, and on upwards.
cdef int pay_for(engine_t* engine, entry_t* entry) except -1
cdef int leave_ready(engine_t* engine, entry_t* entry) except -1
cdef int dead_letter(engine_t* engine, entry_t* entry, int reason, object detail, visited_t* visited) except -1
cdef bint letters_would_take(engine_t* engine, entry_t* entry) except -1
cdef int pay(engine_t* engine, entry_t* entry) except -1
cdef int room_left(engine_t* engine, entry_t* entry) except -1
cdef int window_left(engine_t* engine, selector_t* selector, uint64_t count) except -1
cdef int unbind(engine_t* engine, entry_t* entry) except -1
cdef int copy_nack(engine_t* engine, entry_t* entry, uint64_t number) except -1
cdef uint64_t nacked(engine_t* engine, const entry_t* entry) except? 0
cdef int accept_bound(engine_t* engine, entry_t* entry) except -1
cdef int take_by_hand(engine_t* engine, entry_t* entry, entry_t** remembered) except -1
# Your program has taken the entry, which does not expire now: it has to be answered after so many ns (NEVER: at any time).
cdef int deadline_set(engine_t* engine, entry_t* entry, int64_t timeout) except -1
cdef inline int accept(engine_t* engine, entry_t* entry, entry_t** remembered) except -1:
    """Your program takes an offered entry; `remembered` leads to it until the delivery is stale. A bound entry is settled by
    that, and not remembered."""
    cdef selector_t* selector = <selector_t*> entry.holder
    entry.delivery_count += entry.delivery_count < DELIVERIES_MAX
    if entry.state == BOUND:
        return accept_bound(engine, entry)
    if engine.store_count and (entry.delivery_count > 1 or entry.flags & REDELIVERED):
        log_taken_again(entry)
    offer_remove(engine, entry)
    list_remove(&selector.holding, entry)
    list_append(&selector.taken, entry)
    entry.state = TAKEN
    if entry.extra != NULL or selector.ack_timeout != NEVER:
        deadline_set(engine, entry, selector.ack_timeout)
    entry.below.delivery = remembered
    remembered[0] = entry
    return selector_wake(engine, selector) if selector.reined else 0

cdef str reason_name(int reason)
cdef dict counts_by_reason(const uint64_t* counts)
cdef struct letters_t:      # where a dead letter goes
    queue_t* queue          # NULL: nowhere
    queue_t* namer          # the queue that names it; NULL: the engine does

cdef queue_t* own_dead_letter(queue_t* queue) except? NULL
cdef queue_t* dead_letter_of(engine_t* engine, const entry_t* entry, queue_t** namer) except? NULL
cdef content_t* letter_made(
    engine_t* engine, const letters_t* letters, content_t* content, object origin, int reason, object detail,
    const entry_t* entry, list barred
) except NULL
cdef list letter_bars(const letters_t* letters)
cdef bint is_barred(const letters_t* letters, list barred)
cdef visited_t* letter_trip(engine_t* engine, const letters_t* letters, list barred) except NULL
cdef int end(engine_t* engine, entry_t* entry, int how, int reason) except -1
