"""Writes the headers of messages as a column.

Headers are a struct. It has a field for each name, in the order in which names first appear in the batch, and null for a missing
header. A field has the type of its values. If their types differ in the batch, the field gets a type that loses nothing:

    int and float           float64, if every int is exact as a float
    anything with bytes     binary: text as UTF-8, the rest as text
    any other mixture       utf8: the values as text, such as true, -1, 0.5

If no message has a header, the column is null, which fits any struct when tables are joined; an empty struct does not, and some
libraries cannot read one. Two kinds of batches have a map in place of a struct: those with more than 1,024 different names, each
of which would cost 8 bytes a row, and those with a NUL in a name, where Arrow would cut the name off. It is a map of utf8 to utf8
(to binary if there are bytes), with the values as text.

A stream of batches needs columns of the same types throughout. With `map_headers` headers are always a map of utf8 to utf8; bytes
that are no UTF-8 are written in hexadecimal. `write_named_headers.pyx` writes those that a reader names.
"""

from cpython.mem cimport PyMem_Free
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, strlen

from xump_ext.arrow.column cimport utf8_valid
from xump_ext.arrow.column_writer cimport (
    buffer_alloc, column_name, numbers_start, validity_finish, validity_start, writer_finish, writer_put,
    writer_start, writer_t,
)
from xump_ext.arrow.export cimport children_alloc, piece_alloc
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_free, u32_vector_t
from xump_ext.message.headers cimport (
    HEADER_BYTES, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE, content_t, field_count, field_read, fields_of, header_t,
)

cdef extern from "Python.h":
    char* PyOS_double_to_string(double, char, int, int, int*) except NULL
    int Py_DTSF_ADD_DOT_0

cdef enum:
    NAMES_MAX = 1024            # fields of the struct: 8 bytes each for every row
    NAMES_TRIED = 4             # fields after the last one that are compared before the name is looked up

cdef enum:
    # The types that the values of a header have.
    SEEN_BOOL = 1
    SEEN_INT = 2
    SEEN_FLOAT = 4
    SEEN_STR = 8
    SEEN_BYTES = 16
    SEEN_INEXACT = 32           # an int that is not exact as a float

# The fields of the struct, found in a first pass.
cdef struct fields_t:
    int64_t count
    const char* names[<int> NAMES_MAX]      # they lie in the contents
    uint32_t name_bytes[<int> NAMES_MAX]
    uint8_t seen[<int> NAMES_MAX]
    u32_vector_t found          # the field of each header, in the order of the pass


# ---- one value

