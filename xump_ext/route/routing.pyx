"""The run: a call runs the graph, step by step, until nothing more happens (rules 2 to 7).

    while something is left:
        the oldest waiting message that a selector may be able to take     step_lane, step_named, step_waiters, step_parked
        else the oldest unrouted message                                   backlog_feed, step_unrouted

In a queue that goes by priority an unrouted message may be more urgent than the one that waits: it is routed first.

Routing an entry looks up its route and makes the copies, in order of selector id (`copies.pyx`). Then one consuming selector
takes it: of those that are ready and find room, the one served longest ago (`round_robin.pyx`). If none can take it, the entry
waits in the waitset of its route. An entry is routed once.

A run looks only at what the ledger left behind: lanes and waiting lists in `runnable`, entries in the run queue, queues in
`lists`. So a call costs what it causes, not what there is.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from xump_ext.log.append cimport log_hands
from xump_ext.log.fences cimport log_routed
from xump_ext.log.room cimport letters_forget
from xump_ext.log.writer cimport touch
from xump_ext.memory.heap cimport heap_remove, heap_root, heap_t, node_t
from xump_ext.route.copies cimport make_copies
from xump_ext.route.due cimport delay_ends, do_due, something_is_due
from xump_ext.route.gather cimport gather_dirty, may_act, parked_look, parked_place, rematch_returned, run_queue_postpone
from xump_ext.route.holding cimport wake_everything
from xump_ext.route.inside cimport inside_look
from xump_ext.route.ledger cimport take
from xump_ext.route.requeue cimport expire_in_room
from xump_ext.route.ready cimport leave_ready
from xump_ext.route.settling cimport PROCESSED, settle
from xump_ext.route.oldest cimport drop_oldest
from xump_ext.route.replies cimport hand_out_replies
from xump_ext.route.transit cimport route_through
from xump_ext.route.unmatched cimport route_unmatched
from xump_ext.select.credit cimport (
    clause_wake, has_room, lane_wake, noted_waiters_look, selector_wake, waiters_look, waiters_next, waiters_wake,
    waiting_add, waiting_remove, wake_where_room_varies,
)
from xump_ext.select.lanes cimport lane_close, lane_oldest, waitset_waited
from xump_ext.select.plan cimport Plan, prefetch_known, prefetch_known_copy, prefetch_known_route
from xump_ext.select.round_robin cimport choose, choose_one, choose_waiting, is_idle
from xump_ext.select.runnable cimport STALE, lane_key, parked_key, runnable_remove, waiters_key
from xump_ext.select.unrouted cimport backlog_forward
from xump_ext.state.constants cimport (
    BROKEN, DEFAULTED, INSIDE, LANE, OVERFULL, PARKED, ROOM_VARIES, UNLIMITED, WAITERS,
)
from xump_ext.state.envelope cimport QueueRef
from xump_ext.state.group_line cimport is_behind
from xump_ext.state.graph cimport clause_t, entry_t, lane_t, queue_t, route_t, run_item_t, selector_t, visited_t, waitset_t
from xump_ext.state.lazy_content cimport content_at, content_needed, is_loaded
from xump_ext.state.run_queue cimport (
    RUN_QUEUE_KEPT, end_visited, parked_forget, run_queue_reserve, run_queue_shrink, suspend, suspended_visited,
)
from xump_ext.state.visited cimport visited_new, visited_release, visited_share

cdef enum:
    QUEUES_MAX = 64      # waiting lists looked at together: more wait for one message only where a field names the targets

    NONE_TOOK = 0
    ONE_TOOK = 1
    URGENT_FIRST = 2


cdef int run(engine_t* engine) except -1:
    """Runs the graph until nothing more happens. Inside `building()` it only matches messages anew that came back.

    If user code is interrupted, the run ends there, and the next one goes on with what is left. If memory ends in the middle of a
    step, the engine is broken. If a message cannot be read from its store, its queue is held, and the run goes on.
    """
    cdef bint ended = False
    engine.unreadable = NULL
    if engine.run_queue_count == 1:
        prefetch_known_first(engine)
    while not ended:
        try:
            if engine.lists[DIRTY] != NULL:       # every queue where something came back is in it
                rematch_returned(engine)
            while True:
                steps(engine)
                if engine.schedule.soonest > engine.until or not delay_ends(engine):
                    break
            if engine.has_promised and engine.building == 0:
                letters_forget(engine)
                expire_in_room(engine)      # others were promised more than they took
            ended = not engine.has_promised or engine.building != 0
        except MemoryError:
            engine.at_rest = BROKEN
            raise
        except (OSError, KeyError) as error:        # a store raises these
            if engine.unreadable == NULL or engine.unreadable.held:
                raise
            hold_unreadable(engine, error)
        finally:
            engine.interrupted = not ended
            if not ended:
                run_queue_postpone(engine)
    return 0


cdef int hold_unreadable(engine_t* engine, object error) except -1:
    """Holds the queue of a message that could not be read. The step that read it has changed nothing, but may have taken a lane
    or waiting list off the heap, so all of them are woken. That is rare, and costs a look at all that waits."""
    engine.unreadable.held = True
    (<list> engine.user_errors).append(((<object> engine.unreadable.handle).name, error))
    engine.unreadable = NULL
    for handle in (<dict> engine.queues).values():
        wake_everything(engine, (<QueueRef> handle).queue)
    return 0


cdef inline int steps(engine_t* engine) except -1:
    """The steps of a run, until nothing is left: what can be taken comes before what is to be routed, the oldest first."""
    while engine.building and engine.schedule.live and something_is_due(engine):     # the clock may say NEVER
        do_due(engine)
    if engine.building:
        return noted_waiters_look(engine)
    gather(engine)
    while True:
        if engine.runnable.count:
            if not step_runnable(engine):
                continue
        elif engine.backlogs.count and backlog_is_next(engine):
            backlog_feed(engine, <entry_t*> heap_root(&engine.backlogs).owner)
        if engine.run_queue_count:
            step_unrouted(engine)       # the one place, so that it is compiled in here
        elif not <uintptr_t> engine.lists[OVERFULL] | <uintptr_t> engine.replies | engine.schedule.live or not step_last(engine):
            break
    engine.run_start = engine.sequence + 1
    engine.quiets += 1
    if engine.run_queue_mask >= RUN_QUEUE_KEPT:
        run_queue_shrink(engine)
    if engine.suspended_count:
        end_visited(engine)
    return 0


cdef bint step_last(engine_t* engine) except -1:
    """The work that waits until nothing more can be routed. Whether there was any."""
    if engine.lists[OVERFULL] != NULL:
        drop_oldest(engine)
    elif engine.replies != NULL and engine.replies.ready:
        hand_out_replies(engine)
    elif something_is_due(engine):
        do_due(engine)
        gather(engine)
    else:
        return False
    return True


cdef inline int gather(engine_t* engine) except -1:
    """Gathers what is to be routed in queues that were changed from outside the run."""
    if engine.lists[DIRTY] != NULL:
        rematch_returned(engine)
        gather_dirty(engine)
    if engine.parked_count:
        parked_place(engine)
    return 0


# ---- steps

cdef int step_runnable(engine_t* engine) except -1:
    """Lets the first of what may go on do so. 1: an unrouted message goes before it, and is at the head of the run queue. If a
    queue with priorities does not know which of its messages is the first, this step finds out."""
    cdef node_t* node = heap_root(&engine.runnable)
    cdef queue_t* queue
    if node.kind != INSIDE:
        heap_remove(&engine.runnable, node)
    else:
        queue = <queue_t*> node.owner
        if node.key == STALE:
            return inside_look(engine, queue)
        node = heap_root(&queue.runnable_inside)
        runnable_remove(engine, queue, node)
    if node.kind == LANE:
        return step_lane(engine, <lane_t*> node.owner, node.key)
    if node.kind == WAITERS:
        return step_waiters(engine, <queue_t*> node.owner, node.key)
    if node.kind == PARKED:
        return step_parked(engine, <queue_t*> node.owner, node.key)
    return step_named(engine, <lane_t*> node.owner, node.key)


cdef int step_lane(engine_t* engine, lane_t* lane, uint64_t key) except -1:
    """Lets a selector take the oldest message of a lane, if one can, and the next ones, as long as no other goes before them."""
    cdef entry_t* entry = lane_oldest(lane)
    cdef clause_t* clause = lane.clause
    cdef selector_t* selector
    if entry == NULL or lane.queue.held:
        return 0
    if lane_key(entry) != key:
        return lane_wake(engine, lane)      # the message of this key was taken elsewhere; other lanes may have older ones now
    while True:
        selector = choose_waiting(engine, entry, UNLIMITED)
        if selector == NULL:
            return 0
        if urgent_goes_first(engine, entry):
            lane_wake(engine, lane)
            return 1
        engine.entered_stores = 0
        take(engine, selector, entry, suspended_visited(engine, entry))
        if clause.ready.count == 0:
            return 0
        entry = lane_oldest(lane)
        if entry == NULL:
            return 0
        if lane.runnable.position or lane.queue.top_priority or (
            engine.runnable.count and heap_root(&engine.runnable).key < lane_key(entry)
        ):
            return lane_wake(engine, lane)


cdef int step_named(engine_t* engine, lane_t* lane, uint64_t key) except -1:
    """`step_lane` where a field names the target, for one message only: the lane may end with it, and the next message may be in
    another of the clause's lanes. If no ready selector finds room, the lane is closed."""
    cdef clause_t* clause = lane.clause
    cdef entry_t* entry = lane_oldest(lane)
    cdef selector_t* selector
    cdef int urgent = 0
    if lane.queue.held:
        return 0
    if entry != NULL and lane_key(entry) != key:
        lane_wake(engine, lane)
    elif entry != NULL:
        try:
            selector = choose_waiting(engine, entry, UNLIMITED)
        except BaseException:       # nothing was decided, and only this lane's step wakes the clause's next lane
            lane_wake(engine, lane)
            raise
        if selector != NULL and urgent_goes_first(engine, entry):
            lane_wake(engine, lane)
            urgent = 1
        elif selector != NULL:
            engine.entered_stores = 0
            take(engine, selector, entry, suspended_visited(engine, entry))
        elif clause.ready.count:
            lane_close(lane)
    clause_wake(engine, clause)
    return urgent


