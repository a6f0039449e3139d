"""Declarations of `read.pyx`, and the layout of its chunks."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.arrow.c_data cimport ArrowArray, ArrowSchema
from xump_ext.arrow.column cimport column_t, type_t
from xump_ext.arrow.headers cimport headers_chunk_t, headers_t
from xump_ext.message.headers cimport content_t

cdef enum:
    # the columns of a batch
    COLUMN_ADDRESS = 0
    COLUMN_BODY = 1
    COLUMN_REPLY_TO = 2
    COLUMN_MESSAGE_ID = 3
    COLUMN_CORRELATION_ID = 4
    COLUMN_AT = 5
    COLUMN_EXPIRES = 6
    COLUMN_PRIORITY = 7
    COLUMN_HEADERS = 8          # the only one that is no `column_t`
    COLUMNS_READ = 9

cdef struct chunk_t:
    ArrowArray array
    int64_t rows
    int64_t row_first           # the number of row 0 in the batch
    column_t columns[COLUMN_HEADERS]
    headers_chunk_t headers

# A str made before, found again by its bytes.
cdef struct slot_t:
    const char* text            # the bytes of the str itself: those of the column may change
    void* string                # NULL: the slot is free
    uint32_t size
    uint32_t hash

cdef class BatchReader:
    cdef readonly Py_ssize_t rows
    cdef int64_t places[COLUMNS_READ]   # of each column, the number of its child, or -1
    cdef bint has_parts         # one of the columns is for the parts that few messages have
    cdef int64_t table_columns
    cdef type_t types[COLUMN_HEADERS]
    cdef bint more              # see `says_more`
    cdef headers_t headers
    cdef chunk_t* chunks
    cdef Py_ssize_t chunk_count
    cdef Py_ssize_t chunk_at    # chunk of the next row
    cdef int64_t row_at         # number of the next row in that chunk
    cdef int64_t noted          # bytes that the rows keep in memory

    # Makes the contents of the next rows, at most `room`; the caller owns one reference to each. Returns their number, 0 at the
    # end. Raises MemoryError only: then no content is made, and the position stays where it was.
    cdef Py_ssize_t fill(self, content_t** contents, Py_ssize_t room) except -1

    # A new reference to the content of that row. Raises MemoryError only. Rows asked for in order are found at once.
    cdef content_t* content_at(self, int64_t row) except NULL

    # Whether rows say when they are due, when they expire, or their priority: what their entries must know at once.
    cdef bint says_more(self) noexcept
    # When that row is due, in POSIX ns; NEVER: at once.
    cdef int64_t due_at(self, int64_t row) noexcept

    cdef int take_stream(self, object capsule) except -1
    cdef int take_array(self, object schema_capsule, object array_capsule) except -1
    cdef chunk_t* chunk_add(self) except NULL
    cdef int read_schema(self, const ArrowSchema* schema) except -1
    cdef int open_chunk(self, chunk_t* chunk) except -1
    cdef int64_t held(self) noexcept
    cdef chunk_t* chunk_with(self, int64_t row) noexcept
    cdef Py_ssize_t chunk_of(self, int64_t row) noexcept
    cdef int64_t moment_at(self, chunk_t* chunk, int column, int64_t row) noexcept
    cdef content_t* content_of_row(self, chunk_t* chunk, int64_t row) except NULL
    cdef object text_at(self, chunk_t* chunk, int column, int64_t row, bint shared)
    cdef object checked_utf8(self, column_t* column, int64_t row, bint shared)