cdef int put_value(writer_t* writer, int64_t row, const header_t* header) except -1:
    """Writes a header's value as text; a bytes value as it is."""
    cdef char digits[32]
    cdef char* text
    if header.type == HEADER_STR or header.type == HEADER_BYTES:
        return writer_put(writer, row, header.value, header.value_bytes)
    if header.type == HEADER_INT:
        return writer_put(writer, row, digits, snprintf(digits, 32, "%lld", <long long> header.integer))
    if header.type == HEADER_FLOAT:
        text = PyOS_double_to_string(header.real, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
        try:
            return writer_put(writer, row, text, strlen(text))
        finally:
            PyMem_Free(text)
    if header.type == HEADER_TRUE:
        return writer_put(writer, row, "true", 4)
    return writer_put(writer, row, "false", 5)


cdef int put_hex(writer_t* writer, int64_t row, const header_t* header) except -1:
    """Writes a bytes value as hexadecimal digits."""
    cdef bytes digits = (<bytes> header.value[:header.value_bytes]).hex().encode()
    return writer_put(writer, row, digits, len(digits))


# ---- the column

cdef int write_headers(written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max) except -1:
    cdef fields_t fields        # 13 KiB of the stack
    fields.count = 0
    fields.found.items = NULL
    fields.found.count = fields.found.capacity = 0
    try:
        if not find_fields(&fields, rows, count):
            write_map(column, rows, count, small_bytes_max, False)
        elif fields.count:
            write_struct(column, &fields, rows, count, small_bytes_max)
        else:
            column.format = "n"
            column.null_count = count
    finally:
        u32_vector_free(&fields.found)
    return 0


cdef const char* headers_from(const content_t* content, const char** end) noexcept:
    """Where the headers of a message start, and where they end."""
    cdef uint32_t size
    cdef const char* start = fields_of(content, &size)
    end[0] = start + size
    return start


cdef bint find_fields(fields_t* fields, const batch_row_t* rows, Py_ssize_t count) except -1:
    """The first pass: finds the fields, and the field of every header. False if a struct cannot have these fields."""
    cdef dict numbers = {}
    cdef header_t header
    cdef int64_t field
    cdef const char* at
    cdef const char* end
    cdef Py_ssize_t row
    for row in range(count):
        field = 0
        at = headers_from(rows[row].content, &end)
        while at < end:
            at = field_read(at, &header)
            field = find_field(fields, numbers, field, &header)
            if field < 0:
                return False
            fields.seen[field] |= seen_of(&header)
            u32_vector_add(&fields.found, <uint32_t> field)
            field += 1
    return True


cdef int64_t find_field(fields_t* fields, dict numbers, int64_t guess, const header_t* header) except? -1:
    """The field of a name, made if it is new; -1 if a struct cannot have it.

    The fields after `guess` are tried first, because most messages have their names in the same order.
    """
    cdef int64_t field
    for field in range(guess, min(guess + NAMES_TRIED, fields.count)):
        if fields.name_bytes[field] == header.name_bytes and memcmp(fields.names[field], header.name, header.name_bytes) == 0:
            return field
    if memchr(header.name, 0, header.name_bytes) != NULL:
        return -1
    name = header.name[:header.name_bytes]
    known = numbers.get(name)
    if known is not None:
        return known
    if fields.count == NAMES_MAX:
        return -1
    field = fields.count
    numbers[name] = field
    fields.names[field] = header.name
    fields.name_bytes[field] = header.name_bytes
    fields.seen[field] = 0
    fields.count += 1
    return field


cdef uint8_t seen_of(const header_t* header) noexcept:
    cdef double real
    if header.type == HEADER_INT:
        real = <double> header.integer
        return SEEN_INT if real < 9223372036854775808.0 and <int64_t> real == header.integer else SEEN_INT | SEEN_INEXACT
    if header.type == HEADER_FLOAT:
        return SEEN_FLOAT
    if header.type == HEADER_STR:
        return SEEN_STR
    return SEEN_BYTES if header.type == HEADER_BYTES else SEEN_BOOL


cdef const char* format_of_seen(uint8_t seen) noexcept:
    if seen == SEEN_BOOL:
        return "b"
    if seen == SEEN_INT or seen == SEEN_INT | SEEN_INEXACT:
        return "l"
    if seen == SEEN_FLOAT or seen == SEEN_INT | SEEN_FLOAT:
        return "g"
    if seen & SEEN_BYTES:
        return "z"
    return "u"


cdef int write_struct(
    written_t* column, fields_t* fields, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max
) except -1:
    """The second pass: writes values into their fields."""
    cdef writer_t* writers = <writer_t*> calloc(fields.count, sizeof(writer_t))
    cdef const uint32_t* found = fields.found.items
    cdef header_t header
    cdef int64_t field
    cdef const char* at
    cdef const char* end
    cdef Py_ssize_t row
    if writers == NULL:
        raise MemoryError()
    try:
        column.format = "+s"
        column.buffer_count = 1
        children_alloc(column, count, fields.count)
        for field in range(fields.count):
            field_start(&column.children[field], &writers[field], fields.names[field], fields.name_bytes[field],
                        format_of_seen(fields.seen[field]))
        for row in range(count):
            at = headers_from(rows[row].content, &end)
            while at < end:
                at = field_read(at, &header)
                write_value(&column.children[found[0]], &writers[found[0]], row, &header)
                found += 1
        for field in range(fields.count):
            field_finish(&column.children[field], &writers[field], small_bytes_max)
    finally:
        free(writers)
    return 0


cdef int field_start(
    written_t* column, writer_t* writer, const char* name, Py_ssize_t name_bytes, const char* format
) except -1:
    column.own_name = <char*> piece_alloc(column.arena, name_bytes + 1)
    memcpy(column.own_name, name, name_bytes)
    column_name(column, column.own_name)
    validity_start(column)
    if format[0] == c"u" or format[0] == c"z":
        return writer_start(writer, column, format, 8 * column.rows)
    numbers_start(column, format, 1 if format[0] == c"b" else 8)
    return 0


cdef void field_finish(written_t* column, writer_t* writer, int64_t small_bytes_max) noexcept:
    validity_finish(column)
    if writer.column != NULL:
        writer_finish(writer, small_bytes_max)


cdef int write_map(
    written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, bint as_text
) except -1:
    """A map; `as_text`: of texts, also if there are bytes."""
    cdef writer_t names, values
    cdef written_t* pairs
    cdef header_t header
    cdef int32_t* offsets
    cdef int64_t entries = 0
    cdef const char* at
    cdef const char* end
    cdef Py_ssize_t row
    cdef bint has_bytes = False
    for row in range(count):
        entries += field_count(rows[row].content)
        at = headers_from(rows[row].content, &end)
        while at < end:
            at = field_read(at, &header)
            has_bytes |= header.type == HEADER_BYTES and not as_text
    if entries > INT32_MAX:
        raise MemoryError(f"{entries} headers in one batch, a map column has room for {INT32_MAX}")
    column.format = "+m"
    column.buffer_count = 2
    offsets = <int32_t*> buffer_alloc(column, 1, (count + 1) * 4)
    children_alloc(column, entries, 1)
    pairs = column.children
    column_name(pairs, "entries")
    pairs.format = "+s"
    pairs.buffer_count = 1
    children_alloc(pairs, entries, 2)
    column_name(&pairs.children[0], "key")
    column_name(&pairs.children[1], "value")
    pairs.flags = pairs.children[0].flags = 0       # not nullable, as a map requires
    writer_start(&names, &pairs.children[0], "u", 8 * entries)
    writer_start(&values, &pairs.children[1], format_of_seen(SEEN_BYTES if has_bytes else SEEN_STR), 8 * entries)
    entries = 0
    for row in range(count):
        at = headers_from(rows[row].content, &end)
        while at < end:
            at = field_read(at, &header)
            writer_put(&names, entries, header.name, header.name_bytes)
            if as_text and header.type == HEADER_BYTES and not utf8_valid(header.value, header.value_bytes):
                put_hex(&values, entries, &header)
            else:
                put_value(&values, entries, &header)
            entries += 1
        offsets[row + 1] = <int32_t> entries
    writer_finish(&names, small_bytes_max)
    writer_finish(&values, small_bytes_max)
    return 0