cdef int step_parked(engine_t* engine, queue_t* queue, uint64_t key) except -1:
    """Routes the first of a queue's parked messages on which a selector may act now."""
    cdef run_item_t item
    parked_look(engine, queue)
    if queue.parked_from == queue.parked_end:
        return 0
    item = engine.parked[queue.parked_from]
    if queue.held:              # it became held in this run
        parked_forget(engine, item.entry)
        return parked_look(engine, queue)
    if parked_key(item.entry) != key:
        return 0                # the message of this key was taken elsewhere
    if urgent_goes_first(engine, item.entry):
        parked_look(engine, queue)
        return 1
    content_at(item.entry)      # may fail, so it comes before any change
    item.visited = visited_share(item.visited)
    try:
        route_parked(engine, item.entry, item.visited)
        return parked_look(engine, queue)
    finally:
        visited_release(engine, item.visited)


cdef int step_waiters(engine_t* engine, queue_t* queue, uint64_t key) except -1:
    """Lets the first selector in a waiting list put its message into the queue, if there is room, and if its turn comes before
    that of the ready selectors for the message. Other waiting lists about the same message are looked at together with this
    one."""
    cdef queue_t* queues[QUEUES_MAX]
    cdef int i, done, count = 1
    cdef entry_t* entry = waiters_next(engine, queue)
    cdef queue_t* inside = queue.stands_in
    cdef heap_t* heap = &engine.runnable if inside == NULL else &inside.runnable_inside
    cdef node_t* node
    if entry == NULL:
        return 0
    if waiters_key(entry) != key:
        return waiters_look(engine, queue)
    content_at(entry)           # may fail, so it comes before any change
    queues[0] = queue
    node = heap_root(heap)
    while count < QUEUES_MAX and node != NULL and node.kind == WAITERS and node.key == key:
        runnable_remove(engine, inside, node)
        queues[count] = <queue_t*> node.owner
        count += 1
        node = heap_root(heap)
    done = take_for_waiter(engine, queues, count, entry)
    if done != NONE_TOOK:
        for i in range(count):
            waiters_wake(engine, queues[i])
    return done == URGENT_FIRST


