"""Declarations of `export.pyx`, and the layout of a record batch of our own."""

from libc.stdint cimport int64_t


# A column with its buffers, in Arrow's layout.
cdef struct written_t:
    const char* format          # static
    char* name                  # malloc, as are the buffers
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

# Makes `count` empty children for a column of `rows` rows.
cdef int children_alloc(written_t* column, int64_t rows, int64_t count) except -1

cdef class ArrowBatch:
    cdef table_t* table         # never NULL; its maker fills it before the batch is visible to others
