"""Trips: the queues that a message has entered in one run, so that two paths give one copy (rule 3).

A small set of queue numbers, shared by all that a message becomes. While it is short it is a list; a mask of the numbers
modulo 64 answers most look-ups. From 16 on it is a table, so that a Parrot of 10,000 costs no more a copy than one of ten.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from xump_ext.graph cimport engine_t, trip_t

cdef enum:
    TRIP_LIST = 16
    NO_SLOT = 0xFFFFFFFF

cdef int trip_grow(trip_t* trip) except -1
cdef bint trip_search(const trip_t* trip, uint32_t slot) noexcept
cdef void trip_put(trip_t* trip, uint32_t slot) noexcept
cdef trip_t* trip_alloc(engine_t* engine) except NULL
cdef void trips_free(engine_t* engine) noexcept

cdef inline trip_t* trip_new(engine_t* engine, uint32_t slot) except NULL:
    """A trip that has been to one queue; the caller holds the reference."""
    cdef trip_t* trip = engine.spare_trips
    if trip != NULL:
        engine.spare_trips = trip.next
    else:
        trip = trip_alloc(engine)
    trip.references = 1
    trip.count = 1
    trip.mask = <uint64_t> 1 << (slot & 63)
    trip.slots[0] = slot
    return trip

cdef inline trip_t* trip_share(trip_t* trip) noexcept:
    if trip != NULL:
        trip.references += 1
    return trip

cdef inline void trip_release(engine_t* engine, trip_t* trip) noexcept:
    if trip == NULL:
        return
    trip.references -= 1
    if trip.references == 0:
        if trip.capacity > TRIP_LIST:
            free(trip.slots)
            free(trip)
        else:
            trip.next = engine.spare_trips
            engine.spare_trips = trip

cdef inline bint trip_has(const trip_t* trip, uint32_t slot) noexcept:
    return (trip.mask >> (slot & 63)) & 1 and trip_search(trip, slot)

cdef inline int trip_add(trip_t* trip, uint32_t slot) except -1:
    if trip_has(trip, slot):
        return 0
    if trip.count == TRIP_LIST or (trip.capacity > TRIP_LIST and trip.count * 2 >= trip.capacity):
        trip_grow(trip)
    trip.mask |= <uint64_t> 1 << (slot & 63)
    if trip.capacity == TRIP_LIST:
        trip.slots[trip.count] = slot
    else:
        trip_put(trip, slot)
    trip.count += 1
    return 0