cdef int take_for_waiter(engine_t* engine, queue_t** queues, int count, entry_t* entry) except -1:
    """Tries, in order of the round robin, the first selectors of these waiting lists and the ready ones. Returns NONE_TOOK,
    ONE_TOOK, or URGENT_FIRST: one would take the message, but an unrouted one goes before it."""
    cdef selector_t* selector = NULL
    cdef queue_t* target = NULL
    cdef uint64_t tried = 0
    cdef selector_t* ready
    cdef int i
    while True:
        selector = NULL
        for i in range(count):
            if queues[i].waiters_head != NULL and waiters_next(engine, queues[i]) == entry:
                ready = queues[i].waiters_head.selector
                if ready.ready.key > tried and (selector == NULL or ready.ready.key < selector.ready.key):
                    selector = ready
                    target = queues[i]
        ready = choose_waiting(engine, entry, UNLIMITED if selector == NULL else selector.ready.key)
        if ready != NULL:
            selector = ready
        elif selector == NULL:
            return NONE_TOOK
        elif not has_room(target, entry, selector):
            tried = selector.ready.key
            continue
        if urgent_goes_first(engine, entry):
            return URGENT_FIRST
        engine.entered_stores = 0
        take(engine, selector, entry, suspended_visited(engine, entry))
        selector_wake(engine, selector)
        return ONE_TOOK


