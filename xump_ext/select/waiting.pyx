"""The waitsets of a queue: its waiting entries, by the consuming clauses that hit them (rules 5, 6, 14).

The entries of a waitset were hit by the same consuming clauses and, where a field names the targets, for the same targets. A new
consuming clause is evaluated once on every waiting entry; a clause without a condition joins whole waitsets. A clause that ends
leaves its waitsets. So the backlog of a Wolfpack is never walked.

Two waitsets may come to have the same key by that. Then the mapping knows one of them, and the other gets no new entries.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc

from xump_ext.memory.heap cimport heap_add, heap_remove
from xump_ext.select.clause cimport Clause, copies_by_field
from xump_ext.select.credit cimport clause_wake, lane_wake, waiting_add, waiting_remove
from xump_ext.select.lanes cimport lane_lower
from xump_ext.state.constants cimport BEHIND, DEFAULT, UNLIMITED
from xump_ext.state.envelope cimport field_text
from xump_ext.state.graph cimport clause_t, entry_t, lane_t, member_t, queue_t, route_t, selector_t, waitset_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.returned_heap cimport order_of, returned_free, returned_merge, waitset_oldest


cdef class Waiting:
    """The waitsets of a queue."""

    def __cinit__(self):
        self.by_slot = []
        self.defaults = []
        self.pending = []
        self.woken = []
        self.waitsets = {}

    cdef waitset_t* waitset_for(self, route_t* route, entry_t* entry, bint defaulted, bint parked) except NULL:
        """The waitset of the clauses that an entry hit, which is made if there is none. A route that leads all its entries to one
        waitset remembers it."""
        cdef Clause clause
        cdef uint32_t i
        cdef waitset_t* waitset
        lanes = []
        for i in range(route.clause_count):
            clause = <Clause> route.clauses[i].handle
            lanes.append(self.lane_key(clause, entry))
        if defaulted:
            for clause in self.defaults:
                if clause.c.consuming and clause.fields_hold(entry):
                    key = self.lane_key(clause, entry)
                    if key not in lanes:
                        lanes.append(key)
        slots = tuple([route_slots(route)[i] for i in range(route.slot_count)]) if parked else None
        place = place_of(entry) if self.queue.places else 0
        waitset = self.waitset_keyed((defaulted, slots, tuple(lanes), place))
        if not defaulted and not parked and not route.names_queue and not waitset.pinned:
            self.remember(route, waitset)
        return waitset

    cdef int remember(self, route_t* route, waitset_t* waitset) except -1:
        """Has the route lead to this waitset at once; the waitset stays while the route does."""
        if self.queue.places and route.waits.by_place == NULL:
            route.waits.by_place = <waitset_t**> calloc(self.queue.places, sizeof(waitset_t*))
            if route.waits.by_place == NULL:
                raise MemoryError()
        waitset.pinned = True
        if self.queue.places:
            route.waits.by_place[waitset.place] = waitset
        else:
            route.waits.one = waitset
        return 0

    cdef int forget_waitsets(self, route_t* route) except -1:
        """The route ends: its waitsets stay as long as entries wait in them."""
        cdef uint32_t i
        cdef waitset_t** waitsets = route.waits.by_place if self.queue.places else &route.waits.one
        if route.waits.one == NULL:
            return 0
        for i in range(max(self.queue.places, 1)):
            if waitsets[i] != NULL:
                waitsets[i].pinned = False
                self.waitset_left(waitsets[i])
        if self.queue.places:
            free(waitsets)
        return 0

    cdef tuple lane_key(self, Clause clause, entry_t* entry):
        return (clause.c.slot, field_text(&clause.to_queue, content_at(entry)) if clause.c.names_queue else None)

    cdef waitset_t* waitset_keyed(self, tuple key) except NULL:
        """The waitset of this key: (defaulted, slots of the hit set if parked else None, ((slot, target name or None),
        ...), place)."""
        cdef waitset_t* waitset
        cdef uint32_t i
        found = self.waitsets.get(key)
        if found is not None:
            return <waitset_t*> <uintptr_t> found
        waitset = <waitset_t*> calloc(1, sizeof(waitset_t))
        if waitset == NULL:
            raise MemoryError()
        if key[1] is not None:
            waitset.slots = <uint32_t*> malloc(len(key[1]) * sizeof(uint32_t) + 1)
            if waitset.slots == NULL:
                free(waitset)
                raise MemoryError()
        waitset.queue = self.queue
        waitset.defaulted = key[0]
        waitset.parked = key[1] is not None
        waitset.place = key[3]
        waitset.next = self.queue.waitsets
        if waitset.next != NULL:
            waitset.next.previous = waitset
        self.queue.waitsets = waitset
        if waitset.parked:
            for i in range(<uint32_t> len(key[1])):
                waitset.slots[i] = key[1][i]
            waitset.slot_count = <uint32_t> len(key[1])
            for slot in key[1]:
                (<Clause> self.by_slot[slot]).parked.add(<uintptr_t> waitset)
        for slot, target in key[2]:
            self.waitset_extend(waitset, <Clause> self.by_slot[slot], target)
        self.waitset_rekey(waitset, key)
        return waitset

    cdef int waitset_rekey(self, waitset_t* waitset, object key) except -1:
        """Gives the waitset this key. If the mapping knows another one by it, that stays, and this one gets no new entries."""
        if waitset.key != NULL:
            if self.waitsets.get(<object> waitset.key) == <uintptr_t> waitset:
                del self.waitsets[<object> waitset.key]
            Py_XDECREF(<PyObject*> waitset.key)
        Py_INCREF(key)
        waitset.key = <void*> key
        self.waitsets.setdefault(key, <uintptr_t> waitset)
        return 0

    cdef int waitset_extend(self, waitset_t* waitset, Clause clause, object target) except -1:
        """Lets the waitset's entries wait for this clause too."""
        cdef member_t* member = <member_t*> calloc(1, sizeof(member_t))
        cdef member_t** members = <member_t**> realloc(waitset.members, (waitset.member_count + 1) * sizeof(member_t*))
        if members != NULL:
            waitset.members = members
        if members == NULL or member == NULL:
            free(member)
            raise MemoryError()
        member.lane = clause.lane_named(target)
        member.lane.members += 1
        member.node.owner = waitset
        clause.waitsets.add(<uintptr_t> waitset)
        waitset.members[waitset.member_count] = member
        waitset.member_count += 1
        if waitset.count and not waitset.place & BEHIND:
            heap_add(&member.lane.waitsets, &member.node, order_of(waitset_oldest(waitset)))
            if member.lane.target != NULL:
                lane_lower(member.lane, order_of(waitset_oldest(waitset)))
        return 0

    cdef int waitset_shrink(self, waitset_t* waitset, uint32_t at) except -1:
        """Takes the waitset out of the lane of its member number `at`."""
        cdef member_t* member = waitset.members[at]
        heap_remove(&member.lane.waitsets, &member.node)
        (<Clause> member.lane.clause.handle).waitsets.remove(<uintptr_t> waitset)
        member.lane.members -= 1
        waitset.member_count -= 1
        members_close(waitset, at)
        free(member)
        return 0

    cdef int waitset_left(self, waitset_t* waitset) except -1:
        """Frees the waitset if it is empty and no route refers to it, and with it those lanes for a named target that it was the
        last one in. Called when an entry has left."""
        cdef lane_t* lane
        cdef clause_t* clause
        cdef uint32_t i
        if waitset.count or waitset.pinned:
            return 0
        if self.waitsets.get(<object> waitset.key) == <uintptr_t> waitset:
            del self.waitsets[<object> waitset.key]
        Py_XDECREF(<PyObject*> waitset.key)
        if waitset.previous == NULL:
            self.queue.waitsets = waitset.next
        else:
            waitset.previous.next = waitset.next
        if waitset.next != NULL:
            waitset.next.previous = waitset.previous
        for i in range(waitset.slot_count):
            (<Clause> self.by_slot[waitset.slots[i]]).parked.remove(<uintptr_t> waitset)
        while waitset.member_count:
            lane = waitset.members[waitset.member_count - 1].lane
            clause = lane.clause
            self.waitset_shrink(waitset, waitset.member_count - 1)
            if lane.target != NULL and lane.members == 0:
                (<Clause> clause.handle).lane_free(lane)
                clause_wake(self.engine, clause)    # the freed lane may have been runnable: the next one goes on instead
        returned_free(waitset)
        free(waitset.members)
        free(waitset.slots)
        free(waitset)
        return 0

    cdef bint wake_parked(self, selector_t* selector) except -1:
        """The selector was enabled: has the messages looked at that are parked with it in their hit set. Whether there may be
        any. A COPY acts on those from its start, or replay, on."""
        cdef Clause clause = <Clause> selector.clause.handle
        cdef uint64_t first = 0 if clause.c.consuming else selector.replayed
        return self.wake_clause(clause, first)

    cdef bint wake_copies(self) except -1:
        """A queue was created: has the parked messages looked at that may be copied into a queue they name. Whether there may be
        any."""
        cdef Clause clause
        cdef bint woken = False
        for clause in self.by_slot:
            if clause is not None and clause.parked and copies_by_field(clause):
                woken |= self.wake_clause(clause, 0)
        return woken

    cdef bint wake_clause(self, Clause clause, uint64_t first) except -1:
        """Has the messages looked at, from the id `first` on, that are parked with this clause in their hit set. Whether there
        may be any."""
        if not clause.parked:
            return False
        if clause.c.woken_from == UNLIMITED:
            self.woken.append(clause)
        if first < clause.c.woken_from:
            clause.c.woken_from = first
        return True

    cdef int extend_pending(self) except -1:
        """Tries the new clauses on the waiting entries. Inside `building()` it is not called before the block ends."""
        cdef Clause clause
        cdef lane_t* lane
        while self.pending:
            clause = self.pending[0]
            self.extend_waitsets(clause)      # may be interrupted: then it is tried again
            del self.pending[0]
            lane = clause.c.lanes
            while lane != NULL:
                lane_wake(self.engine, lane)
                lane = lane.next
        return 0

    cdef int extend_waitsets(self, Clause clause) except -1:
        """A new consuming clause: every waiting entry that meets its condition waits for it too."""
        cdef waitset_t* waitset = self.queue.waitsets
        cdef waitset_t* next
        while waitset != NULL:
            next = waitset.next
            if (clause.c.role == DEFAULT and not waitset.defaulted) or (clause.c.slot, None) in (<tuple> waitset.key)[2]:
                pass
            elif clause.unconditional():
                self.waitset_extend(waitset, clause, None)
                key = <tuple> waitset.key
                self.waitset_rekey(waitset, (key[0], key[1], key[2] + ((clause.c.slot, None),), key[3]))
            else:
                self.divide_waitset(waitset, clause, None)
            waitset = next
        return 0

    cdef int divide_waitset(self, waitset_t* waitset, Clause clause, object created) except -1:
        """Moves the entries that meet the clause's condition (and name the queue `created`, if given) to waitsets with it."""
        cdef entry_t* entry
        cdef entry_t* next
        returned_merge(waitset)
        entry = waitset.head
        while entry != NULL:
            next = entry.next
            if (created is None or field_text(&clause.to_queue, content_at(entry)) == created) and clause.holds(entry):
                key = <tuple> waitset.key
                lane = self.lane_key(clause, entry)
                if lane not in key[2]:
                    waiting_remove(waitset, entry)
                    waiting_add(self.waitset_keyed((key[0], key[1], key[2] + (lane,), key[3])), entry)
            entry = next
        return self.waitset_left(waitset)

    cdef int shrink_waitsets(self, Clause clause) except -1:
        """The clause ends: takes it out of its waitsets. Costs O(those waitsets)."""
        cdef waitset_t* waitset
        cdef uint32_t i
        for address in clause.waitsets | clause.parked:
            waitset = <waitset_t*> <uintptr_t> address
            i = 0
            while i < waitset.member_count:
                if waitset.members[i].lane.clause == &clause.c:
                    self.waitset_shrink(waitset, i)
                else:
                    i += 1
            if waitset.parked:
                slots_remove(waitset, clause.c.slot)
            key = <tuple> waitset.key
            slots = None if key[1] is None else tuple([slot for slot in key[1] if slot != clause.c.slot])
            lanes = tuple([lane for lane in key[2] if lane[0] != clause.c.slot])
            if (slots, lanes) != (key[1], key[2]):
                self.waitset_rekey(waitset, (key[0], slots, lanes, key[3]))
            self.waitset_left(waitset)
        while clause.c.lanes != NULL:
            clause.lane_free(clause.c.lanes)
        return 0

    cdef int queue_created(self, queue_t* created, object name) except -1:
        """A queue was created: entries that wait and name it may go there (rule 14). Walks the waiting entries; the caller asks
        only queues with selectors whose target a field names."""
        cdef Clause clause
        cdef waitset_t* waitset
        cdef waitset_t* next
        for clause in [clause for clause in self.by_slot if clause is not None]:
            if clause.c.names_queue:
                waitset = self.queue.waitsets
                while waitset != NULL:
                    next = waitset.next
                    if clause.c.role != DEFAULT or waitset.defaulted:
                        self.divide_waitset(waitset, clause, name)
                    waitset = next
        return 0


cdef void members_close(waitset_t* waitset, uint32_t at) noexcept:
    while at < waitset.member_count:
        waitset.members[at] = waitset.members[at + 1]
        at += 1


cdef void slots_remove(waitset_t* waitset, uint32_t slot) noexcept:
    cdef uint32_t i, kept = 0
    for i in range(waitset.slot_count):
        if waitset.slots[i] != slot:
            waitset.slots[kept] = waitset.slots[i]
            kept += 1
    waitset.slot_count = kept
