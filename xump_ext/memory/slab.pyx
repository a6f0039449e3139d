"""Slabs: cells of equal size, cut out of chunks, for the structs of the core. This half makes and frees chunks and regions."""

from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from xump_ext.errors import InvariantError

cdef extern from *:
    """
    #include <stdlib.h>
    #define XUMP_REGION_BYTES ((size_t) 32 * 65536)
    #if defined(__linux__)
    #include <sys/mman.h>
    /* Aligned, as huge pages must be: what lies before and behind is given back at once. */
    static void *xump_map(size_t size) {
        size_t unit = XUMP_REGION_BYTES, before;
        char *map = (char *) mmap(NULL, size + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == (char *) MAP_FAILED) return NULL;
        before = (unit - (size_t) map % unit) % unit;
        if (before) munmap(map, before);
        if (before < unit) munmap(map + before + size, unit - before);
        madvise(map + before, size, MADV_HUGEPAGE);     /* where it is not known, the pages are small ones */
        return map + before;
    }
    static void *xump_region_map(void) { return xump_map(XUMP_REGION_BYTES); }
    static void *xump_table_map(size_t size) { return xump_map((size + 4095) & ~(size_t) 4095); }
    static void xump_table_unmap(void *table, size_t size) { munmap(table, (size + 4095) & ~(size_t) 4095); }
    static void xump_huge(void *memory, size_t size) { madvise(memory, size, MADV_HUGEPAGE); }
    static void xump_region_unmap(void *region) { munmap(region, XUMP_REGION_BYTES); }
    #else
    static void *xump_region_map(void) {
        void *region = NULL;
        return posix_memalign(&region, XUMP_REGION_BYTES, XUMP_REGION_BYTES) ? NULL : region;
    }
    static void xump_huge(void *memory, size_t size) { (void) memory; (void) size; }
    static void xump_region_unmap(void *region) { free(region); }
    static void *xump_table_map(size_t size) { return calloc(1, size); }
    static void xump_table_unmap(void *table, size_t size) { (void) size; free(table); }
    #endif
    /* The system clears a page when it is first touched. */
    static void *xump_region_touched(void) {
        char *region = (char *) xump_region_map();
        for (size_t i = 0; region && i < XUMP_REGION_BYTES; i += 4096) ((volatile char *) region)[i] = 0;
        return region;
    }
    static void *xump_chunk_alloc(void) {
        void *chunk = NULL;
        return posix_memalign(&chunk, 65536, 65536 - 64) ? NULL : chunk;
    }
    """
    const size_t REGION_BYTES "XUMP_REGION_BYTES"
    void huge "xump_huge"(void* memory, size_t size) noexcept nogil
    void* table_map "xump_table_map"(size_t size) noexcept
    void table_unmap "xump_table_unmap"(void* table, size_t size) noexcept
    void* region_map "xump_region_map"() noexcept
    void* region_touched "xump_region_touched"() noexcept nogil
    void region_unmap "xump_region_unmap"(void* region) noexcept
    void* chunk_alloc "xump_chunk_alloc"() noexcept
    int posix_memalign(void** memory, size_t alignment, size_t size) noexcept nogil


cdef void* cell_large(size_t size) except NULL:
    """A cell outside the chunks. From half a huge page on it is mapped: such tables come and go, and malloc would keep them."""
    cdef void* memory
    if not CELLS or size < REGION_BYTES // 2:
        memory = memory_large(size)
    else:
        memory = table_map(size)
        if memory == NULL:
            raise MemoryError()
    cells.used += <int64_t> size
    return memory


cdef void* zeroed_get(size_t size) except NULL:
    cdef void* cell = cell_get(size)
    if not CELLS or size < REGION_BYTES // 2:
        memset(cell, 0, size)       # what is mapped is
    return cell


cdef void cell_large_put(void* cell, size_t size) noexcept:
    cells.used -= <int64_t> size
    if not CELLS or size < REGION_BYTES // 2:
        free(cell)
    else:
        table_unmap(cell, size)


cdef void* memory_large(size_t size) except NULL:
    """Memory in huge pages, if it is half of one or more."""
    cdef void* memory = NULL
    cdef size_t alignment = REGION_BYTES if size >= REGION_BYTES // 2 else 64 if size % 64 == 0 else 16
    if posix_memalign(&memory, alignment, size):
        raise MemoryError()
    if size >= REGION_BYTES // 2:
        huge(memory, size)
    return memory


cdef void* memory_zeroed(size_t size) noexcept nogil:
    cdef void* memory = NULL
    if size < REGION_BYTES // 2:
        return calloc(1, size)
    if posix_memalign(&memory, REGION_BYTES, size):
        return NULL
    huge(memory, size)
    return memset(memory, 0, size)


