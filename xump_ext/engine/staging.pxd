"""Declarations of `staging.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.engine.stores cimport EngineStores
from xump_ext.state.graph cimport queue_t

# Lets the store clean its log if it has no room for the next message that the target has adopted. The lock may be given up.
cdef int make_room_for_next(EngineStores core, object target) except -1
# The next message that the target has adopted enters; raises QueueFull if there is no room. 0: there is none.
cdef int enter_next(EngineStores core, object target) except -1
# So many messages of a staged queue that was adopted have been deleted; it goes if none is left.
cdef int adopted_shrinks(EngineStores core, queue_t* staged, uint64_t count) except -1
