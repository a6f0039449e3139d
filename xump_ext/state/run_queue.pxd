"""Declarations of `run_queue.pyx`, and how an entry enters the run queue and `suspended`, inline."""

from libc.stdint cimport uintptr_t

from xump_ext.state.constants cimport QUEUED, SUSPENDED
from xump_ext.state.graph cimport engine_t, entry_t, run_item_t, visited_t
from xump_ext.state.visited cimport visited_share

cdef void forget_suspended(engine_t* engine, entry_t* entry) noexcept
cdef int suspended_grow(engine_t* engine) except -1
cdef void end_visited(engine_t* engine) noexcept
cdef int parked_push(engine_t* engine, entry_t* entry) except -1
cdef void parked_forget(engine_t* engine, entry_t* entry) noexcept
cdef int run_queue_enlarge(engine_t* engine) except -1
cdef void run_queue_shrink(engine_t* engine) noexcept

cdef enum:
    RUN_QUEUE_KEPT = 1 << 12     # a ring of more items (64 KiB) is freed at the end of its run

cdef inline void run_queue_push(engine_t* engine, entry_t* entry, visited_t* visited) noexcept:
    """Puts an entry at the end of the run queue, and shares its visited set. `run_queue_reserve` has made room. No entry leaves
    its queue while it is here."""
    cdef run_item_t* item = &engine.run_queue[(engine.run_queue_head + engine.run_queue_count) & engine.run_queue_mask]
    item.entry = entry
    item.visited = visited_share(visited)
    engine.run_queue_count += 1

cdef inline int run_queue_reserve(engine_t* engine) except -1:
    """Makes room, so that the next `run_queue_push` needs no memory."""
    return run_queue_enlarge(engine) if engine.run_queue == NULL or engine.run_queue_count > engine.run_queue_mask else 0

cdef inline int suspend(engine_t* engine, entry_t* entry, visited_t* visited) except -1:
    """Keeps the visited set of an entry that waits, or that its queue does not route yet: the set goes on if the entry leaves in
    this run. Shares the set."""
    cdef run_item_t* item
    if entry.flags & SUSPENDED:
        return 0
    if engine.suspended_count == engine.suspended_capacity:
        suspended_grow(engine)
    item = &engine.suspended[engine.suspended_count]
    item.entry = entry
    item.visited = visited_share(visited)
    engine.suspended_count += 1
    entry.flags |= SUSPENDED
    entry.below.position = engine.suspended_count
    return 0

cdef inline visited_t* suspended_visited(engine_t* engine, const entry_t* entry) noexcept:
    """The visited set that goes on with the entry, or NULL; valid until the step ends."""
    if not entry.flags & (SUSPENDED | QUEUED):
        return NULL
    return (engine.parked if entry.flags & QUEUED else engine.suspended)[entry.below.position - 1].visited
