"""Verifies that nothing is left to be done, and that blocked selectors are in the right waiting lists.

When all is quiet, a selector that can take and has a message to take stands in the waiting list of a queue without room for it
(rules 4, 5). Inside `building()` nothing moves. Then all that could go on must be remembered: the queue is dirty, the new clause
is pending, or the lane or waiting list is in the engine's heap `runnable`.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.check.structure cimport broken, of_entry, of_queue, of_selector
from xump_ext.check.waiting cimport oldest
from xump_ext.check.waitsets cimport next_in
from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.engine.windows cimport WindowHandle
from xump_ext.memory.heap cimport heap_t
from xump_ext.records.kinds cimport group_record_t
from xump_ext.route.gather cimport has_acted
from xump_ext.select.credit cimport can_take, has_room, lane_of, overflow_has_room
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.select.unrouted cimport is_kept
from xump_ext.state.constants cimport APART, DIRTY, FIELD_NONE, ROOM_VARIES, SUSPENDED, UNROUTED
from xump_ext.state.envelope cimport names_queue_now, queue_named
from xump_ext.state.graph cimport entry_t, lane_t, queue_t, selector_t, waiter_t, waitset_t
from xump_ext.state.index cimport cursor_start, cursor_step, cursor_t
from xump_ext.state.waiter_table cimport waiter_in


cdef int check_quiet(Books books) except -1:
    """All checks of this file; they rely on the books (counters and links) being right."""
    cdef QueueHandle handle
    cdef WindowHandle window
    check_all_waiters(books)
    check_run_queue(books)
    for handle in books.core._queues.values():
        check_unrouted(books, handle.queue)
        if not handle.queue.held:
            check_parked(books, <Plan> handle.queue.plan)
            check_lanes(<Plan> handle.queue.plan)
        check_first_waiter(handle.queue)
    for window in books.core._windows.values():
        check_first_waiter(&window.gate)
    return 0


# ---- waiting lists

cdef int check_all_waiters(Books books) except -1:
    """Each waiter of a waiting list is one of its selector's, and the other way round."""
    cdef QueueHandle handle
    cdef SelectorHandle number
    cdef WindowHandle window
    cdef waiter_t* waiter
    cdef waiter_t* before
    cdef uint32_t count
    cdef set waiters = set()
    for handle in books.core._queues.values():
        check_waiters(books, handle.queue, waiters)
    for window in books.core._windows.values():
        check_waiters(books, &window.gate, waiters)
    for number in books.core._selectors.values():
        waiter = number.selector.waiters
        before = NULL
        count = 0
        while waiter != NULL:
            if <uintptr_t> waiter not in waiters:
                raise broken("Links", of_selector(number.selector), "one of its waiters is in no waiting list, or in one twice")
            waiters.remove(<uintptr_t> waiter)
            if waiter.selector != number.selector or waiter_in(number.selector, waiter.target) != waiter:
                raise broken(
                    "Once", of_selector(number.selector), f"it stands twice in the waiting list of {of_queue(waiter.target)}")
            if waiter.previous_of_selector != before:
                raise broken("Links", of_selector(number.selector), "one of its waiters is not linked back")
            count += 1
            before = waiter
            waiter = waiter.next_of_selector
        if number.selector.waiter_count != count:
            raise broken(
                "Recount", of_selector(number.selector), f"{number.selector.waiter_count} waiters, found {count}")
    if waiters:
        raise broken("Links", "engine", f"{len(waiters)} waiters belong to no selector")
    return 0


