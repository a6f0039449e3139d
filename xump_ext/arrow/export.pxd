"""Declarations of `export.pyx`, and the layout of a record batch of our own."""

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free

# Memory for the many small pieces of a small batch, cut off one behind the other: of a dozen columns with one row each, most
# of the cost would be the allocator's.
cdef struct arena_t:
    char* bytes                 # zeroed; NULL: none
    int64_t size
    int64_t used

# A column with its buffers, in Arrow's layout.
cdef struct written_t:
    const char* format          # static
    const char* name            # static, or `own_name`
    char* own_name              # a piece, as are the buffers and the children
    arena_t* arena              # of the table
    int64_t flags
    int64_t rows
    int64_t null_count
    int64_t buffer_count
    void* buffers[3]
    int64_t child_count
    written_t* children

# A record batch. The `ArrowBatch` and everything exported from it hold one reference each, so exports may outlive it. Giving up
# the last reference frees the table, in any thread and without the GIL.
cdef struct table_t:
    int64_t references
    written_t root
    arena_t arena

# Gives the table memory for so many rows; before its first piece is made.
cdef int arena_start(table_t* table, int64_t rows) except -1

# A piece of zeroed memory, 16 bytes aligned, out of the arena or of its own.
cdef inline void* piece_alloc(arena_t* arena, int64_t size) except NULL:
    cdef int64_t used = arena.used + ((size + 15) & ~<int64_t> 15)
    if used <= arena.size:
        arena.used = used
        return arena.bytes + used - ((size + 15) & ~<int64_t> 15)
    return piece_alloc_apart(size)

cdef void* piece_alloc_apart(int64_t size) except NULL

cdef inline bint is_inside(const arena_t* arena, const void* piece) noexcept nogil:
    return <uintptr_t> piece - <uintptr_t> arena.bytes < <uintptr_t> arena.size

cdef inline void piece_free(const arena_t* arena, void* piece) noexcept nogil:
    if piece != NULL and not is_inside(arena, piece):
        free(piece)

# Makes `count` empty children for a column of `rows` rows.
cdef int children_alloc(written_t* column, int64_t rows, int64_t count) except -1

cdef class ArrowBatch:
    cdef table_t* table         # never NULL; its maker fills it before the batch is visible to others
