"""Offers, which are deliveries that your program can take: their memory, and their destinations.

`offers.pxd` has the lists that they are in. The memory of an offer is reused but not freed while the engine lives. So an
iteration that remembers an offer can compare its number to see whether it is still the same one.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from xump_ext.state.constants cimport NEVER, TIMER_EXPIRY
from xump_ext.state.envelope cimport DestinationRef
from xump_ext.state.schedule cimport schedule_add, schedule_cancel, schedule_reserve


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


# ---- outlets

cdef int outlet_offered(engine_t* engine, destination_t* destination) except -1:
    """Something was offered there. If that ends the quiet of an outlet, it is told when the call is over. It is in the
    program's hands now, so it expires no more."""
    cdef outlet_t* outlet = destination.outlet
    if not destination.stands:
        stand_last(outlet, destination)
    if outlet.quiet:
        outlet.quiet = False
        (<list> engine.tellings).append(<object> outlet.handle)
    if destination.tail.entry.extra != NULL:
        schedule_cancel(&engine.schedule, destination.tail.entry.extra)
    return 0


cdef void stand_last(outlet_t* outlet, destination_t* destination) noexcept:
    destination.stands = True
    destination.next = NULL
    if outlet.tail == NULL:
        outlet.head = destination
    else:
        outlet.tail.next = destination
    outlet.tail = destination


cdef int outlet_join(engine_t* engine, outlet_t* outlet, destination_t* destination) except -1:
    """The destination belongs to the outlet from now on, with what is offered there."""
    cdef offer_t* offer = destination.head
    destination.outlet = outlet
    destination.pins += 1
    while offer != NULL:
        if offer.entry.extra != NULL:
            schedule_cancel(&engine.schedule, offer.entry.extra)
        offer = offer.below
    return outlet_offered(engine, destination) if destination.count else 0


cdef int outlet_part(engine_t* engine, destination_t* destination) except -1:
    """The destination belongs to no outlet any more; what is offered there may expire again."""
    cdef outlet_t* outlet = destination.outlet
    cdef destination_t* before = NULL
    cdef destination_t* at = outlet.head
    cdef offer_t* offer = destination.head
    while at != NULL and at != destination:
        before = at
        at = at.next
    if at != NULL:
        if before == NULL:
            outlet.head = at.next
        else:
            before.next = at.next
        if at.next == NULL:
            outlet.tail = before
    destination.outlet = NULL
    destination.stands = False
    destination.pins -= 1
    schedule_reserve(&engine.schedule, destination.count)
    while offer != NULL:
        if offer.entry.extra != NULL and offer.entry.extra.expires != NEVER:
            schedule_add(&engine.schedule, offer.entry.extra, offer.entry.extra.expires, TIMER_EXPIRY)
        offer = offer.below
    return 0


cdef void outlet_turned(outlet_t* outlet) noexcept:
    """The turn of the first destination is over."""
    cdef destination_t* first = outlet.head
    if first != NULL and first != outlet.tail:
        outlet.head = first.next
        stand_last(outlet, first)


cdef entry_t* outlet_first(outlet_t* outlet, uint32_t* turn, uint32_t whole) noexcept:
    """The oldest offer of the first destination in line that has one; NULL: none has. Those before it leave the line, and the
    next one has a whole turn."""
    cdef destination_t* first = outlet.head
    while first != NULL and first.count == 0:
        first.stands = False
        outlet.head = first.next
        if outlet.head == NULL:
            outlet.tail = NULL
        turn[0] = whole
        first = outlet.head
    return NULL if first == NULL else first.head.entry


cdef void offers_free(engine_t* engine) noexcept:
    cdef offer_t* offer
    while engine.spare_offers != NULL:
        offer = engine.spare_offers
        engine.spare_offers = offer.next
        free(offer)
