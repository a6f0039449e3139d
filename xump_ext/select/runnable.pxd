"""Declarations of `runnable.pyx`, and the keys of what may go on, inline."""

from libc.stdint cimport uint64_t

from xump_ext.memory.heap cimport node_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t
from xump_ext.state.returned_heap cimport order_of

# About the same message, what is parked goes first: it is routed then. A waiting list goes before a lane: its step looks at the
# lanes, too.
cdef inline uint64_t parked_key(const entry_t* entry) noexcept:
    return order_of(entry) << 2

cdef inline uint64_t waiters_key(const entry_t* entry) noexcept:
    return order_of(entry) << 2 | 1

cdef inline uint64_t lane_key(const entry_t* entry) noexcept:
    return order_of(entry) << 2 | 2

# Puts the node into the heap, or changes its key there. `inside`: the queue of the message in question; NULL: it is not known.
cdef int runnable_set(engine_t* engine, queue_t* inside, node_t* node, uint64_t key) except -1
cdef int runnable_remove(engine_t* engine, queue_t* inside, node_t* node) except -1
# The first that may go on is taken out; NULL: nothing may. In a queue that goes by priority, that is the first of that queue.
cdef node_t* runnable_next(engine_t* engine) except? NULL
