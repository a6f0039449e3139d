"""The copies of a message: at most one for each queue that it visits in a run (rule 3)."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.log.fences cimport log_copied, log_late
from xump_ext.log.owners cimport gone_note
from xump_ext.log.writer cimport store_queue, touch, went_to
from xump_ext.message.content cimport content_release, content_share
from xump_ext.message.headers cimport content_t
from xump_ext.route.ledger cimport can_enter, enter
from xump_ext.route.letters cimport dead_letter_of, is_barred, letter_bars, letter_made, letter_trip, letters_t, own_dead_letter
from xump_ext.route.settling cimport clamp, hops_of, is_fresh
from xump_ext.select.plan cimport prefetch_tail
from xump_ext.state.constants cimport (
    DEAD_IN_RUN, DEAD_ENTRY, OUTCOME_DEAD_LETTERED, OUTCOME_DROPPED, REASON_HOPS, REASON_OVERFLOW,
)
from xump_ext.state.envelope cimport names_queue_now, target_of
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, route_t, selector_t, store_t, tally_t, visited_t
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.visited cimport rests, tally_flag, tally_refused, visited_add, visited_has, visited_release


cdef bint make_copies(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1:
    """Makes the copies of all selectors that may act, in order of id. Whether one of them acted, now or in its replay."""
    cdef bint copied = False
    cdef selector_t* selector
    cdef uint32_t i
    engine.copies_leave = engine.store_count > 1 and entry.queue.durable and copies_leave(entry, route)
    for i in range(route.copy_count):
        prefetch_tail(route.copies[i].target)
        selector = route.copies[i].selector
        if entry.id < selector.start and not comes_now(selector, entry):
            copied |= entry.id >= selector.replayed
        elif selector.enabled and names_queue_now(selector, entry):
            copied = True
            make_copy(engine, selector, entry, visited)
    return copied


cdef bint copies_leave(entry_t* entry, route_t* route) except -1:
    """Whether a copy may go to another store than the message is in, or become a dead letter there. Then a crash may bring the
    message back unrouted, and the copies in its own store are made twice."""
    cdef store_t* store = entry.queue.store
    cdef queue_t* target
    cdef letters_t to
    cdef uint32_t i
    if route.copy_count == 0:
        return False
    if hops_of(entry.queue.engine, entry) >= entry.queue.engine.hop_limit:
        return is_elsewhere(dead_letter_of(entry.queue.engine, entry, &to.namer), store)
    for i in range(route.copy_count):
        target = target_of(route.copies[i].selector, content_at(entry))
        if target != NULL and (is_elsewhere(target, store) or is_elsewhere(own_dead_letter(target), store)):
            return True
    return False


cdef inline bint is_elsewhere(const queue_t* queue, const store_t* store) noexcept:
    return queue != NULL and queue.durable and queue.store != store


cdef int make_copy(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1:
    """Makes one copy into the target, unless the message has visited it. A copy that cannot enter is dead-lettered or dropped."""
    cdef queue_t* target = target_of(selector, content_at(entry))
    cdef content_t* content
    cdef letters_t to
    cdef uint32_t hops = hops_of(engine, entry) + 1
    cdef bint fresh = is_fresh(engine, entry)
    if target == NULL or visited_has(visited, target.slot):
        return 0
    if hops > engine.hop_limit:
        visited_add(visited, target.slot)
        to.queue = dead_letter_of(engine, entry, &to.namer)
        return drop_copy(engine, selector, entry, &to, entry.queue, REASON_HOPS, visited)
    if (target.ready >= target.limit or target.durable) and not can_enter(target, content_at(entry), ending_of(entry)):
        visited_add(visited, target.slot)
        to.queue = own_dead_letter(target)
        to.namer = target
        return drop_copy(engine, selector, entry, &to, target, REASON_OVERFLOW, visited)
    selector.copied += 1
    if visited.tally != NULL and not fresh and rests(target):
        visited.tally.copies += 1
    content = content_share(copied_content(engine, entry))
    if engine.store_count == 0:
        enter(engine, target, content, hops, 0, DEAD_IN_RUN if fresh else 0, NULL, visited)
        return 0
    return enter_copy(engine, entry, target, content, hops, DEAD_IN_RUN if fresh else 0, visited)


cdef inline const entry_t* ending_of(const entry_t* entry) noexcept:
    """The message that ends when its copies are made; NULL: it stays."""
    return entry if entry.queue.transit else NULL


cdef inline content_t* copied_content(engine_t* engine, entry_t* entry) except NULL:
    """The content that is copied: the content as it came, by whichever of its addresses it is routed now."""
    return content_at(entry) if engine.original == NULL else engine.original


cdef int enter_copy(
    engine_t* engine, entry_t* entry, queue_t* target, content_t* content, uint32_t hops, int flags, visited_t* visited
) except -1:
    """A copy of `entry` enters. In another store than the durable message behind `entry` it has that as its origin: a crash may
    leave the copy there, and the message where it is copied again."""
    cdef store_t* behind = NULL
    cdef uint32_t number = 0
    cdef uint64_t id = 0
    cdef queue_t* holder
    if target.durable:
        gone_note(engine, entry)
        behind, number, id = engine.gone_store, engine.gone_queue, engine.gone_id
        if behind == target.store:
            engine.gone_queue = engine.gone_id = 0      # which does not end with it
            engine.gone_held |= engine.copies_leave
    enter(engine, target, content, hops, 0, flags, NULL, visited)
    engine.gone_store = NULL
    went_to(engine, target)
    if entry.queue.durable:
        return log_copied(entry)
    if behind != NULL and behind != target.store:
        holder = store_queue(behind, number)
        if holder != NULL:
            log_late(holder, id)
    return 0


cdef int drop_copy(
    engine_t* engine, selector_t* selector, entry_t* entry, const letters_t* letters, queue_t* origin, int reason,
    visited_t* visited
) except -1:
    """Puts a copy that could not be made into its dead letter queue, `letters`, else drops it and counts it at its selector.
    `origin` is the queue where the dead-lettering is counted."""
    cdef content_t* content
    cdef visited_t* trip = NULL
    cdef list barred
    cdef tally_t* tally = NULL if is_fresh(engine, entry) else visited.tally
    if tally != NULL and reason == REASON_OVERFLOW:
        tally_refused(tally)
    if letters.queue != NULL and not is_fresh(engine, entry):
        barred = letter_bars(letters)
        content = letter_made(
            engine, letters, copied_content(engine, entry), (<object> origin.handle).name, reason, None, NULL, barred)
        if not is_barred(letters, barred) and can_enter(letters.queue, content, ending_of(entry)):
            origin.dead_lettered[reason] += 1
            if origin.durable:
                touch(origin)
            tally_flag(visited, OUTCOME_DEAD_LETTERED)
            if barred:
                visited = trip = letter_trip(engine, letters, barred)
            # one hop for the copy, and one for the bounce
            enter_copy(engine, entry, letters.queue, content, clamp(hops_of(engine, entry) + 2), DEAD_IN_RUN | DEAD_ENTRY,
                       visited)
            visited_release(engine, trip)
            return 0
        content_release(content)
    if tally != NULL:
        tally.flags |= OUTCOME_DROPPED
    selector.dropped += 1
    return 0
