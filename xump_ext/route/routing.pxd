"""Declarations of `routing.pyx`, and the end of a call that has nothing to run, inline."""

from libc.stdint cimport uint64_t, uintptr_t

from xump_ext.route.due cimport something_is_due
from xump_ext.state.constants cimport DIRTY, OVERFULL
from xump_ext.state.graph cimport engine_t

cdef int run(engine_t* engine) except -1

cdef inline int go_on(engine_t* engine) except -1:
    """Runs the graph until nothing more happens. Most often there is nothing to do."""
    # Most often all of these are zero, and one test says so. Something may be scheduled, or requests may have been made, and yet
    # there is nothing to do.
    cdef uint64_t much = <uint64_t> engine.runnable.count | engine.run_queue_count | <uint64_t> engine.backlogs.count | (
        engine.suspended_count) | <uintptr_t> engine.lists[DIRTY] | <uintptr_t> engine.lists[OVERFULL]
    if much | engine.schedule.live | <uintptr_t> engine.replies and (
            much or something_is_due(engine) or (engine.replies != NULL and engine.replies.ready)):
        return run(engine)
    if engine.building == 0:
        engine.run_start = engine.sequence + 1
    return 0