cdef inline bint urgent_goes_first(engine_t* engine, entry_t* entry) except -1:
    """Before a waiting message is taken: if its queue goes by priority, and has an unrouted one of a higher priority, puts that
    at the head of the run queue."""
    cdef queue_t* queue = entry.queue
    if queue.top_priority == 0 or queue.backlog.position == 0 or (<entry_t*> queue.backlog.owner).rank >= entry.rank:
        return False
    backlog_feed(engine, <entry_t*> queue.backlog.owner)
    return True


cdef inline bint is_urgent(const engine_t* engine, const entry_t* entry) noexcept:
    """Whether the entry is routed because it goes before one that waits. Else nothing that waits goes on while one is routed."""
    return entry.queue.top_priority != 0 and engine.runnable.count != 0


cdef inline bint backlog_is_next(engine_t* engine) noexcept:
    """Whether the oldest backlog entry is older than the first one in the run queue, as most often it is."""
    return (engine.run_queue_count == 0
            or heap_root(&engine.backlogs).key < engine.run_queue[engine.run_queue_head & engine.run_queue_mask].entry.sequence)


cdef bint is_asked_for(const route_t* route) noexcept:
    """Whether routing by this route reads the content."""
    cdef clause_t* clause
    cdef uint32_t i
    for i in range(route.clause_count):
        clause = route.clauses[i]
        if clause.ready.count and (clause.count > 1 or clause.names_queue or (<selector_t*> heap_root(&clause.ready).owner).puts):
            return True
    return route.copy_count or route.slot_count == 0


cdef int backlog_feed(engine_t* engine, entry_t* entry) except -1:
    """Puts an entry of the backlogs, the first of its queue, at the head of the run queue."""
    cdef run_item_t* item
    run_queue_reserve(engine)
    backlog_forward(engine, entry)
    engine.run_queue_head -= 1
    engine.run_queue_count += 1
    item = &engine.run_queue[engine.run_queue_head & engine.run_queue_mask]
    item.entry = entry
    item.visited = visited_share(suspended_visited(engine, entry))
    return 0


