"""Declarations of `waiting.pyx`, and the waitset of a route, inline."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.select.clause cimport Clause
from xump_ext.state.constants cimport BEHIND
from xump_ext.state.group_line cimport is_behind
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, route_t, selector_t, waitset_t

cdef class Waiting:
    cdef queue_t* queue
    cdef engine_t* engine
    cdef list by_slot           # Clause or None
    cdef list defaults          # clauses of the default role
    cdef list pending           # new consuming clauses that are not tried on the waiting entries yet
    cdef list woken             # clauses whose selectors may act on parked entries now
    cdef dict waitsets          # key -> address of the waitset

    cdef inline waitset_t* waitset(self, route_t* route, entry_t* entry, bint defaulted, bint parked) except NULL:
        """The waitset in which an entry with this route waits. With `defaulted`, it waits for default clauses too."""
        cdef waitset_t* waitset
        if route.waits.one != NULL and not defaulted and not parked:
            if self.queue.places == 0:
                return route.waits.one
            waitset = route.waits.by_place[place_of(entry)]
            if waitset != NULL:
                return waitset
        return self.waitset_for(route, entry, defaulted, parked)

    cdef waitset_t* waitset_for(self, route_t* route, entry_t* entry, bint defaulted, bint parked) except NULL
    cdef int remember(self, route_t* route, waitset_t* waitset) except -1
    cdef int forget_waitsets(self, route_t* route) except -1
    cdef tuple lane_key(self, Clause clause, entry_t* entry)
    cdef waitset_t* waitset_keyed(self, tuple key) except NULL
    cdef int waitset_rekey(self, waitset_t* waitset, object key) except -1
    cdef int waitset_extend(self, waitset_t* waitset, Clause clause, object target) except -1
    cdef int waitset_shrink(self, waitset_t* waitset, uint32_t at) except -1
    cdef int waitset_left(self, waitset_t* waitset) except -1
    cdef bint wake_copies(self) except -1
    cdef bint wake_clause(self, Clause clause, uint64_t first) except -1
    cdef bint wake_parked(self, selector_t* selector) except -1
    cdef int extend_pending(self) except -1
    cdef int extend_waitsets(self, Clause clause) except -1
    cdef int divide_waitset(self, waitset_t* waitset, Clause clause, object created) except -1
    cdef int shrink_waitsets(self, Clause clause) except -1
    cdef int queue_created(self, queue_t* created, object name) except -1

cdef inline uint32_t place_of(const entry_t* entry) noexcept:
    """Which of the waitsets of its route an entry waits in, in a queue that goes by priority or key."""
    return 2 * entry.rank + (BEHIND if entry.extra != NULL and is_behind(entry) else 0)

cdef inline uint32_t* route_slots(const route_t* route) noexcept:
    return <uint32_t*> (route.clauses + route.clause_count)
