"""Queues and lines that may go on: a heap of the engine by the age of their next message, and one in each queue with priorities.

In such a queue a message of higher priority goes first, however young it is. Between queues the messages that are next in theirs
compare by age. So its lanes, and the waiting lists about its messages, are in a heap of its own, by priority and then by age; and
the queue is in the engine's heap, by the age of the first of them.

Keys are lower bounds: the message of a key may be gone. Ages are no bounds: when an urgent message has gone, or cannot go on
now, the next one may be older. So the queue stands in the engine's heap as STALE after each change, when a message ceased to
wait, when the last selector of a clause is not ready any more, and when somebody took the room that a message waits for; until
`inside_look` finds which message is the first.
"""

from xump_ext.memory.heap cimport heap_change, heap_remove
from xump_ext.state.constants cimport INSIDE


cdef int inside_changed(engine_t* engine, queue_t* queue) except -1:
    """Before the next step in it, the queue is looked at for the message that comes first."""
    if queue.runnable_inside.count == 0:
        heap_remove(&engine.runnable, &queue.inside)
        return 0
    queue.inside.kind = INSIDE
    queue.inside.owner = queue
    return heap_set(&engine.runnable, &queue.inside, STALE)


cdef void inside_mark_stale(queue_t* queue) noexcept:
    if queue.inside.key != STALE:
        heap_change(&queue.engine.runnable, &queue.inside, STALE)


cdef int inside_set(engine_t* engine, queue_t* inside, node_t* node, uint64_t key) except -1:
    heap_set(&inside.runnable_inside, node, key)
    return inside_changed(engine, inside)


cdef int inside_remove(engine_t* engine, queue_t* inside, node_t* node) except -1:
    heap_remove(&inside.runnable_inside, node)
    return inside_changed(engine, inside)
