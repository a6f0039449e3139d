"""Writes a column of Arrow's: numbers in place, texts and bytes one behind the other, and which values are null."""

from libc.stdint cimport int32_t
from libc.stdlib cimport realloc

from xump_ext.arrow.export cimport is_inside, piece_free


cdef int validity_start(written_t* column) except -1:
    """Makes all values null; `valid_set` then marks those that are there."""
    buffer_alloc(column, 0, (column.rows + 7) >> 3)
    column.null_count = column.rows
    return 0


cdef void validity_finish(written_t* column) noexcept:
    if column.null_count == 0:
        piece_free(column.arena, column.buffers[0])
        column.buffers[0] = NULL


cdef int writer_start(writer_t* writer, written_t* column, const char* format, int64_t capacity) except -1:
    column.format = format
    column.buffer_count = 3
    writer.column = column
    writer.offsets = <int64_t*> buffer_alloc(column, 1, (column.rows + 1) * 8)
    writer.bytes = <char*> buffer_alloc(column, 2, capacity)
    writer.capacity = capacity
    writer.used = 0
    writer.next_row = 0
    return 0


cdef int writer_grow(writer_t* writer, int64_t size) except -1:
    cdef int64_t capacity = 2 * writer.capacity + size
    cdef bint moves = is_inside(writer.column.arena, writer.bytes)
    cdef char* bytes = <char*> realloc(NULL if moves else writer.bytes, capacity)
    if bytes == NULL:
        raise MemoryError()
    if moves:
        memcpy(bytes, writer.bytes, writer.used)
    writer.bytes = bytes
    writer.column.buffers[2] = bytes
    writer.capacity = capacity
    return 0


cdef void writer_finish(writer_t* writer, int64_t small_bytes_max) noexcept:
    """Ends the column; the offsets shrink in place when 32 bits are enough."""
    cdef written_t* column = writer.column
    cdef int64_t row
    cdef int32_t offset
    writer_skip(writer, column.rows)
    if writer.used > small_bytes_max:
        if column.format[0] == c"u":
            column.format = "U"
        else:
            column.format = "Z"
        return
    for row in range(column.rows + 1):
        offset = <int32_t> writer.offsets[row]
        memcpy(<char*> column.buffers[1] + 4 * row, &offset, 4)
