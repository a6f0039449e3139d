"""The schedule: what falls due when. It gives back the extras of entries (`extra_t`), each at its moment, in order.

`schedule.pxd` explains it.
"""

from libc.stdint cimport INT64_MIN, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from xump_ext.errors import InvariantError
from xump_ext.memory.radix cimport is_below, radix_add, radix_check, radix_filter, radix_take
from xump_ext.state.extra cimport extra_free

cdef enum:
    INBOX_FEW = 64
    FRONT_MAX = 512
    FRONT_TAKEN = 256       # at most so many come from the rest at a time: sorting them takes no allocation
    SORTED_FEW = 12         # so few are sorted by insertion
    SORT_DIGITS = 256

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long bits)
    int __builtin_popcountll(unsigned long long bits)


# ---- items

cdef void item_drop(const item_t* item) noexcept:
    cdef extra_t* extra = <extra_t*> item.owner
    extra.scheduled -= 1
    if extra.entry == NULL and extra.scheduled == 0:
        extra_free(extra)


cdef bint keeps_live(const item_t* item) noexcept:
    if is_live(item):
        return True
    item_drop(item)
    return False


cdef bint keeps_none(const item_t* item) noexcept:
    (<extra_t*> item.owner).due = NEVER
    item_drop(item)
    return False


cdef uint64_t array_filtered(item_t* items, uint64_t count, bint (*keeps)(const item_t*) noexcept) noexcept:
    cdef uint64_t i, kept = 0
    for i in range(count):
        if keeps(&items[i]):
            items[kept] = items[i]
            kept += 1
    return kept


cdef void schedule_filter(schedule_t* schedule, bint (*keeps)(const item_t*) noexcept) noexcept:
    schedule.inbox_count = array_filtered(schedule.inbox, schedule.inbox_count, keeps)
    schedule.front_count = <uint32_t> array_filtered(schedule.front, schedule.front_count, keeps)
    radix_filter(&schedule.rest, keeps)


cdef void extra_leave(engine_t* engine, entry_t* entry) noexcept:
    cdef extra_t* extra = entry.extra
    schedule_cancel(&engine.schedule, extra)
    entry.extra = NULL
    extra.entry = NULL
    if extra.scheduled == 0:
        extra_free(extra)


# ---- adding

cdef int schedule_reserve(schedule_t* schedule, uint64_t count) except -1:
    cdef uint64_t wanted = schedule.inbox_count + count
    if wanted <= schedule.inbox_capacity and (wanted <= INBOX_FEW or schedule.inbox_count == 0):
        return 0
    return inbox_enlarge(schedule, count)


cdef int inbox_enlarge(schedule_t* schedule, uint64_t count) except -1:
    """Room for `count` more in an emptied inbox; one that is larger than it has to be shrinks."""
    cdef uint64_t capacity = max(count, <uint64_t> INBOX_FEW)
    cdef void* memory
    if schedule.front == NULL:
        schedule.front = <item_t*> malloc(FRONT_MAX * sizeof(item_t))
        if schedule.front == NULL:
            raise MemoryError()
    inbox_place(schedule)
    if capacity != schedule.inbox_capacity:
        memory = realloc(schedule.inbox, capacity * sizeof(item_t))
        if memory == NULL:
            raise MemoryError()
        schedule.inbox = <item_t*> memory
        schedule.inbox_capacity = capacity
    return 0


cdef int inbox_place(schedule_t* schedule) except -1:
    """Puts all items of the inbox where they belong."""
    cdef item_t* item
    while schedule.inbox_count:
        item = &schedule.inbox[schedule.inbox_count - 1]
        if is_below(&schedule.limit, item):
            radix_add(&schedule.rest, item)
        else:
            front_insert(schedule, item)
        schedule.inbox_count -= 1
    return 0


cdef int front_insert(schedule_t* schedule, const item_t* item) except -1:
    cdef uint32_t low = 0, high, middle
    if schedule.front_count == FRONT_MAX:
        front_halve(schedule)
        if is_below(&schedule.limit, item):
            return radix_add(&schedule.rest, item)
    high = schedule.front_count
    while low < high:
        middle = (low + high) >> 1
        if is_below(item, &schedule.front[middle]):
            low = middle + 1
        else:
            high = middle
    memmove(&schedule.front[low + 1], &schedule.front[low], (schedule.front_count - low) * sizeof(item_t))
    schedule.front[low] = item[0]
    schedule.front_count += 1
    return 0


cdef int front_halve(schedule_t* schedule) except -1:
    """Gives the later half of the front back to the rest."""
    cdef uint32_t gone = 0
    try:
        while gone < FRONT_MAX // 2:
            radix_add(&schedule.rest, &schedule.front[gone])
            gone += 1
    finally:
        schedule.front_count -= gone
        memmove(schedule.front, &schedule.front[gone], schedule.front_count * sizeof(item_t))
        schedule.limit = schedule.front[0]
    return 0