cdef int check_waiters(Books books, queue_t* queue, set waiters) except -1:
    cdef waiter_t* waiter = queue.waiters_head
    cdef waiter_t* before = NULL
    cdef uint32_t own_room = 0
    cdef bint by_field
    where = f"{of_queue(queue)}, its waiting list"
    while waiter != NULL:
        if waiter.previous != before or waiter.target != queue or <uintptr_t> waiter.selector not in books.selectors:
            raise broken("Links", where, "a waiter is not linked back, or is in another list")
        if not waiter.selector.puts or (waiter.selector.target != queue and waiter.selector.to_queue.kind == FIELD_NONE):
            raise broken("Links", where, f"{of_selector(waiter.selector)} does not put anything here")
        waiters.add(<uintptr_t> waiter)
        own_room += waiter.selector.source == queue or (
            queue.overflow != NULL and queue.overflow.target == waiter.selector.source)
        before = waiter
        waiter = waiter.next
    if queue.waiters_tail != before:
        raise broken("Links", where, "its last waiter is not in it")
    by_field = queue.overflow != NULL and (
        queue.overflow.to_queue.kind != FIELD_NONE or queue.overflow.to_destination.kind != FIELD_NONE)
    if queue.own_room != own_room:
        raise broken("Recount", where, f"{queue.own_room} waiters make their own room, found {own_room}")
    if queue.short and (before == NULL or not may_be_short(queue)):
        raise broken("Links", where, "it lacks room in a store, though it is in none, or no selector waits for that")
    if queue.is_listed[ROOM_VARIES] != (before != NULL and (by_field or own_room > 0 or queue.short)):
        raise broken("Links", where, "its flag and the list of queues that room elsewhere may help disagree")
    return 0


cdef bint may_be_short(const queue_t* queue) noexcept:
    return queue.durable or (queue.overflow != NULL and queue.overflow.target != NULL and queue.overflow.target.durable)


# ---- Quiet

cdef int check_run_queue(Books books) except -1:
    """Between calls the run queue is empty. Lanes and waiting lists may be runnable only while the engine is not quiet."""
    cdef uint64_t i
    cdef entry_t* entry
    if books.e.run_queue_count or books.e.parked_count:
        raise broken("Quiet", "engine", f"{books.e.run_queue_count + books.e.parked_count} messages are still to be routed")
    if books.e.backlogs.count:
        raise broken("Quiet", "engine", f"{books.e.backlogs.count} backlogs are still to be routed")
    if books.quiet and (books.e.runnable.count or books.e.suspended_count):
        raise broken("Quiet", "engine", f"{books.e.runnable.count} lanes or waiting lists are runnable, "
                     f"{books.e.suspended_count} visited sets have not ended")
    if books.quiet and books.e.run_start != books.e.sequence + 1:
        raise broken("Quiet", "engine", f"the run that began at {books.e.run_start} has not ended at {books.e.sequence}")
    for i in range(books.e.suspended_count):
        entry = books.e.suspended[i].entry
        if books.e.suspended[i].visited == NULL or books.e.suspended[i].visited.references < 1:
            raise broken("Links", "engine", "a visited set that goes on is missing")
        if entry != NULL and (not entry.flags & SUSPENDED or entry.below.position != i + 1):
            raise broken("Links", of_entry(entry), "its visited set goes on, though its flag says that it does not")
    return 0


cdef int check_unrouted(Books books, queue_t* queue) except -1:
    """No unrouted entry is before the frontier, and each is routed when it may be."""
    cdef cursor_t at = cursor_start(queue)
    cdef entry_t* entry = cursor_step(&at)
    if not 0 < queue.frontier <= queue.next_id:
        raise broken("Order", of_queue(queue), f"its frontier is {queue.frontier}, the next id {queue.next_id}")
    while entry != NULL:
        if entry.state == UNROUTED:
            if entry.id < queue.frontier and not entry.flags & APART:
                raise broken("Order", of_entry(entry), f"it is not routed, and the frontier is {queue.frontier}")
            if queue.active and not queue.held and not is_kept(entry) and (books.quiet or not queue.is_listed[DIRTY]):
                raise broken("Quiet", of_entry(entry), "it can be routed")
        if entry.flags & SUSPENDED and books.e.suspended[entry.below.position - 1].entry != entry:
            raise broken("Links", of_entry(entry), "its visited set is that of another message")
        entry = cursor_step(&at)
    return 0


cdef int check_parked(Books books, Plan plan) except -1:
    """No selector in the hit set of a parked message may act on it."""
    cdef waitset_t* waitset = plan.queue.waitsets
    cdef entry_t* entry
    cdef uint32_t i
    while waitset != NULL:
        if waitset.parked and (books.quiet or not plan.queue.is_listed[DIRTY]):
            entry = next_in(waitset, NULL)
            while entry != NULL:
                for i in range(waitset.slot_count):
                    if clause_may_act(<Clause> plan.by_slot[waitset.slots[i]], entry):
                        raise broken(
                            "Quiet", of_entry(entry), f"it was parked with clause {waitset.slots[i]}, which may act on it")
                entry = next_in(waitset, entry)
        waitset = waitset.next
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
            if has_acted(selector, entry):
                return True
        elif selector.enabled and names_queue_now(selector, entry):
            return True
    return False


