"""Which selectors a message hits, and with whom it waits (rules 2, 5, 6).

Compiling. Selectors of one queue that share condition, role and fields share a clause. Of a condition's terms one is indexed, the
cheapest to look up: a match on the address, an equality, a match on another field. The others are evaluated on what the index
hit. A condition without any such term is evaluated on every message.

Routing. What an address hits is remembered, in bounded space: an address seen before costs one look-up. If nothing but the
address matters, the result is a ready `route_t`: the copying selectors in order, the consuming clauses, and the group in which
such messages wait. Else the candidates of the address are remembered, the other terms are evaluated, and the route is found by
the set of clauses hit. Creating a clause, or a copying selector, forgets what is remembered; a worker that joins a pack does not.

Waiting. A group is a set of waiting entries with the same clauses (and targets, where a field names them). When a consuming
clause is created it is evaluated once on every waiting entry, group-wise if it has no condition; when it goes, the groups
lose it. So a Wolfpack's backlog is never walked.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy

from xump_ext.credit cimport lane_wake, waiting_add, waiting_remove
from xump_ext.envelope cimport field_bytes, field_set, field_text, field_free, queue_named
from xump_ext.graph cimport COPY, DEFAULT, DEAD_ENTRY, FIELD_NONE, member_t
from xump_ext.heap cimport heap_add, heap_free, heap_remove
from xump_ext.hits cimport hits_add, hits_free
from xump_ext.message cimport message_new

cdef extern from "Python.h":
    Py_hash_t PyObject_Hash(object) except? -1
    bint PyUnicode_CheckExact(object)
    int PyUnicode_Compare(object, object) except? -2

cdef enum:
    FILTER = 0
    CALL = 1
    MATCH = 2

cdef uint32_t KNOWN_MAX = 1 << 16       # addresses remembered per queue: 2.5 MiB and the texts
cdef uint32_t KNOWN_MIN = 1 << 4
cdef uint32_t ROUTES_MAX = 1 << 16      # hit sets remembered per queue


cdef class FieldIndex:
    """The match index of a field that is not the address."""
    cdef field_t field
    cdef MatchIndex index

    def __dealloc__(self):
        field_free(&self.field)


cdef class Predicate:
    """One term of a condition, by itself."""

    def __dealloc__(self):
        field_free(&self.field)
        hits_free(&self.hits)

    cdef int holds(self, Clause clause, entry_t* entry) except -1:
        cdef Py_ssize_t size
        cdef const char* value
        if self.kind == FILTER:
            return self.filter.evaluate(entry.content, entry.timestamp, entry.delivery_count) == 1
        if self.kind == MATCH:
            value = field_bytes(&self.field, entry.content, &size)
            if value == NULL:
                return False
            self.hits.count = 0
            self.index.match(value, size, &self.hits)
            clause.plan.drain(self.index)
            return self.hits.count > 0
        return call_holds(self.call, clause, entry)


cdef int call_holds(object call, Clause clause, entry_t* entry) except -1:
    """Asks a callable; one that raises counts as no match."""
    cdef engine_t* engine = clause.plan.engine
    hops = 0 if entry.flags & DEAD_ENTRY and entry.sequence < engine.run_start else entry.hops
    try:
        return bool(call(message_new(entry.content, entry.id, entry.timestamp, hops)))
    except BaseException as error:
        clause.trouble(error)
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
        index_add(predicate.index, term, 0)
        field_set(&predicate.field, term[3])
    return predicate


cdef int index_add(MatchIndex index, tuple term, uint32_t slot) except -1:
    if term[4] is None:
        index.add(term[1], term[2], slot)
    else:
        index.add(term[1], term[2], slot, term[4])
    return 0


cdef tuple indexable(list terms):
    """(cost, term, index key) of the term that is cheapest to look up, or None: ("match", term) or ("equal", header, value)."""
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


cdef class Clause:
    """One condition, role and pair of fields; the selectors that share it."""

    def __dealloc__(self):
        free(self.c.selectors)
        heap_free(&self.c.ready)
        field_free(&self.to_queue)
        field_free(&self.to_destination)

    cdef int compile(self, list terms) except -1:
        terms = sorted(terms, key=lambda term: term[0] != "match")      # matches first: they are cheaper
        self.predicates = [predicate_of(term) for term in terms]
        self.residual = list(self.predicates)
        self.indexed = None
        found = indexable(terms) if self.c.role != DEFAULT else None
        if found is not None:
            self.indexed = found[2]
            # A match is answered by its index, and so is a filter that is one equality and nothing else.
            if found[1][0] == "match" or (len(found[1][2]) == 1 and found[1][1][0] == "="):
                del self.residual[terms.index(found[1])]
        return 0

    cdef int holds(self, entry_t* entry) except -1:
        """The whole condition, without any index."""
        cdef Predicate predicate
        for predicate in self.predicates:
            if not predicate.holds(self, entry):
                return False
        return self.fields_hold(entry)

    cdef int residual_holds(self, entry_t* entry) except -1:
        """What the index has not answered."""
        cdef Predicate predicate
        for predicate in self.residual:
            if not predicate.holds(self, entry):
                return False
        return self.fields_hold(entry)

    cdef int fields_hold(self, entry_t* entry) except -1:
        """Whether the message names what the selectors want named."""
        if self.to_queue.kind != FIELD_NONE:
            if queue_named(self.plan.engine, field_text(&self.to_queue, entry.content)) == NULL:
                return False
        if self.to_destination.kind != FIELD_NONE:
            return field_text(&self.to_destination, entry.content) is not None
        return True

    cdef bint unconditional(self):
        return not self.predicates and self.to_queue.kind == FIELD_NONE and self.to_destination.kind == FIELD_NONE

    def trouble(self, error):
        """User code raised: count it, and let the engine log the first one."""
        cdef uint32_t i
        for i in range(self.c.count):
            self.c.selectors[i].errors += 1
        if not self.reported or not isinstance(error, Exception):
            self.reported = True
            (<list> self.plan.engine.troubles).append((self.c.selectors[0].id, error))

    cdef lane_t* lane_for(self, entry_t* entry) except NULL:
        return self.lane_named(field_text(&self.to_queue, entry.content) if self.c.names_queue else None)

    cdef lane_t* lane_named(self, object target) except NULL:
        cdef lane_t* lane
        found = self.lanes.get(target)
        if found is not None:
            return <lane_t*> <uintptr_t> found
        lane = <lane_t*> calloc(1, sizeof(lane_t))
        if lane == NULL:
            raise MemoryError()
        lane.clause = &self.c
        lane.queue = self.plan.queue
        if target is not None:
            Py_INCREF(target)
            lane.target = <void*> target
        lane.next = self.c.lanes
        self.c.lanes = lane
        self.lanes[target] = <uintptr_t> lane
        return lane

    cdef int lane_free(self, lane_t* lane) except -1:
        cdef lane_t** link = &self.c.lanes
        while link[0] != lane:
            link = &link[0].next
        link[0] = lane.next
        heap_remove(&self.plan.engine.able, &lane.able)
        del self.lanes[None if lane.target == NULL else <object> lane.target]
        Py_XDECREF(<PyObject*> lane.target)
        heap_free(&lane.groups)
        free(lane)
        return 0


cdef int by_id(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<selector_t**> a)[0].id, y = (<selector_t**> b)[0].id
    return (x > y) - (x < y)


cdef int by_number(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<uint32_t*> a)[0], y = (<uint32_t*> b)[0]
    return (x > y) - (x < y)


cdef class Plan:
    """All the clauses of a queue, and what is remembered of their hits."""

    def __cinit__(self):
        self.clauses = {}
        self.by_slot = []
        self.spare_slots = []
        self.defaults = []
        self.addresses = MatchIndex()
        self.fields = {}
        self.equality = EqualityIndex()
        self.always = []
        self.scanned = []
        self.pending = []
        self.groups = {}
        self.dirty = True

    def __dealloc__(self):
        free(self.known)
        free(self.routes)
        hits_free(&self.hits)
        hits_free(&self.candidates)

    # ---- clauses come and go

    cdef Clause clause_join(self, tuple key, selector_t* selector, list terms):
        """Gives the selector its clause; a new one is compiled, indexed and, if it consumes, tried on what waits."""
        cdef Clause clause = self.clauses.get(key)
        cdef bint new = clause is None
        if new:
            clause = Clause.__new__(Clause)
            clause.plan = self
            clause.key = key
            clause.lanes = {}
            clause.c.role = selector.role
            clause.c.consuming = selector.verb != COPY
            clause.c.face = <void*> clause
            clause.compile(terms)
            field_set(&clause.to_queue, key[3])
            field_set(&clause.to_destination, key[4])
            clause.c.names_queue = clause.c.consuming and clause.to_queue.kind != FIELD_NONE
        selectors_add(&clause.c, selector)
        selector.clause = &clause.c
        if new:
            self.index(clause)
            self.queue.watched += clause.c.names_queue
            if clause.c.consuming:
                self.pending.append(clause)
                if not self.engine.building:
                    self.extend_pending()
        if new or selector.verb == COPY:
            self.dirty = True
        return clause

    cdef int clause_leave(self, selector_t* selector) except -1:
        """The selector is out of its clause; the last one takes the clause with it."""
        cdef Clause clause = <Clause> selector.clause.face
        selectors_remove(&clause.c, selector)
        heap_remove(&clause.c.ready, &selector.ready)
        selector.clause = NULL
        if clause.c.count == 0 or selector.verb == COPY:
            self.dirty = True
        if clause.c.count == 0:
            self.queue.watched -= clause.c.names_queue
            self.unindex(clause)
            self.shrink_groups(clause)
        return 0

    cdef int index(self, Clause clause) except -1:
        """Where the messages that it may hit are found."""
        cdef FieldIndex field
        clause.c.slot = self.spare_slots.pop() if self.spare_slots else len(self.by_slot)
        if clause.c.slot == len(self.by_slot):
            self.by_slot.append(clause)
        else:
            self.by_slot[clause.c.slot] = clause
        self.clauses[clause.key] = clause
        if clause.c.role == DEFAULT:
            self.defaults.append(clause)
        elif clause.unconditional():
            self.always.append(clause)
        elif clause.indexed is None:
            self.scanned.append(clause)
        elif clause.indexed[0] == "equal":
            self.equality.add(clause.indexed[1], clause.indexed[2], clause.c.slot)
            self.equalities += 1
        elif clause.indexed[1][3] == "address":
            index_add(self.addresses, clause.indexed[1], clause.c.slot)
        else:
            name = clause.indexed[1][3]
            field = self.fields.get(name)
            if field is None:
                field = self.fields[name] = FieldIndex.__new__(FieldIndex)
                field.index = MatchIndex()
                field_set(&field.field, name)
            index_add(field.index, clause.indexed[1], clause.c.slot)
        return 0

    cdef int unindex(self, Clause clause) except -1:
        cdef FieldIndex field
        del self.clauses[clause.key]
        if clause in self.pending:
            self.pending.remove(clause)
        self.by_slot[clause.c.slot] = None
        self.spare_slots.append(clause.c.slot)
        if clause.c.role == DEFAULT:
            self.defaults.remove(clause)
        elif clause.unconditional():
            self.always.remove(clause)
        elif clause.indexed is None:
            self.scanned.remove(clause)
        elif clause.indexed[0] == "equal":
            self.equality.remove(clause.indexed[1], clause.indexed[2], clause.c.slot)
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
        """All ordinary clauses whose condition holds. Cost: one look-up for an address seen before, and the terms
        that depend on more than the address."""
        cdef known_t* known
        if self.dirty or self.route_count > ROUTES_MAX:
            self.forget()
        if self.everything != NULL:
            return self.everything
        known = self.known_address(<object> entry.content.address)
        if known.route != NULL:
            return known.route
        return self.evaluate(known, entry)

    cdef route_t* evaluate(self, known_t* known, entry_t* entry) except NULL:
        """The terms that depend on the message."""
        cdef hits_t* hits = &self.hits
        cdef FieldIndex field
        cdef Clause clause
        cdef Py_ssize_t size
        cdef const char* value
        cdef uint32_t i, kept = 0
        hits.count = 0
        for i in range(known.count):
            hits_add(hits, self.candidates.items[known.first + i])
        if self.equalities:
            self.equality.match(entry.content, hits)
        for field in self.fields.values():
            value = field_bytes(&field.field, entry.content, &size)
            if value != NULL:
                field.index.match(value, size, hits)
                self.drain(field.index)
        for clause in self.scanned:
            hits_add(hits, clause.c.slot)
        for i in range(hits.count):
            clause = <Clause> self.by_slot[hits.items[i]]
            if clause.residual_holds(entry):
                hits.items[kept] = hits.items[i]
                kept += 1
        return self.route_for(hits.items, kept)

    cdef known_t* known_address(self, object address) except NULL:
        """What is known of the address; found out now if nothing is."""
        cdef Py_hash_t hash = PyObject_Hash(address)
        cdef uint32_t at = <uint32_t> hash & self.known_mask
        cdef known_t* known = &self.known[at]
        while known.address != NULL:
            if known.address == <void*> address or (
                known.hash == hash and PyUnicode_Compare(<object> known.address, address) == 0
            ):
                return known
            at = (at + 1) & self.known_mask
            known = &self.known[at]
        return self.learn_address(address, hash)

    cdef known_t* learn_address(self, object address, Py_hash_t hash) except NULL:
        cdef known_t found
        cdef Py_ssize_t size
        cdef const char* text = PyUnicode_AsUTF8AndSize(address, &size)
        cdef Clause clause
        cdef uint32_t i, at, first
        cdef bint alone = not (self.equalities or self.fields or self.scanned)
        if self.known_count >= KNOWN_MAX or self.candidates.count > KNOWN_MAX * 16:
            self.forget()
        first = self.candidates.count
        for clause in self.always:
            hits_add(&self.candidates, clause.c.slot)
        self.addresses.match(text, size, &self.candidates)
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

    cdef uint32_t known_free(self, Py_hash_t hash) noexcept:
        cdef uint32_t at = <uint32_t> hash & self.known_mask
        while self.known[at].address != NULL:
            at = (at + 1) & self.known_mask
        return at

    cdef int known_resize(self, uint32_t size) except -1:
        cdef known_t* old = self.known
        cdef uint32_t i, count = self.known_mask + 1 if old != NULL else 0
        cdef known_t* table = <known_t*> calloc(size, sizeof(known_t))
        if table == NULL:
            raise MemoryError()
        self.known = table
        self.known_mask = size - 1
        for i in range(count):
            if old[i].address != NULL:
                self.known[self.known_free(old[i].hash)] = old[i]
        free(old)
        return 0

    cdef int drain(self, MatchIndex index) except -1:
        """Passes on what registered operators raised, to the clauses that use the pattern."""
        cdef Clause clause
        if index.errors:
            errors = list(index.errors)
            index.errors.clear()
            for operator, pattern, error in errors:
                for clause in list(self.clauses.values()):
                    for kind, *term in clause.key[2]:
                        if kind == "match" and term[0] == operator and term[1] == pattern:
                            clause.trouble(error)
                            break
        return 0

    # ---- routes

    cdef route_t* route_for(self, uint32_t* slots, uint32_t count) except NULL:
        """The route of this set of clauses; made when it is first asked for. Sorts `slots`."""
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
            if route.hash == hash and route.slot_count == count and memcmp(route.slots, slots, count * sizeof(uint32_t)) == 0:
                return route
            route = route.next
        return self.route_new(slots, count, hash)

    cdef route_t* route_new(self, uint32_t* slots, uint32_t count, uint64_t hash) except NULL:
        cdef route_t* route = <route_t*> calloc(1, sizeof(route_t))
        cdef Clause clause
        cdef uint32_t i, copies = 0, clauses = 0
        for i in range(count):
            clause = <Clause> self.by_slot[slots[i]]
            if clause.c.consuming:
                clauses += 1
            else:
                copies += clause.c.count
        if route != NULL:
            route.slots = <uint32_t*> malloc(count * sizeof(uint32_t) + 1)
            route.copies = <selector_t**> malloc(copies * sizeof(selector_t*) + 1)
            route.clauses = <clause_t**> malloc(clauses * sizeof(clause_t*) + 1)
        if route == NULL or route.slots == NULL or route.copies == NULL or route.clauses == NULL:
            route_free(route)
            raise MemoryError()
        memcpy(route.slots, slots, count * sizeof(uint32_t))
        route.slot_count = count
        route.hash = hash
        for i in range(count):
            clause = <Clause> self.by_slot[slots[i]]
            if clause.c.consuming:
                route.clauses[route.clause_count] = &clause.c
                route.clause_count += 1
                route.names_queue |= clause.c.names_queue
            else:
                memcpy(route.copies + route.copy_count, clause.c.selectors, clause.c.count * sizeof(selector_t*))
                route.copy_count += clause.c.count
        if route.copy_count > 1:
            qsort(route.copies, route.copy_count, sizeof(selector_t*), by_id)
        if self.route_count > self.route_mask:
            self.routes_resize((self.route_mask + 1) * 2)
        route.next = self.routes[hash & self.route_mask]
        self.routes[hash & self.route_mask] = route
        self.route_count += 1
        return route

    cdef int routes_resize(self, uint32_t size) except -1:
        cdef route_t** old = self.routes
        cdef uint32_t i, count = self.route_mask + 1 if old != NULL else 0
        cdef route_t** table = <route_t**> calloc(size, sizeof(route_t*))
        cdef route_t* route
        cdef route_t* next
        if table == NULL:
            raise MemoryError()
        self.routes = table
        self.route_mask = size - 1
        for i in range(count):
            route = old[i]
            while route != NULL:
                next = route.next
                route.next = table[route.hash & self.route_mask]
                table[route.hash & self.route_mask] = route
                route = next
        free(old)
        return 0

    cdef route_t* defaults_route(self, entry_t* entry) except NULL:
        """The hit set of a message that no ordinary clause hits: the default clauses whose fields it fills."""
        cdef Clause clause
        self.hits.count = 0
        for clause in self.defaults:
            if clause.fields_hold(entry):
                hits_add(&self.hits, clause.c.slot)
        return self.route_for(self.hits.items, self.hits.count)

    cdef route_t* parked_route(self, group_t* group) except NULL:
        """The hit set that a parked message was routed with."""
        self.hits.count = 0
        if self.dirty:
            self.forget()
        for i in range(group.slot_count):
            hits_add(&self.hits, group.slots[i])
        return self.route_for(self.hits.items, self.hits.count)

    cdef int forget(self) except -1:
        """Forgets addresses and routes; groups stay as long as something waits in them."""
        cdef uint32_t i
        cdef route_t* route
        cdef route_t* next
        for i in range(self.known_mask + 1 if self.known != NULL else 0):
            Py_XDECREF(<PyObject*> self.known[i].address)
        free(self.known)
        self.known = NULL
        self.known_count = 0
        self.candidates.count = 0
        self.everything = NULL
        for i in range(self.route_mask + 1 if self.routes != NULL else 0):
            route = self.routes[i]
            while route != NULL:
                next = route.next
                if route.group != NULL:
                    route.group.pinned = False
                    self.group_left(route.group)
                route_free(route)
                route = next
        free(self.routes)
        self.routes = NULL
        self.route_count = 0
        self.known_resize(KNOWN_MIN)
        self.routes_resize(KNOWN_MIN)
        self.dirty = False
        if not (len(self.addresses) or self.equalities or self.fields or self.scanned):
            self.hits.count = 0
            for clause in self.always:
                hits_add(&self.hits, (<Clause> clause).c.slot)
            self.everything = self.route_for(self.hits.items, self.hits.count)
        return 0

    # ---- groups

    cdef group_t* group(self, route_t* route, entry_t* entry, bint marked, bint parked) except NULL:
        """Where an entry with these hits waits. With `marked`, default clauses belong to it too."""
        cdef Clause clause
        cdef uint32_t i
        cdef group_t* group
        if route.group != NULL and not marked and not parked:
            return route.group
        lanes = []
        for i in range(route.clause_count):
            clause = <Clause> route.clauses[i].face
            lanes.append(self.lane_key(clause, entry))
        if marked:
            for clause in self.defaults:
                if clause.c.consuming and clause.fields_hold(entry):
                    key = self.lane_key(clause, entry)
                    if key not in lanes:
                        lanes.append(key)
        slots = tuple([route.slots[i] for i in range(route.slot_count)]) if parked else None
        group = self.group_keyed((marked, slots, tuple(lanes)))
        if not marked and not parked and not route.names_queue and not group.pinned:
            group.pinned = True
            route.group = group
        return group

    cdef tuple lane_key(self, Clause clause, entry_t* entry):
        return (clause.c.slot, field_text(&clause.to_queue, entry.content) if clause.c.names_queue else None)

    cdef group_t* group_keyed(self, tuple key) except NULL:
        """The group (marked, parked slots or None, ((slot, target name or None), ...))."""
        cdef group_t* group
        cdef uint32_t i
        found = self.groups.get(key)
        if found is not None:
            return <group_t*> <uintptr_t> found
        group = <group_t*> calloc(1, sizeof(group_t))
        if group == NULL:
            raise MemoryError()
        group.queue = self.queue
        group.marked = key[0]
        group.parked = key[1] is not None
        group.next = self.queue.groups
        if group.next != NULL:
            group.next.previous = group
        self.queue.groups = group
        if group.parked:
            group.slots = <uint32_t*> malloc(len(key[1]) * sizeof(uint32_t) + 1)
            for i in range(<uint32_t> len(key[1])):
                group.slots[i] = key[1][i]
            group.slot_count = <uint32_t> len(key[1])
        for slot, target in key[2]:
            self.group_extend(group, <Clause> self.by_slot[slot], target)
        self.group_rekey(group, key)
        return group

    cdef int group_rekey(self, group_t* group, object key) except -1:
        """Lets the mapping know the group by `key`, unless it knows another one: then this one only empties."""
        if group.key != NULL:
            if self.groups.get(<object> group.key) == <uintptr_t> group:
                del self.groups[<object> group.key]
            Py_XDECREF(<PyObject*> group.key)
        Py_INCREF(key)
        group.key = <void*> key
        self.groups.setdefault(key, <uintptr_t> group)
        return 0

    cdef int group_extend(self, group_t* group, Clause clause, object target) except -1:
        """What waits in the group waits for this clause too."""
        cdef member_t* member = <member_t*> calloc(1, sizeof(member_t))
        cdef member_t** members = <member_t**> realloc(group.members, (group.member_count + 1) * sizeof(member_t*))
        if members != NULL:
            group.members = members
        if members == NULL or member == NULL:
            free(member)
            raise MemoryError()
        member.lane = clause.lane_named(target)
        member.lane.members += 1
        member.node.owner = group
        group.members[group.member_count] = member
        group.member_count += 1
        if group.head != NULL:
            heap_add(&member.lane.groups, &member.node, group.head.sequence)
        return 0

    cdef int group_shrink(self, group_t* group, uint32_t at) except -1:
        """The group loses its member number `at`."""
        cdef member_t* member = group.members[at]
        heap_remove(&member.lane.groups, &member.node)
        member.lane.members -= 1
        group.member_count -= 1
        members_close(group, at)
        free(member)
        return 0

    cdef int group_left(self, group_t* group) except -1:
        """Called when an entry has left: an empty group that no route refers to goes, and lanes that a name opened with it."""
        cdef lane_t* lane
        if group.count or group.pinned:
            return 0
        if self.groups.get(<object> group.key) == <uintptr_t> group:
            del self.groups[<object> group.key]
        Py_XDECREF(<PyObject*> group.key)
        if group.previous == NULL:
            self.queue.groups = group.next
        else:
            group.previous.next = group.next
        if group.next != NULL:
            group.next.previous = group.previous
        while group.member_count:
            lane = group.members[group.member_count - 1].lane
            self.group_shrink(group, group.member_count - 1)
            if lane.target != NULL and lane.members == 0:
                (<Clause> lane.clause.face).lane_free(lane)
        free(group.members)
        free(group.slots)
        free(group)
        return 0

    cdef int extend_pending(self) except -1:
        """Tries the clauses that are new on what waits; inside `building()` they wait for its end themselves."""
        cdef Clause clause
        cdef lane_t* lane
        while self.pending:
            clause = self.pending.pop(0)
            self.extend_groups(clause)
            lane = clause.c.lanes
            while lane != NULL:
                lane_wake(self.engine, lane)
                lane = lane.next
        return 0

    cdef int extend_groups(self, Clause clause) except -1:
        """A new consuming clause: whatever waits and meets its condition waits for it too."""
        cdef group_t* group = self.queue.groups
        cdef group_t* next
        while group != NULL:
            next = group.next
            if (clause.c.role == DEFAULT and not group.marked) or (clause.c.slot, None) in (<tuple> group.key)[2]:
                pass
            elif clause.unconditional():
                self.group_extend(group, clause, None)
                key = <tuple> group.key
                self.group_rekey(group, (key[0], key[1], key[2] + ((clause.c.slot, None),)))
            else:
                self.divide_group(group, clause, None)
            group = next
        return 0

    cdef int divide_group(self, group_t* group, Clause clause, object created) except -1:
        """Moves the entries that meet the clause's condition (and name `created`, if given) to groups that include it."""
        cdef entry_t* entry = group.head
        cdef entry_t* next
        while entry != NULL:
            next = entry.next
            if (created is None or field_text(&clause.to_queue, entry.content) == created) and clause.holds(entry):
                key = <tuple> group.key
                lane = self.lane_key(clause, entry)
                if lane not in key[2]:
                    waiting_remove(group, entry)
                    waiting_add(self.group_keyed((key[0], key[1], key[2] + (lane,))), entry)
            entry = next
        return self.group_left(group)

    cdef int shrink_groups(self, Clause clause) except -1:
        """The clause is gone: nothing waits for it any more."""
        cdef group_t* group = self.queue.groups
        cdef group_t* next
        cdef uint32_t i
        while group != NULL:
            next = group.next
            i = 0
            while i < group.member_count:
                if group.members[i].lane.clause == &clause.c:
                    self.group_shrink(group, i)
                else:
                    i += 1
            if group.parked:
                slots_remove(group, clause.c.slot)
            key = <tuple> group.key
            slots = None if key[1] is None else tuple([slot for slot in key[1] if slot != clause.c.slot])
            lanes = tuple([lane for lane in key[2] if lane[0] != clause.c.slot])
            if (slots, lanes) != (key[1], key[2]):
                self.group_rekey(group, (key[0], slots, lanes))
            self.group_left(group)
            group = next
        while clause.c.lanes != NULL:
            clause.lane_free(clause.c.lanes)
        return 0

    cdef int queue_created(self, queue_t* created, object name) except -1:
        """What waits may name the new queue (rule 14). Walks the backlog, only of queues with such selectors."""
        cdef Clause clause
        cdef group_t* group
        cdef group_t* next
        for clause in list(self.clauses.values()):
            if clause.c.names_queue:
                group = self.queue.groups
                while group != NULL:
                    next = group.next
                    if clause.c.role != DEFAULT or group.marked:
                        self.divide_group(group, clause, name)
                    group = next
        return 0

    cdef int close(self) except -1:
        """Frees what is remembered; the queue holds nothing any more."""
        self.forget()
        tables_free(self)
        while self.queue.groups != NULL:
            self.queue.groups.pinned = False
            self.group_left(self.queue.groups)
        return 0


