"""What is still to be done in a run; the declarations of `work.pyx`."""

from libc.stdint cimport uintptr_t

from xump_ext.graph cimport PAUSED, QUEUED, engine_t, entry_t, trip_t, work_t
from xump_ext.trip cimport trip_share

cdef void forget_pause(engine_t* engine, entry_t* entry) noexcept
cdef int pauses_grow(engine_t* engine) except -1
cdef void end_trips(engine_t* engine) noexcept
cdef int parked_push(engine_t* engine, entry_t* entry) except -1
cdef void parked_forget(engine_t* engine, entry_t* entry) noexcept
cdef int work_enlarge(engine_t* engine) except -1
cdef void work_shrink(engine_t* engine) noexcept

cdef enum:
    WORK_KEPT = 1 << 12     # a ring of more items does not outlast its run: 64 KiB

cdef inline void work_push(engine_t* engine, entry_t* entry, trip_t* trip) noexcept:
    """The entry is to be routed; it came last. Shares the trip. None that stands here leaves its queue before its turn. There is
    room: `work_reserve`."""
    cdef work_t* item = &engine.work[(engine.work_head + engine.work_count) & engine.work_mask]
    item.entry = entry
    item.trip = trip_share(trip)
    engine.work_count += 1

cdef inline int work_reserve(engine_t* engine) except -1:
    """The next `work_push` needs no memory."""
    return work_enlarge(engine) if engine.work == NULL or engine.work_count > engine.work_mask else 0

cdef inline int pause_trip(engine_t* engine, entry_t* entry, trip_t* trip) except -1:
    """The entry waits, or its queue does; the trip goes on if it leaves before all is quiet. Shares the trip."""
    cdef work_t* item
    if entry.flags & PAUSED:
        return 0
    if engine.pause_count == engine.pause_capacity:
        pauses_grow(engine)
    item = &engine.pauses[engine.pause_count]
    item.entry = entry
    item.trip = trip_share(trip)
    engine.pause_count += 1
    entry.flags |= PAUSED
    entry.child = <void*> <uintptr_t> engine.pause_count
    return 0

cdef inline trip_t* paused_trip(engine_t* engine, const entry_t* entry) noexcept:
    """The trip that goes on with the entry, or NULL; valid until the step ends."""
    if not entry.flags & (PAUSED | QUEUED):
        return NULL
    return (engine.parked if entry.flags & QUEUED else engine.pauses)[<uintptr_t> entry.child - 1].trip
