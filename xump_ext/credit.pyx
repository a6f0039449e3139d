"""Credit, rotation and room: who may take a message, and what waits for whom (rules 1, 4, 5, 8).

Ready. A consuming selector stands in its clause's heap while it is enabled, has credit (DISCARD and INFINITE always do) and is
not known to lack room. The key is the moment when it was last served, so the root is next in the round robin; one without credit
keeps its key and so its place.

Waiting. Entries wait in groups, groups in lanes. A lane's heap is keyed by the oldest entry of each group, lazily: others may
have taken that entry since, so a key is a lower bound that is corrected when it comes to the root. Each correction is paid for by
an entry that left; a credit finds its message in O(log groups) amortized.

Room. A selector that is tried and finds its target full leaves the heap and joins the target's line. Whoever makes room wakes
the line; the first in it goes first, and joins the end again when it is next refused. A selector whose target is named by a
field may be refused by one target and welcome in another: it stays in the heap and has a place in many lines, and only those of
its lanes are looked at where it may be welcome (`lanes.pyx`). Where room depends on the message, the line is choosy
(`line_changed`): it is asked whenever another message comes to wait, and its head stays in the rotation.

A line is not looked at in the middle of things: who makes room may be about to pay the first in it, or to let what it waits for
come back. One that is woken has the lowest key of all, and so is looked at before the next step, and at the end of the call.

Waking. What may be able to go on is put into the engine's `able` heap, by the sequence of the message in question: the run
takes the oldest first. Waking what turns out to be unable costs one look.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from xump_ext.aside cimport aside_add, aside_remove, group_oldest
from xump_ext.clause cimport Clause
from xump_ext.content cimport content_release
from xump_ext.envelope cimport content_made, field_text, target_of
from xump_ext.graph cimport (
    ASIDE, COPY, CHOOSY, FIELD_NONE, LINE, OVERFLOW, UNROUTED, WAITING, member_t,
)
from xump_ext.heap cimport heap_add, heap_change, heap_remove, heap_root, node_t
from xump_ext.lanes cimport lane_first, lane_lower, lane_oldest, lane_open, lanes_reopen
from xump_ext.listed cimport queue_list, queue_unlist
from xump_ext.log cimport COMES_IN, steps_down, store_takes
from xump_ext.places cimport place_drop, place_in, place_keep
from xump_ext.source cimport content_at


# ---- selectors that are ready

cdef int selector_wake(engine_t* engine, selector_t* selector) except -1:
    """The selector may have become able: let it stand ready, and what waits for it be looked at."""
    cdef clause_t* clause = selector.clause
    cdef lane_t* lane
    if not is_able(selector):
        return 0
    if clause == NULL:
        return line_wake(engine, selector.source)
    if selector.verb == COPY:
        return 0
    if clause.names_queue:
        return named_wake(engine, selector)
    if selector.places != NULL:         # its turn comes when there is room
        return line_wake(engine, selector.places.target) if selector.places.target.is_listed[CHOOSY] else 0
    if selector.ready.position == 0:
        heap_add(&clause.ready, &selector.ready, selector.ready.key)
    lane = clause.lanes
    if lane != NULL and lane.groups.count and lane.able.position == 0:
        lane_wake(engine, lane)
    return 0


cdef int named_wake(engine_t* engine, selector_t* selector) except -1:
    """The same where a field names its target: it may stand first in a choosy line, too."""
    if selector.ready.position == 0:
        stand_ready(selector)
    choosy_wake(engine)
    return clause_wake(engine, selector.clause)


cdef int stand_ready(selector_t* selector) except -1:
    """It has its place by when it was last served."""
    heap_add(&selector.clause.ready, &selector.ready, selector.ready.key)
    return lanes_reopen(selector) if selector.clause.names_queue else 0


cdef void selector_rest(selector_t* selector) noexcept:
    """The selector cannot take any more (no credit, disabled, or in a line)."""
    if selector.clause != NULL:
        heap_remove(&selector.clause.ready, &selector.ready)


# ---- what waits

cdef int waiting_add(group_t* group, entry_t* entry) except -1:
    """New ones belong at the end. What returns is the oldest again, or stands aside."""
    cdef entry_t* last = group.tail
    if last == NULL or last.sequence < entry.sequence:
        entry.next = NULL
        entry.previous = last
        if last == NULL:
            group.head = entry
        else:
            last.next = entry
        group.tail = entry
    elif entry.sequence < group.head.sequence:
        entry.previous = NULL
        entry.next = group.head
        group.head.previous = entry
        group.head = entry
    else:
        aside_add(group, entry)
    entry.holder = group
    entry.state = WAITING
    group.count += 1
    return members_lower(group, entry.sequence) if group_oldest(group) == entry else 0


cdef int members_lower(group_t* group, uint64_t sequence) except -1:
    """Another entry is its oldest."""
    cdef uint32_t i
    for i in range(group.member_count):
        member_lower(group.members[i], sequence)
    return 0


cdef int member_lower(member_t* member, uint64_t sequence) except -1:
    if member.node.position == 0:
        heap_add(&member.lane.groups, &member.node, sequence)
    elif sequence < member.node.key:
        heap_change(&member.lane.groups, &member.node, sequence)
    return 0 if member.lane.target == NULL else lane_lower(member.lane, sequence)


cdef void waiting_remove(group_t* group, entry_t* entry) noexcept:
    group.count -= 1
    entry.holder = NULL
    if entry.flags & ASIDE:
        aside_remove(group, entry)
        return
    if entry.previous == NULL:
        group.head = entry.next
    else:
        entry.previous.next = entry.next
    if entry.next == NULL:
        group.tail = entry.previous
    else:
        entry.next.previous = entry.previous


cdef int lane_wake(engine_t* engine, lane_t* lane) except -1:
    """Somebody may be able to take what waits here."""
    cdef entry_t* entry
    if lane.groups.count == 0 or lane.queue.held:
        return 0
    entry = lane_oldest(lane)
    if entry == NULL:
        return 0
    if lane.able.position == 0:
        heap_add(&engine.able, &lane.able, lane_key(entry))
    elif lane.able.key != lane_key(entry):
        heap_change(&engine.able, &lane.able, lane_key(entry))
    return 0


cdef int clause_wake(engine_t* engine, clause_t* clause) except -1:
    """The same for the oldest of the open lanes that a field made, if anybody is ready. The next one is woken after it."""
    cdef lane_t* lane
    if clause.ready.count == 0:
        return 0
    lane = lane_first(clause)
    return 0 if lane == NULL else lane_wake(engine, lane)


cdef lane_t* lane_of(const selector_t* selector, queue_t* target) except? NULL:
    """Where the messages wait that the selector would put into `target`, or NULL. Cost: one look-up."""
    if not selector.clause.names_queue:
        return selector.clause.lanes
    found = (<Clause> selector.clause.face).lanes.get((<object> target.face).name)
    return NULL if found is None else <lane_t*> <uintptr_t> found


# ---- room

cdef inline uint64_t ready_without(const queue_t* queue, const entry_t* leaving) noexcept:
    """How many are ready once `leaving` is out of its queue (rule: what moves within its own queue makes its own room)."""
    if leaving != NULL and leaving.queue == queue and (leaving.state == WAITING or leaving.state == UNROUTED):
        return queue.ready - 1
    return queue.ready


cdef bint has_room_below_limit(const queue_t* queue, const entry_t* leaving) noexcept:
    return ready_without(queue, leaving) < queue.limit


cdef bint has_room(queue_t* target, entry_t* entry, const selector_t* selector) except -1:
    """Whether `target` can take what `selector` would make of `entry`: below its limit, or by its overflow selector."""
    cdef bint below = has_room_below_limit(target, entry)
    cdef queue_t* further = target
    cdef content_t* content
    if not target.durable or store_takes(target, content_at(entry), steps_down(target.store, entry)):
        if below:
            return True
        if target.overflow == NULL:
            return False
        if not names_by_field(target.overflow):
            if overflow_has_room(target, NULL, entry):
                return True
            further = target.overflow.target
        else:
            content = content_made(selector, entry)
            try:
                return overflow_has_room(target, content, entry)
            finally:
                content_release(content)
    if further != NULL and further.durable and not target.short and has_room_below_limit(further, entry):
        target.short = True
        line_changed(target.engine, target)
    return False


cdef inline bint names_by_field(const selector_t* selector) noexcept:
    return selector.to_queue.kind != FIELD_NONE or selector.to_destination.kind != FIELD_NONE


cdef bint overflow_would(queue_t* queue, content_t* content, queue_t** target) except -1:
    """Whether the queue's overflow selector would take this content, given credit, and room in its target (or NULL)."""
    cdef selector_t* overflow = queue.overflow
    target[0] = NULL
    if overflow == NULL or not overflow.enabled:
        return False
    if overflow.to_destination.kind != FIELD_NONE and field_text(&overflow.to_destination, content) is None:
        return False
    if not overflow.puts:
        return True
    target[0] = target_of(overflow, content)
    return target[0] != NULL and target[0] != queue