cdef void tables_free(Plan plan) noexcept:
    """Empties the tables that `forget` has just laid out anew."""
    cdef uint32_t i
    cdef route_t* route
    for i in range(plan.route_mask + 1):
        while plan.routes[i] != NULL:
            route = plan.routes[i]
            plan.routes[i] = route.next
            if route.group != NULL:
                route.group.pinned = False
            route_free(route)
    plan.everything = NULL
    plan.dirty = True


cdef void route_free(route_t* route) noexcept:
    if route != NULL:
        free(route.slots)
        free(route.copies)
        free(route.clauses)
        free(route)


cdef void members_close(group_t* group, uint32_t at) noexcept:
    while at < group.member_count:
        group.members[at] = group.members[at + 1]
        at += 1


cdef void slots_remove(group_t* group, uint32_t slot) noexcept:
    cdef uint32_t i, kept = 0
    for i in range(group.slot_count):
        if group.slots[i] != slot:
            group.slots[kept] = group.slots[i]
            kept += 1
    group.slot_count = kept


cdef int selectors_add(clause_t* clause, selector_t* selector) except -1:
    """Ids only grow, so the new one belongs at the end."""
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
    cdef uint32_t i, kept = 0
    for i in range(clause.count):
        if clause.selectors[i] != selector:
            clause.selectors[kept] = clause.selectors[i]
            kept += 1
    clause.count = kept
