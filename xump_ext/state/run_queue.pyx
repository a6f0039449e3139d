"""The entries that a run still has to route, and the visited sets of those that wait.

- The run queue is a ring of entries to be routed, oldest first.
- `parked` is an array of parked entries to be routed again, queue by queue, in the order of the queue.
- `suspended` is an array of entries that wait, or that their queue does not route yet. An entry that leaves before the engine is
  quiet goes on with the visited set that is kept here. At the end of the run all these sets are dropped.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from xump_ext.memory.grow cimport array_grow, ring_grow
from xump_ext.state.constants cimport QUEUED, SUSPENDED
from xump_ext.state.graph cimport engine_t, entry_t, run_item_t
from xump_ext.state.visited cimport visited_release, visited_share


cdef int run_queue_enlarge(engine_t* engine) except -1:
    return ring_grow(
        <void**> &engine.run_queue, &engine.run_queue_head, engine.run_queue_count, &engine.run_queue_mask, sizeof(run_item_t))


cdef void run_queue_shrink(engine_t* engine) noexcept:
    """Frees the ring of an ended run; the next run begins with a small one."""
    free(engine.run_queue)
    engine.run_queue = NULL
    engine.run_queue_head = engine.run_queue_mask = 0


cdef int parked_push(engine_t* engine, entry_t* entry) except -1:
    """Has a parked entry routed again; its suspended visited set, if it has one, goes on there."""
    array_grow(<void**> &engine.parked, engine.parked_count, &engine.parked_capacity, sizeof(run_item_t))
    engine.parked[engine.parked_count].entry = entry
    engine.parked[engine.parked_count].visited = visited_share(suspended_visited(engine, entry))
    engine.parked_count += 1
    if entry.flags & SUSPENDED:
        forget_suspended(engine, entry)
    entry.flags |= QUEUED
    entry.below.position = engine.parked_count
    return 0


cdef void parked_forget(engine_t* engine, entry_t* entry) noexcept:
    """Takes the entry out: it was taken first, or its turn has come. The visited set stays, for use in this step."""
    engine.parked[entry.below.position - 1].entry = NULL
    entry.below.any = NULL
    entry.flags &= ~QUEUED


cdef int suspended_grow(engine_t* engine) except -1:
    return array_grow(<void**> &engine.suspended, engine.suspended_count, &engine.suspended_capacity, sizeof(run_item_t))


cdef void forget_suspended(engine_t* engine, entry_t* entry) noexcept:
    engine.suspended[entry.below.position - 1].entry = NULL
    entry.below.any = NULL
    entry.flags &= ~SUSPENDED


cdef void end_visited(engine_t* engine) noexcept:
    """Ends all suspended visited sets, as the engine is quiet: an entry that leaves later starts a new one."""
    cdef uint64_t i
    for i in range(engine.suspended_count):
        if engine.suspended[i].entry != NULL:
            forget_suspended(engine, engine.suspended[i].entry)
        visited_release(engine, engine.suspended[i].visited)
    engine.suspended_count = 0
