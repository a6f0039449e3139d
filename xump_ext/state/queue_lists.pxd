"""The engine's lists of queues that need attention, so that a run looks at no others.

`constants.pxd` names the lists. A queue enters a list, and leaves it from any position, in a few instructions.
"""

from xump_ext.state.constants cimport DIRTY
from xump_ext.state.graph cimport engine_t, queue_t

cdef inline void queue_list(engine_t* engine, queue_t* queue, int which) noexcept:
    """Puts the queue at the head of the list, unless it is in it."""
    cdef queue_t* next = engine.lists[which]
    if queue.is_listed[which]:
        return
    queue.is_listed[which] = True
    queue.listed[which].previous = NULL
    queue.listed[which].next = next
    if next != NULL:
        next.listed[which].previous = queue
    engine.lists[which] = queue

cdef inline void mark_dirty(engine_t* engine, queue_t* queue) noexcept:
    """Has the next run look at this queue."""
    queue_list(engine, queue, DIRTY)

cdef inline void queue_unlist(engine_t* engine, queue_t* queue, int which) noexcept:
    """Takes the queue out of the list, if it is in it."""
    cdef queue_t* previous = queue.listed[which].previous
    cdef queue_t* next = queue.listed[which].next
    if not queue.is_listed[which]:
        return
    queue.is_listed[which] = False
    if previous == NULL:
        engine.lists[which] = next
    else:
        previous.listed[which].next = next
    if next != NULL:
        next.listed[which].previous = previous
