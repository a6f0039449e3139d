"""The schedule: what falls due when. It gives back the extras of entries (`extra_t`), each at its moment, in order.

    add ──► inbox ──► rest: a radix tree, unsorted ──► front: the next ones, sorted ──► pop

The order is by moment, then expiries before all else, then by age of the entry. Each extra is scheduled for one moment at most. A
new one takes the place of the old one; the item of the old one stays where it is, *stale*: nothing says where to find it. A
stale item is dropped when its turn comes. When more than half are stale, the next look at the schedule drops them all in a pass.

Adding and falling due cost O(1), however many are scheduled (`memory/radix.pxd`); a moment that is earlier than one that is past
is in order from then on. `front` is an array of at most 512: what is due before its last one goes to its place there, and if it
is full, half of it goes back to the tree.

A new item goes to the inbox first, where room was reserved. So what was reserved cannot fail. It goes on when somebody asks what
is next, or when the next 64 have come. Without memory for that the call that asks raises MemoryError, and nothing is lost.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t

from xump_ext.memory.prefetch cimport prefetch
from xump_ext.memory.radix cimport item_t
from xump_ext.state.constants cimport NEVER, TIMER_EXPIRY
from xump_ext.state.graph cimport engine_t, entry_t, extra_t, schedule_t

cdef enum:
    STALE_FEW = 64          # so many stale items are never too many
    EXTRAS_AHEAD = 24       # so far before their turn extras are fetched, and …
    ENTRIES_AHEAD = 10      # … their entries

# Room for so many more additions: until they are made nothing else is added. MemoryError: nothing has changed.
cdef int schedule_reserve(schedule_t* schedule, uint64_t count) except -1
# The moment of the next one; NEVER: there is none. MemoryError: as before.
cdef int64_t schedule_next(schedule_t* schedule) except? -1
cdef extra_t* schedule_take(schedule_t* schedule, int64_t until) except? NULL
# The entry ends. The schedule may refer to its extra: then it frees that when it comes to it.
cdef void extra_leave(engine_t* engine, entry_t* entry) noexcept
# Frees it all. Nothing is scheduled any more, whether or not the entries have ended.
cdef void schedule_free(schedule_t* schedule) noexcept
# InvariantError if its books (counters and links) are wrong. O(n).
cdef int schedule_check(const schedule_t* schedule) except -1

cdef inline uint64_t key_of(int64_t due) noexcept nogil:
    return <uint64_t> due ^ (<uint64_t> 1 << 63)       # moments before 1970 come first

cdef inline int64_t moment_of(uint64_t key) noexcept nogil:
    return <int64_t> (key ^ (<uint64_t> 1 << 63))

cdef inline bint is_live(const item_t* item) noexcept:
    """Whether it says what its extra says."""
    cdef const extra_t* extra = <const extra_t*> item.owner
    return key_of(extra.due) == item.key and (extra.timer != TIMER_EXPIRY) == item.rank >> 63

cdef inline uint64_t schedule_rank(uint8_t timer, uint64_t sequence) noexcept nogil:
    return sequence | <uint64_t> (timer != TIMER_EXPIRY) << 63

cdef inline uint64_t schedule_items(const schedule_t* schedule) noexcept nogil:
    """How many items there are, with the stale ones."""
    return schedule.inbox_count + schedule.front_count + schedule.rest.count

cdef inline void schedule_cancel(schedule_t* schedule, extra_t* extra) noexcept:
    """The extra is not scheduled any more; it may not have been."""
    if extra.due == NEVER:
        return
    extra.due = NEVER
    schedule.live -= 1
    if schedule_items(schedule) > 2 * schedule.live + STALE_FEW:
        schedule.soonest = INT64_MIN        # so that the next look at it drops them

cdef inline void schedule_add(schedule_t* schedule, extra_t* extra, int64_t due, uint8_t timer) noexcept:
    """`timer` happens to the extra's entry at `due`, which is not NEVER, and what was to happen to it does not. Reserve first."""
    cdef item_t* item
    if extra.due == due and extra.timer == timer:
        return
    if extra.due == NEVER:
        schedule.live += 1
    extra.due = due
    extra.timer = timer
    extra.scheduled += 1
    item = &schedule.inbox[schedule.inbox_count]
    item.key = key_of(due)
    item.rank = schedule_rank(timer, extra.entry.sequence)
    item.owner = extra
    schedule.inbox_count += 1
    if due < schedule.soonest:
        schedule.soonest = due

cdef inline bint schedule_is_due(const schedule_t* schedule, int64_t until) noexcept nogil:
    """False: nothing is due by then. True: ask `schedule_pop`."""
    return schedule.soonest <= until

# ---- a short way, while what is next lies sorted in front

cdef inline extra_t* schedule_front(const schedule_t* schedule) noexcept:
    """The first one. NULL: that is not known without a longer look, by `schedule_next`."""
    cdef const item_t* item
    if schedule.inbox_count or schedule.front_count < 2 or schedule.soonest == INT64_MIN:
        return NULL
    item = &schedule.front[schedule.front_count - 1]
    return <extra_t*> item.owner if is_live(item) else NULL

cdef inline int64_t schedule_behind(const schedule_t* schedule) noexcept:
    """After `schedule_front`: the others are not due before this."""
    return moment_of(schedule.front[schedule.front_count - 2].key)

cdef inline void schedule_front_gone(schedule_t* schedule, extra_t* extra) noexcept:
    """Takes the entry that `schedule_front` gave out of the schedule."""
    schedule.soonest = schedule_behind(schedule)
    schedule.front_count -= 1
    schedule.live -= 1
    extra.scheduled -= 1
    extra.due = NEVER
    fetch_ahead(schedule)

cdef inline void fetch_ahead(const schedule_t* schedule) noexcept:
    """Code that looks at a due item looks at its entry: each lies somewhere else in memory."""
    cdef const extra_t* extra
    cdef const entry_t* entry
    if schedule.front_count >= EXTRAS_AHEAD:
        extra = <const extra_t*> schedule.front[schedule.front_count - EXTRAS_AHEAD].owner
        prefetch(extra)
    if schedule.front_count >= ENTRIES_AHEAD:
        entry = (<const extra_t*> schedule.front[schedule.front_count - ENTRIES_AHEAD].owner).entry
        prefetch(entry)
        prefetch(<const char*> entry + sizeof(entry_t) - 1)

cdef inline extra_t* schedule_pop(schedule_t* schedule, int64_t until) except? NULL:
    """The first one that is due by then, and is not scheduled any more from now on; NULL: none is. MemoryError: as before."""
    if not schedule_is_due(schedule, until):
        return NULL
    return schedule_take(schedule, until)
