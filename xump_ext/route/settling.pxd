"""Declarations of `settling.pyx`, and what is asked of a message on its way, inline."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.select.credit cimport selector_wake
from xump_ext.state.constants cimport DEAD_ENTRY, DEAD_IN_RUN, REASON_EXPIRED
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t

cdef enum:
    # how a message ends in its queue
    PROCESSED = 0
    DROPPED = 1
    DELETED = 2

cdef int settle(engine_t* engine, entry_t* entry, int how, int reason) except -1
# What this moved message became is settled: pays for the message, and on upwards.
cdef int pay_for(engine_t* engine, entry_t* entry, queue_t* below) except -1
cdef int end(engine_t* engine, entry_t* entry, int how, int reason) except -1
cdef int copy_nack(engine_t* engine, entry_t* entry, uint64_t number) except -1
cdef uint64_t nacked(engine_t* engine, const entry_t* entry) except? 0
cdef dict counts_by_reason(const uint64_t* counts)

cdef inline bint is_fresh(const engine_t* engine, const entry_t* entry) noexcept:
    """Whether the message was dead-lettered and has not waited anywhere since (rule 12)."""
    return entry.flags & DEAD_IN_RUN and entry.sequence >= engine.run_start

cdef inline bint ends_fresh(const engine_t* engine, const entry_t* entry, int reason) noexcept:
    """The same for a message that ends for a reason. One that expires has waited, as its time went by, unless it came in this
    very run; the hops that it keeps bound how often. So runs that room began are not one run here (decision 303)."""
    return is_fresh(engine, entry) and (reason != REASON_EXPIRED or entry.sequence >= engine.room_run)

cdef inline uint32_t hops_of(const engine_t* engine, const entry_t* entry) noexcept:
    """The hops of the message; 0 once it has waited in a dead letter queue (rule 12)."""
    return 0 if entry.flags & DEAD_ENTRY and entry.sequence < engine.run_start else entry.hops

cdef inline uint32_t clamp(uint32_t hops) noexcept:
    """The hops, as far as an entry can count them."""
    return hops if hops < 65535 else 65535

cdef inline int selector_paid(engine_t* engine, selector_t* selector) except -1:
    """Wakes a selector that was paid. One that is ready, and whose clause has no lane, needs no waking."""
    if selector.ready.position and selector.clause.lanes == NULL:
        return 0
    return selector_wake(engine, selector)