cdef bint overflow_has_room(queue_t* queue, content_t* content, entry_t* leaving) except -1:
    """Whether the queue's overflow selector can take this content (needed only if a field of it names something)."""
    cdef queue_t* target
    if not overflow_would(queue, content, &target) or not has_credit(queue.overflow):
        return False
    if target == NULL:
        return True
    if target.durable and not store_takes(
            target, content_at(leaving) if content == NULL and leaving != NULL else content, COMES_IN):
        return False
    return has_room_below_limit(target, leaving)


cdef bint room_for_any(queue_t* queue) except -1:
    """Room whatever the message: what an overflow selector with a field can take does not count."""
    cdef selector_t* overflow = queue.overflow
    if queue.durable and not store_takes(queue, NULL, COMES_IN):
        return False
    if queue.ready < queue.limit:
        return True
    if overflow == NULL or names_by_field(overflow):
        return False
    return overflow_has_room(queue, NULL, NULL)


# ---- lines

cdef bint may_put(engine_t* engine, selector_t* selector, entry_t* entry, queue_t* target) except -1:
    """Tries the target: it has room and nobody stands before the selector. Else the selector joins the line."""
    if has_room(target, entry, selector):
        if target.line_head == NULL:
            return True
        line_prune(engine, target)
        if target.line_head == NULL or target.line_head.selector == selector:
            return True
    place_join(engine, selector, target)
    return False


