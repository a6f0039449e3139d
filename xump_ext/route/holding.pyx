"""Holding a queue, from which nothing leaves then, and the end of that."""

from xump_ext.select.clause cimport Clause
from xump_ext.select.credit cimport lane_wake, source_waiters_wake, wake_where_room_varies
from xump_ext.select.plan cimport Plan
from xump_ext.state.graph cimport lane_t
from xump_ext.state.queue_lists cimport mark_dirty


cdef int hold(engine_t* engine, queue_t* queue) except -1:
    """Nothing leaves the queue from here on. Where its selectors stand in line for room, those behind them may go on."""
    queue.held = True
    if engine.building:
        source_waiters_wake(engine, queue)
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
    return source_waiters_wake(engine, queue)
