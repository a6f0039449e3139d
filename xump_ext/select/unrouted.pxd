"""Declarations of `unrouted.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.state.constants cimport APART, KEPT_NOW
from xump_ext.state.graph cimport engine_t, entry_t, queue_t

# Whether an unrouted entry has to be kept apart: its queue goes by priority, or the frontier is past it.
cdef inline bint goes_apart(const entry_t* entry) noexcept:
    return entry.queue.top_priority != 0 or entry.id < entry.queue.frontier

cdef inline bint is_kept(const entry_t* entry) noexcept:
    """Whether it waits, unrouted, for a selector that matches it."""
    return entry.flags & APART and entry.extra != NULL and entry.extra.kept == KEPT_NOW

cdef int apart_add(entry_t* entry) except -1
cdef void apart_remove(entry_t* entry) noexcept
cdef void apart_free(queue_t* queue) noexcept
# The lowest id that was not routed, or the next one that will be issued. O(ranks).
cdef uint64_t unrouted_lowest(queue_t* queue) noexcept
# Of those apart, the one that goes first, or NULL.
cdef entry_t* apart_first(const queue_t* queue) noexcept
# How many unrouted entries the index finds from the frontier on.
cdef inline uint64_t in_index(const queue_t* queue) noexcept:
    return (queue.unrouted - (0 if queue.apart == NULL else queue.apart.count)
            - (0 if queue.kept == NULL else queue.kept.count))

# No selector matches the entry: it waits, unrouted, for one that does.
cdef int kept_add(entry_t* entry) except -1
# A selector came, or a queue that messages may name: all that wait for that are to be routed. Whether there are any.
cdef bint kept_try(queue_t* queue) except -1

# The queue joins the backlogs, with all that is unrouted there.
cdef int backlog_add(engine_t* engine, queue_t* queue) except -1
# The first entry of its queue's backlog goes to the run queue: the backlog moves on to the next one.
cdef int backlog_forward(engine_t* engine, entry_t* entry) except -1
# An entry came that is kept apart: it may be the next one of its queue.
cdef int backlog_apart(engine_t* engine, queue_t* queue) except -1
