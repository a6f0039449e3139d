"""Offers and their destinations come and go; the lists that they stand in are in `offers.pxd`.

The memory of offers is kept while the engine lives, so that whoever remembers one can look whether its number is still the same.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from xump_ext.envelope cimport DestinationHandle


cdef offer_t* offer_alloc() except NULL:
    cdef offer_t* offer = <offer_t*> malloc(sizeof(offer_t))
    if offer == NULL:
        raise MemoryError()
    return offer


cdef destination_t* destination_named(engine_t* engine, object name) except NULL:
    cdef DestinationHandle handle = (<dict> engine.destinations).get(name)
    if handle is None:
        handle = DestinationHandle.__new__(DestinationHandle)
        memset(&handle.destination, 0, sizeof(destination_t))
        (<dict> engine.destinations)[name] = handle
        handle.destination.name = <void*> name      # the mapping's key holds it
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