cdef int place_join(engine_t* engine, selector_t* selector, queue_t* target) except -1:
    """The end of the line, unless the selector stands in it already."""
    cdef place_t* place
    if place_in(selector, target) != NULL:
        return 0
    place = <place_t*> calloc(1, sizeof(place_t))
    if place == NULL:
        raise MemoryError()
    place.selector = selector
    place.target = target
    place_keep(selector, place)
    place.previous = target.line_tail
    if target.line_tail == NULL:
        target.line_head = place
    else:
        target.line_tail.next = place
    target.line_tail = place
    target.own_room += makes_own_room(place)
    line_changed(engine, target)
    if not selector.clause.names_queue:
        selector_rest(selector)
    return 0


cdef int place_leave(engine_t* engine, place_t* place) except -1:
    """Out of the line; ready again if it is able."""
    cdef selector_t* selector = place.selector
    cdef queue_t* target = place.target
    cdef lane_t* lane
    place_drop(selector, place)
    if place.previous == NULL:
        target.line_head = place.next
    else:
        place.previous.next = place.next
    if place.next == NULL:
        target.line_tail = place.previous
    else:
        place.next.previous = place.previous
    target.own_room -= makes_own_room(place)
    if target.line_head == NULL:
        target.short = False
    free(place)
    line_changed(engine, target)
    if is_able(selector) and selector.ready.position == 0:
        stand_ready(selector)
    if not selector.clause.names_queue:
        return 0
    lane = lane_of(selector, target)
    if lane != NULL:
        lane_open(lane)
    return clause_wake(engine, selector.clause)


cdef entry_t* place_oldest(const place_t* place) except? NULL:
    """What the selector would put into the target now, or NULL: nothing waits, no credit, disabled, or held."""
    cdef lane_t* lane
    if not is_able(place.selector) or place.selector.source.held:
        return NULL
    lane = lane_of(place.selector, place.target)
    return NULL if lane == NULL else lane_oldest(lane)