cdef int check_lanes(Plan plan) except -1:
    """A selector that can take has taken the messages that wait for it, or stands in the waiting list of their target."""
    cdef Clause clause
    cdef lane_t* lane
    cdef uint32_t i
    for clause in plan.clauses.values():
        lane = clause.c.lanes
        while lane != NULL:
            entry = oldest(lane)
            for i in range(clause.c.count if entry != NULL and not comes_next(lane) and clause not in plan.pending else 0):
                if can_take(clause.c.selectors[i]):
                    check_runnable(clause.c.selectors[i], entry, lane)
            if lane.closed:
                check_closed(clause, lane)
            lane = lane.next
    return 0


cdef bint comes_next(const lane_t* lane) noexcept:
    """Whether the run will look at the lane: it is runnable, or it is open and the first open lane of its clause is runnable."""
    cdef heap_t* open = &lane.clause.open
    return lane.runnable.position or (lane.open.position and (<lane_t*> open.nodes[0].owner).runnable.position)


cdef int check_closed(Clause clause, lane_t* lane) except -1:
    """Each selector that was ready when the lane was closed, or later, stands in the waiting list of the lane's target."""
    cdef queue_t* target = queue_named(lane.queue.engine, <object> lane.target)
    cdef selector_t* selector
    cdef uint32_t i
    for i in range(clause.c.count if target != NULL else 0):
        selector = clause.c.selectors[i]
        if (selector.ready.position or selector.refusals >= lane.closed) and waiter_in(selector, target) == NULL:
            raise broken("Quiet", of_selector(selector), f"it is not in the waiting list of {of_queue(target)}, whose lane "
                         "is closed")
    return 0


cdef int check_runnable(selector_t* selector, entry_t* entry, lane_t* lane) except -1:
    cdef queue_t* target = selector.target
    if not selector.puts:
        raise broken("Quiet", of_entry(entry), f"{of_selector(selector)} is able to take it")
    if lane.target != NULL:
        target = queue_named(lane.queue.engine, <object> lane.target)
    if target != NULL and waiter_in(selector, target) == NULL:
        raise broken("Quiet", of_entry(entry), f"{of_selector(selector)} has credit for it, and is not in the waiting "
                     f"list of {of_queue(target)}")
    return 0


cdef int check_first_waiter(queue_t* queue) except -1:
    """There is no room for the message of the first waiter, unless the run comes to its lane at the end of the building block.
    Waiters without a message stay in the list until there is room. A message that ended in a store gives room when its end is
    written, and the store has said so."""
    cdef waiter_t* waiter = queue.waiters_head
    cdef entry_t* entry
    if queue.runnable.position or (queue.durable and (queue.store.room_is_old or queue.store.size > sizeof(group_record_t))):
        return 0
    while waiter != NULL:
        entry = wanted(waiter)
        if entry != NULL:
            if has_room(queue, entry, waiter.selector) and not comes_next(lane_of(waiter.selector, queue)):
                raise broken("Quiet", of_entry(entry), f"{of_selector(waiter.selector)} stands first in the waiting list of "
                             f"{of_queue(queue)}, where there is room for it")
            return 0
        if not has_room_for_any(queue):
            return 0
        waiter = waiter.next
    return 0


cdef entry_t* wanted(const waiter_t* waiter) except? NULL:
    """The entry that the waiter's selector would put there now, or NULL."""
    cdef lane_t* lane
    if not can_take(waiter.selector) or waiter.selector.source.held:
        return NULL
    lane = lane_of(waiter.selector, waiter.target)
    return NULL if lane == NULL else oldest(lane)


cdef bint has_room_for_any(queue_t* queue) except -1:
    cdef selector_t* overflow = queue.overflow
    if queue.ready < queue.limit:
        return True
    if overflow == NULL or overflow.to_queue.kind != FIELD_NONE or overflow.to_destination.kind != FIELD_NONE:
        return False
    return overflow_has_room(queue, NULL, NULL)
