"""Reads headers from Arrow columns, either a struct or a map, into compact headers.

A struct has a column for each header. Its name and type are known before the first row, and become a prefix that is copied in
front of each value. A row is measured first, which notes where its values are. Then it is written in one go into the content that
was made for it. A map has its names in a column of their own, and they are checked one by one.

Null is a missing header. Integers have 64 bits and a sign, and floats are doubles, whatever type they come from. Timestamps
become an int of POSIX nanoseconds, times (since midnight) and durations an int of nanoseconds, dates an int of days since 1970,
and decimals a text: "12.50". Text is UTF-8 in
the headers, even if its bytes have changed since they were checked. The names of maps are copied when the map is opened.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint16_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from xump_ext.arrow.c_data cimport bit_at, int32_at
from xump_ext.arrow.column cimport (
    BYTES_ALLOWED, COLUMN_BOOL, COLUMN_FLOAT16, COLUMN_NULL, COLUMN_OFFSETS, COLUMN_UINT64, HEADERS_ALLOWED, NO_DECIMAL,
    TEXTS_ALLOWED, array_check, bits_copy, children_check, column_absent, column_bytes, column_close, column_convert, column_held,
    column_null, column_number, column_open, column_own, format_of, name_of, offsets_check, row_text, type_read, utf8_valid,
    validity_of, values_copy,
)
from xump_ext.memory.short_copy cimport ascii_only, copy_short
from xump_ext.message.headers cimport HEADER_BYTES, HEADER_FALSE, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE
from xump_ext.message.headers import headers_bytes_max

cdef int64_t NAME_BYTES_MAX = 65535         # a u16 in the headers
cdef int64_t HEADERS_BYTES_MAX = headers_bytes_max
cdef str COLUMN = "column 'headers'"
cdef int64_t QUADRATIC_MAX = 16             # up to so many names are compared each with each; more go through a set


# ---- the schema

cdef int headers_read_schema(headers_t* headers, const ArrowSchema* schema) except -1:
    cdef bytes format = format_of(schema, COLUMN)
    if format == b"n":
        return 0
    if format == b"+s":
        return struct_read_schema(headers, schema)
    if format == b"+m":
        return map_read_schema(headers, schema)
    raise TypeError(f"column 'headers' is of the Arrow format {format.decode('ascii', 'backslashreplace')!r}, allowed are a "
                    "struct, a map of text to text or bytes, and null")


cdef int fields_alloc(headers_t* headers, int kind, int64_t count) except -1:
    headers.fields = <header_column_t*> PyMem_Calloc(count + 1, sizeof(header_column_t))
    headers.found = <found_t*> PyMem_Calloc(count + 1, sizeof(found_t))
    if headers.fields == NULL or headers.found == NULL:
        raise MemoryError()
    headers.kind = kind
    headers.field_count = count
    return 0


cdef int struct_read_schema(headers_t* headers, const ArrowSchema* schema) except -1:
    cdef int64_t child
    cdef bytes name
    cdef set names = set()
    children_check(schema, "the schema of column 'headers'")
    fields_alloc(headers, HEADERS_STRUCT, schema.n_children)
    for child in range(schema.n_children):
        text = name_of(schema.children[child])
        name = text.encode()
        if not 1 <= len(name) <= NAME_BYTES_MAX:
            raise ValueError(f"a header's name has {len(name)} bytes, allowed are 1 to {NAME_BYTES_MAX}")
        if name in names:
            raise ValueError(f"header {text!r} is there twice")
        names.add(name)
        what = f"header {text!r}"
        Py_INCREF(what)
        headers.fields[child].what = <void*> what
        type_read(&headers.fields[child].type, schema.children[child], HEADERS_ALLOWED, what)
        headers.fields[child].header_type = header_type_of(&headers.fields[child].type)
        prefix_make(&headers.fields[child], name)
    return 0


cdef int map_read_schema(headers_t* headers, const ArrowSchema* schema) except -1:
    cdef const ArrowSchema* pairs
    children_check(schema, "the schema of column 'headers'")
    if schema.n_children != 1:
        raise ValueError(f"column 'headers' is a map with {schema.n_children} children, allowed is 1")
    pairs = schema.children[0]
    if format_of(pairs, "the entries of column 'headers'") != b"+s":
        raise ValueError("column 'headers' is a map whose entries are not structs")
    children_check(pairs, "the schema of column 'headers'")
    if pairs.n_children != 2:
        raise ValueError(f"column 'headers' is a map whose entries have {pairs.n_children} fields, allowed are 2")
    fields_alloc(headers, HEADERS_MAP, 2)
    type_read(&headers.fields[0].type, pairs.children[0], TEXTS_ALLOWED, "the keys of column 'headers'")
    type_read(&headers.fields[1].type, pairs.children[1], BYTES_ALLOWED, "the values of column 'headers'")
    headers.fields[1].header_type = header_type_of(&headers.fields[1].type)
    return 0


cdef uint8_t header_type_of(const type_t* type) noexcept:
    if type.kind == COLUMN_NULL:
        return 0
    if type.decimals != NO_DECIMAL:
        return HEADER_STR
    if type.kind == COLUMN_BOOL:
        return HEADER_TRUE
    if type.kind < COLUMN_FLOAT16:
        return HEADER_INT
    if type.kind < COLUMN_OFFSETS:
        return HEADER_FLOAT
    return HEADER_STR if type.text else HEADER_BYTES


cdef int prefix_make(header_column_t* field, bytes name) except -1:
    cdef uint16_t size = <uint16_t> len(name)
    cdef const char* text = name
    field.prefix_bytes = 3 + size
    field.prefix = <char*> PyMem_Malloc(field.prefix_bytes)
    if field.prefix == NULL:
        raise MemoryError()
    field.prefix[0] = field.header_type
    memcpy(field.prefix + 1, &size, 2)
    memcpy(field.prefix + 3, text, size)
    return 0


cdef void headers_close(headers_t* headers) noexcept:
    cdef int64_t field
    if headers.fields != NULL:
        for field in range(headers.field_count):
            PyMem_Free(headers.fields[field].prefix)
            Py_XDECREF(<PyObject*> headers.fields[field].what)
    PyMem_Free(headers.fields)
    PyMem_Free(headers.found)


# ---- one chunk

cdef int headers_open(
    headers_t* headers, headers_chunk_t* chunk, const ArrowArray* array, int64_t parent_first, int64_t rows, int64_t row_first
) except -1:
    cdef bint is_map = headers.kind == HEADERS_MAP
    cdef const uint8_t* validity
    cdef int64_t first
    array_check(array, parent_first + rows, 1 if is_map else headers.field_count, 2 if is_map else 1, COLUMN)
    chunk.rows = rows
    chunk.row_first = row_first
    first = array.offset + parent_first
    validity = validity_of(array, COLUMN)
    if rows and validity != NULL:
        chunk.validity = bits_copy(validity, first, rows)
    chunk.first = first & 7
    chunk.columns = <column_t*> PyMem_Calloc(headers.field_count + 1, sizeof(column_t))
    if chunk.columns == NULL:
        raise MemoryError()
    return map_open(headers, chunk, array, first) if is_map else struct_open(headers, chunk, array, first)


cdef int struct_open(headers_t* headers, headers_chunk_t* chunk, const ArrowArray* array, int64_t first) except -1:
    cdef const header_column_t* field
    cdef column_t* column
    cdef int64_t at, row, size, longest = 0
    for at in range(headers.field_count):
        field = &headers.fields[at]
        column = &chunk.columns[at]
        column_open(column, &field.type, array.children[at], first, chunk.rows, chunk.validity, chunk.first, HEADERS_BYTES_MAX,
                    True, <object> field.what, chunk.row_first)
        column_convert(column, &field.type, <object> field.what, chunk.row_first)
        if column.kind == COLUMN_UINT64:
            signed_check(column, field, chunk.row_first)
        longest += field.prefix_bytes + max(column.longest, 4) + 4
        if longest > HEADERS_BYTES_MAX:
            longest = HEADERS_BYTES_MAX + 1         # far from an overflow
    if longest <= HEADERS_BYTES_MAX:
        return 0
    for row in range(chunk.rows):
        size = headers_measure(headers, chunk, row)
        if size > HEADERS_BYTES_MAX:
            raise ValueError(f"{row_text(COLUMN, chunk.row_first, row)}: {size} bytes, allowed are {HEADERS_BYTES_MAX}")
    return 0


cdef int signed_check(const column_t* column, const header_column_t* field, int64_t row_first) except -1:
    cdef int64_t row
    for row in range(column.rows):
        if column_number(column, COLUMN_UINT64, row) < 0 and not column_absent(column, row):
            number = <uint64_t> column_number(column, COLUMN_UINT64, row)
            raise ValueError(f"{row_text(<object> field.what, row_first, row)}: {number} does not fit in 64 bits, "
                             "allowed are -2**63 to 2**63 - 1")
    return 0


cdef int map_open(headers_t* headers, headers_chunk_t* chunk, const ArrowArray* array, int64_t first) except -1:
    cdef const ArrowArray* pairs = array.children[0]
    cdef const uint8_t* validity
    cdef int64_t last, count, field
    if chunk.rows == 0:
        return 0
    if array.buffers[1] == NULL:
        raise ValueError(f"column 'headers' has {chunk.rows} rows and no buffer for their offsets")
    chunk.entries = values_copy(<const char*> array.buffers[1], COLUMN_OFFSETS, first, chunk.rows)
    offsets_check(chunk.entries, chunk.first, chunk.rows, False, COLUMN, chunk.row_first)
    chunk.entries_first = int32_at(chunk.entries, chunk.first)
    last = int32_at(chunk.entries, chunk.first + chunk.rows)
    count = last - chunk.entries_first
    array_check(pairs, last, 2, 1, "the entries of column 'headers'")
    validity = validity_of(pairs, "the entries of column 'headers'")
    first = pairs.offset + chunk.entries_first
    if count and validity != NULL:
        chunk.pairs = bits_copy(validity, first, count)
    for field in range(2):
        column_open(&chunk.columns[field], &headers.fields[field].type, pairs.children[field], first, count, chunk.pairs,
                    first & 7, HEADERS_BYTES_MAX, True, f"the {'values' if field else 'keys'} of column 'headers'", -1)
    column_own(&chunk.columns[0])           # the producer cannot change names, so they stay different from each other
    return entries_check(headers, chunk)


cdef int entries_check(headers_t* headers, const headers_chunk_t* chunk) except -1:
    """Checks that keys are names, each there once in its row, and that the headers of a row are within their limit."""
    cdef int64_t row, entry, start, end, name_bytes = 0, size
    cdef const char* name = NULL
    cdef bint twice
    cdef set names
    for row in range(chunk.rows):
        if not entries_of(chunk, row, &start, &end):
            continue
        names = set() if end - start > QUADRATIC_MAX else None
        for entry in range(start, end):
            if column_absent(&chunk.columns[0], entry) or not column_bytes(&chunk.columns[0], entry, &name, &name_bytes):
                raise ValueError(f"{row_text(COLUMN, chunk.row_first, row)}: a key is null")
            if not 1 <= name_bytes <= NAME_BYTES_MAX:
                raise ValueError(f"{row_text(COLUMN, chunk.row_first, row)}: a name has {name_bytes} bytes, allowed are 1 to "
                                 f"{NAME_BYTES_MAX}")
            if names is None:
                twice = key_before(&chunk.columns[0], start, entry, name, name_bytes)
            else:
                twice = name[:name_bytes] in names
                names.add(name[:name_bytes])
            if twice:
                raise ValueError(f"{row_text(COLUMN, chunk.row_first, row)}: {name[:name_bytes].decode()!r} is there twice")
        size = headers_measure(headers, chunk, row)
        if size > HEADERS_BYTES_MAX:
            raise ValueError(f"{row_text(COLUMN, chunk.row_first, row)}: {size} bytes or more, allowed are {HEADERS_BYTES_MAX}")
    return 0


cdef bint key_before(const column_t* keys, int64_t start, int64_t end, const char* name, int64_t name_bytes) noexcept nogil:
    cdef const char* other = NULL
    cdef int64_t entry, size = 0
    for entry in range(start, end):
        column_bytes(keys, entry, &other, &size)
        if size == name_bytes and memcmp(other, name, name_bytes) == 0:
            return True
    return False


cdef inline bint entries_of(const headers_chunk_t* chunk, int64_t row, int64_t* start, int64_t* end) noexcept nogil:
    """The entries of a row's map; False if the row is null."""
    if chunk.validity != NULL and not bit_at(chunk.validity, chunk.first + row):
        return False
    start[0] = int32_at(chunk.entries, chunk.first + row) - chunk.entries_first
    end[0] = int32_at(chunk.entries, chunk.first + row + 1) - chunk.entries_first
    return True


