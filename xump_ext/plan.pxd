"""Which selectors a message hits: the declarations of `plan.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.block cimport content_t
from xump_ext.clause cimport Clause
from xump_ext.equality cimport EqualityIndex
from xump_ext.graph cimport entry_t, group_t, queue_t, route_t, selector_t
from xump_ext.hits cimport hits_t
from xump_ext.match cimport MatchIndex
from xump_ext.waiting cimport Waiting

cdef extern from *:
    """
    static inline Py_hash_t xump_hash_of(PyObject *text) {
        Py_hash_t hash = ((PyASCIIObject *) text)->hash;
        return hash != -1 ? hash : PyObject_Hash(text);
    }
    """
    Py_hash_t hash_of "xump_hash_of"(object text) noexcept      # of exact strings, as all texts of a message are: it cannot fail
    void prefetch "__builtin_prefetch"(const void* memory) noexcept     # no access: any address will do

cdef struct known_t:            # what is known of one address
    void* address               # str, owned; NULL: free
    route_t* route              # all that its messages hit, or NULL: that depends on more than the address
    uint32_t hash
    uint32_t first              # the candidates, in `Plan.candidates`
    uint32_t count
    uint32_t reserved           # 32 bytes: a look-up is one cache line

cdef class Plan(Waiting):
    cdef dict clauses           # key -> Clause
    cdef list spare_slots
    cdef MatchIndex addresses
    cdef dict fields            # name -> FieldIndex
    cdef EqualityIndex equality
    cdef list equal             # clauses that it knows
    cdef uint32_t equalities    # how many
    cdef list always            # clauses without any condition
    cdef list scanned           # clauses that no index knows
    cdef bint dirty             # what is remembered is no longer true
    cdef route_t* everything    # the one route, if no condition asks for anything
    cdef route_t* otherwise     # of all that hit nothing, if their defaults ask for nothing; NULL: not known
    cdef list asked             # clauses that are evaluated on every message
    cdef bint by_address        # whether a condition asks for the address
    cdef known_t anywhere       # what is known of any address, if none does
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
    cdef int index(self, Clause clause) except -1
    cdef int unindex(self, Clause clause) except -1
    cdef route_t* route(self, entry_t* entry) except NULL
    cdef route_t* defaults_route(self, entry_t* entry) except NULL
    cdef route_t* parked_route(self, group_t* group) except NULL
    cdef route_t* evaluate(self, known_t* known, entry_t* entry) except NULL
    cdef known_t* known_address(self, object address) except NULL
    cdef known_t* learn_address(self, object address, uint32_t hash) except NULL
    cdef uint32_t known_free(self, uint32_t hash) noexcept
    cdef int known_resize(self, uint32_t size) except -1
    cdef int drain(self, MatchIndex index) except -1
    cdef route_t* route_for(self, uint32_t* slots, uint32_t count) except NULL
    cdef route_t* route_new(self, uint32_t* slots, uint32_t count, uint64_t hash) except NULL
    cdef int routes_resize(self, uint32_t size) except -1
    cdef int empty(self) except -1
    cdef int forget(self) except -1
    cdef int close(self) except -1

# A message will be routed soon in this queue, and each of these asks for the next one: what is known of its address, its route,
# and the selector and the queue of its first copy. They are fetched while something else is done, a step at a time. Whether the
# address is the one in the first place that is looked at does not matter.

cdef inline known_t* known_place(const queue_t* queue, object address) noexcept:
    """NULL where it does not depend on addresses."""
    if (<Plan> queue.plan).known_count == 0:
        return NULL
    return &(<Plan> queue.plan).known[<uint32_t> hash_of(address) & (<Plan> queue.plan).known_mask]

cdef inline void foresee(const queue_t* queue, object address) noexcept:
    prefetch(known_place(queue, address))

cdef inline void foresee_route(const queue_t* queue, object address) noexcept:
    cdef known_t* known = known_place(queue, address)
    if known != NULL:
        prefetch(known.route)

cdef inline void foresee_copy(const queue_t* queue, object address) noexcept:
    cdef known_t* known = known_place(queue, address)
    if known != NULL and known.route != NULL and known.route.copy_count:
        prefetch(known.route.copies[0].selector)
        prefetch(&known.route.copies[0].target.index.tail)
