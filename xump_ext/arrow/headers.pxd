"""Declarations of `headers.pyx`, and the layout of its state: schema, chunk and row."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from xump_ext.arrow.c_data cimport ArrowArray, ArrowSchema
from xump_ext.arrow.column cimport column_t, type_t

cdef enum:
    HEADERS_NONE = 0
    HEADERS_STRUCT
    HEADERS_MAP

# A header's column, as the schema has it. Of a map, field 0 is the keys and field 1 the values.
cdef struct header_column_t:
    type_t type
    uint8_t header_type     # a HEADER_ number; HEADER_TRUE for all bools, 0 for a column of nulls
    uint32_t prefix_bytes
    char* prefix            # stands before each value in the headers: type u8 | name_bytes u16 | name
    void* what              # str, owned: its name in errors. NULL in a map

# A header's value in the row that is being read.
cdef struct found_t:
    const header_column_t* field
    const char* text
    int64_t size
    int64_t number

cdef struct headers_t:
    int kind
    int64_t field_count
    header_column_t* fields
    int64_t found_count     # headers of the row measured last
    found_t* found

# The headers of one chunk.
cdef struct headers_chunk_t:
    int64_t rows
    int64_t row_first           # number of row 0 in errors
    const uint8_t* validity     # NULL: every row has headers; this and all that follows are copies
    int64_t first               # number of row 0 in the validity and in the offsets of a map: 0 to 7
    const char* entries         # offsets of a map, into the columns of its keys and values
    const uint8_t* pairs        # validity of keys and values
    int64_t entries_first       # the lowest of the offsets
    column_t* columns           # one for each field

# Raises TypeError for a type that headers cannot have, ValueError for a name that they cannot have.
cdef int headers_read_schema(headers_t* headers, const ArrowSchema* schema) except -1
cdef void headers_close(headers_t* headers) noexcept

# Opens rows `parent_first` to `parent_first + rows` and checks them. Raises ValueError. The caller closes the chunk in any case.
cdef int headers_open(
    headers_t* headers, headers_chunk_t* chunk, const ArrowArray* array, int64_t parent_first, int64_t rows, int64_t row_first
) except -1
# The bytes that a chunk's headers keep in memory.
cdef int64_t headers_held(const headers_t* headers, const headers_chunk_t* chunk) noexcept
cdef void headers_chunk_close(const headers_t* headers, headers_chunk_t* chunk) noexcept

# Finds the headers of a row (`found_count`) and returns the bytes that they take in the content.
cdef int64_t headers_measure(headers_t* headers, const headers_chunk_t* chunk, int64_t row) noexcept nogil
# Writes the headers of the row measured last.
cdef void headers_write(const headers_t* headers, const headers_chunk_t* chunk, int64_t row, char* out) noexcept nogil
