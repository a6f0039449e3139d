"""The plan of a queue: which selectors a message hits, and so its route (rules 2, 5, 6).

**Compiling.** Selectors of one queue that share condition, role and fields share a clause. One term of a condition is indexed,
the cheapest to look up: a match on the address, else an equality, else a match on another field. The other terms are evaluated
on the messages that the index hit. A condition without such a term is evaluated on every message.

**Routing.** The plan remembers, in bounded space, what an address hits. So an address seen before costs one look-up. If nothing
but the address matters, the result is a finished `route_t`: the copying selectors in order, the consuming clauses, and the
waitset in which such messages wait. Else the plan remembers the candidates of the address. It evaluates their other terms, and
finds the route by the set of clauses hit.

A new clause, or a new copying selector, makes the plan forget what it remembers. So does the end of one. A worker that joins a
pack shares a clause with the others, and does not.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from xump_ext.match.equality_index cimport EqualityIndex
from xump_ext.match.pattern_index cimport MatchIndex
from xump_ext.memory.heap cimport heap_remove
from xump_ext.memory.short_copy cimport same_short
from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_free, u32_vector_t
from xump_ext.select.clause cimport Clause, copies_by_field, pattern_index_add, selectors_add, selectors_remove
from xump_ext.select.waiting cimport route_slots
from xump_ext.state.constants cimport COPY, DEFAULT, FIELD_NONE, UNLIMITED
from xump_ext.state.envelope cimport field_bytes, field_free, field_set
from xump_ext.state.graph cimport clause_t, copy_t, entry_t, field_t, route_t, selector_t, waitset_t
from xump_ext.state.lazy_content cimport content_at

cdef extern from *:
    """
    static inline int xump_same_text(PyObject *a, PyObject *b) {
        return PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_KIND(a) == PyUnicode_KIND(b)
            && memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), PyUnicode_GET_LENGTH(a) * PyUnicode_KIND(a)) == 0;
    }
    """
    bint same_text "xump_same_text"(object a, object b) noexcept

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t at)

cdef uint32_t KNOWN_MAX = 1 << 17       # addresses remembered per queue: 8 MiB and the texts
cdef uint32_t KNOWN_MIN = 1 << 4
cdef uint32_t EVALUATED_MAX = 3                   # up to so many equalities are evaluated: that is faster than a look-up
cdef uint32_t ROUTES_MAX = 1 << 16      # hit sets remembered per queue


cdef inline size_t route_bytes(uint32_t copies, uint32_t clauses, uint32_t slots) noexcept:
    """The size of a route, in whole cache lines: a message reads all of it."""
    cdef size_t bytes = sizeof(route_t) - sizeof(copy_t) + copies * sizeof(copy_t) + clauses * sizeof(clause_t*)
    return (bytes + slots * sizeof(uint32_t) + 63) & ~<size_t> 63


cdef void route_free(route_t* route) noexcept:
    cell_put(route, route_bytes(route.copy_count, route.clause_count, route.slot_count))


cdef class FieldIndex:
    """The match index of one field other than the address."""
    cdef field_t field
    cdef MatchIndex index

    def __dealloc__(self):
        field_free(&self.field)


cdef int by_id(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<copy_t*> a).selector.id, y = (<copy_t*> b).selector.id
    return (x > y) - (x < y)


cdef int by_number(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<uint32_t*> a)[0], y = (<uint32_t*> b)[0]
    return (x > y) - (x < y)


cdef int list_in(list clauses, Clause clause) except -1:
    """Appends the clause, which notes its place: a clause is in one of the plan's lists at most."""
    clause.place = <uint32_t> len(clauses)
    clauses.append(clause)
    return 0


cdef int list_out(list clauses, Clause clause) except -1:
    """Removes the clause; the last one of the list takes its place."""
    cdef Clause last = clauses.pop()
    if last is not clause:
        clauses[clause.place] = last
        last.place = clause.place
    return 0


