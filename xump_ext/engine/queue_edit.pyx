"""Creates and deletes queues, and deletes selectors and messages (rules 9, 13, 14).

A deletion has two halves. First every link is undone, through all queues that delete themselves for it: children downstream are
taken back, and their parents wait again. Then the books (counters and links) are right, and the caller drives the run.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc

from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.engine.selector_edit cimport selector_end
from xump_ext.errors import no_rewriter
from xump_ext.log.adopt cimport adopted_gone, adoptions_end
from xump_ext.log.append cimport log_queue, log_queue_gone
from xump_ext.log.journal cimport Journal
from xump_ext.log.owners cimport owner_settled
from xump_ext.memory.heap cimport heap_free, heap_root, node_t
from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.message.rewriter cimport Rewriter, rewriter_named
from xump_ext.records.record cimport incarnation_new
from xump_ext.route.offering cimport room_left, unbind
from xump_ext.route.ready cimport leave_ready
from xump_ext.route.requeue cimport recall, requeue_entry
from xump_ext.route.settling cimport DELETED, settle
from xump_ext.select.credit cimport lane_wake, waiter_leave, waiters_wake, wake_where_room_varies
from xump_ext.select.groups cimport groups_free
from xump_ext.select.lanes cimport lane_open
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.select.runnable cimport runnable_remove
from xump_ext.select.unrouted cimport apart_free, kept_try
from xump_ext.state.constants cimport (
    BOUND, BROKEN, DEDUP_LIMIT_DEFAULT, FIELD_NONE, HISTORY, MOVED, NEVER, OFFERED, OWNED, QUEUED, QUEUE_LISTS, ROOM_VARIES,
    SPECIAL_ENTERED, SPECIAL_NOT, SPECIAL_PUBLISHED, SUSPENDED, TAKEN, TIME_UNREAD, UNLIMITED, WAITERS,
)
from xump_ext.state.drop_order cimport drop_order_free
from xump_ext.state.envelope cimport QueueRef, field_free, field_set
from xump_ext.state.graph cimport lane_t
from xump_ext.state.index cimport entry_free, index_free, index_from, list_remove
from xump_ext.state.lazy_content cimport content_drop, fetched_forget
from xump_ext.state.limits cimport limit_changed
from xump_ext.state.queue_lists cimport mark_dirty, queue_unlist
from xump_ext.state.returned_heap cimport returned_free
from xump_ext.state.run_queue cimport parked_forget
from xump_ext.state.window cimport window_free, window_new, window_t


cdef queue_t* queue_create(
    engine_t* engine, QueueHandle handle, dict properties, list spare_slots, Journal journal, uint32_t number
) except NULL:
    """Create a queue, and make it known by its name. Messages may be waiting for it (rule 14).

    `properties`: checked, as `QueueHandle._properties` gives them; one that is left out has its default value.
    `journal`: of its store, if that is durable. `number`: the queue's number there; 0: it is new.
    """
    cdef uint32_t own = number if journal is None or number else journal.number_new()
    cdef queue_t* queue = queue_new(properties)
    cdef Plan plan = Plan.__new__(Plan)
    cdef QueueRef other
    queue.incarnation = incarnation_new()
    if spare_slots and engine.suspended_count == 0 and engine.run_queue_count == 0 and engine.backlogs.count == 0:
        queue.slot = spare_slots.pop()
    else:       # a visited set that goes on may have the spare number, for the queue that had it
        queue.slot = len(<dict> engine.queues) + len(spare_slots)
    queue.engine = engine
    queue.handle = <void*> handle
    queue.plan = <void*> plan
    plan.queue = queue
    plan.engine = engine
    handle.plan = plan
    handle.queue = queue
    (<dict> engine.queues)[handle.name] = handle
    if journal is not None:
        journal.attach(queue, own)
        if number == 0:
            log_queue(queue)
    try:
        if engine.lists[ROOM_VARIES] != NULL:    # an overflow selector may have waited for it
            wake_where_room_varies(engine)
        waited = (engine.watched or engine.field_copies) and not queue.staged
        for other in list((<dict> engine.queues).values()) if waited else ():
            if other.queue.watched:
                (<Plan> other.queue.plan).queue_created(queue, handle.name)
                wake_named(engine, <Plan> other.queue.plan, handle.name)
            if other.queue.field_copies and (<Plan> other.queue.plan).wake_copies():
                mark_dirty(engine, other.queue)
            if (other.queue.watched or other.queue.field_copies) and kept_try(other.queue):
                mark_dirty(engine, other.queue)
    except BaseException:       # a condition was interrupted: take the queue away again
        queue_delete(engine, queue, (<EngineLock> engine.handle)._selectors, spare_slots)
        raise
    return queue


cdef queue_t* queue_new(dict properties) except NULL:
    """An empty queue with these properties, which no engine knows yet."""
    cdef queue_t* queue = <queue_t*> cell_zeroed(sizeof(queue_t))
    queue.next_id = 1
    queue.timestamp = TIME_UNREAD
    queue.frontier = 1
    queue.ttl = queue.dedup = NEVER
    queue.dedup_limit = DEDUP_LIMIT_DEFAULT
    queue.limit_bytes = queue.limit_given = UNLIMITED
    try:
        queue_describe(queue, properties)
        limit_changed(queue)
        queue_order(queue)
    except BaseException:
        queue_forget(queue)
        raise
    return queue


cdef int queue_describe(queue_t* queue, dict properties) except -1:
    for name, value in properties.items():
        if name == "limit":
            queue.limit_given = UNLIMITED if value is None else value
        elif name == "history_limit":
            queue.history_limit = UNLIMITED if value is None else value
        elif name == "delivery_limit":
            queue.delivery_limit = value or 0
        elif name == "auto_delete":
            queue.auto_delete = <bint> value
        elif name == "dead_letter" and value is not None:
            Py_INCREF(value)
            queue.dead_letter = <void*> value
        elif name == "rewriter" and value is not None:
            rewriter_set(queue, value)
        elif name == "retry_delay" and value is not None:
            retry_delays_set(queue, value)
        elif name == "ttl":
            queue.ttl = NEVER if value is None else value
        elif name == "priority":
            queue.top_priority = value or 0
        elif name == "group":
            field_set(&queue.group_field, value)
        elif name == "dedup":
            queue.dedup = NEVER if value is None else value
        elif name == "dedup_limit":
            queue.dedup_limit = value
        elif name == "limit_bytes":
            queue.limit_bytes = UNLIMITED if value is None else value
        elif name == "when_full":
            queue.drops_to_fit = value == "drop_to_fit"
            queue.drops_oldest = queue.drops_to_fit or value == "drop_oldest"
        elif name == "unmatched":
            queue.keeps_unmatched = value == "keep"
        elif name == "transit":
            queue.transit = <bint> value
        elif name == "staged":
            queue.staged = queue.held = value
    return 0


cdef int queue_order(queue_t* queue) except -1:
    """Prepare the queue for the order that its properties ask for."""
    if queue.group_field.kind != FIELD_NONE:
        groups = {}
        Py_INCREF(groups)
        queue.groups = <void*> groups
    if queue.top_priority or queue.groups != NULL:
        queue.places = 2 * (queue.top_priority + 1)
    if queue.dedup != NEVER:
        queue.window = <void*> window_new(queue.dedup, queue.dedup_limit, incarnation_new(), incarnation_new())
    if queue.places or queue.ttl != NEVER or queue.limit_bytes != UNLIMITED or queue.drops_oldest or queue.transit or (
            queue.staged):
        queue.special = SPECIAL_ENTERED
    else:
        queue.special = SPECIAL_NOT if queue.window == NULL else SPECIAL_PUBLISHED
    queue.uncommon = queue.special != SPECIAL_NOT or queue.durable
    queue.active = queue.transit
    return 0


cdef int rewriter_set(queue_t* queue, tuple given) except -1:
    """`given`: the name of a registered rewriter, and its argument."""
    cdef Rewriter rewriter
    cdef str name, argument
    name, argument = given
    rewriter = rewriter_named(name)
    if rewriter is None:
        raise no_rewriter(name)
    Py_INCREF(rewriter)
    Py_INCREF(argument)
    queue.rewriter, queue.rewriter_argument = <void*> rewriter, <void*> argument
    return 0


cdef int retry_delays_set(queue_t* queue, tuple delays) except -1:
    cdef uint32_t i
    queue.retry_delays = <int64_t*> malloc(len(delays) * sizeof(int64_t))
    if queue.retry_delays == NULL:
        raise MemoryError()
    queue.retry_count = <uint32_t> len(delays)
    for i in range(queue.retry_count):
        queue.retry_delays[i] = delays[i]
    return 0


cdef int queue_forget(queue_t* queue) except -1:
    """Free the struct, and what its properties own."""
    Py_XDECREF(<PyObject*> queue.dead_letter)
    Py_XDECREF(<PyObject*> queue.rewriter)
    Py_XDECREF(<PyObject*> queue.rewriter_argument)
    Py_XDECREF(<PyObject*> queue.meta)
    Py_XDECREF(<PyObject*> queue.adoptions)
    field_free(&queue.group_field)
    free(queue.retry_delays)
    drop_order_free(queue)
    if queue.window != NULL:
        window_free(<window_t*> queue.window)
    cell_put(queue, sizeof(queue_t))
    return 0


cdef int wake_named(engine_t* engine, Plan plan, object name) except -1:
    """A queue was created that messages name: wake the lanes in which they wait for it."""
    cdef Clause clause
    cdef lane_t* lane
    for clause in list(plan.clauses.values()):
        found = clause.lanes.get(name) if clause.c.names_queue else None
        if found is not None:
            lane = <lane_t*> <size_t> found
            lane_open(lane)
            lane_wake(engine, lane)
    return 0


cdef list queue_delete(engine_t* engine, queue_t* queue, dict selectors, list spare_slots):
    """Delete the queue, its selectors, and every queue that deletes itself for it; return the names of the queues."""
    cdef list doomed = [<object> queue.handle], names = []
    queue.dying = True
    engine.building += 1        # what comes back, or is dead-lettered, is routed by the graph that is left
    try:
        while doomed:
            queue = (<QueueRef> doomed.pop()).queue
            queue_unlink(engine, queue, selectors, doomed)
            if queue.adopter != NULL:
                adopted_gone(queue)
            if queue.adoptions != NULL:
                doomed += adoptions_end(queue)
            names.append((<object> queue.handle).name)
            queue_free(engine, queue, spare_slots)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    finally:
        engine.building -= 1
    return names


cdef int queue_unlink(engine_t* engine, queue_t* queue, dict selectors, list doomed) except -1:
    """Delete its selectors, and recall the messages that have an unpaid parent elsewhere."""
    cdef SelectorHandle handle
    cdef entry_t* entry
    cdef entry_t* next
    cdef entry_t* parent
    for handle in selectors_about(queue):
        if handle.selector != NULL:
            selector_end(engine, handle.selector, selectors, doomed, True)
    entry = index_from(&queue.index, 1)
    while entry != NULL:
        parent = entry.parent
        next = index_from(&queue.index, entry.id + 1)
        if parent != NULL:
            recall(engine, parent)
            requeue_entry(engine, parent)
        entry = next
    while queue.by_hand.tail != NULL:       # their deliveries are stale; they end with the queue
        recall(engine, queue.by_hand.tail)
    return 0


cdef list selectors_about(queue_t* queue):
    """The handles of the selectors that have the queue as their source or target, by id."""
    cdef dict found
    cdef selector_t* selector = queue.own
    if selector == NULL and queue.sources == NULL:
        return []
    found = {}
    while selector != NULL:
        found[selector.id] = <object> selector.handle
        selector = selector.next_own
    selector = queue.sources
    while selector != NULL:
        found[selector.id] = <object> selector.handle
        selector = selector.next_same_target
    return [found[id] for id in sorted(found)]


cdef int queue_free(engine_t* engine, queue_t* queue, list spare_slots) except -1:
    """Free the queue, with the messages that remain there: unrouted, waiting, history."""
    cdef QueueHandle handle = <QueueHandle> queue.handle    # a reference of our own: the mapping may have the last one
    cdef entry_t* entry
    cdef entry_t* next
    cdef int which
    if queue.durable:
        log_queue_gone(queue)
        fetched_forget(engine)      # fetched contents are found by the address of their queue
    while queue.waiters_head != NULL:
        waiter_leave(engine, queue.waiters_head)
    runnable_remove(engine, queue.stands_in, &queue.runnable)
    runnable_remove(engine, queue, &queue.parked)
    inside_free(engine, queue)
    entry = index_from(&queue.index, 1)
    while entry != NULL:
        next = index_from(&queue.index, entry.id + 1)
        (<dict> engine.nacked).pop(<size_t> entry, None)
        if entry.flags & SUSPENDED:
            engine.suspended[entry.below.position - 1].entry = NULL
        elif entry.flags & QUEUED:
            parked_forget(engine, entry)
        if entry.flags & OWNED:
            owner_settled(entry)
        content_drop(engine, entry)
        entry_free(engine, entry)
        entry = next
    waitsets_empty(queue)
    (<Plan> queue.plan).close()
    apart_free(queue)
    groups_free(queue)
    if queue.returning != NULL:
        returned_free(queue.returning)
        free(queue.returning)
    for which in range(QUEUE_LISTS):
        queue_unlist(engine, queue, which)
    index_free(&queue.index)
    spare_slots.append(queue.slot)
    del (<dict> engine.queues)[handle.name]
    if engine.is_watched:
        (<list> engine.tellings).append(("queue", False, handle))
    if engine.replies == queue:
        engine.replies = NULL
    if engine.noted == queue:
        engine.noted = NULL
    if engine.called == queue:
        engine.called = NULL
        engine.called_name = NULL
    handle.queue = NULL
    handle.plan = None
    return queue_forget(queue)


cdef int inside_free(engine_t* engine, queue_t* queue) except -1:
    """The queue, which goes by priority, ends: waiting lists of others about its messages are looked at anew."""
    cdef node_t* node = heap_root(&queue.runnable_inside)
    while node != NULL:
        if node.kind == WAITERS:
            waiters_wake(engine, <queue_t*> node.owner)
        else:
            runnable_remove(engine, queue, node)
        node = heap_root(&queue.runnable_inside)
    heap_free(&queue.runnable_inside)
    return 0


cdef void waitsets_empty(queue_t* queue) noexcept:
    waitset = queue.waitsets
    while waitset != NULL:
        waitset.head = waitset.tail = NULL
        waitset.count = waitset.returned_count = 0
        waitset = waitset.next


cdef list selector_delete(engine_t* engine, selector_t* selector, dict selectors, list spare_slots, bint recalls):
    """Delete the selector, and its queue if that deletes itself; return the names of the queues that are gone. `recalls`: also
    what your program has taken returns."""
    cdef list doomed = [], names = []
    cdef QueueHandle handle
    engine.building += 1        # as in `queue_delete`
    try:
        selector_end(engine, selector, selectors, doomed, recalls)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    finally:
        engine.building -= 1
    for handle in doomed:
        names += queue_delete(engine, handle.queue, selectors, spare_slots)
    return names


cdef int message_delete(engine_t* engine, entry_t* entry) except -1:
    """Delete a message in any state; an outstanding one is taken back first. The selector that supplied it is paid."""
    engine.entered_stores = 0
    try:
        if entry.state == OFFERED or entry.state == TAKEN or entry.state == MOVED:
            recall(engine, entry)
        elif entry.state == BOUND:
            unbind(engine, entry)
            room_left(engine, entry)
        elif entry.state == HISTORY:
            list_remove(&entry.queue.history, entry)
        else:
            leave_ready(engine, entry)
        settle(engine, entry, DELETED, 0)
    except MemoryError:
        engine.at_rest = BROKEN
        raise
    return 0