# ---- falling due

cdef int64_t schedule_next(schedule_t* schedule) except? -1:
    cdef item_t* item
    if schedule.inbox_count == 0 and schedule.front_count and schedule.soonest != INT64_MIN:    # as after `schedule_take`, mostly
        item = &schedule.front[schedule.front_count - 1]
        if is_live(item):
            schedule.soonest = (<extra_t*> item.owner).due
            return schedule.soonest
    first_live(schedule)
    return schedule.soonest


cdef extra_t* schedule_take(schedule_t* schedule, int64_t until) except? NULL:
    cdef extra_t* extra = first_live(schedule)
    if extra == NULL or extra.due > until:
        return NULL
    schedule.front_count -= 1
    schedule.live -= 1
    extra.scheduled -= 1
    extra.due = NEVER
    fetch_ahead(schedule)
    return extra


cdef extra_t* first_live(schedule_t* schedule) except? NULL:
    """The first one, which is at the end of the front then; `soonest` is its moment. NULL: nothing is scheduled."""
    cdef item_t* item
    if schedule_items(schedule) > 2 * schedule.live + STALE_FEW:
        schedule_filter(schedule, keeps_live)
    if schedule.front_count == 0:       # the rest is sorted in larger parts than the front
        schedule.limit = item_t(0, 0, NULL)
    inbox_place(schedule)
    while schedule.front_count or schedule.rest.count:
        if schedule.front_count == 0:
            front_fill(schedule)
        item = &schedule.front[schedule.front_count - 1]
        if is_live(item):
            schedule.soonest = (<extra_t*> item.owner).due
            return <extra_t*> item.owner
        schedule.front_count -= 1
        item_drop(item)
    schedule.soonest = NEVER
    return NULL


cdef int front_fill(schedule_t* schedule) except -1:
    cdef item_t taken[FRONT_TAKEN]
    cdef int count = radix_take(&schedule.rest, taken, FRONT_TAKEN), i
    sort_falling(taken, schedule.front, count)
    for i in range(max(count - EXTRAS_AHEAD, 0), count):
        prefetch(schedule.front[i].owner)
    schedule.front_count = count
    schedule.limit = schedule.front[0]
    return 0


cdef void sort_falling(const item_t* items, item_t* sorted, int count) noexcept:
    """Sorts into another array, the last ones first: by the digit that tells most of them apart, then by insertion."""
    cdef uint32_t places[SORT_DIGITS]
    cdef uint64_t keys = 0, ranks = 0, word
    cdef uint32_t place = 0, digit
    cdef uint32_t last = SORT_DIGITS - 1
    cdef int i, shift
    if count <= SORTED_FEW:
        memcpy(sorted, items, count * sizeof(item_t))
        insert_falling(sorted, count)
        return
    for i in range(count):
        keys |= items[i].key ^ items[0].key
        ranks |= items[i].rank ^ items[0].rank
    if count <= SORT_DIGITS // 4:       # a digit for each item is enough
        last = SORT_DIGITS // 4 - 1
    shift = max(64 - __builtin_popcountll(last) - __builtin_clzll(keys if keys else ranks | 1), 0)
    memset(places, 0, (last + 1) * sizeof(uint32_t))
    for i in range(count):
        word = items[i].key if keys else items[i].rank
        places[word >> shift & last] += 1
    for digit in range(last + 1):
        place += places[last - digit]
        places[last - digit] = place
    for i in range(count - 1, -1, -1):
        word = items[i].key if keys else items[i].rank
        digit = <uint32_t> (word >> shift & last)
        places[digit] -= 1
        sorted[places[digit]] = items[i]
    insert_falling(sorted, count)


cdef void insert_falling(item_t* items, int count) noexcept:
    cdef item_t item
    cdef int i, at
    for i in range(1, count):
        item = items[i]
        at = i
        while at and is_below(&items[at - 1], &item):
            items[at] = items[at - 1]
            at -= 1
        items[at] = item


# ---- its end, and its laws

cdef void schedule_free(schedule_t* schedule) noexcept:
    schedule_filter(schedule, keeps_none)
    free(schedule.inbox)
    free(schedule.front)
    memset(schedule, 0, sizeof(schedule_t))


cdef int wrong(str what) except -1:
    raise InvariantError(f"Recount: the schedule {what}")


cdef int schedule_check(const schedule_t* schedule) except -1:
    cdef uint32_t i
    if schedule.inbox_count > schedule.inbox_capacity or schedule.front_count > FRONT_MAX:
        return wrong("has more items than places")
    if schedule.live > schedule_items(schedule):
        return wrong(f"counts {schedule.live} live items of {schedule_items(schedule)}")
    for i in range(schedule.front_count):
        if is_below(&schedule.limit, &schedule.front[i]) or (i and is_below(&schedule.front[i - 1], &schedule.front[i])):
            return wrong("is not in order")
    return radix_check(&schedule.rest)
