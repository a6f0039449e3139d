"""Holding a queue, from which nothing leaves then, and the end of that."""

from libc.stdint cimport uint32_t

from xump_ext.select.clause cimport Clause
from xump_ext.select.credit cimport lane_wake, waiters_wake, wake_where_room_varies
from xump_ext.select.plan cimport Plan
from xump_ext.state.graph cimport lane_t, waiter_t
from xump_ext.state.queue_lists cimport mark_dirty


cdef int hold(engine_t* engine, queue_t* queue) except -1:
    """Nothing leaves the queue from here on. Where its selectors stand in line for room, those behind them may go on."""
    queue.held = True
    if engine.building:
        lines_wake(engine, queue)
    return wake_where_room_varies(engine)


cdef int hold_for(engine_t* engine, queue_t* queue, object error) except -1:
    if not queue.held or not queue.has_awaiting:        # else that was said of an earlier one
        (<list> engine.user_errors).append(((<object> queue.handle).name, error))
    queue.has_awaiting = True
    return hold(engine, queue)


cdef int wake_everything(engine_t* engine, queue_t* queue) except -1:
    """Wakes all that waits or is parked in a queue, and every waiting list that its selectors are in: it is not held now."""
    cdef Plan plan = <Plan> queue.plan
    cdef Clause clause
    cdef lane_t* lane
    mark_dirty(engine, queue)       # that is where the next run looks for what was woken
    for clause in list(plan.clauses.values()):
        plan.wake_clause(clause, 0)
        lane = clause.c.lanes
        while lane != NULL:
            lane_wake(engine, lane)
            lane = lane.next
    return lines_wake(engine, queue)


cdef int lines_wake(engine_t* engine, queue_t* queue) except -1:
    """Has the waiting lists looked at in which selectors of this queue stand. In a building block a selector may have nothing to
    take now, and something again at its end: if a list has room for any message meanwhile, it leaves that."""
    cdef Clause clause
    cdef uint32_t i
    for clause in list((<Plan> queue.plan).clauses.values()):
        for i in range(clause.c.count):
            selector_lines_wake(engine, clause.c.selectors[i])
    return 0


cdef int selector_lines_wake(engine_t* engine, selector_t* selector) except -1:
    """The same for one selector."""
    cdef waiter_t* waiter = selector.waiters
    while waiter != NULL:
        waiters_wake(engine, waiter.target)
        waiter = waiter.next_of_selector
    return 0
