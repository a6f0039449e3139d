"""Messages that no selector matches: which are dead letters, and which are kept until a selector comes (rule 6)."""

from libc.stdint cimport uint32_t

from xump_ext.log.fences cimport log_mark
from xump_ext.route.ledger cimport dead_letter, letters_would_take
from xump_ext.route.ready cimport leave_ready
from xump_ext.select.plan cimport Plan
from xump_ext.select.unrouted cimport apart_remove, kept_add
from xump_ext.state.constants cimport KEPT_BEFORE, KEPT_NEVER, LOGGED_NOTHING, NEVER, REASON_UNROUTABLE, SUSPENDED
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.returned_heap cimport returned_merge
from xump_ext.state.run_queue cimport forget_suspended, suspend


cdef int route_unmatched(engine_t* engine, entry_t* entry, visited_t* visited) except -1:
    """No selector matches the entry: it is dead-lettered, dropped, or kept until one does (rule 6, amended).

    A message that waited when the engine was quiet is never dropped for that, nor because the dead letter queue has no room.
    """
    cdef queue_t* queue = entry.queue
    if queue.keeps_unmatched or (entry.extra != NULL and entry.extra.kept != KEPT_NEVER) or (
            has_waited(engine, entry) and not letters_would_take(engine, entry)):
        if entry.flags & SUSPENDED:
            forget_suspended(engine, entry)
        if visited != NULL:
            suspend(engine, entry, visited)
        kept_add(entry)
        return log_mark(entry) if queue.durable and entry.extra.logged == LOGGED_NOTHING else 0
    if not queue.has_warned and not letters_would_take(engine, entry):
        queue.has_warned = True
        (<list> engine.user_errors).append(((<object> queue.handle).name, <object> content_at(entry).address))
    leave_ready(engine, entry)
    return dead_letter(engine, entry, REASON_UNROUTABLE, None, visited)


cdef int keep_unmatched(queue_t* queue) except -1:
    """Selectors that came in this building block, or queues, have the kept messages of the queue tried at its end. Those that
    none of them matches are kept again at once, so that `get` gives them. O(messages that were kept)."""
    cdef Plan plan = <Plan> queue.plan
    cdef entry_t* entry
    cdef entry_t* next
    cdef uint32_t rank
    if not queue.active or queue.held or queue.apart == NULL or queue.apart.count == 0:
        return 0
    plan.extend_pending()
    for rank in range(queue.top_priority + 1):
        returned_merge(&queue.apart.levels[rank])
        entry = queue.apart.levels[rank].head
        while entry != NULL:
            next = entry.next
            if entry.extra != NULL and entry.extra.kept == KEPT_BEFORE and is_unmatched(plan, entry):
                apart_remove(entry)
                kept_add(entry)
            entry = next
    return 0


cdef bint is_unmatched(Plan plan, entry_t* entry) except -1:
    return plan.route(entry).slot_count == 0 and (not plan.defaults or plan.defaults_route(entry).slot_count == 0)


cdef bint has_waited(const engine_t* engine, const entry_t* entry) noexcept:
    """Whether it was ready already when the engine became quiet."""
    if entry.extra != NULL and entry.extra.delayed_until != NEVER:
        return entry.extra.ended.quiets != engine.quiets
    return entry.sequence < engine.run_start
