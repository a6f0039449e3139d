"""Building blocks: `with engine.building():` routes nothing before its end.

A class in C, so that no signal comes between the moment when a block is entered and the moment when it is sure to be left.
"""

from xump_ext.engine.core cimport Core
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.route.clock cimport time_of
from xump_ext.route.due cimport release_due
from xump_ext.route.routing cimport run

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


cdef class BuildingBlock:
    """The result of `Engine.building`. One that `finishes` releases the queues of reopened stores only if it ends without an
    exception: the caller has undone all that it did in the block, and half a graph must not meet their messages."""

    def __cinit__(self, Core engine not None, bint finishes=False):
        self.engine = engine
        self.finishes = finishes

    def __enter__(self):
        if self.thread is not None:
            raise RuntimeError("this building block was entered already; call engine.building() for each block")
        thread = PyThread_get_thread_ident()
        block_enter(self.engine)
        self.thread = thread
        self.engine._builders[thread] = self.engine._builders.get(thread, 0) + 1

    def __exit__(self, type, *_):
        depth = self.engine._builders[self.thread] - 1      # it may be left in another thread
        if depth:
            self.engine._builders[self.thread] = depth
        else:
            del self.engine._builders[self.thread]
        if not self.engine.closed:
            block_leave(self.engine, None if self.finishes and type is not None else self.engine._reopened)


cdef int block_enter(Core core) except -1:
    """Enter a building block; routing starts when the outermost one ends. If it raises, the block is not entered."""
    core.lock()
    try:
        core.do_due_now()
        if core.publishers:
            core.let_in()           # the last time before the block ends
    except BaseException:
        core.unlock()
        raise
    core.e.building += 1
    try:
        core.unlock()
    except BaseException:           # of a call-back, or of a store that has failed
        block_undo(core)
        raise
    return 0


cdef int block_undo(Core core) except -1:
    if core.lock_if_open():
        core.e.building -= 1
        core.e.interrupted = True   # another thread may have put something into it: the next call routes that
        core.unlock_now()
    return 0


cdef int block_leave(Core core, list reopened) except -1:
    """Leave a building block. `reopened`: queues that are held until the outermost one ends; None: they stay so. A block ends
    even if the clock raises; then the next call routes."""
    core.lock()
    try:
        try:
            core.do_due_now()       # still inside the block: it is routed with all the rest
        finally:
            core.e.building -= 1
            core.e.interrupted = True
        if core.e.building == 0 and reopened:
            reopened_now = [handle for handle in reopened if (<QueueHandle> handle).queue != NULL]
            reopened.clear()
            for handle in reopened_now:
                core.end_hold((<QueueHandle> handle).queue)
            time_of(&core.e)
            release_due(&core.e, reopened_now)
        run(&core.e)
    finally:
        core.unlock()
    return 0