cdef int64_t headers_held(const headers_t* headers, const headers_chunk_t* chunk) noexcept:
    cdef int64_t column, size = 4 * chunk.rows if headers.kind == HEADERS_MAP else 0
    for column in range(headers.field_count):
        size += column_held(&chunk.columns[column])
    return size


cdef void headers_chunk_close(const headers_t* headers, headers_chunk_t* chunk) noexcept:
    cdef int64_t column
    if chunk.columns != NULL:
        for column in range(headers.field_count):
            column_close(&chunk.columns[column])
        PyMem_Free(chunk.columns)
    free(<void*> chunk.validity)
    free(<void*> chunk.entries)
    free(<void*> chunk.pairs)


# ---- one row

cdef int64_t headers_measure(headers_t* headers, const headers_chunk_t* chunk, int64_t row) noexcept nogil:
    if headers.kind == HEADERS_STRUCT:
        return struct_measure(headers, chunk, row)
    headers.found_count = 0
    if headers.kind == HEADERS_MAP:
        return map_measure(headers, chunk, row)
    return 0


cdef void headers_write(const headers_t* headers, const headers_chunk_t* chunk, int64_t row, char* out) noexcept nogil:
    if headers.found_count == 0:
        return
    if headers.kind == HEADERS_STRUCT:
        struct_write(headers, out)
    else:
        map_write(headers, chunk, row, out)


