"""Columns that we own, handed to whoever asks over the Arrow C data interface."""

from libc.stdint cimport int64_t


# A column, with its buffers as Arrow lays them out.
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

# A record batch. Everything exported holds one reference, so it may outlive the `ArrowBatch`; the last one frees it,
# in whatever thread and without the GIL.
cdef struct table_t:
    int64_t references
    written_t root

# Makes `count` empty children for a column of `rows` rows.
cdef int children_alloc(written_t* column, int64_t rows, int64_t count) except -1

cdef class ArrowBatch:
    cdef table_t* table         # never NULL; filled by whoever makes the batch, before anybody else sees it
