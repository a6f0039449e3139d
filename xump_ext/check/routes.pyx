"""Verifies the routes that a plan remembers, by sets of hit clauses and by addresses: they are what the clauses say."""

from libc.stdint cimport uint32_t, uintptr_t

from xump_ext.check.structure cimport broken, of_queue
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.select.waiting cimport route_slots
from xump_ext.state.graph cimport queue_t, route_t, waitset_t


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
    check_indexes(plan)
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


cdef int check_indexes(Plan plan) except -1:
    """The indexes that find the clauses of a message are whole."""
    try:
        for index in plan.indexes():
            index.check()
    except AssertionError as error:
        raise broken("Links", of_queue(plan.queue), f"an index of its conditions is damaged: {error}") from None
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
