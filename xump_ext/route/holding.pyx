"""Holding a queue, from which nothing leaves then, and the end of that."""

from libc.stdint cimport uint32_t

from xump_ext.select.clause cimport Clause
from xump_ext.select.credit cimport lane_wake, wake_where_it_waits
from xump_ext.select.plan cimport Plan
from xump_ext.state.graph cimport lane_t


cdef int hold(engine_t* engine, queue_t* queue) except -1:
    """Nothing leaves the queue from here on. Where its selectors stand in line for room, those behind them may go on."""
    queue.held = True
    return wake_waiting_lists(engine, queue)


cdef int wake_everything(engine_t* engine, queue_t* queue) except -1:
    """Wakes all that waits or is parked in a queue, and every waiting list that its selectors are in: it is not held now."""
    cdef Plan plan = <Plan> queue.plan
    cdef Clause clause
    cdef lane_t* lane
    for clause in list(plan.clauses.values()):
        plan.wake_clause(clause, 0)
        lane = clause.c.lanes
        while lane != NULL:
            lane_wake(engine, lane)
            lane = lane.next
    return wake_waiting_lists(engine, queue)


cdef int wake_waiting_lists(engine_t* engine, queue_t* queue) except -1:
    """Wakes every waiting list that the queue's selectors are in."""
    cdef Clause clause
    cdef uint32_t i
    for clause in list((<Plan> queue.plan).clauses.values()):
        for i in range(clause.c.count):
            wake_where_it_waits(engine, clause.c.selectors[i])
    return 0
