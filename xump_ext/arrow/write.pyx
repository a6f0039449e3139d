"""Writes deliveries, and messages that are looked at, into Arrow columns.

    id              uint64
    queue           utf8
    destination     utf8
    delivery_count  uint32
    timestamp       timestamp[ns, UTC]
    address         utf8
    body            binary
    headers         see below
    reply_to        utf8, null if the message has none
    message_id      utf8, null if the message has none
    correlation_id  utf8, null if the message has none
    expires         timestamp[ns, UTC], null if the message does not expire
    priority        uint8

and, of messages that are looked at and not taken, as `browse_batch` does,

    state           utf8
    at              timestamp[ns, UTC]: when a delayed message is due, else null
    redelivered     bool: whether it came back once after it had been handed out

`publish_batch` reads these columns again; it ignores those that a queue gives anew.

Columns of more than 2**31 - 1 bytes are large_utf8 and large_binary. Every field is nullable in the schema, as other libraries
make it by default, so that schemas compare equal.

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
that are no UTF-8 are written in hexadecimal.
"""

from cpython.mem cimport PyMem_Free
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int32_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy, strlen

from xump_ext.arrow.c_data cimport ARROW_FLAG_NULLABLE
from xump_ext.arrow.column cimport utf8_valid
from xump_ext.arrow.export cimport arena_start, children_alloc, is_inside, piece_alloc, piece_free, written_t
from xump_ext.memory.u32_vector cimport u32_vector_add, u32_vector_free, u32_vector_t
from xump_ext.message.headers cimport (
    HEADER_BYTES, HEADER_FLOAT, HEADER_INT, HEADER_STR, HEADER_TRUE, correlation_of, expires_of, field_count, field_read,
    fields_of, header_t, headers_of,
)
from xump_ext.message.message cimport Message
from xump_ext.message.times cimport NEVER

cdef extern from "Python.h":
    char* PyOS_double_to_string(double, char, int, int, int*) except NULL
    int Py_DTSF_ADD_DOT_0
    char* PyBytes_AS_STRING(object)

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

# A column of text or bytes that is being written: offsets have 64 bits until the end shows which width they need.
cdef struct writer_t:
    written_t* column
    int64_t* offsets
    char* bytes
    int64_t used
    int64_t capacity
    int64_t next_row            # the first row whose end is not written yet

# The fields of the struct, found in a first pass.
cdef struct fields_t:
    int64_t count
    const char* names[<int> NAMES_MAX]      # they lie in the contents
    uint32_t name_bytes[<int> NAMES_MAX]
    uint8_t seen[<int> NAMES_MAX]
    u32_vector_t found          # the field of each header, in the order of the pass


# ---- columns

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


cdef int validity_start(written_t* column) except -1:
    """Makes all values null; `valid_set` then marks those that are there."""
    buffer_alloc(column, 0, (column.rows + 7) >> 3)
    column.null_count = column.rows
    return 0


cdef void validity_finish(written_t* column) noexcept:
    if column.null_count == 0:
        piece_free(column.arena, column.buffers[0])
        column.buffers[0] = NULL


cdef inline void valid_set(written_t* column, int64_t row) noexcept nogil:
    bit_set(column.buffers[0], row)
    column.null_count -= 1


# ---- text and bytes

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


# ---- the batch

cdef enum:
    COLUMN_ID
    COLUMN_QUEUE
    COLUMN_DESTINATION
    COLUMN_DELIVERY_COUNT
    COLUMN_TIMESTAMP
    COLUMN_ADDRESS
    COLUMN_BODY
    COLUMN_HEADERS
    COLUMN_REPLY_TO
    COLUMN_MESSAGE_ID
    COLUMN_CORRELATION_ID
    COLUMN_EXPIRES
    COLUMN_PRIORITY
    COLUMNS_TAKEN
    COLUMN_STATE = COLUMNS_TAKEN
    COLUMN_AT
    COLUMN_REDELIVERED
    COLUMNS_BROWSED

cdef const char* NAMES[<int> COLUMNS_BROWSED]
NAMES[:] = [
    "id", "queue", "destination", "delivery_count", "timestamp", "address", "body", "headers", "reply_to", "message_id",
    "correlation_id", "expires", "priority", "state", "at", "redelivered",
]


cdef uint32_t columns_named(names) except 0:
    """Their bits."""
    cdef uint32_t wanted = 1 << <int> COLUMN_ID
    cdef int column
    for column in range(<int> COLUMNS_BROWSED):
        if NAMES[column].decode() in names:
            wanted |= <uint32_t> 1 << column
    return wanted


