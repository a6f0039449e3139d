"""Exports columns of our own over the Arrow C data interface.

An `ArrowBatch` and everything exported from it share one table, with a counter of references that changes atomically. So a
consumer may release from any thread, with or without the GIL, and after the batch is gone; and it may move children out of their
parents, as the interface allows. An exported struct owns the memory of its children's structs, and nothing else.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport ENOMEM
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from xump_ext.arrow.c_data cimport ArrowArray, ArrowArrayStream, ArrowSchema

cdef extern from *:
    int64_t __atomic_add_fetch(int64_t*, int64_t, int) noexcept nogil
    int __ATOMIC_ACQ_REL

cdef enum:
    # Up to sixteen columns of 112 bytes, two buffers each that are empty or have a few bytes, and what a row of short texts adds.
    ARENA_BYTES = 2_560
    ARENA_ROW_BYTES = 320
    ARENA_ROWS_MAX = 16

# ---- the table

cdef table_t* table_new() except NULL:
    cdef table_t* table = <table_t*> calloc(1, sizeof(table_t))
    if table == NULL:
        raise MemoryError()
    table.references = 1
    table.root.arena = &table.arena
    table.root.format = "+s"
    table.root.buffer_count = 1
    return table


cdef int arena_start(table_t* table, int64_t rows) except -1:
    cdef arena_t* arena = &table.arena
    table.root.arena = arena
    if rows > ARENA_ROWS_MAX:
        return 0
    arena.bytes = <char*> malloc(ARENA_BYTES + ARENA_ROW_BYTES * rows)       # quicker than calloc: it keeps small ones at hand
    if arena.bytes == NULL:
        raise MemoryError()
    arena.size = ARENA_BYTES + ARENA_ROW_BYTES * rows
    memset(arena.bytes, 0, arena.size)
    return 0


cdef void* piece_alloc_apart(int64_t size) except NULL:
    cdef void* piece = calloc(size + 1, 1)
    if piece == NULL:
        raise MemoryError()
    return piece


cdef int children_alloc(written_t* column, int64_t rows, int64_t count) except -1:
    cdef int64_t child
    column.children = <written_t*> piece_alloc(column.arena, count * sizeof(written_t))
    column.child_count = count
    for child in range(count):
        column.children[child].rows = rows
        column.children[child].arena = column.arena
    return 0


cdef table_t* table_share(table_t* table) noexcept nogil:
    __atomic_add_fetch(&table.references, 1, __ATOMIC_ACQ_REL)
    return table


cdef void table_release(table_t* table) noexcept nogil:
    if __atomic_add_fetch(&table.references, -1, __ATOMIC_ACQ_REL) == 0:
        column_free(&table.root)
        free(table.arena.bytes)
        free(table)


cdef void column_free(written_t* column) noexcept nogil:
    cdef int64_t at
    for at in range(column.child_count):
        column_free(&column.children[at])
    piece_free(column.arena, column.children)
    for at in range(3):
        piece_free(column.arena, column.buffers[at])
    piece_free(column.arena, column.own_name)


# ---- schemas and arrays: two trees of structs of the same shape

ctypedef fused exported_t:
    ArrowSchema
    ArrowArray


cdef int column_export(table_t* table, written_t* column, exported_t* out) noexcept nogil:
    """Exports a column and its children. Returns 0, or ENOMEM and leaves nothing behind."""
    cdef int64_t at
    cdef exported_t* children
    memset(out, 0, sizeof(exported_t))
    if exported_t is ArrowSchema:
        out.format = column.format
        out.name = column.name
        if out.name == NULL:
            out.name = ""
        out.flags = column.flags
    else:
        out.length = column.rows
        out.null_count = column.null_count
        out.n_buffers = column.buffer_count
        out.buffers = <const void**> column.buffers
    out.release = column_release[exported_t]
    out.private_data = table_share(table)
    if column.child_count:
        out.children = <exported_t**> malloc(column.child_count * (sizeof(exported_t*) + sizeof(exported_t)))
        if out.children == NULL:
            column_release(out)
            return ENOMEM
        children = <exported_t*> (out.children + column.child_count)
        for at in range(column.child_count):
            out.children[at] = &children[at]
            if column_export(table, &column.children[at], &children[at]):
                column_release(out)
                return ENOMEM
            out.n_children += 1
    return 0


cdef void column_release(exported_t* out) noexcept nogil:
    cdef int64_t at
    for at in range(out.n_children):
        if out.children[at].release != NULL:
            out.children[at].release(out.children[at])
    free(out.children)
    out.release = NULL
    table_release(<table_t*> out.private_data)


# ---- a stream of one batch

cdef struct streamed_t:
    table_t* table
    bint given


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    cdef table_t* table = (<streamed_t*> stream.private_data).table
    return column_export(table, &table.root, out)


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    cdef streamed_t* streamed = <streamed_t*> stream.private_data
    if streamed.given:
        memset(out, 0, sizeof(ArrowArray))      # an array without `release` marks the end
        return 0
    if column_export(streamed.table, &streamed.table.root, out):
        return ENOMEM
    streamed.given = True
    return 0


cdef const char* stream_error(ArrowArrayStream* stream) noexcept nogil:
    return NULL


cdef void stream_release(ArrowArrayStream* stream) noexcept nogil:
    table_release((<streamed_t*> stream.private_data).table)
    free(stream.private_data)
    stream.release = NULL


cdef int stream_export(table_t* table, ArrowArrayStream* out) noexcept nogil:
    cdef streamed_t* streamed = <streamed_t*> malloc(sizeof(streamed_t))
    if streamed == NULL:
        return ENOMEM
    streamed.table = table_share(table)
    streamed.given = False
    out.get_schema = stream_schema
    out.get_next = stream_next
    out.get_last_error = stream_error
    out.release = stream_release
    out.private_data = streamed
    return 0


# ---- capsules: each owns its struct, and releases it unless a consumer moved it out

cdef void schema_capsule_free(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void array_capsule_free(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void stream_capsule_free(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


@cython.final
cdef class ArrowBatch:
    """A record batch with the Arrow PyCapsule interface: `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`.

    It may be read any number of times, and what was read outlives it. `len()` is the number of rows.
    """

    def __cinit__(self):
        self.table = table_new()

    def __init__(self):
        raise TypeError("a batch comes from taking deliveries, engine.take_batch(n), or from looking: queue.browse_batch()")

    def __dealloc__(self):
        if self.table != NULL:
            table_release(self.table)

    def __len__(self):
        return self.table.root.rows

    def __arrow_c_schema__(self):
        """A capsule of the schema."""
        cdef ArrowSchema* schema = <ArrowSchema*> calloc(1, sizeof(ArrowSchema))
        if schema == NULL or column_export(self.table, &self.table.root, schema):
            free(schema)
            raise MemoryError()
        return PyCapsule_New(schema, "arrow_schema", schema_capsule_free)

    def __arrow_c_array__(self, requested_schema=None):
        """Capsules of the schema and of the columns. A requested schema is ignored, as the interface allows."""
        schema = self.__arrow_c_schema__()
        cdef ArrowArray* array = <ArrowArray*> calloc(1, sizeof(ArrowArray))
        if array == NULL or column_export(self.table, &self.table.root, array):
            free(array)
            raise MemoryError()
        return schema, PyCapsule_New(array, "arrow_array", array_capsule_free)

    def __arrow_c_stream__(self, requested_schema=None):
        """A capsule of a stream of this one batch. A requested schema is ignored, as the interface allows."""
        cdef ArrowArrayStream* stream = <ArrowArrayStream*> calloc(1, sizeof(ArrowArrayStream))
        if stream == NULL or stream_export(self.table, stream):
            free(stream)
            raise MemoryError()
        return PyCapsule_New(stream, "arrow_array_stream", stream_capsule_free)