cdef inline int step_unrouted(engine_t* engine) except -1:
    """Routes the first entry of the run queue. Its route is looked up before it is taken off the queue: user code may be
    interrupted meanwhile, and its content may be unreadable."""
    cdef run_item_t item = engine.run_queue[engine.run_queue_head & engine.run_queue_mask]
    cdef route_t* route
    content_needed(engine, item.entry)
    route = look_up(engine, item.entry)
    if not is_loaded(item.entry) and is_asked_for(route):
        content_at(item.entry)
    engine.run_queue_head += 1
    engine.run_queue_count -= 1
    try:
        route_entry(engine, item.entry, route, item.visited)
    finally:
        visited_release(engine, item.visited)
    return 0


cdef inline void prefetch_known_first(engine_t* engine) noexcept:
    """Fetches ahead for the entry that has just entered."""
    cdef entry_t* entry = engine.run_queue[engine.run_queue_head & engine.run_queue_mask].entry
    if is_loaded(entry):
        prefetch_known_copy(entry.queue, <object> entry.content.loaded.address)


cdef inline void prefetch_known_next(engine_t* engine) noexcept:
    """Fetches ahead for the entries behind the one that is looked up now."""
    cdef entry_t* entry
    if engine.run_queue_count > 3:
        entry = engine.run_queue[(engine.run_queue_head + 3) & engine.run_queue_mask].entry
        if is_loaded(entry):
            prefetch_known(entry.queue, <object> entry.content.loaded.address)
        entry = engine.run_queue[(engine.run_queue_head + 2) & engine.run_queue_mask].entry
        if is_loaded(entry):
            prefetch_known_route(entry.queue, <object> entry.content.loaded.address)
        entry = engine.run_queue[(engine.run_queue_head + 1) & engine.run_queue_mask].entry
        if is_loaded(entry):
            prefetch_known_copy(entry.queue, <object> entry.content.loaded.address)


# ---- routing one entry

cdef inline route_t* look_up(engine_t* engine, entry_t* entry) except NULL:
    """The route of the entry's hit set: the ordinary clauses, or else the default ones (rule 6)."""
    cdef route_t* route = (<Plan> entry.queue.plan).route_of_all
    if route != NULL and route.slot_count and not (<Plan> entry.queue.plan).stale:
        return route
    return look_up_message(engine, entry)


cdef route_t* look_up_message(engine_t* engine, entry_t* entry) except NULL:
    """`look_up` where the route depends on the message, as it may for the next ones."""
    cdef Plan plan = <Plan> entry.queue.plan
    cdef route_t* route
    prefetch_known_next(engine)
    route = plan.route(entry)
    if route.slot_count == 0 and plan.defaults:
        route = plan.defaults_route(entry)
        if route.slot_count:
            entry.flags |= DEFAULTED
    return route


