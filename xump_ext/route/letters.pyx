"""Dead letters: which queue a message that cannot be processed goes to, and what it becomes on the way (rule 11)."""

from libc.stdint cimport uint8_t

from xump_ext.message.content cimport content_bounced
from xump_ext.message.headers cimport content_t
from xump_ext.message.rewriter cimport Rewriter, death_t, rewritten
from xump_ext.route.clock cimport time_of
from xump_ext.route.settling cimport hops_of
from xump_ext.state.constants cimport OUTCOME_UNROUTABLE, REASON_UNROUTABLE
from xump_ext.state.constants import REASONS
from xump_ext.state.envelope cimport queue_named
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, tally_t, visited_t
from xump_ext.state.visited cimport visited_add, visited_new, visited_release


cdef queue_t* own_dead_letter(queue_t* queue) except? NULL:
    """The dead letter queue that the queue itself names, or NULL. A queue that names itself counts as one without."""
    cdef queue_t* found
    if queue.dead_letter == NULL:
        return NULL
    found = queue_named(queue.engine, <object> queue.dead_letter)
    return NULL if found == queue or (found != NULL and found.dying) else found


cdef queue_t* dead_letter_of(engine_t* engine, const entry_t* entry, queue_t** namer) except? NULL:
    """The dead letter queue of a message: its queue's own, else that of the nearest queue upstream that still waits for its
    payment, else the engine's. NULL if there is none, or it is the queue that the message is in. `namer`: gets the queue that
    names it, or NULL."""
    cdef queue_t* queue = entry.queue
    cdef queue_t* found = NULL
    namer[0] = NULL
    while found == NULL and entry != NULL:
        found = own_dead_letter(entry.queue)
        namer[0] = entry.queue if found != NULL else NULL
        entry = entry.parent
    if found == NULL and engine.dead_letter != NULL:
        found = queue_named(engine, <object> engine.dead_letter)
    return NULL if found == queue or (found != NULL and found.dying) else found


cdef content_t* letter_made(
    engine_t* engine, const letters_t* letters, content_t* content, object origin, int reason, object detail,
    const entry_t* entry, list barred
) except NULL:
    """The content of a dead letter: as the rewriter makes it if the queue that names the dead letter queue has one, else with
    a bounced envelope. `entry`: the message, if it has entered. `barred`: gets names if the letter begins a trip of its own."""
    cdef death_t death
    cdef content_t* made
    cdef str name
    if letters.namer == NULL or letters.namer.rewriter == NULL:
        return content_bounced(content, origin, REASONS[reason], detail, False)
    name = (<object> letters.queue.handle).name
    death.reason, death.queue, death.letters = <void*> REASONS[reason], <void*> origin, <void*> name
    death.argument, death.detail = letters.namer.rewriter_argument, <void*> detail if detail is not None else NULL
    death.time = time_of(engine)
    death.id, death.timestamp, death.hops = 0, 0, 0
    if entry != NULL:
        death.id, death.timestamp, death.hops = entry.id, entry.timestamp, hops_of(engine, entry)
    made = rewritten(<Rewriter> letters.namer.rewriter, content, &death, barred)
    if made == NULL:
        return content_bounced(content, origin, REASONS[reason], detail, False)
    if death.begins:
        barred.append(None)         # even if no name is there
    return made


cdef list letter_bars(const letters_t* letters):
    """Where a rewriter puts names of barred queues; None if there is none."""
    return None if letters.namer == NULL or letters.namer.rewriter == NULL else []


cdef bint is_barred(const letters_t* letters, list barred):
    """Whether the dead letter may not even enter the dead letter queue."""
    return barred is not None and (<object> letters.queue.handle).name in barred


cdef visited_t* letter_trip(engine_t* engine, const letters_t* letters, list barred) except NULL:
    """The trip of a dead letter that begins one: it has been in the dead letter queue, and does not enter what is barred."""
    cdef visited_t* trip = visited_new(engine, letters.queue.slot)
    cdef queue_t* queue
    try:
        for name in barred or ():
            queue = queue_named(engine, name)
            if queue != NULL:
                visited_add(trip, queue.slot)
    except BaseException:
        visited_release(engine, trip)
        raise
    return trip


cdef int tally_left(tally_t* tally, const queue_t* queue, int reason, uint8_t flags) except -1:
    """The message, of which its publisher asks, left the queue. Where it was unroutable nobody has it."""
    tally.flags |= flags
    if reason == REASON_UNROUTABLE:
        tally.flags |= OUTCOME_UNROUTABLE
        tally.copies -= not queue.transit
    return 0
