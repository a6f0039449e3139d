"""The index that finds a queue's entries by id: adding, removing and searching its pages.

The theory, and the short functions that every message uses, are in `index.pxd`.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from xump_ext.memory.slab cimport cell_put, cell_zeroed
from xump_ext.state.graph cimport PAGE_SHIFT, PAGE_SLOTS, entry_t, index_t, page_t

cdef enum:
    TABLE_MIN = 8


# ---- pages

cdef void table_put(index_t* index, page_t* page) noexcept:
    cdef uint32_t at = page_home(index, page.number)
    while index.table[at] != NULL:
        at = (at + 1) & index.mask
    index.table[at] = page


cdef int table_resize(index_t* index, uint32_t size) except -1:
    cdef page_t** table = <page_t**> calloc(size, sizeof(page_t*))
    cdef page_t* page
    if table == NULL:
        raise MemoryError()
    free(index.table)
    index.table = table
    index.mask = size - 1
    page = index.head
    while page != NULL:
        table_put(index, page)
        page = page.next
    return 0


cdef inline uint32_t page_rank(uint64_t number) noexcept:
    # Neighbours must get unrelated ranks. One multiplication carries the number into the high bits; the shift and a second
    # multiplication carry those down again.
    number *= 0x9E3779B97F4A7C15ULL
    return <uint32_t> (((number ^ number >> 32) * 0xBF58476D1CE4E5B9ULL) >> 32)


cdef void tree_add(index_t* index, page_t* page) noexcept:
    """Puts the page below those of higher rank and above the rest, which is split into lower and higher numbers."""
    cdef page_t** link = &index.root
    cdef page_t** lower = &page.lower
    cdef page_t** higher = &page.higher
    cdef page_t* other
    page.rank = page_rank(page.number)
    while link[0] != NULL and link[0].rank >= page.rank:
        link = &link[0].lower if page.number < link[0].number else &link[0].higher
    other = link[0]
    link[0] = page
    while other != NULL:
        if other.number < page.number:
            lower[0] = other
            lower = &other.higher
            other = other.higher
        else:
            higher[0] = other
            higher = &other.lower
            other = other.lower
    lower[0] = higher[0] = NULL


cdef void tree_remove(index_t* index, page_t* page) noexcept:
    """Takes the page out; its two subtrees are zipped together in its place."""
    cdef page_t** link = &index.root
    cdef page_t* lower = page.lower
    cdef page_t* higher = page.higher
    while link[0] != page:
        link = &link[0].lower if page.number < link[0].number else &link[0].higher
    while lower != NULL and higher != NULL:
        if lower.rank >= higher.rank:
            link[0] = lower
            link = &lower.higher
            lower = lower.higher
        else:
            link[0] = higher
            link = &higher.lower
            higher = higher.lower
    link[0] = higher if lower == NULL else lower


cdef page_t* page_from(const index_t* index, uint64_t number) noexcept:
    """The first page of that number or a higher one, or NULL."""
    cdef page_t* page = index.root
    cdef page_t* found = NULL
    while page != NULL:
        if page.number < number:
            page = page.higher
        else:
            found = page
            page = page.lower
    return found


cdef page_t* page_new(index_t* index, uint64_t number) except NULL:
    """Adds a page behind all others."""
    if index.tail != NULL and index.tail.live == 0:
        page_remove(index, index.tail)
    return page_before(index, number, NULL)


cdef page_t* page_before(index_t* index, uint64_t number, page_t* next) except NULL:
    """Adds a page before `next`, or as the last one."""
    cdef page_t* page
    if index.table == NULL:
        table_resize(index, TABLE_MIN)
    elif index.count * 2 > index.mask:
        table_resize(index, (index.mask + 1) * 2)
    page = <page_t*> cell_zeroed(sizeof(page_t))
    page.number = number
    page.next = next
    page.previous = index.tail if next == NULL else next.previous
    if page.previous == NULL:
        index.head = page
    else:
        page.previous.next = page
    if next == NULL:
        index.tail = page
    else:
        next.previous = page
    index.count += 1
    table_put(index, page)
    tree_add(index, page)
    return page


cdef int index_insert(index_t* index, entry_t* entry) except -1:
    """Adds an entry of any id that is not there yet. O(log pages)."""
    cdef uint64_t number = entry.id >> PAGE_SHIFT
    cdef page_t* page = index_page(index, number)
    cdef page_t* next
    if page == NULL:
        next = page_from(index, number)
        page = page_new(index, number) if next == NULL else page_before(index, number, next)
    page.slots[entry.id & (PAGE_SLOTS - 1)] = entry
    page.live += 1
    return 0


cdef page_t* page_find(const index_t* index, uint64_t number) noexcept:
    cdef uint32_t at
    if index.tail == NULL or number > index.tail.number:
        return NULL
    at = page_home(index, number)
    while index.table[at] != NULL:
        if index.table[at].number == number:
            return index.table[at]
        at = (at + 1) & index.mask
    return NULL


cdef void page_remove(index_t* index, page_t* page) noexcept:
    table_remove(index, page)
    tree_remove(index, page)
    if page.previous == NULL:
        index.head = page.next
    else:
        page.previous.next = page.next
    if page.next == NULL:
        index.tail = page.previous
    else:
        page.next.previous = page.previous
    index.count -= 1
    cell_put(page, sizeof(page_t))
    if index.mask >= TABLE_MIN * 2 and index.count * 8 < index.mask:
        try:
            table_resize(index, (index.mask + 1) // 2)
        except MemoryError:
            pass        # the large table stays


cdef void table_remove(index_t* index, page_t* page) noexcept:
    """Takes the page out of the table. Later pages of the probe sequence move up into the hole, so no tombstones gather."""
    cdef uint32_t hole = page_home(index, page.number), at, home
    while index.table[hole] != page:
        hole = (hole + 1) & index.mask
    at = hole
    while True:
        at = (at + 1) & index.mask
        if index.table[at] == NULL:
            break
        home = page_home(index, index.table[at].number)
        if ((at - home) & index.mask) >= ((at - hole) & index.mask):
            index.table[hole] = index.table[at]
            hole = at
    index.table[hole] = NULL


cdef void index_free(index_t* index) noexcept:
    """Frees the pages, not their entries."""
    cdef page_t* page
    while index.head != NULL:
        page = index.head
        index.head = page.next
        cell_put(page, sizeof(page_t))
    free(index.table)
    index.table = NULL
    index.tail = index.root = NULL
    index.count = index.mask = 0


cdef entry_t* index_from(const index_t* index, uint64_t id) noexcept:
    cdef uint64_t number = id >> PAGE_SHIFT
    cdef uint32_t slot = 0
    cdef page_t* page = index_page(index, number)
    if page != NULL:
        slot = <uint32_t> (id & (PAGE_SLOTS - 1))
    else:
        page = page_from(index, number)
    while page != NULL:
        while slot < PAGE_SLOTS:
            if page.slots[slot] != NULL:
                return page.slots[slot]
            slot += 1
        slot = 0
        page = page.next
    return NULL


cdef entry_t* index_until(const index_t* index, uint64_t id) noexcept:
    cdef uint64_t number = id >> PAGE_SHIFT
    cdef int slot = PAGE_SLOTS - 1
    cdef page_t* page = index_page(index, number)
    if page != NULL:
        slot = <int> (id & (PAGE_SLOTS - 1))
    else:
        page = page_from(index, number)
        page = index.tail if page == NULL else page.previous
    while page != NULL:
        while slot >= 0:
            if page.slots[slot] != NULL:
                return page.slots[slot]
            slot -= 1
        slot = PAGE_SLOTS - 1
        page = page.previous
    return NULL


cdef entry_t* index_since(const index_t* index, int64_t time) noexcept:
    cdef page_t* page = index.root
    cdef page_t* found = index.head
    cdef entry_t* entry
    while page != NULL:     # finds the last page whose first entry is before `time`; without one it stays the first page
        entry = page_first(page)
        if entry != NULL and entry.timestamp < time:
            found = page
            page = page.higher
        else:
            page = page.lower
    entry = NULL if found == NULL else page_first(found)
    while entry != NULL and entry.timestamp < time:
        entry = index_from(index, entry.id + 1)
    return entry


cdef inline entry_t* page_first(const page_t* page) noexcept:
    """The page's first entry; NULL in an empty last page."""
    cdef int slot
    for slot in range(PAGE_SLOTS):
        if page.slots[slot] != NULL:
            return page.slots[slot]
    return NULL
