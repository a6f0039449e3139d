"""What is still to be done in a run: entries to be routed, parked ones to be routed again, and trips that go on when an entry
that waits leaves before all is quiet.
"""

from libc.stdint cimport uint64_t, uintptr_t
from libc.stdlib cimport free

from xump_ext.graph cimport PAUSED, QUEUED, engine_t, entry_t, work_t
from xump_ext.grow cimport array_grow, ring_grow
from xump_ext.trip cimport trip_release, trip_share


cdef int work_enlarge(engine_t* engine) except -1:
    return ring_grow(<void**> &engine.work, &engine.work_head, engine.work_count, &engine.work_mask, sizeof(work_t))


cdef void work_shrink(engine_t* engine) noexcept:
    """All is done; the next run begins with a small ring."""
    free(engine.work)
    engine.work = NULL
    engine.work_head = engine.work_mask = 0


cdef int parked_push(engine_t* engine, entry_t* entry) except -1:
    """A parked entry is to be routed again; the trip that it paused goes on there."""
    array_grow(<void**> &engine.parked, engine.parked_count, &engine.parked_capacity, sizeof(work_t))
    engine.parked[engine.parked_count].entry = entry
    engine.parked[engine.parked_count].trip = trip_share(paused_trip(engine, entry))
    engine.parked_count += 1
    if entry.flags & PAUSED:
        forget_pause(engine, entry)
    entry.flags |= QUEUED
    entry.child = <void*> <uintptr_t> engine.parked_count
    return 0


cdef void parked_forget(engine_t* engine, entry_t* entry) noexcept:
    """It was taken first, or its turn has come. The trip stays there, for whoever goes on with it in this step."""
    engine.parked[<uintptr_t> entry.child - 1].entry = NULL
    entry.child = NULL
    entry.flags &= ~QUEUED


cdef int pauses_grow(engine_t* engine) except -1:
    return array_grow(<void**> &engine.pauses, engine.pause_count, &engine.pause_capacity, sizeof(work_t))


cdef void forget_pause(engine_t* engine, entry_t* entry) noexcept:
    engine.pauses[<uintptr_t> entry.child - 1].entry = NULL
    entry.child = NULL
    entry.flags &= ~PAUSED


cdef void end_trips(engine_t* engine) noexcept:
    """All is quiet: what waits has waited, and starts a new trip when it leaves."""
    cdef uint64_t i
    for i in range(engine.pause_count):
        if engine.pauses[i].entry != NULL:
            forget_pause(engine, engine.pauses[i].entry)
        trip_release(engine, engine.pauses[i].trip)
    engine.pause_count = 0