# ---- chunks

cdef chunk_t* chunk_new(uint32_t cell_bytes) except NULL:
    """An unused chunk, put first in the list of its size."""
    cdef chunk_t* chunk = cells.kept
    cdef region_t* region = NULL
    if chunk != NULL:
        cells.kept = chunk.next
    elif cells.from_malloc < REGION_CHUNKS:
        chunk = <chunk_t*> chunk_alloc()
        if chunk == NULL:
            raise MemoryError()
        cells.from_malloc += 1
    else:
        region = cells.regions
        if region == NULL:
            region = region_new()
        chunk = region_take(region)
    chunk.spare = NULL
    chunk.fresh = sizeof(chunk_t)
    chunk.live = 0
    chunk.region = region
    chunk.cell_bytes = cell_bytes
    cells.used += CHUNK_BYTES
    chunk_listed(chunk)
    return chunk


cdef inline void chunk_listed(chunk_t* chunk) noexcept:
    cdef chunk_t* other = cells.chunks[chunk.cell_bytes >> 3]
    chunk.listed = True
    chunk.previous = NULL
    chunk.next = other
    if other != NULL:
        other.previous = chunk
    cells.chunks[chunk.cell_bytes >> 3] = chunk


cdef void chunk_has_room(chunk_t* chunk) noexcept:
    """Lists a chunk that was full. An empty chunk from malloc that was alone in the list can go now."""
    cdef chunk_t* other = cells.chunks[chunk.cell_bytes >> 3]
    chunk_listed(chunk)
    if other != NULL and other.live == 0:
        chunk_emptied(other)


cdef void chunk_emptied(chunk_t* chunk) noexcept:
    """Takes an empty chunk out of its list.

    A chunk from malloc stays if it is alone in the list, so that a queue that hovers around a chunk's edge finds it at once. A
    chunk of a region goes: it would keep the whole region from the system, and a hundred sizes could keep a hundred regions.
    """
    if chunk.region == NULL and chunk.next == NULL and chunk.previous == NULL:
        return
    if chunk.previous == NULL:
        cells.chunks[chunk.cell_bytes >> 3] = chunk.next
    else:
        chunk.previous.next = chunk.next
    if chunk.next != NULL:
        chunk.next.previous = chunk.previous
    cells.used -= CHUNK_BYTES
    if chunk.region != NULL:
        region_give(chunk.region, chunk)
    else:
        chunk.next = cells.kept
        cells.kept = chunk


# ---- regions

cdef region_t* region_new() except NULL:
    """A region that is ready, or one from the system."""
    cdef region_t* region = cells.ready
    cdef char* first
    if region != NULL:
        cells.ready = region.next
        cells.ready_count -= 1
        cells.ready_least = min(cells.ready_least, cells.ready_count)
    else:
        first = <char*> region_map()
        if first == NULL:
            raise MemoryError()
        region = region_made(first)
    region_listed(region)
    return region


cdef region_t* region_made(char* first) noexcept:
    """The head of a region that begins there, with nothing in it."""
    cdef region_t* region = <region_t*> (first + CHUNK_END)
    region.spare = NULL
    region.used = 0
    region.fresh = 0
    return region


def prepare_memory(size):
    """Have up to `size` bytes of memory ready for messages, in pieces of 2 MiB: the system clears them here, not later.

    A thread that waits anyway calls this, so that the thread that publishes much need not stop for it: clearing 2 MiB takes
    0.1 ms, and 5 ms in a virtual machine that has never used that memory. Other threads of the interpreter run meanwhile. Memory
    that is ready stays so until it is used.
    """
    cdef size_t wanted = size
    cdef char* first
    while CELLS and (cells.ready_count + 1) * REGION_BYTES <= wanted:
        with nogil:
            first = <char*> region_touched()
        if first == NULL:
            raise MemoryError()
        region_is_ready(region_made(first))


