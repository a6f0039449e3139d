"""Verifies clauses, routes, waitsets and lanes: each waiting message is found by the clauses that select it.

Heaps are read as they stand, without the corrections that a run would make. So the key of a waitset in a lane may be older than
its oldest entry, never younger. Conditions are evaluated anew on every waiting message, except those that call user code.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.check.structure cimport broken, check_heap, of_entry, of_queue, of_selector, stands
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.memory.heap cimport heap_t, node_t
from xump_ext.select.clause cimport copies_by_field
from xump_ext.select.credit cimport can_take
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.select.waiting cimport route_slots
from xump_ext.state.constants cimport (
    BEHIND, COPY, DEFAULT, DEFAULTED, DIRTY, FIELD_NONE, INSIDE, IN_RETURNED_HEAP, LANE, NAMED_LANE, PARKED, RETURNED, UNLIMITED,
    WAITERS, WAITING,
)
from xump_ext.state.envelope cimport field_text, queue_named
from xump_ext.state.graph cimport entry_t, lane_t, member_t, queue_t, route_t, selector_t, waitset_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.returned_heap cimport order_of, returned_position, waitset_oldest


cdef int check_waiting(Books books) except -1:
    """All checks of this file, in an order in which each relies on earlier ones only."""
    cdef QueueHandle handle
    cdef Plan plan
    cdef Clause clause
    cdef set lanes = set()
    for handle in books.core._queues.values():
        plan = <Plan> handle.queue.plan
        check_clauses(books, plan)
        for clause in plan.clauses.values():
            check_selectors(books, clause)
            check_lanes(clause, lanes)
        check_waitsets(plan, lanes)
        check_parked(plan)
        check_members(plan)
        check_returning(handle.queue)
        check_pins(plan)
        if not plan.stale:
            check_routes(plan)
    return check_runnable(books, lanes)


cdef entry_t* oldest(const lane_t* lane) noexcept:
    """The oldest entry that waits for the lane, or NULL. The heap is not changed."""
    cdef entry_t* found = NULL
    cdef entry_t* entry
    cdef uint32_t i
    for i in range(lane.waitsets.count):
        entry = waitset_oldest(<waitset_t*> lane.waitsets.nodes[i].owner)
        if entry != NULL and (found == NULL or order_of(entry) < order_of(found)):
            found = entry
    return found


# ---- clauses and their selectors

cdef int check_clauses(Books books, Plan plan) except -1:
    """The plan knows every clause by its slot and key, and its counts and lists of clauses are right."""
    cdef Clause clause
    cdef uint32_t watched = 0, copies = 0, slots = 0
    where = of_queue(plan.queue)
    for key, clause in plan.clauses.items():
        watched += clause.c.names_queue
        copies += copies_by_field(clause)
        slots += 1
        if clause.key != key or clause.queue != plan.queue or plan.by_slot[clause.c.slot] is not clause:
            raise broken("Links", where, f"the clause at {clause.c.slot} is known by another key or slot")
        if clause.c.handle != <void*> clause or clause.c.count == 0:
            raise broken("Links", where, f"the clause at {clause.c.slot} has no selectors")
        if clause.c.names_queue != (clause.c.consuming and clause.to_queue.kind != FIELD_NONE):
            raise broken("Links", where, f"the clause at {clause.c.slot} has a wrong flag for a field that names its queue")
        if (clause.c.role == DEFAULT) != (clause in plan.defaults):
            raise broken("Links", where, f"the role of the clause at {clause.c.slot} and the list of default ones disagree")
    spare = [slot for slot, clause in enumerate(plan.by_slot) if clause is None]
    if sorted(plan.spare_slots) != spare or len(plan.by_slot) != slots + len(spare):
        raise broken("Once", where, f"slots of clauses were lost: {plan.spare_slots} are spare, found {spare}")
    if plan.queue.field_copies != copies:
        raise broken("Recount", where, f"{plan.queue.field_copies} clauses copy by a field, found {copies}")
    if plan.queue.watched != watched or plan.queue.active != (slots > 0 or plan.queue.transit):
        raise broken("Recount", where, f"{plan.queue.watched} clauses name a queue by a field, found {watched}")
    for clause in plan.pending:
        if plan.clauses.get(clause.key) is not clause or not (plan.queue.is_listed[DIRTY] or plan.queue.held):
            raise broken("Links", where, f"the new clause at {clause.c.slot} is in no list of work to do")
    return 0


cdef int check_selectors(Books books, Clause clause) except -1:
    """The selectors of a clause are in order of id, the enabled ones are counted, and those that can take stand ready."""
    cdef selector_t* selector
    cdef uint32_t i, enabled = 0, ready = 0
    where = f"{of_queue(clause.queue)}, clause {clause.c.slot}"
    check_heap(&clause.c.ready, where)
    for i in range(clause.c.count):
        selector = clause.c.selectors[i]
        if <uintptr_t> selector not in books.selectors or selector.clause != &clause.c or selector.source != clause.queue:
            raise broken("Links", where, "it has a selector that has another clause")
        if i and selector.id <= clause.c.selectors[i - 1].id:
            raise broken("Order", where, f"{of_selector(selector)} is not in order of number")
        if selector.role != clause.c.role or (selector.verb != COPY) != clause.c.consuming or selector.ready.owner != selector:
            raise broken("Links", where, f"{of_selector(selector)} is of another kind")
        enabled += selector.enabled
        ready += selector.ready.position > 0
        check_ready(selector, clause)
    if clause.c.enabled != enabled:
        raise broken("Recount", where, f"{clause.c.enabled} enabled selectors, found {enabled}")
    if clause.c.ready.count != ready:
        raise broken("Recount", where, f"{clause.c.ready.count} selectors are ready, found {ready}")
    return 0


cdef int check_ready(selector_t* selector, Clause clause) except -1:
    cdef bint runnable = can_take(selector) and clause.c.consuming and (selector.waiters == NULL or clause.c.names_queue)
    if runnable != (selector.ready.position > 0):
        raise broken(
            "Credit", of_selector(selector),
            "it can take, though it is not ready" if runnable else
            "it is ready, though it cannot take or is in a waiting list")
    if selector.ready.position and not stands(&clause.c.ready, &selector.ready):
        raise broken("Order", of_selector(selector), "its stored heap position is wrong")
    if selector.waiters != NULL and (
            not clause.c.consuming or (selector.waiters.next_of_selector != NULL and not clause.c.names_queue)):
        raise broken("Links", of_selector(selector), "it stands in more waiting lists than it may")
    return 0


# ---- the heap of runnable lanes and waiting lists

cdef int check_runnable(Books books, set lanes) except -1:
    """The heaps have lanes and waiting lists of this engine only, and the engine's has the queues that have a heap of their
    own."""
    cdef QueueHandle handle
    check_runnable_heap(books, &books.e.runnable, NULL, lanes)
    for handle in books.core._queues.values():
        check_runnable_heap(books, &handle.queue.runnable_inside, handle.queue, lanes)
        if (handle.queue.inside.position != 0) != (handle.queue.runnable_inside.count != 0):
            raise broken("Links", of_queue(handle.queue), "whether something in it may go on is not what the engine's heap says")
    return check_runnable_positions(books, lanes)


cdef int check_runnable_heap(Books books, heap_t* heap, queue_t* inside, set lanes) except -1:
    cdef node_t* node
    cdef queue_t* queue
    cdef uint32_t i
    where = "engine, what may go on" if inside == NULL else f"{of_queue(inside)}, what may go on"
    check_heap(heap, where)
    for i in range(heap.count):
        node = heap.nodes[i]
        if node.kind == PARKED:
            queue = <queue_t*> node.owner
            if <uintptr_t> queue in books.queues and node == &queue.parked and heap == heap_of(books, queue):
                continue
        elif node.kind == WAITERS or node.kind == INSIDE:
            queue = <queue_t*> node.owner
            if <uintptr_t> queue in books.queues and (
                    node == &queue.inside and inside == NULL if node.kind == INSIDE
                    else node == &queue.runnable and queue.stands_in == inside):
                continue
        elif <uintptr_t> node.owner in lanes and node == &(<lane_t*> node.owner).runnable:
            continue
        raise broken("Links", where, f"the node at {i + 1} is no lane or waiting list")
    return 0


cdef inline heap_t* heap_of(Books books, queue_t* inside) noexcept:
    return &books.e.runnable if inside == NULL or inside.top_priority == 0 else &inside.runnable_inside


cdef int check_runnable_positions(Books books, set lanes) except -1:
    cdef QueueHandle handle
    cdef lane_t* lane
    for handle in books.core._queues.values():
        if handle.queue.runnable.position and not stands(heap_of(books, handle.queue.stands_in), &handle.queue.runnable):
            raise broken("Order", of_queue(handle.queue), "the stored heap position of its waiting list is wrong")
    for address in lanes:
        lane = <lane_t*> <uintptr_t> address
        if lane.runnable.position and not stands(heap_of(books, lane.queue), &lane.runnable):
            raise broken(
                "Order", of_queue(lane.queue), f"the stored heap position of a lane of clause {lane.clause.slot} is wrong")
    return 0


# ---- lanes

cdef int check_lanes(Clause clause, set lanes) except -1:
    """The clause has one lane for each target. Adds their addresses to `lanes`."""
    cdef lane_t* lane = clause.c.lanes
    cdef lane_t* before = NULL
    cdef set found = set()
    where = f"{of_queue(clause.queue)}, clause {clause.c.slot}"
    while lane != NULL:
        target = None if lane.target == NULL else <object> lane.target
        if <uintptr_t> lane in lanes or clause.lanes.get(target) != <uintptr_t> lane:
            raise broken("Links", where, f"the lane of target {target!r} is not known, or there twice")
        if lane.runnable.owner != lane or lane.runnable.kind != (LANE if target is None else NAMED_LANE):
            raise broken("Links", where, f"the lane of target {target!r} is another clause's")
        if lane.clause != &clause.c or lane.queue != clause.queue or (target is None) == clause.c.names_queue:
            raise broken("Links", where, f"the lane of target {target!r} is another clause's")
        if target is not None and lane.members == 0:
            raise broken("Links", where, f"no message waits for target {target!r}, though it has a lane")
        if lane.previous != before:
            raise broken("Links", where, f"the lane of target {target!r} is not linked back")
        check_heap(&lane.waitsets, f"{where}, lane of target {target!r}")
        found.add(<uintptr_t> lane)
        lanes.add(<uintptr_t> lane)
        before = lane
        lane = lane.next
    if len(found) != len(clause.lanes):
        raise broken("Recount", where, f"{len(clause.lanes)} lanes are known, found {len(found)}")
    return check_open(clause, found)


cdef int check_open(Clause clause, set lanes) except -1:
    """Where a field names the target, each lane with waiting entries is either open or closed. The closed ones are linked in
    order of closing."""
    cdef lane_t* lane
    cdef lane_t* after = NULL
    cdef entry_t* entry
    cdef uint32_t open = 0
    where = f"{of_queue(clause.queue)}, clause {clause.c.slot}"
    check_heap(&clause.c.open, where)
    closed = {address for address in lanes if (<lane_t*> <uintptr_t> address).closed}
    for address in lanes:
        lane = <lane_t*> <uintptr_t> address
        entry = oldest(lane) if clause.c.names_queue else NULL
        open += lane.open.position > 0
        if lane.open.position and (lane.open.owner != lane or not stands(&clause.c.open, &lane.open)):
            raise broken("Order", where, "the stored heap position of an open lane is wrong")
        if lane.closed and (lane.open.position or not clause.c.names_queue):
            raise broken("Once", where, "a lane is open and closed, or no field names its target")
        if entry != NULL and not lane.closed and (lane.open.position == 0 or lane.open.key > order_of(entry)):
            raise broken("Order", of_entry(entry), f"a credit for clause {clause.c.slot} does not find it")
    if clause.c.open.count != open:
        raise broken("Recount", where, f"{clause.c.open.count} lanes are open, found {open}")
    lane = clause.c.closed_last
    while lane != NULL:
        if <uintptr_t> lane not in closed or lane.closed_after != after:
            raise broken("Links", where, "the list of its closed lanes is broken")
        if lane.closed > clause.c.closings or (after != NULL and lane.closed >= after.closed):
            raise broken("Order", where, "its closed lanes are not in order of closing")
        closed.remove(<uintptr_t> lane)
        after = lane
        lane = lane.closed_before
    if closed:
        raise broken("Links", where, f"{len(closed)} closed lanes are not in its list")
    return 0


# ---- waitsets

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


# ---- messages and the clauses that they wait for

cdef int check_members(Plan plan) except -1:
    """Every waiting message waits for exactly those consuming clauses that select it."""
    cdef waitset_t* waitset = plan.queue.waitsets
    cdef entry_t* entry
    cdef Clause clause
    cdef list clauses = []
    for clause in plan.clauses.values():
        if clause.c.consuming and clause not in plan.pending and not asks_user_code(clause):
            clauses.append(clause)
    while waitset != NULL:
        lanes = set((<tuple> waitset.key)[2])
        entry = next_in(waitset, NULL)
        while entry != NULL:
            for clause in clauses:
                if clause.c.role != DEFAULT or waitset.defaulted:
                    check_member(clause, entry, lanes)
            entry = next_in(waitset, entry)
        waitset = waitset.next
    return 0


cdef bint asks_user_code(Clause clause) except -1:
    for term in clause.key[2]:
        if term[0] == "call" or (term[0] == "match" and term[4] is not None):
            return True
    return False


cdef int check_member(Clause clause, entry_t* entry, set lanes) except -1:
    """A message that names a queue waits for it since that existed, also when it is deleted."""
    named = field_text(&clause.to_queue, content_at(entry)) if clause.c.names_queue else None
    waits = (clause.c.slot, named) in lanes
    if waits == clause.holds(entry):
        return 0
    if waits and named is not None and queue_named(clause.engine, named) == NULL:
        return 0
    raise broken("Links", of_entry(entry), f"it waits for clause {clause.c.slot}, which does not select it" if waits
                 else f"clause {clause.c.slot} selects it, and it waits only for {sorted(lanes, key=repr)}")


# ---- routes

cdef int check_pins(Plan plan) except -1:
    """A waitset is pinned while a route refers to it; at most one route does."""
    cdef waitset_t* waitset = plan.queue.waitsets
    cdef route_t* route
    cdef set pinned = set()
    cdef uint32_t i, routes = 0
    where = of_queue(plan.queue)
    for i in range(plan.route_mask + 1 if plan.routes != NULL else 0):
        route = plan.routes[i]
        while route != NULL:
            routes += 1
            if route.hash & plan.route_mask != i or routes > plan.route_count:
                raise broken("Recount", where, f"{plan.route_count} routes are remembered, found another, or one out of place")
            for address in waitsets_of(plan.queue, route):
                if address in pinned:
                    raise broken("Once", where, "two routes refer to one waitset")
                pinned.add(address)
            route = route.next
    if routes != plan.route_count:
        raise broken("Recount", where, f"{plan.route_count} routes are remembered, found {routes}")
    while waitset != NULL:
        if waitset.pinned != (<uintptr_t> waitset in pinned):
            raise broken("Links", where, f"the pin of waitset {<object> waitset.key} and the routes disagree")
        pinned.discard(<uintptr_t> waitset)
        waitset = waitset.next
    if pinned:
        raise broken("Links", where, "a route refers to a waitset that is not there")
    return 0


cdef int check_routes(Plan plan) except -1:
    """The routes remembered for hit sets, and for addresses, are what the clauses say."""
    cdef set routes = {0}
    cdef route_t* route
    cdef uint32_t i, known = 0
    where = of_queue(plan.queue)
    for i in range(plan.route_mask + 1):
        route = plan.routes[i]
        while route != NULL:
            check_route(plan, route)
            routes.add(<uintptr_t> route)
            route = route.next
    if <uintptr_t> plan.route_of_all not in routes or <uintptr_t> plan.route_of_none not in routes:
        raise broken("Links", where, "the route of every message, or of every other, is not there")
    if not plan.stale:
        check_remembered(plan, where)
    for i in range(plan.known_mask + 1):
        if plan.known[i].address != NULL:
            known += 1
            if <uintptr_t> plan.known[i].route not in routes:
                raise broken("Links", where, f"the route of address {<object> plan.known[i].address!r} is not there")
            if plan.known[i].route == NULL and plan.known[i].first + plan.known[i].count > plan.candidates.count:
                raise broken("Links", where, f"the candidates of address {<object> plan.known[i].address!r} are not there")
    if plan.known_count != known:
        raise broken("Recount", where, f"{plan.known_count} addresses are remembered, found {known}")
    return 0


cdef int check_remembered(Plan plan, str where) except -1:
    """The plan's tables are what its lists of clauses say."""
    cdef uint32_t i
    cdef route_t* route
    if plan.by_address != (len(plan.addresses) > 0):
        raise broken("Links", where, "whether a condition asks for the address is not what the index says")
    if not plan.by_address:
        found = [plan.candidates.items[plan.known_of_any_address.first + i] for i in range(plan.known_of_any_address.count)]
        if sorted(found) != sorted((<Clause> clause).c.slot for clause in plan.unconditional):
            raise broken("Links", where, "the candidates of any address are not those without a condition")
    evaluated, unindexed = set(plan.evaluated_always), set(plan.unindexed)
    if not unindexed <= evaluated <= unindexed | set(plan.in_equality_index) or len(evaluated) != len(plan.evaluated_always):
        raise broken("Links", where, "others than those that no index knows are asked of every message")
    route = plan.route_of_none
    if route != NULL and [route_slots(route)[i] for i in range(route.slot_count)] != sorted(
            (<Clause> clause).c.slot for clause in plan.defaults):
        raise broken("Links", where, "the route of all that hit nothing is not that of the defaults")
    return 0


