"""That nothing is left to be done, and who stands in which line for it (rules 4 and 5).

When all is quiet, whoever is able and has something to take stands in the line of a queue without room for it. Inside
`building()` nothing moves; then what could go on has to be remembered: a queue is stirred, a new clause is pending, a lane or
line is in `able`.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.check_structure cimport broken, of_entry, of_queue, of_selector
from xump_ext.check_waiting cimport next_in, oldest
from xump_ext.credit cimport has_room, is_able, overflow_has_room
from xump_ext.envelope cimport names_queue_now, queue_named
from xump_ext.faces cimport QueueFace, SelectorFace
from xump_ext.graph cimport (
    CHOOSY, FIELD_NONE, PAUSED, STIRRED, UNROUTED, entry_t, group_t, lane_t, place_t, queue_t, selector_t,
)
from xump_ext.heap cimport heap_t
from xump_ext.index cimport cursor_t, start, step
from xump_ext.places cimport place_in
from xump_ext.plan cimport Clause, Plan


cdef int check_quiet(Books books) except -1:
    """Everything in this file; relies on the books being right."""
    cdef QueueFace face
    check_lines(books)
    check_work(books)
    for face in books.core._queues.values():
        check_unrouted(books, face.queue)
        if not face.queue.held:
            check_parked(books, <Plan> face.queue.plan)
            check_lanes(<Plan> face.queue.plan)
        check_first_in_line(face.queue)
    return 0


# ---- lines

cdef int check_lines(Books books) except -1:
    """Each place in a line is its selector's, and the other way round."""
    cdef QueueFace face
    cdef SelectorFace number
    cdef place_t* place
    cdef place_t* before
    cdef uint32_t count
    cdef set places = set()
    for face in books.core._queues.values():
        check_line(books, face.queue, places)
    for number in books.core._selectors.values():
        place = number.selector.places
        before = NULL
        count = 0
        while place != NULL:
            if <uintptr_t> place not in places:
                raise broken("Links", of_selector(number.selector), "it has a place in no line, or one twice")
            places.remove(<uintptr_t> place)
            if place.selector != number.selector or place_in(number.selector, place.target) != place:
                raise broken("Once", of_selector(number.selector), f"it stands twice in the line of {of_queue(place.target)}")
            if place.another != before:
                raise broken("Links", of_selector(number.selector), "a place in a line is not linked back")
            count += 1
            before = place
            place = place.other
        if number.selector.place_count != count:
            raise broken("Recount", of_selector(number.selector), f"{number.selector.place_count} places in lines, found {count}")
    if places:
        raise broken("Links", "engine", f"{len(places)} places in lines belong to no selector")
    return 0


cdef int check_line(Books books, queue_t* queue, set places) except -1:
    cdef place_t* place = queue.line_head
    cdef place_t* before = NULL
    cdef uint32_t own_room = 0
    cdef bint by_field
    where = f"{of_queue(queue)}, its line"
    while place != NULL:
        if place.previous != before or place.target != queue or <uintptr_t> place.selector not in books.selectors:
            raise broken("Links", where, "a place is not linked back, or is that of another")
        if not place.selector.puts or (place.selector.target != queue and place.selector.to_queue.kind == FIELD_NONE):
            raise broken("Links", where, f"{of_selector(place.selector)} does not put anything here")
        places.add(<uintptr_t> place)
        own_room += place.selector.source == queue or (
            queue.overflow != NULL and queue.overflow.target == place.selector.source)
        before = place
        place = place.next
    if queue.line_tail != before:
        raise broken("Links", where, "its last place is not in it")
    by_field = queue.overflow != NULL and (
        queue.overflow.to_queue.kind != FIELD_NONE or queue.overflow.to_destination.kind != FIELD_NONE)
    if queue.own_room != own_room:
        raise broken("Recount", where, f"{queue.own_room} places make their own room, found {own_room}")
    if queue.short and (before == NULL or not may_be_short(queue)):
        raise broken("Links", where, "it lacks room in a store, and is in none, or nobody waits for that")
    if queue.is_listed[CHOOSY] != (before != NULL and (by_field or own_room > 0 or queue.short)):
        raise broken("Links", where, "room elsewhere may be room for it, and it is not listed for that, or the other way round")
    return 0


cdef bint may_be_short(const queue_t* queue) noexcept:
    return queue.durable or (queue.overflow != NULL and queue.overflow.target != NULL and queue.overflow.target.durable)


# ---- Quiet

cdef int check_work(Books books) except -1:
    """Between calls there is no work, unless a call that raised had stirred a queue: that excuses nothing then."""
    cdef uint64_t i
    cdef entry_t* entry
    if books.e.work_count or books.e.parked_count:
        raise broken("Quiet", "engine", f"{books.e.work_count + books.e.parked_count} messages are still to be routed")
    if books.e.backlogs.count:
        raise broken("Quiet", "engine", f"{books.e.backlogs.count} backlogs are still to be routed")
    if books.quiet and (books.e.able.count or books.e.pause_count):
        raise broken("Quiet", "engine", f"{books.e.able.count} lanes or lines may go on, {books.e.pause_count} trips have not "
                     "ended")
    if books.quiet and books.e.run_start != books.e.sequence + 1:
        raise broken("Quiet", "engine", f"the run that began at {books.e.run_start} has not ended at {books.e.sequence}")
    for i in range(books.e.pause_count):
        entry = books.e.pauses[i].entry
        if books.e.pauses[i].trip == NULL or books.e.pauses[i].trip.references < 1:
            raise broken("Links", "engine", "a trip that goes on is not there")
        if entry != NULL and (not entry.flags & PAUSED or <uintptr_t> entry.child != i + 1):
            raise broken("Links", of_entry(entry), "its trip goes on, and it does not know")
    return 0


