"""What waits, and for whom: groups and lanes (rules 5, 6, 14).

A group is the set of waiting entries of a queue that were hit by the same consuming clauses (and, where a field names their
target, for the same targets). When a consuming clause is created it is evaluated once on every waiting entry, group-wise if it
has no condition; when it goes, the groups lose it. So a Wolfpack's backlog is never walked. Two groups may come to have the same
key by that; then the mapping knows one, and the other only empties.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc

from xump_ext.aside cimport aside_free, aside_merge, group_oldest
from xump_ext.clause cimport Clause, copies_by_field
from xump_ext.credit cimport clause_wake, lane_wake, waiting_add, waiting_remove
from xump_ext.envelope cimport field_text
from xump_ext.graph cimport DEFAULT, UNLIMITED, clause_t, entry_t, group_t, lane_t, member_t, queue_t, route_t, selector_t
from xump_ext.heap cimport heap_add, heap_remove
from xump_ext.lanes cimport lane_lower
from xump_ext.source cimport content_at


cdef class Waiting:
    """The groups of a queue."""

    def __cinit__(self):
        self.by_slot = []
        self.defaults = []
        self.pending = []
        self.woken = []
        self.groups = {}

    cdef group_t* group_for(self, route_t* route, entry_t* entry, bint marked, bint parked) except NULL:
        cdef Clause clause
        cdef uint32_t i
        cdef group_t* group
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
        slots = tuple([route_slots(route)[i] for i in range(route.slot_count)]) if parked else None
        group = self.group_keyed((marked, slots, tuple(lanes)))
        if not marked and not parked and not route.names_queue and not group.pinned:
            group.pinned = True
            route.group = group
        return group

    cdef tuple lane_key(self, Clause clause, entry_t* entry):
        return (clause.c.slot, field_text(&clause.to_queue, content_at(entry)) if clause.c.names_queue else None)

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
            for slot in key[1]:
                (<Clause> self.by_slot[slot]).parked.add(<uintptr_t> group)
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
        clause.groups.add(<uintptr_t> group)
        group.members[group.member_count] = member
        group.member_count += 1
        if group.count:
            heap_add(&member.lane.groups, &member.node, group_oldest(group).sequence)
            if member.lane.target != NULL:
                lane_lower(member.lane, group_oldest(group).sequence)
        return 0

    cdef int group_shrink(self, group_t* group, uint32_t at) except -1:
        """The group loses its member number `at`."""
        cdef member_t* member = group.members[at]
        heap_remove(&member.lane.groups, &member.node)
        (<Clause> member.lane.clause.face).groups.remove(<uintptr_t> group)
        member.lane.members -= 1
        group.member_count -= 1
        members_close(group, at)
        free(member)
        return 0

    cdef int group_left(self, group_t* group) except -1:
        """Called when an entry has left: an empty group that no route refers to goes, and lanes that a name opened with it."""
        cdef lane_t* lane
        cdef clause_t* clause
        cdef uint32_t i
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
        for i in range(group.slot_count):
            (<Clause> self.by_slot[group.slots[i]]).parked.remove(<uintptr_t> group)
        while group.member_count:
            lane = group.members[group.member_count - 1].lane
            clause = lane.clause
            self.group_shrink(group, group.member_count - 1)
            if lane.target != NULL and lane.members == 0:
                (<Clause> clause.face).lane_free(lane)
                clause_wake(self.engine, clause)    # it may have been that lane's turn
        aside_free(group)
        free(group.members)
        free(group.slots)
        free(group)
        return 0

    cdef bint wake_parked(self, selector_t* selector) except -1:
        """The selector was enabled: whether parked messages that it was hit by are to be looked at. A COPY acts on those from its
        start, or replay, on."""
        cdef Clause clause = <Clause> selector.clause.face
        cdef uint64_t first = 0 if clause.c.consuming else selector.replayed
        return self.wake_clause(clause, first)

    cdef bint wake_copies(self) except -1:
        """A queue was created: whether it may be named by parked messages."""
        cdef Clause clause
        cdef bint woken = False
        for clause in self.by_slot:
            if clause is not None and clause.parked and copies_by_field(clause):
                woken |= self.wake_clause(clause, 0)
        return woken

    cdef bint wake_clause(self, Clause clause, uint64_t first) except -1:
        """The messages parked with it, from that id on, are to be looked at; whether there are any."""
        if not clause.parked:
            return False
        if clause.c.woken_from == UNLIMITED:
            self.woken.append(clause)
        if first < clause.c.woken_from:
            clause.c.woken_from = first
        return True

    cdef int extend_pending(self) except -1:
        """Tries the clauses that are new on what waits; inside `building()` they wait for its end themselves."""
        cdef Clause clause
        cdef lane_t* lane
        while self.pending:
            clause = self.pending[0]
            self.extend_groups(clause)      # may be interrupted: then it is tried again
            del self.pending[0]
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
        cdef entry_t* entry
        cdef entry_t* next
        aside_merge(group)
        entry = group.head
        while entry != NULL:
            next = entry.next
            if (created is None or field_text(&clause.to_queue, content_at(entry)) == created) and clause.holds(entry):
                key = <tuple> group.key
                lane = self.lane_key(clause, entry)
                if lane not in key[2]:
                    waiting_remove(group, entry)
                    waiting_add(self.group_keyed((key[0], key[1], key[2] + (lane,))), entry)
            entry = next
        return self.group_left(group)

    cdef int shrink_groups(self, Clause clause) except -1:
        """The clause is gone: nothing waits for it any more. Cost: the groups that did."""
        cdef group_t* group
        cdef uint32_t i
        for address in clause.groups | clause.parked:
            group = <group_t*> <uintptr_t> address
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
        while clause.c.lanes != NULL:
            clause.lane_free(clause.c.lanes)
        return 0

    cdef int queue_created(self, queue_t* created, object name) except -1:
        """What waits may name the new queue (rule 14). Walks the backlog, only of queues with such selectors."""
        cdef Clause clause
        cdef group_t* group
        cdef group_t* next
        for clause in [clause for clause in self.by_slot if clause is not None]:
            if clause.c.names_queue:
                group = self.queue.groups
                while group != NULL:
                    next = group.next
                    if clause.c.role != DEFAULT or group.marked:
                        self.divide_group(group, clause, name)
                    group = next
        return 0


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
