"""Declarations of `taking.pyx`, and the oldest offer to a destination."""

from libc.stdint cimport uint64_t

from xump_ext.engine.delivery cimport Delivery
from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.sleepers cimport EngineSleepers
from xump_ext.state.graph cimport offer_t

cdef class DeliveryIterator:
    cdef object engine
    cdef EngineLock core
    cdef object destination
    cdef object timeout
    cdef uint64_t began
    cdef offer_t* passed            # the last offer that was skipped …
    cdef uint64_t passed_number     # … and its number then
    cdef Delivery next_delivery(self)
    cdef Delivery left_over(self)
    cdef bint is_picky(self) noexcept
    cdef offer_t* first_wanted(self) except? NULL
    cdef offer_t* following(self, const offer_t* offer) except? NULL

cdef offer_t* first_offer_to(EngineLock core, object destination) except? NULL
cdef inline offer_t* first_offer(EngineLock core, object destination) except? NULL:
    """The oldest offer to this destination; None: to any."""
    return core.e.offers_head if destination is None else first_offer_to(core, destination)

cdef Delivery next_undelivered(EngineLock core, object destination)
cdef Delivery next_undelivered_of(EngineLock core, QueueHandle handle)
cdef int keep_undelivered(EngineSleepers core, list deliveries) except -1
