"""Declarations of `plan.pyx`, and how the next message's route is fetched ahead, inline."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.match.equality_index cimport EqualityIndex
from xump_ext.match.pattern_index cimport MatchIndex
from xump_ext.memory.prefetch cimport prefetch
from xump_ext.memory.u32_vector cimport u32_vector_t
from xump_ext.select.clause cimport Clause
from xump_ext.select.waiting cimport Waiting
from xump_ext.state.graph cimport entry_t, queue_t, route_t, selector_t, waitset_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    /* A target that a field names is NULL: any address will do, but none of a member of nothing. */
    #define xump_prefetch_tail(queue) \\
        xump_prefetch((const void*) ((uintptr_t) (queue) + offsetof(__typeof__(*(queue)), index.tail)))
    static inline Py_hash_t xump_hash_of(PyObject *text) {
        Py_hash_t hash = ((PyASCIIObject *) text)->hash;
        return hash != -1 ? hash : PyObject_Hash(text);
    }
    """
    Py_hash_t hash_of "xump_hash_of"(object text) noexcept      # for exact str, as all texts of a message are: it cannot fail
    void prefetch_tail "xump_prefetch_tail"(const queue_t* queue) noexcept

cdef struct known_t:            # what the plan remembers of one address
    void* address               # str, owned; NULL: this place is free
    route_t* route              # what its messages hit; NULL: that depends on more than the address
    uint32_t hash
    uint32_t first              # its candidates, in `Plan.candidates`
    uint32_t count
    uint32_t reserved           # makes it 32 bytes: a look-up reads one cache line

cdef class Plan(Waiting):
    cdef dict clauses                       # key -> Clause
    cdef list spare_slots
    cdef MatchIndex addresses
    cdef dict fields                        # name -> FieldIndex
    cdef EqualityIndex equality
    cdef list in_equality_index             # clauses in it
    cdef uint32_t equalities                # how many
    cdef list unconditional                 # clauses that hold for every message
    cdef list unindexed                     # clauses that are in no index
    cdef bint stale                         # what is remembered must be forgotten before the next message
    cdef route_t* route_of_all              # the route of all messages, if no condition depends on the message
    cdef route_t* route_of_none             # the route of all that hit nothing, if no default depends on it; NULL: not known
    cdef list evaluated_always              # clauses that are evaluated on every message
    cdef bint by_address                    # whether a condition asks for the address
    cdef known_t known_of_any_address       # what is known of every address, if none does
    cdef known_t* known
    cdef uint32_t known_count
    cdef uint32_t known_mask
    cdef u32_vector_t candidates
    cdef route_t** routes
    cdef uint32_t route_count
    cdef uint32_t route_mask
    cdef u32_vector_t hits

    cdef Clause clause_join(self, tuple key, selector_t* selector, list terms)
    cdef int clause_leave(self, selector_t* selector) except -1
    cdef int index(self, Clause clause) except -1
    cdef int unindex(self, Clause clause) except -1
    cdef route_t* route(self, entry_t* entry) except NULL
    cdef route_t* defaults_route(self, entry_t* entry) except NULL
    cdef route_t* parked_route(self, waitset_t* waitset) except NULL
    cdef route_t* evaluate(self, known_t* known, entry_t* entry) except NULL
    cdef known_t* known_address(self, object address) except NULL
    cdef known_t* learn_address(self, object address, uint32_t hash) except NULL
    cdef uint32_t known_free(self, uint32_t hash) noexcept
    cdef int known_resize(self, uint32_t size) except -1
    cdef list indexes(self)
    cdef int drain(self, MatchIndex index) except -1
    cdef route_t* route_for(self, uint32_t* slots, uint32_t count) except NULL
    cdef route_t* route_new(self, uint32_t* slots, uint32_t count, uint64_t hash) except NULL
    cdef int routes_resize(self, uint32_t size) except -1
    cdef int empty(self) except -1
    cdef int forget(self) except -1
    cdef int close(self) except -1

# A message will be routed soon in this queue. Each of these functions fetches into the cache what the next one reads: what is
# known of its address, its route, then the selector and the queue of its first copy. They are called one step ahead of each
# other, while other messages are routed. If the first place of the table holds another address, that does no harm.

cdef inline known_t* known_place(const queue_t* queue, object address) noexcept:
    """Where the look-up of the address begins; NULL if the plan remembers no addresses."""
    if (<Plan> queue.plan).known_count == 0:
        return NULL
    return &(<Plan> queue.plan).known[<uint32_t> hash_of(address) & (<Plan> queue.plan).known_mask]

cdef inline void prefetch_known(const queue_t* queue, object address) noexcept:
    prefetch(known_place(queue, address))

cdef inline void prefetch_known_route(const queue_t* queue, object address) noexcept:
    cdef known_t* known = known_place(queue, address)
    if known != NULL:
        prefetch(known.route)

cdef inline void prefetch_known_copy(const queue_t* queue, object address) noexcept:
    cdef known_t* known = known_place(queue, address)
    if known != NULL and known.route != NULL and known.route.copy_count:
        prefetch(known.route.copies[0].selector)
        prefetch_tail(known.route.copies[0].target)
