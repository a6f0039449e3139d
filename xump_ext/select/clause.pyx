"""A clause: one condition of a queue, compiled, and the selectors that share it (rule 2).

A condition is a conjunction of terms. The term that is cheapest to look up is indexed: a match on the address, else an equality,
else a match on another field. The other terms are evaluated on the messages that the index hit.

A clause can also evaluate its whole condition without an index. A new clause needs that for the messages that wait already, and
a replay for those that it copies.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from xump_ext.match.pattern_index cimport MatchIndex
from xump_ext.memory.heap cimport heap_free
from xump_ext.memory.u32_vector cimport u32_vector_free
from xump_ext.message.message cimport message_object
from xump_ext.select.lanes cimport lane_part
from xump_ext.select.runnable cimport runnable_remove
from xump_ext.state.constants cimport DEAD_ENTRY, DEFAULT, FIELD_NONE, LANE, NAMED_LANE
from xump_ext.state.envelope cimport field_bytes, field_free, field_set, field_text, queue_named
from xump_ext.state.graph cimport clause_t, engine_t, entry_t, lane_t, selector_t
from xump_ext.state.lazy_content cimport content_at

cdef enum:
    FILTER = 0
    CALL = 1
    MATCH = 2


@cython.final
cdef class Predicate:
    """One term of a condition, evaluated without an index."""

    def __dealloc__(self):
        field_free(&self.field)
        u32_vector_free(&self.hits)

    cdef int holds(self, Clause clause, entry_t* entry) except -1:
        cdef Py_ssize_t size
        cdef const char* value
        if self.kind == FILTER:
            return self.filter.evaluate(content_at(entry), entry.timestamp, entry.delivery_count) == 1
        if self.kind == MATCH:
            value = field_bytes(&self.field, content_at(entry), &size)
            if value == NULL:
                return False
            self.hits.count = 0
            self.index.match(value, size, &self.hits)
            if self.index.errors:
                clause.operator_raised(self.index)
            return self.hits.count > 0
        return call_holds(self.call, clause, entry)


cdef int call_holds(object call, Clause clause, entry_t* entry) except -1:
    """Asks a callable. An Exception counts as no match. Any other exception, such as an interrupt, ends the run."""
    cdef engine_t* engine = clause.engine
    hops = 0 if entry.flags & DEAD_ENTRY and entry.sequence < engine.run_start else entry.hops
    message = message_object(content_at(entry), entry.id, entry.timestamp, hops)
    try:
        return bool(call(message))
    except Exception as error:
        clause.report_error(error)
        return False


cdef Predicate predicate_of(tuple term):
    """Compiles a term: ("filter", tree, ...), ("call", function) or ("match", operator, pattern, field, function)."""
    cdef Predicate predicate = Predicate.__new__(Predicate)
    if term[0] == "filter":
        predicate.kind = FILTER
        predicate.filter = Filter(term[1])
    elif term[0] == "call":
        predicate.kind = CALL
        predicate.call = term[1]
    else:
        predicate.kind = MATCH
        predicate.index = MatchIndex()
        pattern_index_add(predicate.index, term, 0)
        field_set(&predicate.field, term[3])
    return predicate


cdef int pattern_index_add(MatchIndex index, tuple term, uint32_t slot) except -1:
    if term[4] is None:
        index.add(term[1], term[2], slot)
    else:
        index.add(term[1], term[2], slot, term[4])
    return 0


cdef tuple indexable(list terms):
    """(cost, term, index key) of the term that is cheapest to look up, or None if no index can find any of them.

    The index key is ("match", term) or ("equal", header, value).
    """
    best = None
    for term in terms:
        if term[0] == "match":
            found = (0 if term[3] == "address" else 3, term, ("match", term))
        elif term[0] == "filter" and term[2]:
            kind, name, value = min(term[2], key=lambda equality: equality[0] == "header")
            if kind == "header":
                found = (1, term, ("equal", name, value))
            elif name == "address" and isinstance(value, str):
                found = (2, term, ("match", ("match", "eq", value, "address", None)))
            else:
                continue
        else:
            continue
        if best is None or found[0] < best[0]:
            best = found
    return best


@cython.final
cdef class Clause:
    """One combination of condition, role and fields, and the selectors that share it."""

    def __dealloc__(self):
        free(self.c.selectors)
        heap_free(&self.c.ready)
        heap_free(&self.c.open)
        field_free(&self.to_queue)
        field_free(&self.to_destination)

    cdef int compile(self, list terms) except -1:
        terms = sorted(terms, key=lambda term: term[0] != "match")      # matches first: they are cheaper
        self.predicates = [predicate_of(term) for term in terms]
        self.residual = list(self.predicates)
        if len(terms) == 1:
            self.filter = (<Predicate> self.predicates[0]).filter
        self.indexed = None
        found = indexable(terms) if self.c.role != DEFAULT else None
        if found is not None:
            self.indexed = found[2]
            # Its index answers a match completely, and a filter only if that is one equality and nothing else.
            if found[1][0] == "match" or (len(found[1][2]) == 1 and found[1][1][0] == "="):
                del self.residual[terms.index(found[1])]
        return 0

    cdef int holds(self, entry_t* entry) except -1:
        """Whether the whole condition holds, evaluated without an index."""
        cdef Predicate predicate
        if self.filter is not None:
            return self.filter.evaluate(content_at(entry), entry.timestamp, entry.delivery_count) == 1 and self.fields_hold(entry)
        for predicate in self.predicates:
            if not predicate.holds(self, entry):
                return False
        return self.fields_hold(entry)

    cdef int residual_holds(self, entry_t* entry) except -1:
        """Whether the terms hold that the index did not answer."""
        cdef Predicate predicate
        for predicate in self.residual:
            if not predicate.holds(self, entry):
                return False
        return self.fields_hold(entry)

    cdef int fields_hold(self, entry_t* entry) except -1:
        """Whether the message names a target and destination, where the selectors leave that to a field of it."""
        if self.to_queue.kind != FIELD_NONE:
            if queue_named(self.engine, field_text(&self.to_queue, content_at(entry))) == NULL:
                return False
        if self.to_destination.kind != FIELD_NONE:
            return field_text(&self.to_destination, content_at(entry)) is not None
        return True

    cdef bint unconditional(self):
        return not self.predicates and self.to_queue.kind == FIELD_NONE and self.to_destination.kind == FIELD_NONE

    cdef int operator_raised(self, MatchIndex index) except -1:
        """A registered operator raised in an index that belongs to this clause alone."""
        for _, _, error in index.errors:
            self.report_error(error)
        index.errors.clear()
        return 0

    cdef int report_error(self, object error) except -1:
        """Counts an error of user code at every selector of the clause; the engine logs the first one."""
        cdef uint32_t i
        for i in range(self.c.count):
            self.c.selectors[i].errors += 1
        if not self.reported:
            self.reported = True
            (<list> self.engine.user_errors).append((self.c.selectors[0].id, error))
        return 0

    cdef lane_t* lane_named(self, object target) except NULL:
        cdef lane_t* lane
        found = self.lanes.get(target)
        if found is not None:
            return <lane_t*> <uintptr_t> found
        lane = <lane_t*> calloc(1, sizeof(lane_t))
        if lane == NULL:
            raise MemoryError()
        lane.clause = &self.c
        lane.queue = self.queue
        if target is not None:
            Py_INCREF(target)
            lane.target = <void*> target
        lane.runnable.kind = LANE if target is None else NAMED_LANE
        lane.runnable.owner = lane.open.owner = lane
        lane.next = self.c.lanes
        if lane.next != NULL:
            lane.next.previous = lane
        self.c.lanes = lane
        self.lanes[target] = <uintptr_t> lane
        return lane

    cdef int lane_free(self, lane_t* lane) except -1:
        if lane.previous == NULL:
            self.c.lanes = lane.next
        else:
            lane.previous.next = lane.next
        if lane.next != NULL:
            lane.next.previous = lane.previous
        lane_part(lane)
        runnable_remove(self.engine, lane.queue, &lane.runnable)
        del self.lanes[None if lane.target == NULL else <object> lane.target]
        Py_XDECREF(<PyObject*> lane.target)
        heap_free(&lane.waitsets)
        free(lane)
        return 0


cdef int selectors_add(clause_t* clause, selector_t* selector) except -1:
    """Adds the selector at the end: selectors are in order of id, and ids only grow."""
    cdef uint32_t capacity
    cdef selector_t** selectors
    if clause.count == clause.capacity:
        capacity = clause.capacity * 2 if clause.capacity else 2
        selectors = <selector_t**> realloc(clause.selectors, capacity * sizeof(selector_t*))
        if selectors == NULL:
            raise MemoryError()
        clause.selectors = selectors
        clause.capacity = capacity
    clause.selectors[clause.count] = selector
    clause.count += 1
    return 0


cdef void selectors_remove(clause_t* clause, selector_t* selector) noexcept:
    """Finds the selector by bisection over the ids; those behind it move up."""
    cdef uint32_t low = 0, high = clause.count, middle
    while low < high:
        middle = (low + high) // 2
        if clause.selectors[middle].id < selector.id:
            low = middle + 1
        else:
            high = middle
    if low < clause.count and clause.selectors[low] == selector:
        clause.count -= 1
        memmove(&clause.selectors[low], &clause.selectors[low + 1], (clause.count - low) * sizeof(selector_t*))