cdef bint waits_for(const place_t* place) except -1:
    """Whether the selector has something to put into the target, were there room."""
    return place_oldest(place) != NULL


cdef int line_prune(engine_t* engine, queue_t* queue) except -1:
    """Those at the head of the line who have nothing to put here leave it, if there is room at all."""
    while queue.line_head != NULL and place_oldest(queue.line_head) == NULL and room_for_any(queue):
        place_leave(engine, queue.line_head)
    return 0


cdef entry_t* line_next(engine_t* engine, queue_t* queue) except? NULL:
    """The message that the first in line would put here; NULL when nobody would."""
    line_prune(engine, queue)
    return NULL if queue.line_head == NULL else place_oldest(queue.line_head)


cdef int line_wake(engine_t* engine, queue_t* queue) except -1:
    """There may be room in this queue for those who stand in its line. It is the next to be looked at, before all steps."""
    return 0 if queue.line_head == NULL else line_stand(engine, queue, LOOK)


cdef int line_stand(engine_t* engine, queue_t* queue, uint64_t key) except -1:
    """Its place among what may be able to go on."""
    if queue.able.position == 0:
        queue.able.kind = LINE
        queue.able.owner = queue
        heap_add(&engine.able, &queue.able, key)
    elif queue.able.key != key:
        heap_change(&engine.able, &queue.able, key)
    return 0


cdef int lines_look(engine_t* engine) except -1:
    """Gives each line that was woken its place by the message in question."""
    cdef node_t* node = heap_root(&engine.able)
    while node != NULL and node.key == LOOK:
        line_look(engine, <queue_t*> node.owner)
        node = heap_root(&engine.able)
    return 0


cdef int line_look(engine_t* engine, queue_t* queue) except -1:
    """Those at its head who have nothing to put here leave it; then its place is that of the message of the first one."""
    cdef entry_t* entry = line_next(engine, queue)
    if entry != NULL:
        return line_stand(engine, queue, line_key(entry))
    heap_remove(&engine.able, &queue.able)
    return 0


cdef inline bint makes_own_room(const place_t* place) noexcept:
    """Whether a message that leaves for this target makes room there: it moves within its queue, or the target overflows into
    the queue that it leaves."""
    cdef selector_t* overflow = place.target.overflow
    return place.selector.source == place.target or (overflow != NULL and overflow.target == place.selector.source)


cdef void line_changed(engine_t* engine, queue_t* queue) noexcept:
    """Lists the queue while somebody stands in its line and whether there is room depends on the message: on the queue that
    a field of it names for the overflow selector, on the room that it makes itself, or, in a store, on its size. Then any message
    that leaves, or comes to wait, may be the one that finds room."""
    if queue.line_head != NULL and (
            queue.own_room or queue.short or (queue.overflow != NULL and names_by_field(queue.overflow))):
        queue_list(engine, queue, CHOOSY)
    else:
        queue_unlist(engine, queue, CHOOSY)


cdef void overflow_changed(engine_t* engine, queue_t* queue) noexcept:
    """Its overflow selector is another one, or there is none any more."""
    cdef place_t* place = queue.line_head
    if not queue.durable and (queue.overflow == NULL or queue.overflow.target == NULL or not queue.overflow.target.durable):
        queue.short = False
    queue.own_room = 0
    while place != NULL:
        queue.own_room += makes_own_room(place)
        place = place.next
    line_changed(engine, queue)


cdef int choosy_wake(engine_t* engine) except -1:
    """Another message waits, or none does any more: it may find room."""
    cdef queue_t* queue = engine.lists[CHOOSY]
    while queue != NULL:
        line_wake(engine, queue)
        queue = queue.listed[CHOOSY].next
    return 0


cdef int room_used(engine_t* engine, queue_t* queue) except -1:
    """Wakes all who may wait for room in `queue`."""
    cdef selector_t* selector
    line_wake(engine, queue)
    if queue.overflown:
        selector = queue.sources
        while selector != NULL:
            if selector.role == OVERFLOW:
                line_wake(engine, selector.source)
            selector = selector.next_same_target
    return choosy_wake(engine)
