"""Declarations of `column_writer.pyx`, the rows that columns are written from, and what is done once a row, inline."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from xump_ext.arrow.c_data cimport ARROW_FLAG_NULLABLE
from xump_ext.arrow.export cimport piece_alloc, written_t
from xump_ext.message.headers cimport content_t

# One delivery, or one message that is looked at; all of it is borrowed for the call.
cdef struct batch_row_t:
    content_t* content
    uint64_t id
    int64_t timestamp
    uint32_t delivery_count
    void* destination           # str, or NULL for null
    void* queue                 # str, or NULL for null
    # of a message that is looked at
    void* state                 # str
    int64_t at                  # when it is due, in POSIX ns; NEVER: it is not delayed
    bint redelivered
    uint32_t hops               # no column has it

# A column of text or bytes that is being written: offsets have 64 bits until the end shows which width they need.
cdef struct writer_t:
    written_t* column
    int64_t* offsets
    char* bytes
    int64_t used
    int64_t capacity
    int64_t next_row            # the first row whose end is not written yet

cdef inline void column_name(written_t* column, const char* name) noexcept:
    """Names a column; the text is static."""
    column.name = name
    column.flags = ARROW_FLAG_NULLABLE

cdef inline void* buffer_alloc(written_t* column, int buffer, int64_t size) except NULL:
    """A zeroed buffer of the column, never of no bytes."""
    column.buffers[buffer] = piece_alloc(column.arena, size + 1)
    return column.buffers[buffer]

cdef inline void* numbers_start(written_t* column, const char* format, int64_t width) except NULL:
    column.format = format
    column.buffer_count = 2
    return buffer_alloc(column, 1, column.rows * width)

cdef inline void bit_set(void* bits, int64_t at) noexcept nogil:
    (<uint8_t*> bits)[at >> 3] |= <uint8_t> (1 << (at & 7))

cdef inline void valid_set(written_t* column, int64_t row) noexcept nogil:
    bit_set(column.buffers[0], row)
    column.null_count -= 1

# Makes all values null; `valid_set` then marks those that are there.
cdef int validity_start(written_t* column) except -1
# Leaves the column without nulls if none is left.
cdef void validity_finish(written_t* column) noexcept

# Begins a column of texts or bytes; `capacity`: so many bytes, to begin with.
cdef int writer_start(writer_t* writer, written_t* column, const char* format, int64_t capacity) except -1
cdef int writer_grow(writer_t* writer, int64_t size) except -1
# Ends it. Offsets have 64 bits only if there are more than `small_bytes_max` bytes.
cdef void writer_finish(writer_t* writer, int64_t small_bytes_max) noexcept

cdef inline void writer_skip(writer_t* writer, int64_t row) noexcept nogil:
    """Makes rows before `row` empty that were not written."""
    while writer.next_row < row:
        writer.next_row += 1
        writer.offsets[writer.next_row] = writer.used

cdef inline int writer_put(writer_t* writer, int64_t row, const char* text, int64_t size) except -1:
    writer_skip(writer, row)
    if size > writer.capacity - writer.used:
        writer_grow(writer, size)
    memcpy(writer.bytes + writer.used, text, size)
    writer.used += size
    writer.next_row = row + 1
    writer.offsets[row + 1] = writer.used
    return 0
