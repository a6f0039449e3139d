"""Declarations of `stores.pyx`.

`EngineStores` is a part of the engine's class, between `sleepers.pxd` and `enqueue.pxd`.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.sleepers cimport EngineSleepers
from xump_ext.log.journal cimport Journal
from xump_ext.state.graph cimport queue_t

cdef class EngineStores(EngineSleepers):
    cdef bint keeps_lock        # what is done now must not give the engine lock up: it was found that it may be done
    cdef uint64_t room_start        # `run_start` of the first of the runs that room in stores began, one after the other …
    cdef uint64_t room_end          # … and after the last of them

    cdef queue_t* with_room(self, queue_t* queue, object name, uint64_t bytes, uint64_t largest) except? NULL
    cdef int make_room(self, Journal journal, int64_t bytes) except -1
    cdef int run_in_room(self) except -1
    cdef int detach(self, Journal journal) except -1

cdef class StorePort:
    cdef EngineStores core
    cdef Journal journal