cdef int check_route(Plan plan, route_t* route) except -1:
    cdef Clause clause
    cdef waitset_t* waitset
    cdef bint names_queue = False
    cdef uint32_t i
    cdef list copies = [], clauses = []
    slots = [route_slots(route)[i] for i in range(route.slot_count)]
    where = f"{of_queue(plan.queue)}, route of the clauses {slots}"
    if slots != sorted(set(slots)):
        raise broken("Order", where, "they are not in order")
    for slot in slots:
        clause = plan.by_slot[slot] if slot < len(plan.by_slot) else None
        if clause is None:
            raise broken("Links", where, f"there is no clause {slot}")
        if clause.c.consuming:
            clauses.append(<uintptr_t> &clause.c)
            names_queue |= clause.c.names_queue
        else:
            copies += [(clause.c.selectors[i].id, <uintptr_t> clause.c.selectors[i]) for i in range(clause.c.count)]
    if [<uintptr_t> route.clauses[i] for i in range(route.clause_count)] != clauses or route.names_queue != names_queue:
        raise broken("Links", where, "those that consume are others")
    if [<uintptr_t> route.copies[i].selector for i in range(route.copy_count)] != [address for _, address in sorted(copies)]:
        raise broken("Links", where, "the copying selectors are others, or not in order of number")
    for address in waitsets_of(plan.queue, route):
        waitset = <waitset_t*> <uintptr_t> address
        if waitset.defaulted or waitset.parked or waitset.member_count != route.clause_count:
            raise broken("Links", where, "its messages wait for others")
    return 0


cdef list waitsets_of(queue_t* queue, route_t* route):
    """The addresses of the waitsets that a route leads to."""
    cdef uint32_t place
    if route.waits.one == NULL:
        return []
    if queue.places == 0:
        return [<uintptr_t> route.waits.one]
    return [<uintptr_t> route.waits.by_place[place] for place in range(queue.places) if route.waits.by_place[place] != NULL]
