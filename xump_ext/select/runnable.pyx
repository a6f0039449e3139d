"""Queues and lines that may go on: a heap of the engine by the age of their next message, and one in each queue with priorities.

In such a queue a message of higher priority goes first, however young it is. Between queues the messages that are next in theirs
compare by age. So its lanes, and the waiting lists about its messages, are in a heap of its own, by priority and then by age; and
the queue is in the engine's heap, by the age of the first of them.
"""

from xump_ext.memory.heap cimport heap_remove, heap_root
from xump_ext.state.constants cimport INSIDE
from xump_ext.state.returned_heap cimport AGE_BITS


cdef int inside_changed(engine_t* engine, queue_t* queue) except -1:
    """Gives the queue its place in the engine's heap."""
    cdef node_t* first = heap_root(&queue.runnable_inside)
    if first == NULL:
        heap_remove(&engine.runnable, &queue.inside)
        return 0
    queue.inside.kind = INSIDE
    queue.inside.owner = queue
    return heap_set(&engine.runnable, &queue.inside, first.key & ((<uint64_t> 1 << (AGE_BITS + 2)) - 1))


cdef int inside_set(engine_t* engine, queue_t* inside, node_t* node, uint64_t key) except -1:
    heap_set(&inside.runnable_inside, node, key)
    return inside_changed(engine, inside)


cdef int inside_remove(engine_t* engine, queue_t* inside, node_t* node) except -1:
    heap_remove(&inside.runnable_inside, node)
    return inside_changed(engine, inside)


cdef node_t* inside_next(engine_t* engine, queue_t* queue) except NULL:
    cdef node_t* node = heap_root(&queue.runnable_inside)
    heap_remove(&queue.runnable_inside, node)
    inside_changed(engine, queue)
    return node
