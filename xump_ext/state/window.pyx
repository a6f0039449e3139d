"""The window of a queue: the message ids that it remembers, so that a publish that comes twice enters once.

`window.pxd` explains it.
"""

from libc.stdint cimport INT64_MIN
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from xump_ext.errors import InvariantError
from xump_ext.memory.slab cimport cell_get, cell_put, zeroed_get

cdef enum:
    PASSED_MANY = 0xFFFF
    MOVED_EACH = 4          # records that an addition moves to the next table: it is done long before that is full
    BUCKETS_MAX = 1 << 28   # 32 bits are a position then

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    typedef uint32_t xump_four __attribute__((vector_size(16)));

    /* Bits of the slots that are equal to `slot` in the bits of `mask`; a bucket has 16 words, of which the last is no slot. */
    static inline uint32_t xump_bucket_hits(const void *bucket, uint32_t slot, uint32_t mask) {
        const xump_four wanted = {slot, slot, slot, slot}, care = {mask, mask, mask, mask}, bits = {1, 2, 4, 8};
        xump_four words[4], hits;
        memcpy(words, bucket, 64);
        hits = (xump_four) (((words[0] ^ wanted) & care) == 0) & bits;
        hits |= (xump_four) (((words[1] ^ wanted) & care) == 0) & bits << 4;
        hits |= (xump_four) (((words[2] ^ wanted) & care) == 0) & bits << 8;
        hits |= (xump_four) (((words[3] ^ wanted) & care) == 0) & bits << 12;
        return hits[0] | hits[1] | hits[2] | hits[3];
    }
    """
    uint32_t bucket_hits "xump_bucket_hits"(const bucket_t* bucket, uint32_t slot, uint32_t mask)
    int __builtin_ctz(unsigned int bits)
    int __builtin_popcount(unsigned int bits)


cdef inline bint is_same(const hash128_t* hash, const hash128_t* other) noexcept:
    return hash.low == other.low and hash.high == other.high


# ---- tables

cdef inline bucket_t* home_of(const table_t* table, const hash128_t* hash) noexcept:
    return &table.buckets[hash.low & table.mask]


cdef inline bucket_t* bucket_after(const table_t* table, const bucket_t* bucket) noexcept:
    return &table.buckets[(bucket - table.buckets + 1) & table.mask]


cdef inline uint32_t slot_of(const table_t* table, const hash128_t* hash, uint64_t number) noexcept:
    return (<uint32_t> hash.high & ~table.positions) | (<uint32_t> number & table.positions)


cdef inline uint64_t number_of(const table_t* table, uint32_t slot) noexcept:
    """Of the record whose position is in the slot: a table holds fewer than there are positions, and those before its end."""
    return table.end - 1 - ((table.end - 1 - slot) & table.positions)


cdef int table_make(table_t* table, uint64_t buckets) except -1:
    if buckets > BUCKETS_MAX:
        raise MemoryError()
    table.buckets = <bucket_t*> zeroed_get(buckets * sizeof(bucket_t))
    table.mask = buckets - 1
    table.positions = <uint32_t> (buckets * 16 - 1)
    return 0


cdef void table_free(table_t* table) noexcept:
    if table.buckets != NULL:
        cell_put(table.buckets, (table.mask + 1) * sizeof(bucket_t))
    table.buckets = NULL


cdef uint32_t* table_find(const window_t* window, const table_t* table, const hash128_t* hash) noexcept:
    """The slot of the hash, or NULL."""
    cdef bucket_t* bucket = home_of(table, hash)
    cdef uint64_t number
    cdef uint32_t hits, at
    while True:
        hits = bucket_hits(bucket, slot_of(table, hash, 0), ~table.positions) & bucket.used
        while hits:
            at = __builtin_ctz(hits)
            number = number_of(table, bucket.slots[at])
            if is_same(&record_numbered(window, number).hash, hash):
                return &bucket.slots[at]
            hits &= hits - 1
        if bucket.passed == 0:
            return NULL
        bucket = bucket_after(table, bucket)


cdef void table_insert(table_t* table, const hash128_t* hash, uint64_t number) noexcept:
    cdef bucket_t* bucket = home_of(table, hash)
    cdef uint32_t at
    while bucket.used == (1 << BUCKET_SLOTS) - 1:
        if bucket.passed < PASSED_MANY:
            bucket.passed += 1
        bucket = bucket_after(table, bucket)
    at = __builtin_ctz(~<uint32_t> bucket.used)
    bucket.slots[at] = slot_of(table, hash, number)
    bucket.used |= <uint16_t> (1 << at)


cdef void table_remove(table_t* table, const hash128_t* hash, uint64_t number) noexcept:
    """Removes the slot of this very record, if it has one: a newer one with the same hash may have taken it."""
    cdef bucket_t* home = home_of(table, hash)
    cdef bucket_t* bucket = home
    cdef uint32_t hits = bucket_hits(bucket, slot_of(table, hash, number), 0xFFFFFFFF) & bucket.used
    while hits == 0:
        if bucket.passed == 0:
            return
        bucket = bucket_after(table, bucket)
        hits = bucket_hits(bucket, slot_of(table, hash, number), 0xFFFFFFFF) & bucket.used
    bucket.used &= <uint16_t> ~(hits & -hits)
    while home != bucket:
        if home.passed < PASSED_MANY:
            home.passed -= 1
        home = bucket_after(table, home)


cdef bint table_put(window_t* window, const hash128_t* hash, uint64_t number) noexcept:
    """Has the newest record with this hash found in the table; whether there was one."""
    cdef uint32_t* slot = table_find(window, &window.table, hash)
    if slot == NULL:
        table_insert(&window.table, hash, number)
        return False
    if number_of(&window.table, slot[0]) < number:
        slot[0] = slot_of(&window.table, hash, number)
    return True


# ---- one table follows another

cdef int table_follow(window_t* window, uint64_t buckets) except -1:
    """Begins with a new table; the records move there little by little."""
    cdef table_t table
    table_make(&table, buckets)
    table.end = window.next
    window.before = window.table
    window.table = table
    window.moved = window.cleared
    return 0


cdef void move_some(window_t* window, uint64_t count) noexcept:
    cdef const record_t* record
    while count and window.moved < window.before.end:
        record = record_numbered(window, window.moved)
        if table_put(window, &record.hash, window.moved):
            window.replaced = window.next
        window.moved += 1
        count -= 1
        if window.moved + MOVED_EACH < window.before.end:
            prefetch(home_of(&window.table, &record_numbered(window, window.moved + MOVED_EACH).hash))
    if window.moved >= window.before.end:
        table_free(&window.before)


cdef void clear_some(window_t* window, uint64_t count) noexcept:
    """Ids that were forgotten leave the tables."""
    cdef const record_t* record
    cdef uint64_t number
    while count and window.cleared < window.first:
        number = window.cleared
        record = record_numbered(window, number)
        table_remove(&window.table, &record.hash, number)
        if window.before.buckets != NULL and number < window.before.end:
            table_remove(&window.before, &record.hash, number)
        window.cleared += 1
        if window.cleared % CHUNK_RECORDS == 0:
            cell_put(window.chunks[(number >> CHUNK_SHIFT) & window.chunk_mask], CHUNK_RECORDS * sizeof(record_t))
        count -= 1
    window.moved = max(window.moved, window.cleared)
    if window.cleared + 4 * MOVED_EACH < window.next:   # what will be cleared soon
        prefetch(home_of(&window.table, &record_numbered(window, window.cleared + MOVED_EACH).hash))
        prefetch(record_numbered(window, window.cleared + 4 * MOVED_EACH))


# ---- the window

cdef window_t* window_new(int64_t span, uint64_t limit, uint64_t key, uint64_t more_key) except NULL:
    cdef window_t* window = <window_t*> cell_get(sizeof(window_t))
    memset(window, 0, sizeof(window_t))
    window.span = span
    window.limit = limit
    window.key = key
    window.more_key = more_key
    return window


cdef void window_free(window_t* window) noexcept:
    window_empty(window)
    cell_put(window, sizeof(window_t))


cdef void window_empty(window_t* window) noexcept:
    """Gives all memory back; the numbers go on."""
    cdef uint64_t chunk
    for chunk in range(window.cleared >> CHUNK_SHIFT, window.chunk_end):
        cell_put(window.chunks[chunk & window.chunk_mask], CHUNK_RECORDS * sizeof(record_t))
    free(window.chunks)
    table_free(&window.table)
    table_free(&window.before)
    window.chunks = NULL
    window.chunk_mask = 0
    window.first = window.cleared = window.moved = window.next
    window.chunk_end = window.next >> CHUNK_SHIFT


cdef uint64_t window_find(const window_t* window, const hash128_t* hash, int64_t now) noexcept:
    return known_id(window, known_number(window, hash), now)


cdef uint64_t window_ask(window_t* window, int64_t now) noexcept:
    cdef uint64_t number = known_number(window, &window.asked)
    window.unknown = window.next + 1 if number == 0 else 0
    return known_id(window, number, now)


cdef inline uint64_t known_number(const window_t* window, const hash128_t* hash) noexcept:
    """The number after that of the newest record with this hash; 0: there is none."""
    cdef uint64_t number = newest(window, &window.table, hash)
    if window.before.buckets != NULL:       # a newer one may not have moved yet
        number = max(number, newest(window, &window.before, hash))
    return number


cdef inline uint64_t known_id(const window_t* window, uint64_t number, int64_t now) noexcept:
    cdef const record_t* record
    if number == 0 or number - 1 < window.first or window.next - number >= window.limit:
        return 0
    record = record_numbered(window, number - 1)
    return 0 if is_past(window, record.time, now) else record.id


cdef inline uint64_t newest(const window_t* window, const table_t* table, const hash128_t* hash) noexcept:
    """The number after that of the record that the table has for this hash; 0: none."""
    cdef uint32_t* slot = table_find(window, table, hash) if table.buckets != NULL else NULL
    return number_of(table, slot[0]) + 1 if slot != NULL else 0


cdef inline bint is_past(const window_t* window, int64_t time, int64_t now) noexcept:
    return now >= time and <uint64_t> now - <uint64_t> time >= <uint64_t> window.span


cdef int window_reserve(window_t* window) except -1:
    cdef uint64_t count = window.next - window.cleared, buckets = window.table.mask + 1
    if window.table.buckets == NULL:
        table_make(&window.table, 1)
    elif window.before.buckets == NULL and count >= buckets * BUCKET_FULL:
        table_follow(window, buckets * 2)
    elif window.before.buckets == NULL and count * 8 < buckets * BUCKET_FULL and buckets > 1:
        table_follow(window, buckets // 2)
    if window.next >> CHUNK_SHIFT == window.chunk_end:
        chunk_new(window)
    return 0


cdef int chunk_new(window_t* window) except -1:
    cdef void* chunk
    if window.chunks == NULL or window.chunk_end - (window.cleared >> CHUNK_SHIFT) > window.chunk_mask:
        chunks_enlarge(window)
    chunk = cell_get(CHUNK_RECORDS * sizeof(record_t))
    window.chunks[window.chunk_end & window.chunk_mask] = <record_t*> chunk
    window.chunk_end += 1
    return 0


cdef int chunks_enlarge(window_t* window) except -1:
    cdef uint64_t size = 1 if window.chunks == NULL else 2 * (window.chunk_mask + 1), chunk
    cdef record_t** chunks = <record_t**> calloc(size, sizeof(record_t*))
    if chunks == NULL:
        raise MemoryError()
    for chunk in range(window.cleared >> CHUNK_SHIFT, window.chunk_end):
        chunks[chunk & (size - 1)] = window.chunks[chunk & window.chunk_mask]
    free(window.chunks)
    window.chunks = chunks
    window.chunk_mask = size - 1
    return 0


cdef void window_add(window_t* window, const hash128_t* hash, uint64_t id, int64_t time) noexcept:
    cdef uint64_t number = window.next
    cdef record_t* record = record_numbered(window, number)
    if number > window.first:
        time = max(time, record_numbered(window, number - 1).time)
    record.hash = hash[0]
    record.time = time
    record.id = id
    window.next = window.table.end = number + 1
    if hash == &window.asked and window.unknown == number + 1:
        table_insert(&window.table, hash, number)
    elif table_put(window, hash, number):
        window.replaced = number + 1
    clear_some(window, MOVED_EACH)
    if window.before.buckets != NULL:
        move_some(window, MOVED_EACH)


cdef uint64_t window_trim(window_t* window, int64_t now) noexcept:
    cdef uint64_t low = window.first, high = window.next, middle, id
    if window.next - low > window.limit:
        low = window.next - window.limit
    if low < high and is_past(window, record_numbered(window, low).time, now):
        while low < high:               # times rise: the first that is not past
            middle = low + (high - low) // 2
            if is_past(window, record_numbered(window, middle).time, now):
                low = middle + 1
            else:
                high = middle
    if low == window.first:
        return 0
    id = record_numbered(window, low - 1).id
    window.first = low
    if low == window.next:
        window_empty(window)
    return id


cdef void window_undo_to(window_t* window, uint64_t mark) noexcept:
    cdef const record_t* record
    cdef uint64_t number
    while window.next > mark:
        window.next -= 1
        record = record_numbered(window, window.next)
        table_remove(&window.table, &record.hash, window.next)
        if window.before.buckets != NULL and window.next < window.before.end:
            table_remove(&window.before, &record.hash, window.next)
    window.table.end = mark
    window.moved = min(window.moved, mark)
    window.before.end = min(window.before.end, mark)
    while window.chunk_end > (mark >> CHUNK_SHIFT) + 1:
        window.chunk_end -= 1
        cell_put(window.chunks[window.chunk_end & window.chunk_mask], CHUNK_RECORDS * sizeof(record_t))
    if window.replaced > mark:          # the older ones with the same hash are found again
        window.replaced = 0
        for number in range(window.cleared, mark):
            table_put(window, &record_numbered(window, number).hash, number)


# ---- its size, and its laws

cdef uint64_t table_bytes(const table_t* table) noexcept:
    return (table.mask + 1) * sizeof(bucket_t) if table.buckets != NULL else 0


cdef uint64_t window_bytes(const window_t* window) noexcept:
    cdef uint64_t chunks = window.chunk_end - (window.cleared >> CHUNK_SHIFT)
    cdef uint64_t places = window.chunk_mask + 1 if window.chunks != NULL else 0
    return (sizeof(window_t) + chunks * CHUNK_RECORDS * sizeof(record_t) + places * sizeof(record_t*)
            + table_bytes(&window.table) + table_bytes(&window.before))


cdef int wrong(str what) except -1:
    raise InvariantError(f"Recount: a window {what}")


cdef int window_check(const window_t* window) except -1:
    cdef const record_t* record
    cdef uint64_t number, found = 0
    cdef int64_t time = INT64_MIN
    if not window.cleared <= window.first <= window.next or window.table.buckets == NULL and window.cleared < window.next:
        return wrong("numbers its records wrongly")
    for number in range(window.cleared, window.next):
        record = record_numbered(window, number)
        if record.time < time:
            return wrong("has a record that is older than the one before")
        time = record.time
        found += newest(window, &window.table, &record.hash) == number + 1
        if max(newest(window, &window.table, &record.hash), newest(window, &window.before, &record.hash)) <= number:
            return wrong("does not find a record, or an older one than the newest")
    if window.table.buckets != NULL and table_used(&window.table) != found:
        return wrong(f"has {table_used(&window.table)} places for {found} records")
    return 0


cdef uint64_t table_used(const table_t* table) noexcept:
    cdef uint64_t i, used = 0
    for i in range(table.mask + 1):
        used += __builtin_popcount(table.buckets[i].used)
    return used
