"""Verifies waitsets: the messages in each, in order, and its places in the heaps of the lanes that it belongs to."""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.check.structure cimport broken, of_entry, of_queue, stands
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.state.constants cimport BEHIND, DEFAULTED, DIRTY, IN_RETURNED_HEAP, RETURNED, UNLIMITED, WAITING
from xump_ext.state.graph cimport entry_t, lane_t, member_t, queue_t, waitset_t
from xump_ext.state.returned_heap cimport order_of, returned_position, waitset_oldest


cdef int check_waitsets(Plan plan, set lanes) except -1:
    """The waitsets of a queue, and their places in the heaps of the lanes that they belong to."""
    cdef waitset_t* waitset = plan.queue.waitsets
    cdef waitset_t* before = NULL
    cdef dict members = {}, standing = {}
    found = set()
    while waitset != NULL:
        if waitset.previous != before or waitset.queue != plan.queue or waitset.key == NULL:
            raise broken("Links", of_queue(plan.queue), "the list of its waitsets is broken")
        found.add(<uintptr_t> waitset)
        check_waitset(waitset)
        check_waitset_key(plan, waitset)
        check_waitset_lanes(waitset, lanes, members, standing)
        before = waitset
        waitset = waitset.next
    check_known_waitsets(plan)
    for key, address in plan.waitsets.items():
        if address not in found or <object> (<waitset_t*> <uintptr_t> address).key != key:
            raise broken("Links", of_queue(plan.queue), f"waitset {key} is not there")
    return check_lane_counts(plan, members, standing)


cdef int check_known_waitsets(Plan plan) except -1:
    """A clause knows the waitsets that wait for it, and those that were parked with it."""
    cdef waitset_t* waitset = plan.queue.waitsets
    cdef dict waiting = {}, parked = {}
    cdef Clause clause
    cdef uint32_t i
    while waitset != NULL:
        for i in range(waitset.member_count):
            waiting.setdefault(waitset.members[i].lane.clause.slot, set()).add(<uintptr_t> waitset)
        for i in range(waitset.slot_count):
            parked.setdefault(waitset.slots[i], set()).add(<uintptr_t> waitset)
        waitset = waitset.next
    for clause in plan.clauses.values():
        if clause.waitsets != waiting.get(clause.c.slot, set()) or clause.parked != parked.get(clause.c.slot, set()):
            raise broken("Links", of_queue(plan.queue), f"the clause at {clause.c.slot} knows other waitsets than those it is in")
    return 0


cdef int check_waitset(waitset_t* waitset) except -1:
    """The entries of a waitset: its list is in order of age, and all are counted."""
    cdef entry_t* entry = waitset.head
    cdef entry_t* before = NULL
    cdef uint64_t count = 0
    while entry != NULL:
        check_in_waitsets(waitset, entry)
        if entry.link.previous != before or entry.flags & IN_RETURNED_HEAP:
            raise broken("Links", of_queue(waitset.queue), f"message {entry.id} is in a waitset, though it does not wait there")
        if before != NULL and before.sequence >= entry.sequence:
            raise broken("Order", of_entry(entry), "it waits behind a younger one")
        count += 1
        before = entry
        entry = entry.next
    if waitset.tail != before:
        raise broken("Links", of_queue(waitset.queue), "the last message of a waitset is not in it")
    if waitset.count != count + waitset.returned_count or waitset.returned_count > waitset.returned_capacity:
        raise broken("Recount", of_queue(waitset.queue), f"a waitset has {waitset.count} messages, found {count} and "
                     f"{waitset.returned_count} in the returned heap")
    if waitset.count == 0 and not waitset.pinned:
        raise broken("Links", of_queue(waitset.queue), "a waitset is empty, and no route refers to it")
    return check_returned(waitset)


