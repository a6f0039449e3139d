"""Where a COPY selector starts, and its replay (rule 13, decisions 16 and 50).

Messages from `start` on are live for a selector: it copies them when they are routed. One that begins at an older message copies
what is there when it is first enabled, and all that comes after that is live. That is no routing: each message is tried on its
condition as it is now, and goes into the target with a visited set of its own. All of them enter, or none does.
"""

from libc.stdint cimport uint64_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.reading cimport since
from xump_ext.engine.selector_edit cimport selector_enable
from xump_ext.errors import QueueFull
from xump_ext.message.headers cimport expires_of
from xump_ext.route.admission cimport Admissions
from xump_ext.route.copies cimport make_copy
from xump_ext.route.settling cimport hops_of
from xump_ext.select.plan cimport Clause, Plan
from xump_ext.state.constants cimport DEFAULT, REASON_HOPS, UNLIMITED
from xump_ext.state.envelope cimport target_of
from xump_ext.state.extra cimport is_first_delay
from xump_ext.state.graph cimport entry_t, queue_t, visited_t
from xump_ext.state.index cimport index_from, index_get
from xump_ext.state.lazy_content cimport content_at, content_needed
from xump_ext.state.visited cimport visited_new, visited_release


cdef int selector_start(engine_t* engine, selector_t* selector, object start) except -1:
    """The selector is new: sets the id from which on messages are live for it, and the one from which it replays. `start` is
    "current", "tail", an id, or nanoseconds as ("time", ns)."""
    cdef queue_t* queue = selector.source
    cdef uint64_t tail = queue.next_id
    engine.events += 1
    selector.created = selector.began = engine.events
    selector.joined = (<QueueHandle> queue.handle).frontier
    if queue.transit:
        selector.start = selector.replayed = 0
    elif start == "current":
        selector.start = selector.replayed = (<QueueHandle> queue.handle).frontier
    elif start == "tail":
        selector.start = selector.replayed = tail
    else:
        selector.start = selector.replayed = tail
        selector.replay_due = since(queue, start[1]) if isinstance(start, tuple) else min(max(start, 1), tail)
    return 0


cdef int selector_begin(engine_t* engine, selector_t* selector) except -1:
    """Enable a selector. The first time, its replay enters the target at once; without room for that: `QueueFull`."""
    cdef list ids
    cdef entry_t* entry
    cdef visited_t* visited
    if selector.replay_due:
        ids = replay_of(engine, selector)
        copies_must_fit(engine, selector, ids)
        engine.events += 1
        selector.began = engine.events
        selector.start = selector.source.next_id
        selector.replayed = selector.replay_due
        selector.replay_due = 0
        for id in ids:
            entry = index_get(&selector.source.index, id)
            visited = visited_new(engine, selector.source.slot)
            make_copy(engine, selector, entry, visited)
            visited_release(engine, visited)
    return selector_enable(engine, selector, True)


cdef list replay_of(engine_t* engine, selector_t* selector):
    """The ids that it replays: those from `replay_due` on that its queue holds and that it selects, in order."""
    cdef queue_t* queue = selector.source
    cdef Clause clause = <Clause> selector.clause.handle
    cdef entry_t* entry = index_from(&queue.index, selector.replay_due)
    cdef list found = []
    while entry != NULL:
        content_needed(engine, entry)
        if not comes_later(entry) and clause.holds(entry) and (
                selector.role != DEFAULT or (<Plan> queue.plan).route(entry).slot_count == 0):
            found.append(entry.id)
        entry = index_from(&queue.index, entry.id + 1)
    return found


cdef bint comes_later(entry_t* entry) except -1:
    """Whether a replay leaves the message out: it comes when the delay ends that it entered with, or its time is over."""
    return is_first_delay(entry) or expires_of(content_at(entry)) < entry.queue.engine.time


cdef int copies_must_fit(engine_t* engine, selector_t* selector, list ids) except -1:
    """Raises `QueueFull` if the copies of these messages cannot all enter."""
    cdef Admissions batch = Admissions.__new__(Admissions)
    cdef queue_t* target
    cdef entry_t* entry
    batch.engine = engine
    batch.begin_dry_run()
    for id in ids:
        entry = index_get(&selector.source.index, id)
        target = target_of(selector, content_at(entry))
        if target == NULL or target == selector.source:
            continue
        if hops_of(engine, entry) >= engine.hop_limit:
            batch.count_letter(entry, REASON_HOPS, hops_of(engine, entry) + 2)     # it may take the room of a copy
        elif not batch.fits(target, content_at(entry), hops_of(engine, entry) + 1):
            limit = "a full store" if target.limit == UNLIMITED else f"a limit of {target.limit}"
            raise QueueFull(f"queue {(<QueueHandle> target.handle).name!r} has {target.ready} ready messages and "
                            f"{limit}: no room for a replay of {len(ids)} messages")
    return 0
