"""Declarations of `clause.pyx`."""

from libc.stdint cimport uint32_t

from xump_ext.match.filter cimport Filter
from xump_ext.match.pattern_index cimport MatchIndex
from xump_ext.memory.u32_vector cimport u32_vector_t
from xump_ext.state.constants cimport FIELD_NONE
from xump_ext.state.graph cimport clause_t, engine_t, entry_t, field_t, lane_t, queue_t, selector_t

cdef class Predicate:
    cdef int kind
    cdef Filter filter
    cdef object call
    cdef MatchIndex index
    cdef field_t field
    cdef u32_vector_t hits
    cdef int holds(self, Clause clause, entry_t* entry) except -1

cdef class Clause:
    cdef clause_t c
    cdef engine_t* engine
    cdef queue_t* queue
    cdef readonly tuple key
    cdef list predicates        # of all terms
    cdef Filter filter          # the whole condition, if it is one filter and nothing else
    cdef list residual          # predicates that the index does not answer
    cdef tuple indexed          # by what an index finds the clause, or None: see `indexable`
    cdef set waitsets           # addresses of the waitsets that wait for it
    cdef set parked             # addresses of the parked waitsets that it hit
    cdef dict lanes             # target name -> address of the lane
    cdef field_t to_queue
    cdef field_t to_destination
    cdef bint reported          # an error of its user code was reported, to be logged
    cdef uint32_t place         # in one of the plan's lists
    cdef int compile(self, list terms) except -1
    cdef int holds(self, entry_t* entry) except -1
    cdef int residual_holds(self, entry_t* entry) except -1
    cdef int fields_hold(self, entry_t* entry) except -1
    cdef bint unconditional(self)
    cdef int report_error(self, object error) except -1
    cdef int operator_raised(self, MatchIndex index) except -1
    cdef lane_t* lane_named(self, object target) except NULL
    cdef int lane_free(self, lane_t* lane) except -1

cdef int pattern_index_add(MatchIndex index, tuple term, uint32_t slot) except -1
cdef int selectors_add(clause_t* clause, selector_t* selector) except -1
cdef void selectors_remove(clause_t* clause, selector_t* selector) noexcept

cdef inline bint copies_by_field(Clause clause):
    """Whether its selectors copy into a queue that a field names."""
    return not clause.c.consuming and clause.to_queue.kind != FIELD_NONE