cdef inline int64_t struct_measure(headers_t* headers, const headers_chunk_t* chunk, int64_t row) noexcept nogil:
    cdef const header_column_t* field
    cdef const column_t* column
    cdef found_t* found = headers.found
    cdef int64_t at, size = 0
    if chunk.validity != NULL and not bit_at(chunk.validity, chunk.first + row):
        headers.found_count = 0
        return 0
    for at in range(headers.field_count):
        field = &headers.fields[at]
        column = &chunk.columns[at]
        if field.header_type == HEADER_STR or field.header_type == HEADER_BYTES:
            if not column_bytes(column, row, &found.text, &found.size):
                continue
            size += 4 + found.size
        elif field.header_type == 0 or column_null(column, row):
            continue
        else:
            found.number = column_number(column, column.kind, row)
            if field.header_type != HEADER_TRUE:
                size += 8
        found.field = field
        size += field.prefix_bytes
        found += 1
    headers.found_count = found - headers.found
    return size


cdef inline void struct_write(const headers_t* headers, char* out) noexcept nogil:
    cdef const found_t* found = headers.found
    cdef const found_t* end = found + headers.found_count
    cdef const header_column_t* field
    while found < end:
        field = found.field
        copy_short(out, field.prefix, field.prefix_bytes)
        if field.header_type == HEADER_TRUE:
            out[0] = HEADER_TRUE if found.number else HEADER_FALSE
            out += field.prefix_bytes
        elif field.header_type == HEADER_INT or field.header_type == HEADER_FLOAT:
            memcpy(out + field.prefix_bytes, &found.number, 8)
            out += field.prefix_bytes + 8
        else:
            out = bytes_write(out + field.prefix_bytes, found.text, found.size, field.header_type)
        found += 1