cdef class Plan(Waiting):
    """The clauses of a queue, and what is remembered of their hits."""

    def __cinit__(self):
        self.clauses = {}
        self.spare_slots = []
        self.addresses = MatchIndex()
        self.fields = {}
        self.equality = EqualityIndex()
        self.in_equality_index = []
        self.unconditional = []
        self.unindexed = []
        self.evaluated_always = []
        self.stale = True

    def __dealloc__(self):
        if self.known != NULL:
            cell_put(self.known, (self.known_mask + 1) * sizeof(known_t))
        if self.routes != NULL:
            cell_put(self.routes, (self.route_mask + 1) * sizeof(route_t*))
        u32_vector_free(&self.hits)
        u32_vector_free(&self.candidates)

    # ---- adding and removing clauses

    cdef Clause clause_join(self, tuple key, selector_t* selector, list terms):
        """Gives the selector its clause. A new clause is compiled, indexed and, if it consumes, tried on the waiting entries."""
        cdef Clause clause = self.clauses.get(key)
        cdef bint new = clause is None
        if new:
            clause = Clause.__new__(Clause)
            clause.engine = self.engine
            clause.queue = self.queue
            clause.key = key
            clause.lanes = {}
            clause.waitsets = set()
            clause.parked = set()
            clause.c.woken_from = UNLIMITED
            clause.c.role = selector.role
            clause.c.consuming = selector.verb != COPY
            clause.c.handle = <void*> clause
            clause.compile(terms)
            field_set(&clause.to_queue, key[3])
            field_set(&clause.to_destination, key[4])
            clause.c.names_queue = clause.c.consuming and clause.to_queue.kind != FIELD_NONE
        selectors_add(&clause.c, selector)
        selector.clause = &clause.c
        if new:
            self.index(clause)
            self.queue.watched += clause.c.names_queue
            self.engine.watched += clause.c.names_queue
            self.queue.field_copies += copies_by_field(clause)
            self.engine.field_copies += copies_by_field(clause)
            if clause.c.consuming:
                self.pending.append(clause)
                if not self.engine.building:
                    self.extend_pending()
        if new or selector.verb == COPY:
            self.stale = True
        return clause

    cdef int clause_leave(self, selector_t* selector) except -1:
        """Takes the selector out of its clause; the clause ends with its last selector."""
        cdef Clause clause = <Clause> selector.clause.handle
        selectors_remove(&clause.c, selector)
        heap_remove(&clause.c.ready, &selector.ready)
        selector.clause = NULL
        if clause.c.count == 0 or selector.verb == COPY:
            self.stale = True
        if clause.c.count == 0:
            self.queue.watched -= clause.c.names_queue
            self.engine.watched -= clause.c.names_queue
            self.queue.field_copies -= copies_by_field(clause)
            self.engine.field_copies -= copies_by_field(clause)
            self.unindex(clause)
            self.shrink_waitsets(clause)
        return 0

    cdef int index(self, Clause clause) except -1:
        """Gives the clause a slot, and puts it into the index or list by which messages find it."""
        cdef FieldIndex field
        clause.c.slot = self.spare_slots.pop() if self.spare_slots else len(self.by_slot)
        if clause.c.slot == len(self.by_slot):
            self.by_slot.append(clause)
        else:
            self.by_slot[clause.c.slot] = clause
        self.clauses[clause.key] = clause
        if clause.c.role == DEFAULT:
            list_in(self.defaults, clause)
        elif clause.unconditional():
            list_in(self.unconditional, clause)
        elif clause.indexed is None:
            list_in(self.unindexed, clause)
        elif clause.indexed[0] == "equal":
            self.equality.add(clause.indexed[1], clause.indexed[2], clause.c.slot)
            list_in(self.in_equality_index, clause)
            self.equalities += 1
        elif clause.indexed[1][3] == "address":
            pattern_index_add(self.addresses, clause.indexed[1], clause.c.slot)
        else:
            name = clause.indexed[1][3]
            field = self.fields.get(name)
            if field is None:
                field = self.fields[name] = FieldIndex.__new__(FieldIndex)
                field.index = MatchIndex()
                field_set(&field.field, name)
            pattern_index_add(field.index, clause.indexed[1], clause.c.slot)
        return 0

    cdef int unindex(self, Clause clause) except -1:
        cdef FieldIndex field
        del self.clauses[clause.key]
        self.evaluated_always.clear()      # or it would keep the clause, and its callables, alive until the plan forgets
        if clause in self.pending:
            self.pending.remove(clause)
        if clause in self.woken:
            self.woken.remove(clause)
        self.by_slot[clause.c.slot] = None
        self.spare_slots.append(clause.c.slot)
        if clause.c.role == DEFAULT:
            list_out(self.defaults, clause)
        elif clause.unconditional():
            list_out(self.unconditional, clause)
        elif clause.indexed is None:
            list_out(self.unindexed, clause)
        elif clause.indexed[0] == "equal":
            self.equality.remove(clause.indexed[1], clause.indexed[2], clause.c.slot)
            list_out(self.in_equality_index, clause)
            self.equalities -= 1
        elif clause.indexed[1][3] == "address":
            self.addresses.remove(clause.indexed[1][1], clause.indexed[1][2], clause.c.slot)
        else:
            field = self.fields[clause.indexed[1][3]]
            field.index.remove(clause.indexed[1][1], clause.indexed[1][2], clause.c.slot)
            if len(field.index) == 0:
                del self.fields[clause.indexed[1][3]]
        return 0

    # ---- what a message hits

    cdef route_t* route(self, entry_t* entry) except NULL:
        """The route of all ordinary clauses whose condition holds. Costs one look-up for an address seen before, and the
        terms that depend on more than the address."""
        cdef known_t* known
        if self.stale or self.route_count > ROUTES_MAX:
            self.forget()
        if self.route_of_all != NULL:
            return self.route_of_all
        if not self.by_address:
            return self.evaluate(&self.known_of_any_address, entry)
        known = self.known_address(<object> content_at(entry).address)
        if known.route != NULL:
            return known.route
        return self.evaluate(known, entry)

    cdef route_t* evaluate(self, known_t* known, entry_t* entry) except NULL:
        """The route, after evaluating the terms that depend on more than the address."""
        cdef u32_vector_t* hits = &self.hits
        cdef FieldIndex field
        cdef Clause clause
        cdef PyObject* asked
        cdef Py_ssize_t size
        cdef const char* value
        cdef uint32_t i, kept = 0
        hits.count = 0
        for i in range(known.count):
            u32_vector_add(hits, self.candidates.items[known.first + i])
        if self.equalities > EVALUATED_MAX:
            self.equality.match(content_at(entry), hits)
        if self.fields:
            for field in self.fields.values():
                value = field_bytes(&field.field, content_at(entry), &size)
                if value != NULL:
                    field.index.match(value, size, hits)
                    self.drain(field.index)
        for i in range(hits.count):
            clause = <Clause> self.by_slot[hits.items[i]]
            if clause.residual_holds(entry):
                hits.items[kept] = hits.items[i]
                kept += 1
        hits.count = kept
        for i in range(len(self.evaluated_always)):
            asked = PyList_GET_ITEM(self.evaluated_always, i)      # borrowed: no clause is removed meanwhile
            if (<Clause> asked).holds(entry):
                u32_vector_add(hits, (<Clause> asked).c.slot)
        return self.route_for(hits.items, hits.count)

    cdef known_t* known_address(self, object address) except NULL:
        """The plan's memory of the address; works it out if there is none."""
        cdef uint32_t hash = <uint32_t> hash_of(address)
        cdef uint32_t at = hash & self.known_mask
        cdef known_t* known = &self.known[at]
        while known.address != NULL:
            if known.address == <void*> address or (
                known.hash == hash and same_text(<object> known.address, address)
            ):
                return known
            at = (at + 1) & self.known_mask
            known = &self.known[at]
        return self.learn_address(address, hash)

    cdef known_t* learn_address(self, object address, uint32_t hash) except NULL:
        cdef known_t found
        cdef Py_ssize_t size
        cdef const char* text = PyUnicode_AsUTF8AndSize(address, &size)
        cdef Clause clause
        cdef uint32_t i, at, first
        cdef bint alone = not (self.equalities or self.fields or self.unindexed)
        if self.known_count >= KNOWN_MAX or self.candidates.count > KNOWN_MAX * 16:
            self.forget()
        first = self.candidates.count
        for clause in self.unconditional:
            u32_vector_add(&self.candidates, clause.c.slot)
        try:
            self.addresses.match(text, size, &self.candidates)
        except BaseException:
            self.candidates.count = first       # an operator was interrupted: the address is still unknown
            raise
        # An operator that raised may answer next time, so this is forgotten before the next message.
        self.stale = bool(self.addresses.errors)
        self.drain(self.addresses)
        found.count = self.candidates.count - first
        for i in range(found.count):
            clause = <Clause> self.by_slot[self.candidates.items[first + i]]
            if clause.residual or clause.to_queue.kind != FIELD_NONE or clause.to_destination.kind != FIELD_NONE:
                alone = False
        found.first = first
        found.hash = hash
        found.address = <void*> address
        found.route = NULL
        if alone:
            found.route = self.route_for(self.candidates.items + first, found.count)
            self.candidates.count = first
        if self.known_count * 2 > self.known_mask:
            self.known_resize((self.known_mask + 1) * 2)
        Py_INCREF(address)
        self.known_count += 1
        at = self.known_free(hash)
        self.known[at] = found
        return &self.known[at]

    cdef uint32_t known_free(self, uint32_t hash) noexcept:
        cdef uint32_t at = hash & self.known_mask
        while self.known[at].address != NULL:
            at = (at + 1) & self.known_mask
        return at

    cdef int known_resize(self, uint32_t size) except -1:
        cdef known_t* old = self.known
        cdef uint32_t i, count = self.known_mask + 1 if old != NULL else 0
        cdef known_t* table = <known_t*> cell_zeroed(size * sizeof(known_t))
        self.known = table
        self.known_mask = size - 1
        for i in range(count):
            if old[i].address != NULL:
                self.known[self.known_free(old[i].hash)] = old[i]
        if old != NULL:
            cell_put(old, count * sizeof(known_t))
        return 0

    cdef list indexes(self):
        """All indexes that find the clauses of a message."""
        return [self.addresses, self.equality, *[(<FieldIndex> field).index for field in self.fields.values()]]

    cdef int drain(self, MatchIndex index) except -1:
        """Reports what registered operators raised in the index to the clauses that use the pattern."""
        cdef Clause clause
        cdef list errors
        if not index.errors:
            return 0
        errors = list(index.errors)
        index.errors.clear()
        for operator, pattern, error in errors:
            for clause in list(self.clauses.values()):
                if any([term[:3] == ("match", operator, pattern) for term in clause.key[2]]):
                    clause.report_error(error)
        return 0

    # ---- routes

    cdef route_t* route_for(self, uint32_t* slots, uint32_t count) except NULL:
        """The route of the clauses with these slots, made when it is first asked for. Sorts `slots`."""
        cdef uint64_t hash = 0xCBF29CE484222325ULL
        cdef uint32_t i
        cdef route_t* route
        if count > 1:
            qsort(slots, count, sizeof(uint32_t), by_number)
        for i in range(count):
            hash = (hash ^ slots[i]) * 0x100000001B3ULL
        hash ^= hash >> 32
        route = self.routes[hash & self.route_mask]
        while route != NULL:
            if route.hash == hash and route.slot_count == count and (
                same_short(<const char*> route_slots(route), <const char*> slots, count * sizeof(uint32_t))
            ):
                return route
            route = route.next
        return self.route_new(slots, count, hash)

    cdef route_t* route_new(self, uint32_t* slots, uint32_t count, uint64_t hash) except NULL:
        """Makes a route in one block: the struct, its copies, its clauses, its slots. A message reads all of it."""
        cdef route_t* route
        cdef Clause clause
        cdef uint32_t i, copies = 0, clauses = 0
        for i in range(count):
            clause = <Clause> self.by_slot[slots[i]]
            if clause.c.consuming:
                clauses += 1
            else:
                copies += clause.c.count
        if self.route_count > self.route_mask:
            self.routes_resize((self.route_mask + 1) * 2)
        route = <route_t*> cell_zeroed(route_bytes(copies, clauses, count))
        route.clauses = <clause_t**> &route.copies[copies]
        if count:
            memcpy(route.clauses + clauses, slots, count * sizeof(uint32_t))
        route.slot_count = count
        route.hash = hash
        for i in range(count):
            clause = <Clause> self.by_slot[slots[i]]
            if clause.c.consuming:
                route.clauses[route.clause_count] = &clause.c
                route.clause_count += 1
                route.names_queue |= clause.c.names_queue
            else:
                for copies in range(clause.c.count):
                    route.copies[route.copy_count] = copy_t(clause.c.selectors[copies], clause.c.selectors[copies].target)
                    route.copy_count += 1
        if route.copy_count > 1:
            qsort(route.copies, route.copy_count, sizeof(copy_t), by_id)
        route.next = self.routes[hash & self.route_mask]
        self.routes[hash & self.route_mask] = route
        self.route_count += 1
        return route

    cdef int routes_resize(self, uint32_t size) except -1:
        cdef route_t** old = self.routes
        cdef uint32_t i, count = self.route_mask + 1 if old != NULL else 0
        cdef route_t** table = <route_t**> cell_zeroed(size * sizeof(route_t*))
        cdef route_t* route
        cdef route_t* next
        self.routes = table
        self.route_mask = size - 1
        for i in range(count):
            route = old[i]
            while route != NULL:
                next = route.next
                route.next = table[route.hash & self.route_mask]
                table[route.hash & self.route_mask] = route
                route = next
        if old != NULL:
            cell_put(old, count * sizeof(route_t*))
        return 0

    cdef route_t* defaults_route(self, entry_t* entry) except NULL:
        """The route of a message that no ordinary clause hits: all default clauses whose fields it fills."""
        cdef Clause clause
        cdef route_t* route
        cdef bint always = True
        if self.route_of_none != NULL:
            return self.route_of_none
        self.hits.count = 0
        for clause in self.defaults:
            always &= clause.unconditional()
            if clause.fields_hold(entry):
                u32_vector_add(&self.hits, clause.c.slot)
        route = self.route_for(self.hits.items, self.hits.count)
        if always:
            self.route_of_none = route
        return route

    cdef route_t* parked_route(self, waitset_t* waitset) except NULL:
        """The route of the hit set with which the waitset's messages were parked."""
        if self.stale:
            self.forget()
        self.hits.count = 0
        for i in range(waitset.slot_count):
            u32_vector_add(&self.hits, waitset.slots[i])
        return self.route_for(self.hits.items, self.hits.count)

    cdef int empty(self) except -1:
        """Frees all that is remembered, and the tables; the next message makes new ones. Only frees, so that an ending queue
        needs no memory."""
        cdef uint32_t i
        cdef route_t* route
        cdef route_t* next
        self.stale = True
        for i in range(self.known_mask + 1 if self.known != NULL else 0):
            Py_XDECREF(<PyObject*> self.known[i].address)
        if self.known != NULL:
            cell_put(self.known, (self.known_mask + 1) * sizeof(known_t))
        self.known = NULL
        self.known_count = 0
        self.candidates.count = 0
        self.route_of_all = self.route_of_none = NULL
        for i in range(self.route_mask + 1 if self.routes != NULL else 0):
            route = self.routes[i]
            while route != NULL:
                next = route.next
                self.forget_waitsets(route)
                route_free(route)
                route = next
        if self.routes != NULL:
            cell_put(self.routes, (self.route_mask + 1) * sizeof(route_t*))
        self.routes = NULL
        self.route_count = 0
        return 0

    cdef int forget(self) except -1:
        """Forgets addresses and routes, and makes new tables. Waitsets stay as long as entries wait in them."""
        self.empty()
        self.known_resize(KNOWN_MIN)
        self.routes_resize(KNOWN_MIN)
        self.evaluated_always = self.unindexed + (self.in_equality_index if self.equalities <= EVALUATED_MAX else [])
        self.by_address = len(self.addresses) > 0
        if not self.by_address:
            for clause in self.unconditional:
                u32_vector_add(&self.candidates, (<Clause> clause).c.slot)
            self.known_of_any_address.first = 0
            self.known_of_any_address.count = self.candidates.count
            if not (self.equalities or self.fields or self.unindexed):
                self.route_of_all = self.route_for(self.candidates.items, self.candidates.count)
        self.stale = False      # last, as memory may end before
        return 0

    cdef int close(self) except -1:
        """Frees all that is remembered, and the waitsets; the queue has no entries."""
        self.empty()
        while self.queue.waitsets != NULL:
            self.queue.waitsets.pinned = False
            self.waitset_left(self.queue.waitsets)
        return 0
