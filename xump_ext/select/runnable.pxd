"""Declarations of `runnable.pyx`, and the keys of what may go on, inline."""

from libc.stdint cimport uint64_t

from xump_ext.memory.heap cimport heap_add, heap_change, heap_remove, heap_t, node_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t
from xump_ext.state.returned_heap cimport order_of

cdef enum:
    STALE = 1       # the key of a queue that goes by priority, while it is not known which of its messages comes first

# About the same message, what is parked goes first: it is routed then. A waiting list goes before a lane: its step looks at the
# lanes, too.
cdef inline uint64_t parked_key(const entry_t* entry) noexcept:
    return order_of(entry) << 2

cdef inline uint64_t waiters_key(const entry_t* entry) noexcept:
    return order_of(entry) << 2 | 1

cdef inline uint64_t lane_key(const entry_t* entry) noexcept:
    return order_of(entry) << 2 | 2

# `runnable_set` and `runnable_remove` for the heap of a queue that goes by priority, whose place in the engine's heap changes.
cdef int inside_set(engine_t* engine, queue_t* inside, node_t* node, uint64_t key) except -1
cdef int inside_remove(engine_t* engine, queue_t* inside, node_t* node) except -1

cdef inline int heap_set(heap_t* heap, node_t* node, uint64_t key) except -1:
    if node.position == 0:
        return heap_add(heap, node, key)
    if node.key != key:
        heap_change(heap, node, key)
    return 0

cdef inline int runnable_set(engine_t* engine, queue_t* inside, node_t* node, uint64_t key) except -1:
    """Puts the node into the heap, or changes its key there. `inside`: the queue of the message in question; NULL: it is not
    known."""
    if inside != NULL and inside.top_priority:
        return inside_set(engine, inside, node, key)
    return heap_set(&engine.runnable, node, key)

cdef inline int runnable_remove(engine_t* engine, queue_t* inside, node_t* node) except -1:
    """Takes the node out of the heap, if it is in one. Else `inside` may be the address of a queue that has ended."""
    if node.position == 0:
        return 0
    if inside != NULL and inside.top_priority:
        return inside_remove(engine, inside, node)
    heap_remove(&engine.runnable, node)
    return 0

cdef void inside_mark_stale(queue_t* queue) noexcept

cdef inline void inside_invalidate(queue_t* queue) noexcept:
    """Another message of the queue may be the first that can go on now."""
    if queue.inside.position:
        inside_mark_stale(queue)        # apart, so that it costs other queues no more than the look
