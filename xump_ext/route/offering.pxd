"""Declarations of `offering.pyx`, and the steps of a delivery that are taken each time, inline."""

from libc.stdint cimport uint64_t, uintptr_t

from xump_ext.log.append cimport log_taken_again
from xump_ext.route.ready cimport deadline_set
from xump_ext.state.constants cimport BOUND, DELIVERIES_MAX, NEVER, REDELIVERED, TAKEN
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t
from xump_ext.state.index cimport list_append, list_remove
from xump_ext.state.offers cimport offer_remove

cdef extern from *:
    """
    /* What a delivery remembers in place of its entry once that was paid for, by whomever. */
    #define XUMP_PAID ((void *) 1)
    """
    entry_t* PAID "XUMP_PAID"

cdef inline bint in_hands(const entry_t* remembered) noexcept:
    """Whether your program still has the entry that a delivery remembers: it was neither paid for nor taken back."""
    return <uintptr_t> remembered > 1

cdef inline void forget_delivery(entry_t* entry, entry_t* instead) noexcept:
    """The entry's delivery, if your program has one, remembers `instead` from here on: NULL if it is stale, PAID if it needs
    no answer any more."""
    if entry.below.delivery != NULL:
        entry.below.delivery[0] = instead
        entry.below.delivery = NULL

# The selector was served just now: makes it the last of the ready ones, or not ready if it has no credit left.
cdef int rotate(engine_t* engine, selector_t* selector) except -1
cdef int next_waiter(engine_t* engine, selector_t* selector, queue_t* target) except -1
cdef int offer(engine_t* engine, selector_t* selector, entry_t* entry) except -1
cdef int offer_under(engine_t* engine, selector_t* selector, entry_t* entry) except -1
cdef int window_left(engine_t* engine, selector_t* selector, uint64_t count) except -1
cdef int take_by_hand(engine_t* engine, entry_t* entry, entry_t** remembered) except -1
cdef int accept_bound(engine_t* engine, entry_t* entry) except -1
cdef int reined_goes_on(engine_t* engine, selector_t* selector) except -1
cdef int unbind(engine_t* engine, entry_t* entry) except -1
cdef int room_left(engine_t* engine, entry_t* entry) except -1
cdef int pay(engine_t* engine, entry_t* entry) except -1

cdef inline int accept(engine_t* engine, entry_t* entry, entry_t** remembered) except -1:
    """Your program takes an offered entry; `remembered` leads to it until the delivery is stale. A bound entry is settled by
    that, and not remembered."""
    cdef selector_t* selector = <selector_t*> entry.holder
    if entry.state == BOUND:
        entry.delivery_count += entry.delivery_count < DELIVERIES_MAX
        return accept_bound(engine, entry)
    if entry.extra != NULL or selector.ack_timeout != NEVER:
        deadline_set(engine, entry, selector.ack_timeout)       # may fail, so it comes before any change
    entry.delivery_count += entry.delivery_count < DELIVERIES_MAX
    if engine.store_count and (entry.delivery_count > 1 or entry.flags & REDELIVERED):
        log_taken_again(entry)
    offer_remove(engine, entry)
    list_remove(&selector.holding, entry)
    list_append(&selector.taken, entry)
    entry.state = TAKEN
    entry.below.delivery = remembered
    remembered[0] = entry
    return reined_goes_on(engine, selector) if selector.reined else 0