cdef int check_unrouted(Books books, queue_t* queue) except -1:
    """What is not routed is behind the frontier, and will be routed when it may."""
    cdef cursor_t at = start(queue)
    cdef entry_t* entry = step(&at)
    if not 0 < queue.frontier <= queue.next_id:
        raise broken("Order", of_queue(queue), f"its frontier is {queue.frontier}, the next id {queue.next_id}")
    while entry != NULL:
        if entry.state == UNROUTED:
            if entry.id < queue.frontier:
                raise broken("Order", of_entry(entry), f"it is not routed, and the frontier is {queue.frontier}")
            if queue.active and not queue.held and (books.quiet or not queue.is_listed[STIRRED]):
                raise broken("Quiet", of_entry(entry), "it can be routed")
        if entry.flags & PAUSED and books.e.pauses[<uintptr_t> entry.child - 1].entry != entry:
            raise broken("Links", of_entry(entry), "the trip that goes on with it is that of another")
        entry = step(&at)
    return 0


cdef int check_parked(Books books, Plan plan) except -1:
    """Nobody in the hit set of a parked message may act on it."""
    cdef group_t* group = plan.queue.groups
    cdef entry_t* entry
    cdef uint32_t i
    while group != NULL:
        if group.parked and (books.quiet or not plan.queue.is_listed[STIRRED]):
            entry = next_in(group, NULL)
            while entry != NULL:
                for i in range(group.slot_count):
                    if clause_may_act(<Clause> plan.by_slot[group.slots[i]], entry):
                        raise broken("Quiet", of_entry(entry), f"it was parked with clause {group.slots[i]}, which may act on it")
                entry = next_in(group, entry)
        group = group.next
    return 0


cdef bint clause_may_act(Clause clause, entry_t* entry) except -1:
    cdef selector_t* selector
    cdef uint32_t i
    for i in range(clause.c.count):
        selector = clause.c.selectors[i]
        if clause.c.consuming:
            if selector.enabled:
                return True
        elif entry.id < selector.start:
            if entry.id >= selector.replayed:
                return True
        elif selector.enabled and names_queue_now(selector, entry):
            return True
    return False


cdef int check_lanes(Plan plan) except -1:
    """Whoever is able has taken what waits for it, or stands in the line where that would go."""
    cdef Clause clause
    cdef lane_t* lane
    cdef uint32_t i
    for clause in plan.clauses.values():
        lane = clause.c.lanes
        while lane != NULL:
            entry = oldest(lane)
            for i in range(clause.c.count if entry != NULL and not comes_next(lane) and clause not in plan.pending else 0):
                if is_able(clause.c.selectors[i]):
                    check_able(clause.c.selectors[i], entry, lane)
            if lane.closed:
                check_closed(clause, lane)
            lane = lane.next
    return 0


cdef bint comes_next(const lane_t* lane) noexcept:
    """Whether the lane will be looked at: it may go on, or is open and the first of those may."""
    cdef heap_t* open = &lane.clause.open
    return lane.able.position or (lane.open.position and (<lane_t*> open.nodes[0].owner).able.position)


cdef int check_closed(Clause clause, lane_t* lane) except -1:
    """Whoever was ready when the lane was closed, or later, stands in the line of its target."""
    cdef queue_t* target = queue_named(lane.queue.engine, <object> lane.target)
    cdef selector_t* selector
    cdef uint32_t i
    for i in range(clause.c.count if target != NULL else 0):
        selector = clause.c.selectors[i]
        if (selector.ready.position or selector.refusals >= lane.closed) and place_in(selector, target) == NULL:
            raise broken("Quiet", of_selector(selector), f"it does not stand in the line of {of_queue(target)}, whose lane "
                         "is closed")
    return 0


cdef int check_able(selector_t* selector, entry_t* entry, lane_t* lane) except -1:
    cdef queue_t* target = selector.target
    if not selector.puts:
        raise broken("Quiet", of_entry(entry), f"{of_selector(selector)} is able to take it")
    if lane.target != NULL:
        target = queue_named(lane.queue.engine, <object> lane.target)
    if target != NULL and place_in(selector, target) == NULL:
        raise broken("Quiet", of_entry(entry), f"{of_selector(selector)} has credit for it, and does not stand in the line of "
                     f"{of_queue(target)}")
    return 0


cdef int check_first_in_line(queue_t* queue) except -1:
    """There is no room for what the first in line would put here. Who has nothing to put stands there until there is room."""
    cdef place_t* place = queue.line_head
    cdef entry_t* entry
    if queue.able.position:
        return 0
    while place != NULL:
        entry = wanted(place)
        if entry != NULL:
            if has_room(queue, entry, place.selector):
                raise broken("Quiet", of_entry(entry), f"{of_selector(place.selector)} stands first in the line of "
                             f"{of_queue(queue)}, where there is room for it")
            return 0
        if not has_room_for_any(queue):
            return 0
        place = place.next
    return 0


cdef entry_t* wanted(const place_t* place) except? NULL:
    """What the selector would put there now, or NULL."""
    cdef Clause clause = <Clause> place.selector.clause.face
    if not is_able(place.selector) or place.selector.source.held:
        return NULL
    found = clause.lanes.get((<QueueFace> place.target.face).name if clause.c.names_queue else None)
    return NULL if found is None else oldest(<lane_t*> <uintptr_t> found)


cdef bint has_room_for_any(queue_t* queue) except -1:
    cdef selector_t* overflow = queue.overflow
    if queue.ready < queue.limit:
        return True
    if overflow == NULL or overflow.to_queue.kind != FIELD_NONE or overflow.to_destination.kind != FIELD_NONE:
        return False
    return overflow_has_room(queue, NULL, NULL)
