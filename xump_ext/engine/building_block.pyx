"""Building blocks: `with engine.building():` routes nothing before its end.

A class in C, so that no signal comes between the moment when a block is entered and the moment when it is sure to be left.
"""

from xump_ext.engine.core cimport Core

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


cdef class BuildingBlock:
    """The result of `Engine.building`."""

    def __cinit__(self, Core engine not None):
        self.engine = engine

    def __enter__(self):
        if self.thread is not None:
            raise RuntimeError("this building block was entered already; call engine.building() for each block")
        thread = PyThread_get_thread_ident()
        self.engine.block_enter()
        self.thread = thread
        self.engine._builders[thread] = self.engine._builders.get(thread, 0) + 1

    def __exit__(self, *_):
        depth = self.engine._builders[self.thread] - 1      # it may be left in another thread
        if depth:
            self.engine._builders[self.thread] = depth
        else:
            del self.engine._builders[self.thread]
        if not self.engine.closed:
            self.engine.block_leave(self.engine._reopened)
