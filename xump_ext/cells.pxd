"""Memory for what there are many of: entries, contents, pages, queues, selectors, routes. A leaf of the core.

    region, 2 MiB ── 32 chunks of 64 KiB ── cells of one size

A cell is had and given back in a few instructions. A chunk has cells of one size, a multiple of 8 bytes: those that were given
back first, then those never used so far. Chunks with room stand in a list, one for each size. An emptied chunk may serve
another size; an emptied region goes back to the system, but for one.

Only a program that has 2 MiB of cells gets regions: they are made of huge pages, where the system has them. What a message
touches lies in many places, and finding those in page tables would cost more than reading them. The first chunks come
from malloc and are kept.

All engines of a process share the cells, under the interpreter's lock.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
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
    CHUNK_END = CHUNK_BYTES - 64    # what is left is a region's own, or malloc's: else two chunks are never neighbours
    CELL_BYTES_MAX = 1 << 10        # larger ones come from malloc
    CELL_SIZES = (CELL_BYTES_MAX >> 3) + 1
    REGION_CHUNKS = 32

cdef struct chunk_t:                # 64 bytes, so that cells of 64 bytes fill cache lines
    void* spare                     # cells that were given back, each points to the next
    uint32_t fresh                  # where the cells begin that were never used
    uint32_t live
    chunk_t* previous               # among those with room
    chunk_t* next
    region_t* region                # NULL: from malloc
    uint32_t cell_bytes
    bint listed
    uint64_t reserved[2]

cdef struct region_t:               # stands in the last 64 bytes of its first chunk
    chunk_t* spare                  # chunks that nobody uses, linked by `next`
    uint32_t used                   # chunks
    uint32_t fresh                  # chunks never used begin here
    region_t* previous              # among those with room
    region_t* next

cdef struct cells_t:
    chunk_t* chunks[CELL_SIZES]     # with room, by the size of their cells in steps of 8
    chunk_t* kept                   # from malloc, unused, linked by `next`
    uint32_t from_malloc            # chunks, these included
    region_t* regions               # with room

cdef cells_t cells

cdef chunk_t* chunk_new(uint32_t cell_bytes) except NULL
cdef void chunk_has_room(chunk_t* chunk) noexcept
cdef void chunk_emptied(chunk_t* chunk) noexcept
cdef void* cell_large(size_t size) except NULL
cdef void cell_large_put(void* cell, size_t size) noexcept
cdef void* memory_large(size_t size) except NULL     # given back by free()
cdef void* memory_zeroed(size_t size) noexcept nogil     # the same, zeroed; NULL when there is none

cdef inline uint32_t cell_bytes(size_t size) noexcept:
    return <uint32_t> ((size + 7) & ~<size_t> 7)

cdef inline void* cell_get(size_t size) except NULL:
    """Memory that whoever asks fills. At the start of a cache line if the size is a multiple of one."""
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
    """The first chunk with room has none any more."""
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

# InvariantError if lists or counts are wrong: of one chunk, of all that have room.
cdef int chunk_check(chunk_t* chunk) except -1
cdef int cells_check() except -1
