"""Declarations of `routing.pyx`, and the end of a call that has nothing to run, inline."""

from xump_ext.state.constants cimport DIRTY
from xump_ext.state.graph cimport engine_t, queue_t

cdef int run(engine_t* engine) except -1

cdef inline int go_on(engine_t* engine) except -1:
    """Drives the graph until it is quiet. Most often there is nothing to do."""
    if engine.runnable.count or engine.run_queue_count or engine.lists[DIRTY] != NULL or engine.suspended_count:
        return run(engine)
    if engine.building == 0:
        engine.run_start = engine.sequence + 1
    return 0

cdef int wake_everything(engine_t* engine, queue_t* queue) except -1
