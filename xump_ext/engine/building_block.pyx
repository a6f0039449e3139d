"""Building blocks: `with engine.building():` routes nothing before its end.

A class in C, so that no signal comes between the moment when a block is entered and the moment when it is sure to be left.
"""

from xump_ext.engine.core cimport Core
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.errors import Reentrant, no_pickle
from xump_ext.route.clock cimport time_of
from xump_ext.route.due cimport release_due
from xump_ext.route.routing cimport run

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


cdef class BuildingBlock:
    """The result of `Engine.building`."""

    def __cinit__(self, Core engine not None):
        self.engine = engine

    def __reduce__(self):
        raise no_pickle(self)

    def begin(self):
        """Enter the block."""
        if self.thread is not None:
            raise RuntimeError("this building block was entered already; call engine.building() for each block")
        thread = PyThread_get_thread_ident()
        block_enter(self.engine)
        self.thread = thread
        self.engine._builders[thread] = self.engine._builders.get(thread, 0) + 1

    def __enter__(self):
        self.begin()

    def __exit__(self, type, *_):
        self.end(True)

    cdef int end(self, bint releases) except -1:
        depth = self.engine._builders[self.thread] - 1      # it may be left in another thread
        if depth:
            self.engine._builders[self.thread] = depth
        else:
            del self.engine._builders[self.thread]
        self._leave(releases)
        return 0

    def _leave(self, bint releases):
        if self.engine.closed:
            return
        try:
            block_leave(self.engine, self.engine._reopened if releases else None)
        except Reentrant:       # it ends inside a call, as when the collector finds its generator there
            self.engine.teller.after_call(self._leave, (releases,))


cdef class GraphChange(BuildingBlock):
    """A building block for a call that creates a part of the graph, or nothing.

    The caller enters it before it takes the graph lock, and begins it when it has that and all else that it waits for, because
    nothing is routed from then on. It ends when the lock is free again, as the run may take long. After an exception it leaves
    the queues of reopened stores held: the caller has undone all that it did in the block, and half a graph must not meet their
    messages.
    """

    def __enter__(self):
        return self

    def __exit__(self, type, *_):
        if self.thread is not None:
            self.end(type is None)


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
