"""Entries and the index that finds them by id. Leaves of the core: nothing here knows a rule.

Entries live in chunks of 64 KiB, so that one is had and given back in a few instructions and an emptied chunk goes back to
the system. A queue's index holds pointers to them in pages of 32 ids; a page lives while one of its entries does, the last one
also without. Pages hang in a list in order of id, a table finds one by number, and a tree finds the next one where there is
none: a treap, whose ranks are hashes of the numbers, so that it is as deep as a random tree, O(log pages), whatever comes and
goes. One starved message with 100,000,000 passed ones behind it costs one page.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc

from xump_ext.graph cimport PAGE_SHIFT, PAGE_SLOTS, chunk_t, engine_t, entry_t, index_t, list_t, page_t

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #define XUMP_CHUNK_BYTES 65536
    #define XUMP_CHUNK_ROOM (XUMP_CHUNK_BYTES - 16)     /* what malloc itself needs: else two chunks are never neighbours */
    #if defined(__SANITIZE_ADDRESS__)
    #define XUMP_CHUNKED 0      /* every entry by itself, so that the sanitizer sees its end */
    #else
    #define XUMP_CHUNKED 1
    #endif
    static inline void *xump_chunk_alloc(void) {
        void *chunk = NULL;
        return posix_memalign(&chunk, XUMP_CHUNK_BYTES, XUMP_CHUNK_ROOM) ? NULL : chunk;
    }
    /* Zeroed, and at the start of a cache line; given back by free(). */
    static inline void *xump_lines_alloc(size_t size) {
        void *memory = NULL;
        if (posix_memalign(&memory, 64, size)) return NULL;
        return memset(memory, 0, size);
    }
    """
    void* lines_alloc "xump_lines_alloc"(size_t size) noexcept nogil
    const bint XUMP_CHUNKED
    const uint32_t XUMP_CHUNK_BYTES
    const uint32_t XUMP_CHUNK_ROOM
    void* xump_chunk_alloc() noexcept nogil

cdef chunk_t* chunk_new(engine_t* engine) except NULL
cdef void chunk_has_room(engine_t* engine, chunk_t* chunk) noexcept
cdef void chunk_emptied(engine_t* engine, chunk_t* chunk) noexcept
cdef void chunks_free(engine_t* engine) noexcept

cdef inline entry_t* entry_new(engine_t* engine) except NULL:
    """Memory for an entry; whoever asks fills all of it."""
    cdef chunk_t* chunk
    cdef entry_t* entry
    if not XUMP_CHUNKED:
        entry = <entry_t*> malloc(sizeof(entry_t))
        if entry == NULL:
            raise MemoryError()
    else:
        chunk = engine.chunks
        if chunk == NULL:
            chunk = chunk_new(engine)
        entry = chunk.spare
        if entry != NULL:
            chunk.spare = entry.next
        else:
            entry = (<entry_t*> (<char*> chunk + sizeof(chunk_t))) + chunk.fresh
            chunk.fresh += 1
        chunk.live += 1
        if chunk.spare == NULL and chunk.fresh == (XUMP_CHUNK_ROOM - sizeof(chunk_t)) // sizeof(entry_t):
            chunk_full(engine, chunk)
    engine.entries += 1
    return entry

cdef inline void chunk_full(engine_t* engine, chunk_t* chunk) noexcept:
    """The first chunk with room has none any more."""
    engine.chunks = chunk.next
    if chunk.next != NULL:
        chunk.next.previous = NULL
    chunk.next = NULL
    chunk.listed = False

cdef inline void entry_free(engine_t* engine, entry_t* entry) noexcept:
    cdef chunk_t* chunk
    engine.entries -= 1
    if not XUMP_CHUNKED:
        free(entry)
        return
    chunk = <chunk_t*> (<uintptr_t> entry & ~<uintptr_t> (XUMP_CHUNK_BYTES - 1))
    entry.next = chunk.spare
    chunk.spare = entry
    chunk.live -= 1
    if not chunk.listed:
        chunk_has_room(engine, chunk)
    if chunk.live == 0:
        chunk_emptied(engine, chunk)

# ---- the index of a queue

cdef page_t* page_new(index_t* index, uint64_t number) except NULL
cdef page_t* page_find(const index_t* index, uint64_t number) noexcept
cdef void page_remove(index_t* index, page_t* page) noexcept
cdef void index_free(index_t* index) noexcept

cdef inline int index_add(index_t* index, entry_t* entry) except -1:
    """Ids only ever grow: a new entry belongs in the last page, or in a new one."""
    cdef uint64_t number = entry.id >> PAGE_SHIFT
    cdef page_t* page = index.tail
    if page == NULL or page.number != number:
        page = page_new(index, number)
    page.slots[entry.id & (PAGE_SLOTS - 1)] = entry
    page.live += 1
    return 0

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
    if page.live == 0 and page != index.tail:   # ids go on in the last one: a queue that holds one message at a time keeps it
        page_remove(index, page)

# The live entry with the lowest id from `id` on, or the highest up to it; NULL when there is none.
cdef entry_t* index_from(const index_t* index, uint64_t id) noexcept
cdef entry_t* index_until(const index_t* index, uint64_t id) noexcept
# The live entry with the lowest id that entered at `time` or later: times never descend along ids.
cdef entry_t* index_since(const index_t* index, int64_t time) noexcept
cdef page_t* page_from(const index_t* index, uint64_t number) noexcept

# ---- lists of entries

cdef inline void list_append(list_t* list, entry_t* entry) noexcept:
    entry.next = NULL
    entry.previous = list.tail
    if list.tail == NULL:
        list.head = entry
    else:
        list.tail.next = entry
    list.tail = entry
    list.count += 1

cdef inline void list_remove(list_t* list, entry_t* entry) noexcept:
    if entry.previous == NULL:
        list.head = entry.next
    else:
        entry.previous.next = entry.next
    if entry.next == NULL:
        list.tail = entry.previous
    else:
        entry.next.previous = entry.previous
    list.count -= 1
