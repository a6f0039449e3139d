"""Entries, lists of them, and the index that finds a queue's entries by id. Nothing here knows a rule.

An index holds pointers to entries in pages of 32 ids. A page is freed with the last of its entries; only the last page stays
when it is empty. The pages are in three structures:

- a list, in order of id;
- a hash table, which finds a page by its number;
- a tree, which finds the next page where that number has none. It is a treap: the ranks are hashes of the numbers. So it is as
  deep as a random tree, O(log pages), in whatever order pages come and go.

One starved message behind which 100,000,000 others have passed costs one page.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.memory.prefetch cimport prefetch
from xump_ext.memory.slab cimport cell_get, cell_put
from xump_ext.state.constants cimport APART, UNROUTED
from xump_ext.state.graph cimport PAGE_SHIFT, PAGE_SLOTS, engine_t, entry_t, index_t, list_t, page_t, queue_t
from xump_ext.state.schedule cimport extra_leave

cdef inline entry_t* entry_new(engine_t* engine) except NULL:
    """Memory for an entry; the caller fills in every field but `extra` and `rank`, which few entries have."""
    cdef entry_t* entry = <entry_t*> cell_get(sizeof(entry_t))
    engine.entries += 1
    entry.extra = NULL
    entry.rank = 0
    return entry

cdef inline void entry_free(engine_t* engine, entry_t* entry) noexcept:
    if entry.extra != NULL:
        extra_leave(engine, entry)
    plain_entry_free(engine, entry)

cdef inline void plain_entry_free(engine_t* engine, entry_t* entry) noexcept:
    """`entry_free` for one that has no extra."""
    engine.entries -= 1
    cell_put(entry, sizeof(entry_t))

cdef inline void prefetch_entry(const entry_t* entry) noexcept:
    prefetch(entry)
    prefetch(<const char*> entry + sizeof(entry_t) // 2)            # every second one lies in three cache lines
    prefetch(<const char*> entry + sizeof(entry_t) - 1)

# ---- the index of a queue

cdef inline uint32_t page_home(const index_t* index, uint64_t number) noexcept:
    # Page numbers come in runs of neighbours, which Fibonacci hashing spreads evenly over the highest bits of the product; over
    # lower ones, three of four pages meet another one. Where only every n-th page is left, and n is a Fibonacci number,
    # many meet; so each run of 65,536 is shifted by something else.
    cdef uint64_t product = number * 0x9E3779B97F4A7C15ULL + (number >> 16) * 0xBF58476D1CE4E5B9ULL
    return <uint32_t> ((product >> 32) * (<uint64_t> index.mask + 1) >> 32)

cdef page_t* page_new(index_t* index, uint64_t number) except NULL
cdef page_t* page_find(const index_t* index, uint64_t number) noexcept
cdef void page_remove(index_t* index, page_t* page) noexcept
cdef void index_free(index_t* index) noexcept

cdef inline int index_reserve(index_t* index, uint64_t id) except -1:
    """Makes sure that there is a page for `id`, the next one: ids only grow, so that is the last page or a new one."""
    if index.tail == NULL or index.tail.number != id >> PAGE_SHIFT:
        page_new(index, id >> PAGE_SHIFT)
    return 0

cdef inline void index_add(index_t* index, entry_t* entry) noexcept:
    """Adds a new entry, whose page is there: `index_reserve`."""
    index.tail.slots[entry.id & (PAGE_SLOTS - 1)] = entry
    index.tail.live += 1

# Where entries are removed in any order, finding the page misses the cache twice, unless this was called in time: one for the
# place in the table, one, some time later, for the page that is there.
cdef inline void prefetch_place(const index_t* index, uint64_t id) noexcept:
    if index.table != NULL:
        prefetch(index.table + page_home(index, id >> PAGE_SHIFT))

cdef inline void prefetch_page(const index_t* index, uint64_t id) noexcept:
    cdef page_t* page = NULL if index.table == NULL else index.table[page_home(index, id >> PAGE_SHIFT)]
    if page != NULL:
        prefetch(page)
        prefetch(&page.live)            # perhaps in another cache line
        prefetch(&page.slots[id & (PAGE_SLOTS - 1)])

cdef int index_insert(index_t* index, entry_t* entry) except -1

cdef inline page_t* index_page(const index_t* index, uint64_t number) noexcept:
    if index.tail != NULL and index.tail.number == number:
        return index.tail
    if index.head != NULL and index.head.number == number:
        return index.head
    return page_find(index, number)

cdef inline entry_t* index_get(const index_t* index, uint64_t id) noexcept:
    cdef page_t* page = index_page(index, id >> PAGE_SHIFT)
    return NULL if page == NULL else page.slots[id & (PAGE_SLOTS - 1)]

cdef inline void index_remove(index_t* index, entry_t* entry) noexcept:
    cdef page_t* page = index_page(index, entry.id >> PAGE_SHIFT)
    page.slots[entry.id & (PAGE_SLOTS - 1)] = NULL
    page.live -= 1
    if page.live == 0 and page != index.tail:   # the next ids need the last page: a queue of one message at a time keeps it
        page_remove(index, page)

# The entry with the lowest id from `id` on (`index_from`), or with the highest up to it (`index_until`); or NULL.
cdef entry_t* index_from(const index_t* index, uint64_t id) noexcept
cdef entry_t* index_until(const index_t* index, uint64_t id) noexcept
# The entry with the lowest id that entered at `time` or later, or NULL: times never descend along ids.
cdef entry_t* index_since(const index_t* index, int64_t time) noexcept
cdef page_t* page_from(const index_t* index, uint64_t number) noexcept

# ---- walks over all entries, in order of id

cdef struct cursor_t:
    page_t* page
    uint32_t slot

cdef inline cursor_t cursor_start(const queue_t* queue) noexcept:
    cdef cursor_t cursor
    cursor.page = queue.index.head
    cursor.slot = 0
    return cursor

cdef inline entry_t* cursor_step(cursor_t* cursor) noexcept:
    """The next entry, or NULL. No entry may be removed during the walk."""
    while cursor.page != NULL:
        while cursor.slot < PAGE_SLOTS:
            cursor.slot += 1
            if cursor.page.slots[cursor.slot - 1] != NULL:
                return cursor.page.slots[cursor.slot - 1]
        cursor.page = cursor.page.next
        cursor.slot = 0
    return NULL

# ---- lists of entries

cdef inline void list_append(list_t* list, entry_t* entry) noexcept:
    cdef entry_t* last = list.tail
    entry.next = NULL
    entry.link.previous = last
    if last == NULL:
        list.head = entry
    else:
        last.next = entry
    list.tail = entry
    list.count += 1

cdef inline void list_remove(list_t* list, entry_t* entry) noexcept:
    cdef entry_t* previous = entry.link.previous
    cdef entry_t* next = entry.next
    if previous == NULL:
        list.head = next
    else:
        previous.next = next
    if next == NULL:
        list.tail = previous
    else:
        next.link.previous = previous
    list.count -= 1

cdef inline entry_t* unrouted_from(const index_t* index, uint64_t id) noexcept:
    """The first unrouted entry from this id on that is not kept elsewhere; the caller knows that there is one."""
    cdef entry_t* entry = index_from(index, id)
    while entry.state != UNROUTED or entry.flags & APART:
        entry = index_from(index, entry.id + 1)
    return entry
