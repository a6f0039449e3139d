"""Transit queues: each message goes on at once to the targets of their selectors, as through an exchange.

A transit queue keeps nothing, so its messages never wait: all enabled selectors that match copy, then one of those that discard
has what is left. If there are none, the default does so; if it leads nowhere either, the message is unroutable.

A message that comes by COPY, MOVE or as a dead letter, while the queue is held, in a building block or in a transaction is an
entry, which the run routes in its turn. A published one goes on before anything else happens, and then needs no entry of its
own: one on the stack stands for it, which no list and no index ever sees. Only an entry that has to be sent away or discarded is
made for it.

A message whose annex names further addresses is routed by each of them, in its turn: as if it were one message with several
addresses, of which each queue gets one copy. The copies are as it came.
"""

from libc.string cimport memset

from xump_ext.message.content cimport content_readdressed, content_release, content_share
from xump_ext.message.headers cimport annex_addresses, annex_of, expires_of
from xump_ext.route.copies cimport make_copies
from xump_ext.route.clock cimport now_of, time_of
from xump_ext.route.ledger cimport dead_letter, enter, take
from xump_ext.route.letters cimport dead_letter_of
from xump_ext.route.ready cimport leave_ready
from xump_ext.route.settling cimport PROCESSED, settle
from xump_ext.state.queue_lists cimport mark_dirty
from xump_ext.select.plan cimport Plan, known_place, known_t
from xump_ext.select.round_robin cimport choose
from xump_ext.select.unrouted cimport apart_add
from xump_ext.state.constants cimport (
    BROKEN, DEFAULTED, DIRTY, OUTCOME_DROPPED, OUTCOME_UNROUTABLE, REASON_UNROUTABLE, UNLIMITED, UNROUTED,
)
from xump_ext.state.graph cimport run_item_t, selector_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.run_queue cimport suspend
from xump_ext.state.visited cimport tally_flag, visited_new, visited_release


# ---- at once

cdef int publish_through(engine_t* engine, queue_t* queue, content_t* content, visited_t* visited) except -1:
    cdef entry_t entry
    cdef route_t* route
    cdef queue_t* namer
    # What came before it and is not routed yet goes first: user code raised, or the message is in a transaction.
    if engine.building or queue.held or queue.unrouted or queue.is_listed[DIRTY] or (
            content.has_trailer and (expires_of(content) < time_of(engine) or has_addresses(content))):
        enter(engine, queue, content, 0, 0, 0, NULL, visited)
        return 0
    memset(&entry, 0, sizeof(entry_t))
    queue.timestamp = max(queue.timestamp, now_of(engine))
    entry.id = queue.next_id
    entry.sequence = engine.sequence + 1
    entry.timestamp = queue.timestamp
    entry.content.loaded = content
    entry.queue = queue
    entry.state = UNROUTED
    engine.entered_stores = 0
    route = route_at_once(engine, &entry, visited)
    if route.copy_count and route.clause_count == 0 and copies_at_once(engine, &entry, route, visited):
        queue.settled += 1
    elif route.slot_count == 0 and dead_letter_of(engine, &entry, &namer) == NULL:
        queue.dropped[REASON_UNROUTABLE] += 1
        tally_flag(visited, OUTCOME_UNROUTABLE | OUTCOME_DROPPED)
    else:
        return enter_at_once(engine, &entry, route, visited)
    queue.next_id += 1
    queue.frontier = queue.next_id
    content_release(content)
    return 0


cdef inline route_t* route_at_once(engine_t* engine, entry_t* entry, visited_t* visited) except NULL:
    """The route of the message. One whose address was seen before, in the same str, costs a look."""
    cdef Plan plan = <Plan> entry.queue.plan
    cdef known_t* known
    if not plan.stale:
        if plan.route_of_all != NULL and plan.route_of_all.slot_count:
            return plan.route_of_all
        known = known_place(entry.queue, <object> entry.content.loaded.address)
        if known != NULL and known.address == entry.content.loaded.address and known.route != NULL and known.route.slot_count:
            return known.route
    return route_evaluated(engine, plan, entry, visited)


cdef route_t* route_evaluated(engine_t* engine, Plan plan, entry_t* entry, visited_t* visited) except NULL:
    """The route, by evaluating conditions. If one is interrupted, the message enters unrouted; the next run looks at it."""
    cdef route_t* route = NULL
    try:
        route = plan.route(entry)
        if route.slot_count == 0 and plan.defaults:
            route = NULL
            entry.flags |= DEFAULTED
            route = plan.defaults_route(entry)
    finally:
        if route == NULL:
            mark_dirty(engine, entry.queue)
            enter(engine, entry.queue, content_share(entry.content.loaded), 0, 0, 0, NULL, visited)
            engine.interrupted = True
    return route