cdef ArrowBatch batch_of_rows(
    const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max, bint browsed, bint map_headers=False,
    uint32_t wanted=0xFFFFFFFF
):
    cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
    cdef int column, column_count = COLUMNS_BROWSED if browsed else COLUMNS_TAKEN
    cdef bint trailed = False, ranked = False
    cdef written_t* columns
    arena_start(batch.table, count)
    batch.table.root.rows = count
    children_alloc(&batch.table.root, count, column_count)
    columns = batch.table.root.children
    what_is_rare(rows, count, &trailed, &ranked)
    for column in range(column_count):
        column_name(&columns[column], NAMES[column])
    write_numbers(columns, rows, count)
    for column in (COLUMN_QUEUE, COLUMN_DESTINATION, COLUMN_ADDRESS, COLUMN_REPLY_TO, COLUMN_MESSAGE_ID):
        write_texts(&columns[column], column, rows, count if wanted >> column & 1 else 0, small_bytes_max)
    write_bodies(&columns[COLUMN_BODY], rows, count if wanted >> <int> COLUMN_BODY & 1 else 0, small_bytes_max)
    if not wanted >> <int> COLUMN_HEADERS & 1:
        no_texts(&columns[COLUMN_HEADERS])
    elif map_headers:
        write_map(&columns[COLUMN_HEADERS], rows, count, small_bytes_max, True)
    else:
        write_headers(&columns[COLUMN_HEADERS], rows, count, small_bytes_max)
    if trailed:
        write_texts(&columns[COLUMN_CORRELATION_ID], COLUMN_CORRELATION_ID, rows, count, small_bytes_max)
    else:
        no_texts(&columns[COLUMN_CORRELATION_ID])
    write_moments(&columns[COLUMN_EXPIRES], COLUMN_EXPIRES, rows, count if trailed else 0)
    write_priorities(&columns[COLUMN_PRIORITY], rows, count if ranked else 0)
    if browsed:
        write_texts(&columns[COLUMN_STATE], COLUMN_STATE, rows, count if wanted >> <int> COLUMN_STATE & 1 else 0, small_bytes_max)
        write_moments(&columns[COLUMN_AT], COLUMN_AT, rows, count)
        write_redelivered(&columns[COLUMN_REDELIVERED], rows, count)
    return batch


cdef void what_is_rare(const batch_row_t* rows, Py_ssize_t count, bint* trailed, bint* ranked) noexcept:
    """Whether any of the messages has what few have: a trailer, a priority. Most columns of these are null, or zero."""
    cdef Py_ssize_t row
    for row in range(count):
        trailed[0] |= rows[row].content.has_trailer
        ranked[0] |= rows[row].content.priority


cdef int no_texts(written_t* column) except -1:
    """A column of texts that are all null."""
    column.format = "u"
    column.buffer_count = 3
    buffer_alloc(column, 1, (column.rows + 1) * 4)
    buffer_alloc(column, 2, 0)
    return validity_start(column)


cdef int write_numbers(written_t* columns, const batch_row_t* rows, Py_ssize_t count) except -1:
    cdef uint64_t* ids = <uint64_t*> numbers_start(&columns[COLUMN_ID], "L", 8)
    cdef uint32_t* delivery_counts = <uint32_t*> numbers_start(&columns[COLUMN_DELIVERY_COUNT], "I", 4)
    cdef int64_t* timestamps = <int64_t*> numbers_start(&columns[COLUMN_TIMESTAMP], "tsn:UTC", 8)
    cdef Py_ssize_t row
    for row in range(count):
        ids[row] = rows[row].id
        delivery_counts[row] = rows[row].delivery_count
        timestamps[row] = rows[row].timestamp
    return 0


cdef int write_moments(written_t* column, int which, const batch_row_t* rows, Py_ssize_t count) except -1:
    """A column of moments; rows from `count` on are null."""
    cdef int64_t* moments = <int64_t*> numbers_start(column, "tsn:UTC", 8)
    cdef int64_t moment
    cdef Py_ssize_t row
    validity_start(column)
    for row in range(count):
        moment = rows[row].at if which == COLUMN_AT else expires_of(rows[row].content)
        if moment != NEVER:
            moments[row] = moment
            valid_set(column, row)
    validity_finish(column)
    return 0


cdef int write_priorities(written_t* column, const batch_row_t* rows, Py_ssize_t count) except -1:
    """A column of priorities; rows from `count` on have 0."""
    cdef uint8_t* priorities = <uint8_t*> numbers_start(column, "C", 1)
    cdef Py_ssize_t row
    for row in range(count):
        priorities[row] = rows[row].content.priority
    return 0


cdef int write_redelivered(written_t* column, const batch_row_t* rows, Py_ssize_t count) except -1:
    cdef Py_ssize_t row
    numbers_start(column, "b", 1)
    for row in range(count):
        if rows[row].redelivered:
            bit_set(column.buffers[1], row)
    return 0


