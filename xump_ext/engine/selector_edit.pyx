"""Creates, enables and ends selectors (rules 9, 13, 14). `queue_edit.pyx` deletes the queues that end with them.

A selector that ends undoes every link of its messages: children downstream are taken back, and the messages wait again in its
queue. Then the books (counters and links) are right, and the caller drives the run.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t

from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.engine.windows cimport WindowHandle
from xump_ext.infinite import INFINITE
from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.route.offering cimport room_left, unbind, window_left
from xump_ext.route.requeue cimport recall, requeue_entry
from xump_ext.select.credit cimport (
    overflow_changed, selector_idle, selector_waiters_wake, selector_wake, turn_of, waiter_leave, waiters_wake,
    wake_where_room_varies,
)
from xump_ext.select.plan cimport Plan
from xump_ext.select.unrouted cimport kept_try
from xump_ext.state.constants cimport (
    BOUNCE, BOUND, COPY, DEFAULT, DELIVER, DISCARD, MOVE, MOVED, NEVER, OFFERED, OVERFLOW, TAKEN, UNLIMITED,
)
from xump_ext.state.envelope cimport field_free, field_set
from xump_ext.state.graph cimport PUTS_INTO, PUTS_NOTHING, PUTS_UNDER
from xump_ext.state.index cimport index_get, list_append, list_remove
from xump_ext.state.offers cimport destination_left, destination_named
from xump_ext.state.queue_lists cimport mark_dirty

cdef enum:
    # the two lists that a selector is in
    OWN = 0
    TARGET = 1


cdef int selector_create(
    engine_t* engine, SelectorHandle handle, int verb, int role, tuple terms, object queue_field, object target,
    object destination_field, object destination, object credit, object ack_timeout, int64_t rank, object ahead, object window,
    bint enabled
) except -1:
    """Create a selector of checked properties. `terms` are those of its condition; the clause that it joins compiles them."""
    cdef selector_t* selector
    cdef queue_t* source = handle.source.queue
    cdef queue_t* gate = NULL if window is None else (<WindowHandle> window).live()
    cdef bint puts = target is not None or queue_field is not None
    if not puts and (verb == COPY or verb == MOVE or verb == BOUNCE):
        raise ValueError(f"selector {handle.id} has no target to put messages into")
    if destination is None and destination_field is None and verb == DELIVER:
        raise ValueError(f"selector {handle.id} has no destination to deliver under")
    selector = selector_new(handle, verb, role, credit, ack_timeout, rank, ahead)
    selector.puts = PUTS_INTO if puts and verb != DISCARD else PUTS_NOTHING if gate == NULL else PUTS_UNDER
    try:
        field_set(&selector.to_queue, queue_field)
        field_set(&selector.to_destination, destination_field)
        if destination is not None and not puts:
            selector.destination = destination_named(engine, destination)
    except BaseException:
        selector_free(selector)
        raise
    link(&source.own, selector, OWN)
    source.selectors += 1
    if target is not None:
        selector.target = (<QueueHandle> target).queue
        link(&selector.target.sources, selector, TARGET)
        selector.target.overflown += role == OVERFLOW
    elif gate != NULL:
        selector.target = gate
        (<WindowHandle> window).selectors += 1
    if selector.destination != NULL:
        selector.destination.pins += 1
    elif destination is not None:
        Py_INCREF(destination)
        selector.stamp = <void*> destination
    if role != OVERFLOW:
        selector_joins(engine, selector, terms, queue_field, destination_field)
    handle.selector = selector
    if enabled:
        selector_enable(engine, selector, True)
    return 0


cdef selector_t* selector_new(
    SelectorHandle handle, int verb, int role, object credit, object ack_timeout, int64_t rank, object ahead
) except NULL:
    """A selector that is in no list yet."""
    cdef selector_t* selector = <selector_t*> cell_zeroed(sizeof(selector_t))
    selector.id = handle.id
    selector.handle = <void*> handle
    selector.verb = verb
    selector.role = role
    selector.source = handle.source.queue
    selector.turn = turn_of(rank)
    selector.ready.key = selector.turn | handle.id
    selector.ready.owner = selector
    selector.infinite = credit is INFINITE
    selector.window = selector.available = 0 if selector.infinite else credit
    selector.ack_timeout = NEVER if ack_timeout is None else ack_timeout
    selector.ahead = UNLIMITED if ahead is None else ahead
    selector.reined = ahead is not None
    return selector


cdef int selector_joins(
    engine_t* engine, selector_t* selector, tuple terms, object queue_field, object destination_field
) except -1:
    """Has it join the clause of its condition. If that cannot be compiled, the selector is gone."""
    cdef queue_t* source = selector.source
    try:
        key = (selector.role, selector.verb != COPY, tuple([term_key(term) for term in terms]), queue_field, destination_field)
        (<Plan> source.plan).clause_join(key, selector, list(terms))
    except BaseException:
        if selector.clause != NULL:
            (<Plan> source.plan).clause_leave(selector)
        selector_unlink(engine, selector)
        selector_free(selector)
        raise
    source.active = True
    kept_try(source)
    mark_dirty(engine, source)        # messages may be unrouted, or may have to be tried on this clause
    return 0


cdef tuple term_key(tuple term):
    """A key that tells a term from others. Callables count by identity, since they need not be hashable."""
    return ("call", id(term[1])) if term[0] == "call" else term


cdef int selector_enable(engine_t* engine, selector_t* selector, bint enabled) except -1:
    if selector.enabled == enabled:
        return 0
    selector.enabled = enabled
    if selector.role == OVERFLOW:
        if enabled:
            selector.source.overflow = selector
        elif selector.source.overflow == selector:
            selector.source.overflow = NULL
        overflow_changed(engine, selector.source)
    elif enabled:
        selector.clause.enabled += 1
        if (<Plan> selector.source.plan).wake_parked(selector):
            mark_dirty(engine, selector.source)
    else:
        selector.clause.enabled -= 1
        selector_idle(selector)
        if engine.building:                 # else the run looks at them, when they have room
            selector_waiters_wake(engine, selector)
        wake_where_room_varies(engine)      # those behind it may go on where it stands in line
    return selector_wake(engine, selector)


cdef int selector_end(engine_t* engine, selector_t* selector, dict selectors, list doomed, bint recalls) except -1:
    """Delete the selector. Its messages wait again in its queue; that is added to `doomed` if it deletes itself now."""
    cdef queue_t* source = selector.source
    cdef SelectorHandle handle = <SelectorHandle> selector.handle
    cdef queue_t* target
    cdef entry_t* entry
    cdef bint was_default = selector.role == DEFAULT
    selector_enable(engine, selector, False)
    if not recalls and selector.puts == PUTS_UNDER:
        window_left(engine, selector, selector.taken.count)
    while not recalls and selector.taken.head != NULL:
        entry = selector.taken.head         # from here on it is as if your program had taken it by hand
        list_remove(&selector.taken, entry)
        entry.holder = NULL
        list_append(&source.by_hand, entry)
    for id in ids_held(selector):
        entry = index_get(&source.index, id)
        if entry != NULL and is_held(entry, selector):      # else it was recalled with one before it
            selector_gives_back(engine, entry)
    while selector.waiters != NULL:
        target = selector.waiters.target
        waiter_leave(engine, selector.waiters)
        waiters_wake(engine, target)
    if selector.clause != NULL:
        (<Plan> source.plan).clause_leave(selector)
        source.active = source.transit or bool((<Plan> source.plan).clauses)
    selector_unlink(engine, selector)
    del selectors[handle.id]
    if engine.is_watched:
        (<list> engine.tellings).append(("selector", False, handle))
    if handle.name is not None:
        (<EngineLock> engine.handle)._named.pop(handle.name, None)
    handle.selector = NULL
    selector_free(selector)
    if source.auto_delete and not source.dying and not keeps_alive(source, was_default):
        source.dying = True
        doomed.append(<object> source.handle)
    return 0


cdef bint keeps_alive(const queue_t* queue, bint ended_default) noexcept:
    """Whether a queue that deletes itself stays when a selector of it has ended. The default of a transit queue does not count:
    it is there for what the others leave."""
    cdef const selector_t* selector = queue.own
    if not queue.transit or ended_default:
        return queue.transit or queue.selectors != 0
    while selector != NULL and selector.role == DEFAULT:
        selector = selector.next_own
    return selector != NULL


cdef list ids_held(const selector_t* selector):
    """The ids of the messages that it has taken, or bound, in order. Late messages come to their end in that order."""
    cdef list ids = []
    cdef entry_t* entry = selector.holding.head
    while entry != NULL:
        ids.append(entry.id)
        entry = entry.next
    entry = selector.taken.head
    while entry != NULL:
        ids.append(entry.id)
        entry = entry.next
    ids.sort()
    return ids


cdef bint is_held(const entry_t* entry, const selector_t* selector) noexcept:
    held = entry.state == BOUND or entry.state == OFFERED or entry.state == TAKEN or entry.state == MOVED
    return held and entry.holder == <const void*> selector


cdef int selector_gives_back(engine_t* engine, entry_t* entry) except -1:
    if entry.state == BOUND:
        unbind(engine, entry)
        room_left(engine, entry)        # if it has expired meanwhile it is gone
    else:
        recall(engine, entry)
    return requeue_entry(engine, entry)


cdef inline selector_t** next_of(selector_t* selector, int which) noexcept:
    return &selector.next_same_target if which == TARGET else &selector.next_own


cdef inline selector_t** previous_of(selector_t* selector, int which) noexcept:
    return &selector.previous_same_target if which == TARGET else &selector.previous_own


cdef void link(selector_t** head, selector_t* selector, int which) noexcept:
    """Put the selector first into a list: of those with the same source, or with the same target."""
    next_of(selector, which)[0] = head[0]
    if head[0] != NULL:
        previous_of(head[0], which)[0] = selector
    head[0] = selector


cdef void unlink(selector_t** head, selector_t* selector, int which) noexcept:
    cdef selector_t* previous = previous_of(selector, which)[0]
    cdef selector_t* next = next_of(selector, which)[0]
    if previous == NULL:
        head[0] = next
    else:
        next_of(previous, which)[0] = next
    if next != NULL:
        previous_of(next, which)[0] = previous


cdef int selector_unlink(engine_t* engine, selector_t* selector) except -1:
    """Take the selector out of the lists of its source and its target, and unpin its destination."""
    unlink(&selector.source.own, selector, OWN)
    selector.source.selectors -= 1
    if selector.puts == PUTS_UNDER:
        (<WindowHandle> selector.target.handle).selectors -= 1
    elif selector.target != NULL:
        unlink(&selector.target.sources, selector, TARGET)
        selector.target.overflown -= selector.role == OVERFLOW
    if selector.destination != NULL:
        selector.destination.pins -= 1
        destination_left(engine, selector.destination)
    return 0


cdef int selector_free(selector_t* selector) except -1:
    Py_XDECREF(<PyObject*> selector.stamp)
    field_free(&selector.to_queue)
    field_free(&selector.to_destination)
    cell_put(selector, sizeof(selector_t))
    return 0
