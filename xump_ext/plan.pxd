"""Which selectors a message hits: the declarations of `plan.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.equality cimport EqualityIndex
from xump_ext.filter cimport Filter
from xump_ext.graph cimport clause_t, engine_t, entry_t, field_t, group_t, lane_t, queue_t, route_t, selector_t
from xump_ext.hits cimport hits_t
from xump_ext.match cimport MatchIndex

cdef struct known_t:            # what is known of one address
    Py_hash_t hash
    void* address               # str, owned; NULL: free
    route_t* route              # all that its messages hit, or NULL: that depends on more than the address
    uint32_t first              # the candidates, in `Plan.candidates`
    uint32_t count

cdef class Predicate:
    cdef int kind
    cdef Filter filter
    cdef object call
    cdef MatchIndex index
    cdef field_t field
    cdef hits_t hits
    cdef int holds(self, Clause clause, entry_t* entry) except -1

cdef class Clause:
    cdef clause_t c
    cdef Plan plan
    cdef readonly tuple key
    cdef list predicates        # all of them
    cdef list residual          # those that the index does not answer
    cdef tuple indexed          # where the index knows it, or None
    cdef dict lanes             # target name -> address of the lane
    cdef field_t to_queue
    cdef field_t to_destination
    cdef bint reported
    cdef int holds(self, entry_t* entry) except -1
    cdef int residual_holds(self, entry_t* entry) except -1
    cdef int fields_hold(self, entry_t* entry) except -1
    cdef lane_t* lane_for(self, entry_t* entry) except NULL
    cdef lane_t* lane_named(self, object target) except NULL
    cdef int compile(self, list terms) except -1
    cdef bint unconditional(self)
    cdef int lane_free(self, lane_t* lane) except -1

cdef class Plan:
    cdef queue_t* queue
    cdef engine_t* engine
    cdef dict clauses           # key -> Clause
    cdef list by_slot           # Clause or None
    cdef list spare_slots
    cdef list defaults          # clauses of the default role
    cdef MatchIndex addresses
    cdef dict fields            # name -> FieldIndex
    cdef EqualityIndex equality
    cdef uint32_t equalities
    cdef list always            # clauses without any condition
    cdef list scanned           # clauses that no index knows
    cdef list pending           # new consuming clauses that were not yet tried on what waits
    cdef int extend_pending(self) except -1
    cdef dict groups            # key -> address of the group
    cdef bint dirty
    cdef bint needs_address
    cdef route_t* everything    # the one route, if no condition asks for anything
    cdef known_t* known
    cdef uint32_t known_count
    cdef uint32_t known_mask
    cdef hits_t candidates
    cdef route_t** routes
    cdef uint32_t route_count
    cdef uint32_t route_mask
    cdef hits_t hits

    cdef Clause clause_join(self, tuple key, selector_t* selector, list terms)
    cdef int clause_leave(self, selector_t* selector) except -1
    cdef route_t* route(self, entry_t* entry) except NULL
    cdef route_t* defaults_route(self, entry_t* entry) except NULL
    cdef route_t* parked_route(self, group_t* group) except NULL
    cdef group_t* group(self, route_t* route, entry_t* entry, bint marked, bint parked) except NULL
    cdef int group_left(self, group_t* group) except -1
    cdef int queue_created(self, queue_t* created, object name) except -1
    cdef int forget(self) except -1
    cdef int close(self) except -1
    cdef int index(self, Clause clause) except -1
    cdef int unindex(self, Clause clause) except -1
    cdef route_t* evaluate(self, known_t* known, entry_t* entry) except NULL
    cdef known_t* known_address(self, object address) except NULL
    cdef known_t* learn_address(self, object address, Py_hash_t hash) except NULL
    cdef uint32_t known_free(self, Py_hash_t hash) noexcept
    cdef int known_resize(self, uint32_t size) except -1
    cdef int drain(self, MatchIndex index) except -1
    cdef route_t* route_for(self, uint32_t* slots, uint32_t count) except NULL
    cdef route_t* route_new(self, uint32_t* slots, uint32_t count, uint64_t hash) except NULL
    cdef int routes_resize(self, uint32_t size) except -1
    cdef tuple lane_key(self, Clause clause, entry_t* entry)
    cdef group_t* group_keyed(self, tuple key) except NULL
    cdef int group_rekey(self, group_t* group, object key) except -1
    cdef int group_extend(self, group_t* group, Clause clause, object target) except -1
    cdef int group_shrink(self, group_t* group, uint32_t at) except -1
    cdef int extend_groups(self, Clause clause) except -1
    cdef int divide_group(self, group_t* group, Clause clause, object created) except -1
    cdef int shrink_groups(self, Clause clause) except -1