cdef int check_returned(waitset_t* waitset) except -1:
    """The returned heap of a waitset: no entry is older than the one above it."""
    cdef entry_t* entry
    cdef uint32_t i
    for i in range(waitset.returned_count):
        entry = waitset.returned[i]
        check_in_waitsets(waitset, entry)
        if not entry.flags & IN_RETURNED_HEAP or returned_position(entry) != i:
            raise broken("Links", of_entry(entry), "its stored position in the returned heap is wrong")
        if i and entry.sequence <= waitset.returned[(i - 1) // 2].sequence:
            raise broken("Order", of_entry(entry), "it is in the returned heap, below a younger one")
    return 0


cdef int check_in_waitsets(const waitset_t* waitset, entry_t* entry) except -1:
    if entry.holder != waitset or entry.state != WAITING or entry.queue != waitset.queue:
        raise broken("Links", of_queue(waitset.queue), f"message {entry.id} is in a waitset, though it does not wait there")
    if (entry.flags & DEFAULTED != 0) != waitset.defaulted:
        raise broken("Links", of_entry(entry), "its flag for the default role and that of its waitset disagree")
    return 0


cdef int check_parked(Plan plan) except -1:
    """Every clause knows the parked waitsets that it hit, and whether they are to be looked at."""
    cdef waitset_t* waitset = plan.queue.waitsets
    cdef Clause clause
    cdef uint32_t i
    cdef dict parked = {}
    while waitset != NULL:
        for i in range(waitset.slot_count):
            parked.setdefault(waitset.slots[i], set()).add(<uintptr_t> waitset)
        waitset = waitset.next
    for clause in plan.clauses.values():
        where = f"{of_queue(plan.queue)}, clause {clause.c.slot}"
        if clause.parked != parked.pop(clause.c.slot, set()):
            raise broken("Links", where, "it hit other parked messages than it knows")
        if (clause.c.woken_from != UNLIMITED) != (clause in plan.woken):
            raise broken("Links", where, "its flag and the list of parked messages to be looked at disagree")
        if clause in plan.woken and not plan.queue.held and not plan.queue.is_listed[DIRTY]:
            raise broken("Quiet", where, "parked messages were forgotten")
    if parked:
        raise broken("Links", of_queue(plan.queue), f"messages are parked for clauses that are not there: {sorted(parked)}")
    return 0


cdef int check_waitset_key(Plan plan, waitset_t* waitset) except -1:
    """The key by which the plan knows a waitset says what the waitset is."""
    cdef uint32_t i
    cdef tuple key = <tuple> waitset.key
    cdef lane_t* lane
    where = of_queue(plan.queue)
    if (waitset.defaulted != 0, waitset.parked != 0, waitset.place) != (key[0], key[1] is not None, key[3]):
        raise broken("Links", where, f"waitset {key} is of another kind")
    slots = tuple([waitset.slots[i] for i in range(waitset.slot_count)]) if waitset.parked else None
    if slots != key[1]:
        raise broken("Links", where, f"waitset {key} is parked with the hits {slots}")
    members = []
    for i in range(waitset.member_count):
        lane = waitset.members[i].lane
        members.append((lane.clause.slot, None if lane.target == NULL else <object> lane.target))
    if sorted(members, key=repr) != sorted(key[2], key=repr) or len(set(members)) != len(members):
        raise broken("Links", where, f"waitset {key} waits for {members}")
    known = plan.waitsets.get(key)
    if known is not None and (<tuple> (<waitset_t*> <uintptr_t> known).key) != key:
        raise broken("Links", where, f"waitset {key} is known by another key")
    return 0


cdef int check_waitset_lanes(waitset_t* waitset, set lanes, dict members, dict standing) except -1:
    """A waitset stands in the heap of each of its lanes, by a key that is not younger than its oldest entry."""
    cdef member_t* member
    cdef entry_t* first = waitset_oldest(waitset)
    cdef uint32_t i
    for i in range(waitset.member_count):
        member = waitset.members[i]
        address = <uintptr_t> member.lane
        if address not in lanes or member.node.owner != waitset or member.lane.queue != waitset.queue:
            raise broken("Links", of_queue(waitset.queue), "a waitset is in a lane that is not there")
        members[address] = members.get(address, 0) + 1
        standing[address] = standing.get(address, 0) + (member.node.position > 0)
        if member.node.position and not stands(&member.lane.waitsets, &member.node):
            raise broken("Order", of_queue(waitset.queue), "the stored position of a waitset in its lane is wrong")
        if waitset.place & BEHIND and member.node.position:
            raise broken("Links", of_queue(waitset.queue), "messages that are behind others of their key are in a lane")
        if first != NULL and not waitset.place & BEHIND and (member.node.position == 0 or member.node.key > order_of(first)):
            raise broken("Order", of_entry(first), f"clause {member.lane.clause.slot} does not find it")
    return 0


cdef int check_lane_counts(Plan plan, dict members, dict standing) except -1:
    cdef Clause clause
    cdef lane_t* lane
    for clause in plan.clauses.values():
        lane = clause.c.lanes
        while lane != NULL:
            found = members.get(<uintptr_t> lane, 0), standing.get(<uintptr_t> lane, 0)
            if (lane.members, lane.waitsets.count) != found:
                raise broken("Recount", f"{of_queue(plan.queue)}, clause {clause.c.slot}", f"a lane has {lane.members} waitsets, "
                             f"{lane.waitsets.count} in its heap, found {found}")
            lane = lane.next
    return 0


cdef int check_returning(queue_t* queue) except -1:
    """Messages that came back were matched anew before the call ended. After a run that was interrupted they will be. In a held
    queue they wait for its release; messages read from a store wait for the end of the building block, too."""
    cdef waitset_t* waitset = queue.returning
    if queue.held and not queue.is_listed[RETURNED]:
        return 0
    if queue.is_listed[RETURNED] and (queue.engine.interrupted or queue.engine.building):
        return 0
    if queue.is_listed[RETURNED] or (
            waitset != NULL and (waitset_oldest(waitset) != NULL or waitset.count or waitset.member_count)):
        raise broken("Quiet", of_queue(queue), "messages came back and were not matched anew")
    return 0
