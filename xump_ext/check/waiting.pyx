"""Verifies clauses and lanes: each waiting message is found by the clauses that select it.

Heaps are read as they stand, without the corrections that a run would make. So the key of a waitset in a lane may be older than
its oldest entry, never younger. Conditions are evaluated anew on every waiting message, except those that call user code.
"""

from libc.stdint cimport uint32_t, uintptr_t

from xump_ext.check.routes cimport check_pins, check_routes
from xump_ext.check.structure cimport broken, check_heap, of_entry, of_queue, of_selector, stands
from xump_ext.check.waitsets cimport check_parked, check_returning, check_waitsets, next_in
from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.windows cimport WindowHandle
from xump_ext.memory.heap cimport heap_t, node_t
from xump_ext.select.clause cimport copies_by_field
from xump_ext.select.credit cimport can_take
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.state.constants cimport COPY, DEFAULT, DIRTY, FIELD_NONE, INSIDE, LANE, NAMED_LANE, PARKED, WAITERS
from xump_ext.state.envelope cimport field_text, queue_named
from xump_ext.state.graph cimport entry_t, lane_t, queue_t, selector_t, waitset_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.returned_heap cimport order_of, waitset_oldest


cdef int check_waiting(Books books) except -1:
    """All checks of this file, of `waitsets.pyx` and of `routes.pyx`, in an order in which each relies on earlier ones only."""
    cdef QueueHandle handle
    cdef Plan plan
    cdef Clause clause
    cdef set lanes = set()
    for handle in books.core._queues.values():
        plan = <Plan> handle.queue.plan
        check_clauses(plan)
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

cdef int check_clauses(Plan plan) except -1:
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
    cdef WindowHandle window
    cdef set awaited = set(books.queues)
    for window in books.core._windows.values():
        awaited.add(<uintptr_t> &window.gate)
    check_runnable_heap(books, &books.e.runnable, NULL, lanes, awaited)
    for handle in books.core._queues.values():
        check_runnable_heap(books, &handle.queue.runnable_inside, handle.queue, lanes, awaited)
        if (handle.queue.inside.position != 0) != (handle.queue.runnable_inside.count != 0):
            raise broken("Links", of_queue(handle.queue), "whether something in it may go on is not what the engine's heap says")
    return check_runnable_positions(books, lanes)


cdef int check_runnable_heap(Books books, heap_t* heap, queue_t* inside, set lanes, set awaited) except -1:
    """`awaited`: what may have a waiting list, queues and the gates of windows."""
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
            if <uintptr_t> queue in awaited and (
                    node == &queue.inside and inside == NULL if node.kind == INSIDE
                    else node == &queue.runnable and queue.stands_in == inside):
                continue
        elif <uintptr_t> node.owner in lanes and node == &(<lane_t*> node.owner).runnable:
            continue
        raise broken("Links", where, f"the node at {i + 1} is no lane or waiting list")
    return 0


cdef inline heap_t* heap_of(Books books, queue_t* inside) noexcept:
    return &books.e.runnable if inside == NULL or inside.top_priority == 0 else &inside.runnable_inside


cdef int check_stands(Books books, queue_t* queue) except -1:
    if queue.runnable.position and not stands(heap_of(books, queue.stands_in), &queue.runnable):
        raise broken("Order", of_queue(queue), "the stored heap position of its waiting list is wrong")
    return 0


cdef int check_runnable_positions(Books books, set lanes) except -1:
    cdef QueueHandle handle
    cdef WindowHandle window
    cdef lane_t* lane
    for handle in books.core._queues.values():
        check_stands(books, handle.queue)
    for window in books.core._windows.values():
        check_stands(books, &window.gate)
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
