"""The engine's lists of queues: those where something is to be done, so that nothing else is looked at. A queue goes into a list
and out of it in a few instructions, wherever it stands.
"""

from xump_ext.graph cimport engine_t, queue_t

cdef inline void queue_list(engine_t* engine, queue_t* queue, int which) noexcept:
    """First in the list, unless it is there already."""
    cdef queue_t* next = engine.lists[which]
    if queue.is_listed[which]:
        return
    queue.is_listed[which] = True
    queue.listed[which].previous = NULL
    queue.listed[which].next = next
    if next != NULL:
        next.listed[which].previous = queue
    engine.lists[which] = queue

cdef inline void queue_unlist(engine_t* engine, queue_t* queue, int which) noexcept:
    """Out of the list, if it is there."""
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