cdef bint copies_at_once(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1:
    """Whether one of the route's selectors copied. If memory ends, the engine is broken: some copies may be made."""
    cdef visited_t* own = visited_new(engine, entry.queue.slot) if visited == NULL else NULL
    cdef bint ended = False, copied = False
    try:
        copied = make_copies(engine, entry, route, own if visited == NULL else visited)
        ended = True
    finally:
        visited_release(engine, own)
        if not ended:
            engine.at_rest = BROKEN
    return copied


cdef int enter_at_once(engine_t* engine, const entry_t* instead, route_t* route, visited_t* visited) except -1:
    """Makes an entry of the message for which `instead` has stood, and routes it before all others."""
    cdef run_item_t item
    enter(engine, instead.queue, instead.content.loaded, 0, 0, instead.flags, NULL, visited)
    engine.run_queue_count -= 1         # it was the last one in
    item = engine.run_queue[(engine.run_queue_head + engine.run_queue_count) & engine.run_queue_mask]
    instead.queue.frontier = instead.queue.next_id
    try:
        return route_through(engine, item.entry, route, item.visited)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    finally:
        visited_release(engine, item.visited)


# ---- in its turn

cdef int route_through(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1:
    cdef Plan plan = <Plan> entry.queue.plan
    cdef bint defaulted = entry.flags & DEFAULTED
    cdef visited_t* own = NULL
    if visited == NULL:
        visited = own = visited_new(engine, entry.queue.slot)
    if has_addresses(content_at(entry)):
        route_by_all(engine, entry, visited)
    elif not acts(engine, entry, route, visited):
        if defaulted or not plan.defaults or not acts(engine, entry, plan.defaults_route(entry), visited):
            leave_ready(engine, entry)
            dead_letter(engine, entry, REASON_UNROUTABLE, None, visited)
    visited_release(engine, own)
    return 0


cdef bint acts(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1:
    """Whether an enabled selector of the route copies or discards; the entry is settled then."""
    cdef bint copied = route.copy_count and make_copies(engine, entry, route, visited)
    cdef selector_t* selector = NULL
    if route.clause_count:
        selector = choose(engine, route.clauses, route.clause_count, entry, UNLIMITED)
    if selector != NULL:
        take(engine, selector, entry, visited)
        return True
    if copied:
        leave_ready(engine, entry)
        settle(engine, entry, PROCESSED, 0)
    return copied


# ---- by several addresses

cdef inline bint has_addresses(const content_t* content) noexcept:
    return annex_of(content) != NULL and annex_of(content).has_addresses


cdef int route_by_all(engine_t* engine, entry_t* entry, visited_t* visited) except -1:
    """Routes a message by its address and the further ones: by the ordinary selectors, or by the default one if no address hits
    any of those. If a condition is interrupted, the next run goes on with the message; copies that it has made stay."""
    cdef content_t* content = content_share(content_at(entry))
    cdef list addresses = [<object> content.address, *annex_addresses(annex_of(content))]
    cdef selector_t* discards = NULL
    cdef bint ended = False, defaults
    cdef int acted = False
    engine.original = content
    try:
        for defaults in range(2):
            entry.flags = entry.flags | DEFAULTED if defaults else entry.flags & ~DEFAULTED
            for address in addresses:
                acted |= acts_by(engine, entry, address, defaults, visited, &discards)
            if acted or discards != NULL or not (<Plan> entry.queue.plan).defaults:
                break
        ended = True
    finally:
        engine.original = NULL
        content_release(content)
        if not ended:
            apart_add(entry)
            suspend(engine, entry, visited)
            mark_dirty(engine, entry.queue)
    if discards != NULL:
        return take(engine, discards, entry, visited)
    leave_ready(engine, entry)
    return settle(engine, entry, PROCESSED, 0) if acted else dead_letter(engine, entry, REASON_UNROUTABLE, None, visited)


cdef bint acts_by(
    engine_t* engine, entry_t* entry, object address, bint defaults, visited_t* visited, selector_t** discards
) except -1:
    """Makes the copies that one address hits. Whether there was a selector to make any; `discards` gets one that discards."""
    cdef Plan plan = <Plan> entry.queue.plan
    cdef content_t* made = content_readdressed(engine.original, address)
    cdef route_t* route
    cdef bint copied
    entry.content.loaded = made         # the entry's own reference is with `original` meanwhile
    try:
        route = plan.defaults_route(entry) if defaults else plan.route(entry)
        copied = route.copy_count and make_copies(engine, entry, route, visited)
        if route.clause_count and discards[0] == NULL:
            discards[0] = choose(engine, route.clauses, route.clause_count, entry, UNLIMITED)
    finally:
        entry.content.loaded = engine.original
        content_release(made)
    return copied
