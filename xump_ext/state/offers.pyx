"""Offers, which are deliveries that your program can take: their memory, and their destinations.

`offers.pxd` has the lists that they are in. The memory of an offer is reused but not freed while the engine lives. So an
iteration that remembers an offer can compare its number to see whether it is still the same one.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from xump_ext.state.envelope cimport DestinationRef


cdef offer_t* offer_alloc() except NULL:
    cdef offer_t* offer = <offer_t*> malloc(sizeof(offer_t))
    if offer == NULL:
        raise MemoryError()
    return offer


cdef destination_t* destination_named(engine_t* engine, object name) except NULL:
    cdef DestinationRef handle = (<dict> engine.destinations).get(name)
    if handle is None:
        handle = DestinationRef.__new__(DestinationRef)
        memset(&handle.destination, 0, sizeof(destination_t))
        (<dict> engine.destinations)[name] = handle
        handle.destination.name = <void*> name      # the mapping's key keeps the reference
    return &handle.destination


cdef int destination_forget(engine_t* engine, destination_t* destination) except -1:
    del (<dict> engine.destinations)[<object> destination.name]
    return 0


cdef void offers_free(engine_t* engine) noexcept:
    cdef offer_t* offer
    while engine.spare_offers != NULL:
        offer = engine.spare_offers
        engine.spare_offers = offer.next
        free(offer)
