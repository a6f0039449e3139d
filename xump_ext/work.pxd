"""What is still to be done in a run; the declarations of `work.pyx`."""

from xump_ext.graph cimport engine_t, entry_t, trip_t, work_t
from xump_ext.trip cimport trip_share

cdef void forget_pause(engine_t* engine, entry_t* entry) noexcept
cdef int pause_trip(engine_t* engine, entry_t* entry, trip_t* trip) except -1
cdef trip_t* paused_trip(engine_t* engine, const entry_t* entry) noexcept
cdef void end_trips(engine_t* engine) noexcept
cdef int parked_push(engine_t* engine, entry_t* entry) except -1
cdef void parked_forget(engine_t* engine, entry_t* entry) noexcept
cdef int work_enlarge(engine_t* engine) except -1
cdef void work_shrink(engine_t* engine) noexcept

cdef enum:
    WORK_KEPT = 1 << 12     # a ring of more items does not outlast its run: 64 KiB

cdef inline int work_push(engine_t* engine, entry_t* entry, trip_t* trip) except -1:
    """The entry is to be routed; it came last. Shares the trip."""
    cdef work_t* item
    if engine.work == NULL or engine.work_count > engine.work_mask:
        work_enlarge(engine)
    item = &engine.work[(engine.work_head + engine.work_count) & engine.work_mask]
    item.entry = entry
    item.trip = trip_share(trip)
    engine.work_count += 1
    return 0