cdef inline int route_entry(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1:
    """Routes an unrouted entry: with its route, or as a dead letter if it hit nothing."""
    cdef queue_t* queue = entry.queue
    cdef bint uncommon = queue.uncommon
    engine.entered_stores = 0
    if not uncommon:
        if entry.id >= queue.frontier:
            queue.frontier = entry.id + 1
    else:
        uncommon_routed(entry)
        if queue.transit:
            return route_through(engine, entry, route, visited)
    if route.slot_count == 0:
        return route_unmatched(engine, entry, visited)
    return dispatch(engine, entry, route, visited, uncommon)


cdef int uncommon_routed(entry_t* entry) except -1:
    """`route_entry` in a queue that is durable, or special."""
    if entry.id >= entry.queue.frontier and entry.queue.top_priority == 0:
        entry.queue.frontier = entry.id + 1
    if entry.queue.durable:
        touch(entry.queue)
        if entry.queue.hands_unsaid:
            log_hands(entry.queue)
    return 0


cdef int route_parked(engine_t* engine, entry_t* entry, visited_t* visited) except -1:
    """Routes a parked entry with the hit set that it was parked with, and with the consuming selectors that came since. No
    condition is evaluated again."""
    cdef waitset_t* waitset = <waitset_t*> entry.holder
    cdef Plan plan = <Plan> entry.queue.plan
    cdef route_t* route = plan.parked_route(waitset)
    cdef bint copied = False
    cdef selector_t* selector = NULL
    engine.entered_stores = 0
    visited = visited_share(visited)
    parked_forget(engine, entry)
    if route.copy_count:
        if visited == NULL:
            visited = visited_new(engine, entry.queue.slot)
        copied = make_copies(engine, entry, route, visited)
    if route.clause_count and (entry.extra == NULL or not is_behind(entry)):
        selector = choose_waiting(engine, entry, UNLIMITED)
    if selector != NULL:
        take(engine, selector, entry, visited)
    elif copied and not route.clause_count:
        leave_ready(engine, entry)
        settle(engine, entry, PROCESSED, 0)
    else:
        if copied or may_act(route, entry):
            waiting_remove(waitset, entry)
            waiting_add(plan.waitset_keyed((waitset.defaulted, None, (<tuple> waitset.key)[2], waitset.place)), entry)
            plan.waitset_left(waitset)
        if visited != NULL:
            suspend(engine, entry, visited)
    visited_release(engine, visited)
    return 0


cdef inline int dispatch(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited, bint uncommon) except -1:
    """Makes the copies, then lets one consuming selector take the entry, else lets it wait (rules 3 to 5, 7). `uncommon`: its
    queue is durable, or special."""
    cdef selector_t* selector = NULL
    cdef visited_t* own = NULL
    cdef bint copied = False, in_turn = uncommon and is_urgent(engine, entry)
    if route.copy_count:
        if visited == NULL:
            visited = own = visited_new(engine, entry.queue.slot)
        copied = make_copies(engine, entry, route, visited)
    if uncommon and (holds_back(entry) or in_turn):
        pass
    elif route.clause_count == 1 and not route.names_queue:
        if not is_idle(engine, route.clauses[0]):
            selector = choose_one(engine, route.clauses[0], entry, UNLIMITED)
    elif route.clause_count:
        selector = choose(engine, route.clauses, route.clause_count, entry, UNLIMITED)
    if selector != NULL:
        take(engine, selector, entry, visited)
    elif copied and not route.clause_count:
        leave_ready(engine, entry)
        settle(engine, entry, PROCESSED, 0)
    else:
        wait(engine, entry, route, not copied and not may_act(route, entry), visited, in_turn)
    visited_release(engine, own)
    return 0


cdef bint holds_back(entry_t* entry) except -1:
    """Whether the entry is behind another one of its key. The log of a durable queue hears that its copies are made."""
    if entry.extra == NULL:
        return False
    if entry.queue.durable:
        log_routed(entry)
    return is_behind(entry)


cdef int wait(engine_t* engine, entry_t* entry, route_t* route, bint parked, visited_t* visited, bint in_turn) except -1:
    """Lets a routed entry wait: no selector can take it now, or, `in_turn`, older ones of other queues may go first. If one takes
    it in this run, its visited set goes on."""
    cdef waitset_t* waitset = (<Plan> entry.queue.plan).waitset(route, entry, entry.flags & DEFAULTED, parked)
    cdef uint32_t i
    entry.queue.unrouted -= 1
    if visited != NULL:
        suspend(engine, entry, visited)
    waiting_add(waitset, entry)
    if in_turn:
        for i in range(waitset.member_count):
            lane_wake(engine, waitset.members[i].lane)
    elif route.names_queue:
        waitset_waited(waitset)
    return 0 if engine.lists[ROOM_VARIES] == NULL else wake_where_room_varies(engine)
