"""Who may take, and what waits for them: the declarations of `credit.pyx`."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.block cimport content_t
from xump_ext.graph cimport (
    CHOOSY, DISCARD, clause_t, engine_t, entry_t, group_t, lane_t, place_t, queue_t, selector_t,
)


cdef enum:
    LOOK = 0        # the key of a line that was woken: no message has so low a sequence

cdef inline bint has_credit(const selector_t* selector, int64_t spent=0) noexcept:
    """`spent`: on paper, of what is available."""
    return selector.infinite or selector.available > spent or selector.verb == DISCARD

cdef inline bint is_able(const selector_t* selector) noexcept:
    return selector.enabled and has_credit(selector)

# Lines come before lanes where both wait for the same message: a step that starts with a line looks at the lanes too.
cdef inline uint64_t line_key(const entry_t* entry) noexcept:
    return entry.sequence << 1

cdef inline uint64_t lane_key(const entry_t* entry) noexcept:
    return entry.sequence << 1 | 1

cdef int selector_wake(engine_t* engine, selector_t* selector) except -1
cdef int stand_ready(selector_t* selector) except -1
cdef void selector_rest(selector_t* selector) noexcept
cdef int lane_wake(engine_t* engine, lane_t* lane) except -1
cdef int clause_wake(engine_t* engine, clause_t* clause) except -1
cdef lane_t* lane_of(const selector_t* selector, queue_t* target) except? NULL

cdef bint has_room_below_limit(const queue_t* queue, const entry_t* leaving) noexcept
cdef bint has_room(queue_t* target, entry_t* entry, const selector_t* selector) except -1
cdef bint overflow_would(queue_t* queue, content_t* content, queue_t** target) except -1
cdef bint overflow_has_room(queue_t* queue, content_t* content, entry_t* leaving) except -1
cdef bint may_put(engine_t* engine, selector_t* selector, entry_t* entry, queue_t* target) except -1

cdef int line_wake(engine_t* engine, queue_t* queue) except -1
cdef int line_look(engine_t* engine, queue_t* queue) except -1
cdef int lines_look(engine_t* engine) except -1
cdef void overflow_changed(engine_t* engine, queue_t* queue) noexcept
cdef int choosy_wake(engine_t* engine) except -1
cdef int room_used(engine_t* engine, queue_t* queue) except -1
cdef entry_t* line_next(engine_t* engine, queue_t* queue) except? NULL
cdef entry_t* place_oldest(const place_t* place) except? NULL
cdef bint waits_for(const place_t* place) except -1
cdef int place_leave(engine_t* engine, place_t* place) except -1

cdef inline int room_made(engine_t* engine, queue_t* queue) except -1:
    """A message left the ready ones of `queue`: its line moves, and so may those of queues that overflow into it."""
    if queue.line_head == NULL and not queue.overflown and engine.lists[CHOOSY] == NULL:
        return 0
    return room_used(engine, queue)

cdef int waiting_add(group_t* group, entry_t* entry) except -1
cdef int members_lower(group_t* group, uint64_t sequence) except -1
cdef void waiting_remove(group_t* group, entry_t* entry) noexcept
