"""Declarations of `staging.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.engine.stores cimport EngineStores
from xump_ext.state.graph cimport queue_t

# So many messages of a staged queue that was adopted have been deleted; it goes if none is left.
cdef int adopted_shrinks(EngineStores core, queue_t* staged, uint64_t count) except -1
