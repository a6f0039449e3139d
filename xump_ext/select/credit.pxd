"""Declarations of `credit.pyx`, and the small tests of credit and room, inline."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.message.headers cimport content_t
from xump_ext.state.constants cimport DISCARD, ROOM_VARIES
from xump_ext.state.graph cimport clause_t, engine_t, entry_t, lane_t, queue_t, selector_t, waiter_t, waitset_t

cdef enum:
    LOOK = 0        # the key of a waiting list that was woken: no message has so low a sequence

# Keys of the round robin: the rank in 16 bits, the highest first, then when the selector was last served. 2**48 takes are nine
# years of a million a second.
cdef enum:
    TURN_SHIFT = 48
    RANK_MAX = 32767

cdef inline uint64_t turn_of(int64_t rank) noexcept:
    return <uint64_t> (RANK_MAX - rank) << TURN_SHIFT

cdef inline int64_t rank_of(const selector_t* selector) noexcept:
    return RANK_MAX - <int64_t> (selector.turn >> TURN_SHIFT)

cdef inline bint has_credit(const selector_t* selector, int64_t used=0) noexcept:
    """Whether the selector has credit; `used` is what a dry run took of it."""
    return (selector.infinite or selector.available > used or selector.verb == DISCARD) and not (
        selector.reined and selector.holding.count >= selector.ahead)

cdef inline bint can_take(const selector_t* selector) noexcept:
    return selector.enabled and has_credit(selector)

cdef int selector_wake(engine_t* engine, selector_t* selector) except -1
cdef int selector_ready(selector_t* selector) except -1
cdef void selector_idle(selector_t* selector) noexcept
cdef int lane_wake(engine_t* engine, lane_t* lane) except -1
cdef int clause_wake(engine_t* engine, clause_t* clause) except -1
cdef lane_t* lane_of(const selector_t* selector, queue_t* target) except? NULL

cdef inline bint has_plain_room(const queue_t* target) noexcept:
    """Whether any selector may put any message into the target, as `may_put` would find: the common case. It is a plain queue in
    RAM, below its limit, and no selector waits for room."""
    return target.ready < target.limit and target.waiters_head == NULL and not target.uncommon

cdef bint has_room_below_limit(const queue_t* queue, const entry_t* leaving) noexcept
cdef bint has_room(queue_t* target, entry_t* entry, const selector_t* selector) except -1
cdef bint overflow_would(queue_t* queue, content_t* content, queue_t** target) except -1
cdef bint overflow_takes(queue_t* queue, content_t* content, entry_t* leaving, bint has_entered) except -1

cdef inline bint overflow_has_room(queue_t* queue, content_t* content, entry_t* leaving) except -1:
    """`overflow_takes` for a message that is still to enter the queue."""
    return overflow_takes(queue, content, leaving, False)

cdef bint may_put(engine_t* engine, selector_t* selector, entry_t* entry, queue_t* target) except -1

cdef int waiters_wake(engine_t* engine, queue_t* queue) except -1
cdef int source_waiters_note(engine_t* engine, queue_t* queue) except -1
cdef int noted_waiters_look(engine_t* engine) except -1
cdef int source_waiters_wake(engine_t* engine, queue_t* queue) except -1
cdef int selector_waiters_wake(engine_t* engine, selector_t* selector) except -1
cdef int waiters_look(engine_t* engine, queue_t* queue) except -1
cdef int woken_waiters_look(engine_t* engine) except -1
cdef void overflow_changed(engine_t* engine, queue_t* queue) noexcept
cdef int wake_where_room_varies(engine_t* engine) except -1
cdef int room_changed(engine_t* engine, queue_t* queue, bint is_made) except -1
cdef entry_t* waiters_next(engine_t* engine, queue_t* queue) except? NULL
cdef entry_t* waiter_oldest(const waiter_t* waiter) except? NULL
cdef bint waits_for(const waiter_t* waiter) except -1
cdef int waiter_leave(engine_t* engine, waiter_t* waiter) except -1

cdef inline int room_made(engine_t* engine, queue_t* queue) except -1:
    """A ready message left `queue`: its waiting list may go on, and so may those of queues that overflow into it."""
    if queue.waiters_head == NULL and not queue.overflown and engine.lists[ROOM_VARIES] == NULL:
        return 0
    return room_changed(engine, queue, True)

cdef inline int room_taken(engine_t* engine, queue_t* queue) except -1:
    """`queue` may be full now, or its store: tells the waiting lists, of which something may be about to go on."""
    return room_changed(engine, queue, False) if engine.runnable.count else 0

cdef int waiting_add(waitset_t* waitset, entry_t* entry) except -1
cdef int members_lower(waitset_t* waitset, uint64_t order) except -1
cdef void waiting_remove(waitset_t* waitset, entry_t* entry) noexcept
