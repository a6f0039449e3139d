"""The slow half of `trip.pxd`: a list that has become long turns into a table."""


cdef trip_t* trip_alloc(engine_t* engine) except NULL:
    cdef trip_t* trip = <trip_t*> malloc(sizeof(trip_t))
    if trip != NULL:
        trip.slots = <uint32_t*> malloc(TRIP_LIST * sizeof(uint32_t))
    if trip == NULL or trip.slots == NULL:
        free(trip)
        raise MemoryError()
    trip.capacity = TRIP_LIST
    return trip


cdef void trips_free(engine_t* engine) noexcept:
    cdef trip_t* trip
    while engine.spare_trips != NULL:
        trip = engine.spare_trips
        engine.spare_trips = trip.next
        free(trip.slots)
        free(trip)


cdef inline uint32_t home(const trip_t* trip, uint32_t slot) noexcept:
    return (slot * <uint32_t> 0x9E3779B1) & (trip.capacity - 1)


cdef void trip_put(trip_t* trip, uint32_t slot) noexcept:
    cdef uint32_t at = home(trip, slot)
    while trip.slots[at] != NO_SLOT:
        at = (at + 1) & (trip.capacity - 1)
    trip.slots[at] = slot


cdef int trip_grow(trip_t* trip) except -1:
    cdef uint32_t* old = trip.slots
    cdef uint32_t i, had = trip.capacity, capacity = had * 4
    cdef uint32_t* slots = <uint32_t*> malloc(capacity * sizeof(uint32_t))
    if slots == NULL:
        raise MemoryError()
    for i in range(capacity):
        slots[i] = NO_SLOT
    trip.slots = slots
    trip.capacity = capacity
    for i in range(had):
        if old[i] != NO_SLOT:
            trip_put(trip, old[i])
    free(old)
    return 0


cdef bint trip_search(const trip_t* trip, uint32_t slot) noexcept:
    cdef uint32_t at
    if trip.capacity == TRIP_LIST:
        for at in range(trip.count):
            if trip.slots[at] == slot:
                return True
        return False
    at = home(trip, slot)
    while trip.slots[at] != NO_SLOT:
        if trip.slots[at] == slot:
            return True
        at = (at + 1) & (trip.capacity - 1)
    return False
