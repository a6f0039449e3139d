"""Writes deliveries, and messages that are looked at, into Arrow columns.

    id              uint64
    queue           utf8
    destination     utf8
    delivery_count  uint32
    timestamp       timestamp[ns, UTC]
    address         utf8
    body            binary
    headers         a struct; see `write_headers.pyx`
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
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from xump_ext.arrow.column_writer cimport (
    batch_row_t, bit_set, buffer_alloc, column_name, numbers_start, valid_set, validity_finish, validity_start, writer_finish,
    writer_put, writer_start, writer_t,
)
from xump_ext.arrow.export cimport arena_start, children_alloc, written_t
from xump_ext.arrow.write_headers cimport write_headers, write_map
from xump_ext.arrow.write_named_headers cimport write_named_headers
from xump_ext.message.headers cimport content_t, correlation_of, expires_of, headers_of
from xump_ext.message.message cimport Message
from xump_ext.message.times cimport NEVER

cdef extern from "Python.h":
    char* PyBytes_AS_STRING(object)

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
    uint32_t wanted=0xFFFFFFFF, dict named_headers=None
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
    elif named_headers is not None:
        write_named_headers(&columns[COLUMN_HEADERS], rows, count, small_bytes_max, named_headers)
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
