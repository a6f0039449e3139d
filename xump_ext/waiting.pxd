"""What waits, and for whom: the declarations of `waiting.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.clause cimport Clause
from xump_ext.graph cimport engine_t, entry_t, group_t, queue_t, route_t, selector_t

cdef class Waiting:
    cdef queue_t* queue
    cdef engine_t* engine
    cdef list by_slot           # Clause or None
    cdef list defaults          # clauses of the default role
    cdef list pending           # new consuming clauses that were not yet tried on what waits
    cdef list woken             # clauses that parked messages may be acted on by, since a selector was enabled
    cdef dict groups            # key -> address of the group

    cdef inline group_t* group(self, route_t* route, entry_t* entry, bint marked, bint parked) except NULL:
        """Where an entry with these hits waits. With `marked`, default clauses belong to it too."""
        if route.group != NULL and not marked and not parked:
            return route.group
        return self.group_for(route, entry, marked, parked)

    cdef group_t* group_for(self, route_t* route, entry_t* entry, bint marked, bint parked) except NULL
    cdef tuple lane_key(self, Clause clause, entry_t* entry)
    cdef group_t* group_keyed(self, tuple key) except NULL
    cdef int group_rekey(self, group_t* group, object key) except -1
    cdef int group_extend(self, group_t* group, Clause clause, object target) except -1
    cdef int group_shrink(self, group_t* group, uint32_t at) except -1
    cdef int group_left(self, group_t* group) except -1
    cdef bint wake_copies(self) except -1
    cdef bint wake_clause(self, Clause clause, uint64_t first) except -1
    cdef bint wake_parked(self, selector_t* selector) except -1
    cdef int extend_pending(self) except -1
    cdef int extend_groups(self, Clause clause) except -1
    cdef int divide_group(self, group_t* group, Clause clause, object created) except -1
    cdef int shrink_groups(self, Clause clause) except -1
    cdef int queue_created(self, queue_t* created, object name) except -1

cdef inline uint32_t* route_slots(const route_t* route) noexcept:
    return <uint32_t*> (route.clauses + route.clause_count)