cdef inline void* row_text(const batch_row_t* row, int column) noexcept:
    if column == COLUMN_QUEUE:
        return row.queue
    if column == COLUMN_DESTINATION:
        return row.destination
    if column == COLUMN_ADDRESS:
        return row.content.address
    if column == COLUMN_REPLY_TO:
        return row.content.reply_to
    if column == COLUMN_MESSAGE_ID:
        return row.content.message_id
    return row.state if column == COLUMN_STATE else correlation_of(row.content)


cdef int write_texts(written_t* column, int which, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max) except -1:
    """A column of texts; rows from `count` on are null."""
    cdef writer_t writer
    cdef const char* text
    cdef void* string
    cdef Py_ssize_t row, size
    writer_start(&writer, column, "u", 16 * count)
    validity_start(column)
    for row in range(count):
        string = row_text(&rows[row], which)
        if string != NULL:
            text = PyUnicode_AsUTF8AndSize(<object> string, &size)
            writer_put(&writer, row, text, size)
            valid_set(column, row)
    validity_finish(column)
    writer_finish(&writer, small_bytes_max)
    return 0


cdef int write_bodies(written_t* column, const batch_row_t* rows, Py_ssize_t count, int64_t small_bytes_max) except -1:
    """A column of bytes; rows from `count` on are empty."""
    cdef writer_t writer
    cdef const content_t* content
    cdef Py_ssize_t row
    cdef int64_t total = 0
    for row in range(count):
        total += rows[row].content.body_bytes
    writer_start(&writer, column, "z", total)
    for row in range(count):
        content = rows[row].content
        if content.body_inline:
            writer_put(&writer, row, headers_of(content) + content.header_bytes, content.body_bytes)
        else:
            writer_put(&writer, row, PyBytes_AS_STRING(<object> content.body), content.body_bytes)
    writer_finish(&writer, small_bytes_max)
    return 0


# ---- headers

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


cdef inline const char* headers_from(const content_t* content, const char** end) noexcept:
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
            field_start(&column.children[field], &writers[field], fields, field)
        for row in range(count):
            at = headers_from(rows[row].content, &end)
            while at < end:
                at = field_read(at, &header)
                write_value(&column.children[found[0]], &writers[found[0]], row, &header)
                found += 1
        for field in range(fields.count):
            validity_finish(&column.children[field])
            if writers[field].column != NULL:
                writer_finish(&writers[field], small_bytes_max)
    finally:
        free(writers)
    return 0


cdef int field_start(written_t* column, writer_t* writer, const fields_t* fields, int64_t field) except -1:
    cdef const char* format = format_of_seen(fields.seen[field])
    column.own_name = <char*> piece_alloc(column.arena, fields.name_bytes[field] + 1)
    memcpy(column.own_name, fields.names[field], fields.name_bytes[field])
    column_name(column, column.own_name)
    validity_start(column)
    if format[0] == c"u" or format[0] == c"z":
        return writer_start(writer, column, format, 8 * column.rows)
    numbers_start(column, format, 1 if format[0] == c"b" else 8)
    return 0


cdef int write_value(written_t* column, writer_t* writer, int64_t row, const header_t* header) except -1:
    cdef char format = column.format[0]
    valid_set(column, row)
    if format == c"l":
        (<int64_t*> column.buffers[1])[row] = header.integer
    elif format == c"g":
        (<double*> column.buffers[1])[row] = <double> header.integer if header.type == HEADER_INT else header.real
    elif format == c"b":
        if header.type == HEADER_TRUE:
            bit_set(column.buffers[1], row)
    else:
        put_value(writer, row, header)
    return 0


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


# ---- for tests

def write_batch(deliveries, *, int64_t small_bytes_max=INT32_MAX):
    """A batch of (message, delivery_count, destination, queue); the last two are str or None.

    Columns with more bytes than `small_bytes_max` have offsets of 64 bits. Raises TypeError and OverflowError. Cost: that of
    `batch_of_rows`, and a few objects a row.
    """
    cdef list given = list(deliveries)
    cdef batch_row_t* rows = <batch_row_t*> calloc(len(given) + 1, sizeof(batch_row_t))
    cdef batch_row_t* row = rows
    cdef Message message
    if rows == NULL:
        raise MemoryError()
    try:
        for message, delivery_count, destination, queue in given:
            if message is None:
                raise TypeError("a delivery starts with a Message, got None")
            row.content = message.content
            row.id = message.id
            row.timestamp = message.timestamp
            row.delivery_count = delivery_count
            row.destination = text_or_null(destination)
            row.queue = text_or_null(queue)
            row += 1
        return batch_of_rows(rows, len(given), small_bytes_max, False)
    finally:
        free(rows)


cdef void* text_or_null(object text) except? NULL:
    if text is None:
        return NULL
    if type(text) is not str:
        raise TypeError(f"a destination or queue is a str or None, got {type(text).__name__}")
    return <void*> text
