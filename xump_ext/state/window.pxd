"""The window of a queue: the message ids that it remembers, so that a publish that comes twice enters once.

    records, oldest first     {hash of the message_id, time, id of the message}, 32 bytes, in chunks of 32
    table                     where the newest record of a hash is, 15 places to a cache line

Of a message_id the window has a hash of 128 bits, under a key that nobody outside knows: two ids with one hash are not found by
trying. A place of the table has the position of a record in its low bits, and in the others, 11 of 32 with a million ids, a *tag*
out of the hash. So a look-up reads one cache line of the table, and a record only if it is there, as good as always. A bucket
that is full passes items on to the next one and counts them; nobody looks further than that says. So removing leaves no mark.

Finding, adding and forgetting cost O(1), and none of them walks over the window: a table that is too small, or too large, is
followed by another one, into which each addition moves four records; what is forgotten leaves the table in the same way.
A full window takes 39 to 46 bytes an id, and up to 52 for a while when a table has followed.

**Forgetting.** A message_id is known if it is among the newest `limit`, and came less than `span` nanoseconds ago. `find` looks
at both, so that rows of one call find each other as if what is too old were gone. `trim` forgets it, when a call has succeeded.
A call that fails takes back what it added, and has forgotten nothing. Times never fall: one that does, since the clock ran back,
is taken for that of the record before.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from xump_ext.memory.prefetch cimport prefetch
from xump_ext.memory.siphash cimport hash128_t, siphash

cdef enum:
    CHUNK_SHIFT = 5
    CHUNK_RECORDS = 32      # 1,024 bytes, the largest cell of a slab
    BUCKET_SLOTS = 15
    BUCKET_FULL = 10        # a table is followed by a larger one when so many of the slots of a bucket are used on average

cdef struct record_t:
    hash128_t hash
    int64_t time
    uint64_t id

cdef struct bucket_t:       # a cache line
    uint32_t slots[BUCKET_SLOTS]
    uint16_t used           # a bit for each slot
    uint16_t passed         # items that were passed on from here, as it was full; 65,535: or more, ever

cdef struct table_t:
    bucket_t* buckets       # NULL: there is no table
    uint64_t mask           # how many, a power of two, - 1
    uint32_t positions      # the bits of a slot that are a position; the others are the tag
    uint64_t end            # no number of a record in it is as high

cdef struct window_t:
    int64_t span
    uint64_t limit
    uint64_t key            # of the hash
    uint64_t more_key
    uint64_t first          # records are numbered: the oldest that is remembered …
    uint64_t next           # … and the next one that comes
    uint64_t cleared        # those below `first` from here on are still in the tables
    record_t** chunks       # ring, by the number of the chunk
    uint64_t chunk_mask
    uint64_t chunk_end      # the number of the first chunk that there is not
    table_t table
    table_t before          # the one that it follows, until all its records have moved
    uint64_t moved          # records below are in `table`
    hash128_t asked         # the hash of the message_id that was last looked for …
    const void* asked_for   # … and its content, whose address it is known by until it is remembered; NULL: none
    uint64_t unknown        # no table had `asked` when the number of the next record was this, less one; 0: it was not looked for
    uint64_t replaced       # the record below was the last one whose hash was in the table already; 0: none

cdef window_t* window_new(int64_t span, uint64_t limit, uint64_t key, uint64_t more_key) except NULL
cdef void window_free(window_t* window) noexcept
# The id of the message that came with this message_id less than `span` ago, among the newest `limit`; 0: none did.
cdef uint64_t window_find(const window_t* window, const hash128_t* hash, int64_t now) noexcept
# The same for `window.asked`, and `window_add` of that looks for it no more.
cdef uint64_t window_ask(window_t* window, int64_t now) noexcept
# Room for one more. MemoryError: nothing has changed.
cdef int window_reserve(window_t* window) except -1
# Remembers a message; its id is higher than all before. Reserve first.
cdef void window_add(window_t* window, const hash128_t* hash, uint64_t id, int64_t time) noexcept
# Forgets what is too old. The id of the last message that it forgot: those with lower ids are forgotten, too. 0: nothing was.
cdef uint64_t window_trim(window_t* window, int64_t now) noexcept
# Forgets what was added since; `mark` is what `window_mark` returned then. Nothing may have been trimmed in between.
cdef void window_undo_to(window_t* window, uint64_t mark) noexcept
cdef uint64_t window_bytes(const window_t* window) noexcept
# InvariantError if records and tables do not agree. O(n).
cdef int window_check(const window_t* window) except -1

cdef inline hash128_t window_hash(const window_t* window, const char* text, size_t size) noexcept nogil:
    """Of a message_id in UTF-8."""
    return siphash(window.key, window.more_key, text, size)

cdef inline void window_fetch(const window_t* window, const hash128_t* hash) noexcept nogil:
    """Has the memory fetched that `window_find` will read: there is something else to be done until then."""
    if window.table.buckets != NULL:
        prefetch(&window.table.buckets[hash.low & window.table.mask])

cdef inline uint64_t window_mark(const window_t* window) noexcept nogil:
    return window.next

cdef inline uint64_t window_count(const window_t* window) noexcept nogil:
    return window.next - window.first

cdef inline const record_t* window_record(const window_t* window, uint64_t at) noexcept nogil:
    """The record at 0 ≤ `at` < count, the oldest first: for whoever saves them. `window_add` makes the same window of them."""
    return record_numbered(window, window.first + at)

cdef inline record_t* record_numbered(const window_t* window, uint64_t number) noexcept nogil:
    return &window.chunks[(number >> CHUNK_SHIFT) & window.chunk_mask][number & (CHUNK_RECORDS - 1)]
