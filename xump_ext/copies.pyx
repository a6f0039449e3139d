"""Copies (rule 3): what COPY makes of a message; at most one for each queue that the message's trip goes through."""

from libc.stdint cimport uint32_t

from xump_ext.block cimport content_t
from xump_ext.content cimport content_bounced, content_release, content_share
from xump_ext.envelope cimport names_queue_now, target_of
from xump_ext.fences cimport log_copied
from xump_ext.graph cimport (
    DEAD, DEAD_ENTRY, REASON_HOPS, REASON_OVERFLOW, engine_t, entry_t, queue_t, route_t, selector_t, trip_t,
)
from xump_ext.ledger cimport can_enter, clamp, dead_letter_of, enter, hops_of, is_fresh, own_dead_letter, reason_name
from xump_ext.log cimport touch, went_to
from xump_ext.plan cimport prefetch
from xump_ext.source cimport content_at
from xump_ext.trip cimport trip_add, trip_has


cdef bint make_copies(engine_t* engine, entry_t* entry, route_t* hits, trip_t* trip) except -1:
    """All that may, in order of selector id; whether one did, now or by its replay."""
    cdef bint copied = False
    cdef selector_t* selector
    cdef uint32_t i
    for i in range(hits.copy_count):
        prefetch(&hits.copies[i].target.index.tail)
        selector = hits.copies[i].selector
        if entry.id < selector.start:
            copied |= entry.id >= selector.replayed
        elif selector.enabled and names_queue_now(selector, entry):
            copied = True
            make_copy(engine, selector, entry, trip)
    return copied


cdef int make_copy(engine_t* engine, selector_t* selector, entry_t* entry, trip_t* trip) except -1:
    """One copy into the target, unless the trip has been there; one that cannot go there is dead-lettered or dropped."""
    cdef queue_t* target = target_of(selector, content_at(entry))
    cdef uint32_t hops = hops_of(engine, entry) + 1
    cdef bint fresh = is_fresh(engine, entry)
    if target == NULL or trip_has(trip, target.slot):
        return 0
    if hops > engine.hop_limit:
        trip_add(trip, target.slot)
        return lose_copy(engine, selector, entry, dead_letter_of(engine, entry), entry.queue, REASON_HOPS, trip)
    if (target.ready >= target.limit or target.durable) and not can_enter(target, content_at(entry), NULL):
        trip_add(trip, target.slot)
        return lose_copy(engine, selector, entry, own_dead_letter(target), target, REASON_OVERFLOW, trip)
    selector.copied += 1
    enter(engine, target, content_share(content_at(entry)), hops, 0, DEAD if fresh else 0, NULL, trip)
    went_to(engine, target)
    return log_copied(entry) if entry.queue.durable else 0


cdef int lose_copy(
    engine_t* engine, selector_t* selector, entry_t* entry, queue_t* letters, queue_t* origin, int reason, trip_t* trip
) except -1:
    """A copy that `origin` cannot have: into the dead letter queue, else counted at its selector."""
    cdef content_t* content
    if letters != NULL and not is_fresh(engine, entry):
        content = content_bounced(content_at(entry), (<object> origin.face).name, reason_name(reason), None)
        if can_enter(letters, content, NULL):
            origin.dead_lettered[reason] += 1
            if origin.durable:
                touch(origin)
            # One hop for the copy, one for the bounce.
            enter(engine, letters, content, clamp(hops_of(engine, entry) + 2), 0, DEAD | DEAD_ENTRY, NULL, trip)
            went_to(engine, letters)
            return log_copied(entry) if entry.queue.durable else 0
        content_release(content)
    selector.dropped += 1
    return 0