def keep_memory(size):
    """From now on keep up to `size` bytes ready that messages have left, instead of giving them back to the system at once.

    For a process that messages run through: the system clears what it gives out. `release_memory` gives back what was not needed.
    """
    cells.ready_max = <uint32_t> min(size // REGION_BYTES, UINT32_MAX)


def release_memory():
    """Give back to the system what was ready, and not needed, since the last call of this."""
    cdef region_t* region
    while cells.ready_least > 0:
        cells.ready_least -= 1
        cells.ready_count -= 1
        region = cells.ready
        cells.ready = region.next
        region_unmap(region_start(region))
    cells.ready_least = cells.ready_count


cdef inline void region_is_ready(region_t* region) noexcept:
    region.next = cells.ready
    cells.ready = region
    cells.ready_count += 1


cdef inline void region_listed(region_t* region) noexcept:
    region.previous = NULL
    region.next = cells.regions
    if region.next != NULL:
        region.next.previous = region
    cells.regions = region


cdef inline void region_unlisted(region_t* region) noexcept:
    if region.previous == NULL:
        cells.regions = region.next
    else:
        region.previous.next = region.next
    if region.next != NULL:
        region.next.previous = region.previous


cdef inline char* region_start(region_t* region) noexcept:
    return <char*> region - CHUNK_END


cdef chunk_t* region_take(region_t* region) noexcept:
    """An unused chunk of a region with room."""
    cdef chunk_t* chunk = region.spare
    if chunk != NULL:
        region.spare = chunk.next
    else:
        chunk = <chunk_t*> (region_start(region) + <size_t> region.fresh * CHUNK_BYTES)
        region.fresh += 1
    region.used += 1
    if region.used == REGION_CHUNKS:
        region_unlisted(region)
    return chunk


cdef void region_give(region_t* region, chunk_t* chunk) noexcept:
    """Takes a chunk back. An empty region is kept if no other region has room."""
    cdef region_t* other
    chunk.next = region.spare
    region.spare = chunk
    if region.used == REGION_CHUNKS:
        other = cells.regions
        region_listed(region)
        if other != NULL and other.used == 0:
            region_end(other)
    region.used -= 1
    if region.used == 0 and cells.regions.next != NULL:
        region_end(region)


cdef void region_end(region_t* region) noexcept:
    region_unlisted(region)
    if cells.ready_count < cells.ready_max:
        region_is_ready(region_made(region_start(region)))
    else:
        region_unmap(region_start(region))


# ---- what is in use

def memory_bytes():
    """How many bytes the engines of this process use for messages, and for what is known of them: an int.

    That is memory of the core, bodies and annexes that are objects of Python, and batches of Arrow data that wait in their
    columns. A body that many messages share counts for each of them. It is not what the process has from the system: stores
    have buffers and caches of their own. Cost: O(1).
    """
    return cells.used


# ---- checks

cdef int wrong(str what) except -1:
    raise InvariantError(f"Recount: memory: {what}")


cdef int chunk_check(chunk_t* chunk) except -1:
    """The counts of a chunk agree with its cells."""
    cdef void** spare = <void**> chunk.spare
    cdef uint32_t room = (CHUNK_END - sizeof(chunk_t)) // chunk.cell_bytes, spares = 0
    cdef uint32_t fresh = (chunk.fresh - sizeof(chunk_t)) // chunk.cell_bytes
    while spare != NULL and spares <= room:
        if chunk_of(spare) != chunk:
            return wrong("a spare cell is linked to another chunk")
        spares += 1
        spare = <void**> spare[0]
    if chunk.live + spares != fresh or fresh > room:
        return wrong(f"a chunk counts {chunk.live} cells of {fresh}, {spares} are spare")
    if chunk.listed and chunk.previous == NULL and cells.chunks[chunk.cell_bytes >> 3] != chunk:
        return wrong("a chunk with room is not in the list")
    if chunk.listed != (chunk.live < room):
        return wrong(f"a chunk with {chunk.live} cells of {room} is listed as one with room, or not")
    return 0


cdef int slab_check() except -1:
    """Checks every chunk and region with room. O(chunks with room)."""
    cdef uint32_t i, ready = 0
    cdef chunk_t* chunk
    cdef chunk_t* before
    cdef region_t* region = cells.regions
    for i in range(<uint32_t> CELL_SIZES):
        before = NULL
        chunk = cells.chunks[i]
        while chunk != NULL:
            if chunk.previous != before or chunk.cell_bytes != i * 8 or not chunk.listed:
                return wrong(f"the list of chunks with cells of {i * 8} bytes is broken")
            if chunk.live == 0 and (chunk.next != NULL or before != NULL or chunk.region != NULL):
                return wrong("an empty chunk is listed beside others, or keeps its region")
            chunk_check(chunk)
            before = chunk
            chunk = chunk.next
    while region != NULL:
        if region.used >= REGION_CHUNKS or region.used > region.fresh or (region.used == 0 and (
                region.next != NULL or region.previous != NULL)):
            return wrong(f"a region with {region.used} chunks of {region.fresh} is listed as one with room")
        region = region.next
    region = cells.ready
    while region != NULL:
        ready += 1
        region = region.next
    if ready != cells.ready_count or cells.ready_least > ready:
        return wrong(f"{cells.ready_count} regions are said to be ready, {cells.ready_least} at least, and there are {ready}")
    return 0