cdef int64_t map_measure(headers_t* headers, const headers_chunk_t* chunk, int64_t row) noexcept nogil:
    """Measures a row of a map, up to the limit: beyond it the rest is not added."""
    cdef const char* text = NULL
    cdef int64_t entry, start, end, name_bytes = 0, value_bytes = 0, size = 0
    if not entries_of(chunk, row, &start, &end):
        return 0
    for entry in range(start, end):
        if column_bytes(&chunk.columns[1], entry, &text, &value_bytes):
            column_bytes(&chunk.columns[0], entry, &text, &name_bytes)
            size += 3 + name_bytes + 4 + value_bytes
            headers.found_count += 1
            if size > HEADERS_BYTES_MAX:
                break
    return size


cdef void map_write(const headers_t* headers, const headers_chunk_t* chunk, int64_t row, char* out) noexcept nogil:
    cdef const char* name = NULL
    cdef const char* value = NULL
    cdef int64_t entry, start = 0, end = 0, name_bytes = 0, value_bytes = 0
    cdef uint16_t size
    entries_of(chunk, row, &start, &end)
    for entry in range(start, end):
        if column_bytes(&chunk.columns[1], entry, &value, &value_bytes):
            column_bytes(&chunk.columns[0], entry, &name, &name_bytes)
            size = <uint16_t> name_bytes
            out[0] = headers.fields[1].header_type
            memcpy(out + 1, &size, 2)
            copy_short(out + 3, name, name_bytes)
            out = bytes_write(out + 3 + name_bytes, value, value_bytes, headers.fields[1].header_type)


cdef inline char* bytes_write(char* out, const char* text, int64_t size, uint8_t header_type) noexcept nogil:
    cdef uint32_t value_bytes = <uint32_t> size
    memcpy(out, &value_bytes, 4)
    copy_short(out + 4, text, size)
    if header_type == HEADER_STR and not ascii_only(out + 4, size):
        utf8_repair(out + 4, size)
    return out + 4 + size


cdef void utf8_repair(char* text, int64_t size) noexcept nogil:
    """Puts a question mark for every byte above 127 into text that has changed since it was checked. It keeps its size."""
    cdef int64_t at
    if not utf8_valid(text, size):
        for at in range(size):
            if <uint8_t> text[at] > 127:
                text[at] = c"?"
