"""The slab allocator and its fast half: cells for entries, contents, pages, queues, selectors and routes.

    region, 2 MiB ── 32 chunks of 64 KiB ── cells of one size

Taking a cell and giving it back cost a few instructions. All cells of a chunk have one size, a multiple of 8 bytes. A chunk
hands out the cells that were given back first, then those never used. Chunks with room stand in lists, one for each size. An
empty chunk may serve another size. An empty region goes back to the system, but one is kept.

Only a program that has 2 MiB of cells gets regions, which are made of huge pages where the system has them. The cells that a
message touches lie in many places, and finding those in page tables would cost more than reading them. The first 32 chunks come
from malloc and are kept.

All engines of a process share the cells, under the interpreter's lock.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

cdef extern from *:
    """
    #if defined(__SANITIZE_ADDRESS__)
    #define XUMP_CELLS 0        /* every cell by itself, so that the sanitizer sees its end */
    #else
    #define XUMP_CELLS 1
    #endif
    """
    const bint CELLS "XUMP_CELLS"

cdef enum:
    CHUNK_BYTES = 1 << 16
    CHUNK_END = CHUNK_BYTES - 64    # the rest is for region_t, or for malloc's header, so that chunks can be neighbours
    CELL_BYTES_MAX = 1 << 10        # larger cells come from malloc
    CELL_SIZES = (CELL_BYTES_MAX >> 3) + 1
    REGION_CHUNKS = 32

cdef struct chunk_t:                # 64 bytes, so that cells of 64 bytes fill cache lines
    void* spare                     # cells that were given back; each points to the next
    uint32_t fresh                  # offset of the first cell never used
    uint32_t live
    chunk_t* previous               # among chunks with room
    chunk_t* next
    region_t* region                # NULL: from malloc
    uint32_t cell_bytes
    bint listed
    uint64_t reserved[2]

cdef struct region_t:               # lies in the last 64 bytes of its first chunk
    chunk_t* spare                  # unused chunks, linked by `next`
    uint32_t used                   # chunks in use
    uint32_t fresh                  # number of the first chunk never used
    region_t* previous              # among regions with room
    region_t* next

cdef struct slab_t:
    chunk_t* chunks[CELL_SIZES]     # those with room, by the size of their cells in steps of 8
    chunk_t* kept                   # unused chunks from malloc, linked by `next`
    uint32_t from_malloc            # chunks from malloc, the unused ones included
    region_t* regions               # those with room
    region_t* ready                 # touched and not yet used, linked by `next`
    uint32_t ready_count
    uint32_t ready_least            # fewer were not ready since `release_memory`
    uint32_t ready_max              # so many that have emptied are kept ready
    int64_t used                    # bytes: chunks with cells, larger cells, and what is noted beside them

cdef slab_t cells

cdef chunk_t* chunk_new(uint32_t cell_bytes) except NULL
cdef void chunk_has_room(chunk_t* chunk) noexcept
cdef void chunk_emptied(chunk_t* chunk) noexcept
cdef void* cell_large(size_t size) except NULL
cdef void cell_large_put(void* cell, size_t size) noexcept
cdef void* zeroed_get(size_t size) except NULL       # a cell whose bytes are 0; large ones are zeroed page by page, when touched
cdef void* memory_large(size_t size) except NULL     # released with free()
cdef void* memory_zeroed(size_t size) noexcept nogil     # the same, zeroed; NULL without memory

cdef inline void bytes_noted(int64_t size) noexcept:
    """So many bytes more belong to messages, though they are in no cell; below 0: fewer."""
    cells.used += size

cdef inline uint32_t cell_bytes(size_t size) noexcept:
    return <uint32_t> ((size + 7) & ~<size_t> 7)

cdef inline void* cell_get(size_t size) except NULL:
    """Uninitialised memory. It starts at a cache line if the size is a multiple of a cache line."""
    cdef chunk_t* chunk
    cdef void* cell
    if not CELLS or size > CELL_BYTES_MAX:
        return cell_large(size)
    chunk = cells.chunks[cell_bytes(size) >> 3]
    if chunk == NULL:
        chunk = chunk_new(cell_bytes(size))
    cell = chunk.spare
    if cell != NULL:
        chunk.spare = (<void**> cell)[0]
    else:
        cell = <char*> chunk + chunk.fresh
        chunk.fresh += cell_bytes(size)
    chunk.live += 1
    if chunk.spare == NULL and chunk.fresh + cell_bytes(size) > CHUNK_END:
        chunk_full(chunk)
    return cell

cdef inline void chunk_full(chunk_t* chunk) noexcept:
    """Takes a chunk without room, the first of its list, out of that list."""
    cells.chunks[chunk.cell_bytes >> 3] = chunk.next
    if chunk.next != NULL:
        chunk.next.previous = NULL
    chunk.next = NULL
    chunk.listed = False

cdef inline void* cell_zeroed(size_t size) except NULL:
    return memset(cell_get(size), 0, size)

cdef inline void cell_put(void* cell, size_t size) noexcept:
    """Gives back a cell of that size."""
    cdef chunk_t* chunk
    if not CELLS or size > CELL_BYTES_MAX:
        cell_large_put(cell, size)
        return
    chunk = chunk_of(cell)
    (<void**> cell)[0] = chunk.spare
    chunk.spare = cell
    chunk.live -= 1
    if not chunk.listed:
        chunk_has_room(chunk)
    if chunk.live == 0:
        chunk_emptied(chunk)

cdef inline chunk_t* chunk_of(const void* cell) noexcept:
    return <chunk_t*> (<uintptr_t> cell & ~<uintptr_t> (CHUNK_BYTES - 1))

# InvariantError if lists or counts are wrong: of one chunk, or of all chunks and regions with room.
cdef int chunk_check(chunk_t* chunk) except -1
cdef int slab_check() except -1
