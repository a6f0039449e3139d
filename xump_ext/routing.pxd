"""The run: the declarations of `routing.pyx`."""

from xump_ext.graph cimport STIRRED, engine_t, entry_t, queue_t, selector_t

cdef int run(engine_t* engine) except -1

cdef inline int go_on(engine_t* engine) except -1:
    """Until all is quiet; nothing to do is the common case."""
    if engine.able.count or engine.work_count or engine.lists[STIRRED] != NULL or engine.pause_count:
        return run(engine)
    if engine.building == 0:
        engine.run_start = engine.sequence + 1
    return 0

cdef int wake_everything(engine_t* engine, queue_t* queue) except -1
