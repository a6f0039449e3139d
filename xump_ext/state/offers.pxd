"""The lists of offers: one of all, one for each destination, both in order of delivery."""

from libc.stdint cimport uint32_t

from xump_ext.state.graph cimport destination_t, engine_t, entry_t, offer_t, outlet_t

cdef offer_t* offer_alloc() except NULL
cdef destination_t* destination_named(engine_t* engine, object name) except NULL
cdef int destination_forget(engine_t* engine, destination_t* destination) except -1
cdef void offers_free(engine_t* engine) noexcept

# The line of an outlet: a destination that has an offer stands in it, at the end; the first is asked, and goes to the end when
# its turn is over. One that has lost its offers leaves when it is asked.
cdef int outlet_offered(engine_t* engine, destination_t* destination) except -1
cdef int outlet_join(engine_t* engine, outlet_t* outlet, destination_t* destination) except -1
cdef int outlet_part(engine_t* engine, destination_t* destination) except -1
cdef void outlet_turned(outlet_t* outlet) noexcept
cdef entry_t* outlet_first(outlet_t* outlet, uint32_t* turn, uint32_t whole) noexcept

cdef inline offer_t* offer_new(engine_t* engine) except NULL:
    cdef offer_t* offer = engine.spare_offers
    if offer == NULL:
        return offer_alloc()
    engine.spare_offers = offer.next
    return offer

cdef inline int offer_append(engine_t* engine, destination_t* destination, offer_t* offer, entry_t* entry) except -1:
    """Adds an offer of the entry at the end of both lists."""
    engine.offered += 1
    engine.offer_count += 1
    destination.count += 1
    offer.entry = entry
    offer.destination = destination
    offer.number = engine.offered
    offer.next = NULL
    offer.previous = engine.offers_tail
    if offer.previous == NULL:
        engine.offers_head = offer
    else:
        offer.previous.next = offer
    engine.offers_tail = offer
    offer.below = NULL
    offer.above = destination.tail
    if offer.above == NULL:
        destination.head = offer
    else:
        offer.above.below = offer
    destination.tail = offer
    entry.below.offer = offer
    return 0 if destination.outlet == NULL else outlet_offered(engine, destination)

cdef inline int offer_remove(engine_t* engine, entry_t* entry) except -1:
    """Ends the entry's offer."""
    cdef offer_t* offer = entry.below.offer
    cdef offer_t* previous = offer.previous
    cdef offer_t* next = offer.next
    cdef offer_t* above = offer.above
    cdef offer_t* below = offer.below
    cdef destination_t* destination = offer.destination
    entry.below.any = NULL
    if previous == NULL:
        engine.offers_head = next
    else:
        previous.next = next
    if next == NULL:
        engine.offers_tail = previous
    else:
        next.previous = previous
    if above == NULL:
        destination.head = below
    else:
        above.below = below
    if below == NULL:
        destination.tail = above
    else:
        below.above = above
    engine.offer_count -= 1
    destination.count -= 1
    offer.number = 0            # an iteration that remembers this offer sees that it is gone
    offer.next = engine.spare_offers
    engine.spare_offers = offer
    return destination_left(engine, destination)

cdef inline int destination_left(engine_t* engine, destination_t* destination) except -1:
    """Forgets the destination if it has no offers and no selector names it."""
    return 0 if destination.count or destination.pins else destination_forget(engine, destination)
