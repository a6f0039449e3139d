"""Reads messages from Arrow data, as pyarrow, Polars, DuckDB and others hand it over.

A `BatchReader` takes all chunks of its data and checks every column of every chunk (`arrow/column.pyx`), the limits of messages
included. Rows can be read only after that, so a batch enters a queue whole or not at all. A row becomes content in one
allocation. It makes no Python object but for an address that did not occur lately: values of `address` and `reply_to` repeat, in
a batch and in the next ones, so their str objects are shared, through one small table by their bytes, which all readers have, and
one table for each dictionary. Code that routes by an address then finds the very object that it knows.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from xump_ext.arrow.c_data cimport ArrowArrayStream, bit_at, int32_at
from xump_ext.arrow.column cimport (
    BYTES_ALLOWED, COLUMN_DICTIONARY, COLUMN_NULL, INTEGERS_ALLOWED, MOMENTS_ALLOWED, TEXTS_ALLOWED, array_check, children_check,
    column_absent, column_bytes, column_close, column_held, column_null, column_number, column_open, format_of, name_of,
    range_check, type_read, validity_of,
)
from xump_ext.arrow.headers cimport (
    HEADERS_NONE, headers_chunk_close, headers_close, headers_held, headers_measure, headers_open, headers_read_schema,
    headers_write,
)
from xump_ext.memory.short_copy cimport ascii_only, same_short
from xump_ext.memory.slab cimport bytes_noted
from xump_ext.message import message
from xump_ext.message.content cimport content_of_buffers, content_release, no_parts, parts_t, pointer_or_null
from xump_ext.message.headers cimport headers_of
from xump_ext.message.message cimport message_object
from xump_ext.message.times cimport NEVER

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t, Py_UCS4)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    void* PyUnicode_DATA(object)

cdef enum:
    SLOTS = 4096            # 96 KiB; a handful of addresses touches a handful of cache lines
    SLOT_SHIFT = 20         # leaves so many bits of a hash as number them
    PROBES = 4              # slots in which a text may be, so that two texts with the same first slot do not evict each other
    SHARED_BYTES_MAX = 256  # of a text that is shared: so the table keeps a megabyte alive at most

cdef slot_t slots[SLOTS]    # under the interpreter's lock, as all that makes rows

cdef tuple COLUMNS = ("address", "body", "reply_to", "message_id", "correlation_id", "at", "expires", "priority", "headers")
cdef tuple WHATS = tuple([f"column {name!r}" for name in COLUMNS])      # what errors call them
cdef frozenset IGNORED = frozenset(("id", "queue", "destination", "delivery_count", "timestamp", "state", "redelivered"))
# columns of a batch that was taken or looked at, which a queue gives anew

cdef int64_t ADDRESS_BYTES_MAX = message.address_bytes_max
cdef int64_t BODY_BYTES_MAX = message.body_bytes_max
cdef int64_t PRIORITY_MAX = 255
cdef str EMPTY = ""
cdef bytes QUESTIONED = bytes(range(128)) + b"?" * 128


@cython.final
cdef class BatchReader:
    """The messages in `data`, which has `__arrow_c_stream__` or `__arrow_c_array__`.

    The data is a table of the columns address, body, headers, reply_to, message_id, correlation_id, at, expires and priority;
    each of them may be missing. `headers` is a struct, whose fields are the headers (null is a missing header), or a map of text
    to text or bytes; `at` and `expires` are timestamps, or nanoseconds. The other columns of a batch that was taken or looked
    at (id, queue, destination, delivery_count, timestamp, state, redelivered) are ignored. `rows` is the number of rows.

    Raises TypeError for data or a column of a type that it does not read. Raises ValueError, with column and row, for a column
    of another name, damaged arrays and values above the limits of messages. Cost: a pass over offsets, indices and text.
    """

    def __init__(self, data):
        cdef Py_ssize_t chunk
        if self.chunks != NULL or self.headers.fields != NULL:
            raise TypeError("a batch reader reads one batch")
        if hasattr(data, "__arrow_c_stream__"):
            self.take_stream(data.__arrow_c_stream__())
        elif hasattr(data, "__arrow_c_array__"):
            schema, array = data.__arrow_c_array__()
            self.take_array(schema, array)
        else:
            raise TypeError("a batch must have __arrow_c_stream__ or __arrow_c_array__, as tables of pyarrow, Polars and DuckDB "
                            f"do; got {type(data).__name__}")
        for chunk in range(self.chunk_count):
            self.open_chunk(&self.chunks[chunk])
        self.noted = self.held()        # rows may wait in their columns for long
        bytes_noted(self.noted)

    def __dealloc__(self):
        cdef Py_ssize_t chunk
        bytes_noted(-self.noted)
        for chunk in range(self.chunk_count):
            chunk_close(&self.chunks[chunk], &self.headers)
        PyMem_Free(self.chunks)
        headers_close(&self.headers)

    def messages(self):
        """The messages that were not read yet, as a list. Cost: a `Message` for each."""
        cdef content_t* content
        cdef list messages = []
        while self.fill(&content, 1):
            try:
                messages.append(message_object(content, 0, 0, 0))
            finally:
                content_release(content)
        return messages

    cdef Py_ssize_t fill(self, content_t** contents, Py_ssize_t room) except -1:
        cdef Py_ssize_t made = 0, chunk_at = self.chunk_at
        cdef int64_t row_at = self.row_at
        cdef chunk_t* chunk
        try:
            while made < room and chunk_at < self.chunk_count:
                chunk = &self.chunks[chunk_at]
                while made < room and row_at < chunk.rows:
                    contents[made] = self.content_of_row(chunk, row_at)
                    made += 1
                    row_at += 1
                if row_at == chunk.rows:
                    chunk_at += 1
                    row_at = 0
        except MemoryError:
            while made:
                made -= 1
                content_release(contents[made])
            raise
        self.chunk_at = chunk_at
        self.row_at = row_at
        return made

    cdef content_t* content_at(self, int64_t row) except NULL:
        cdef chunk_t* chunk = self.chunk_with(row)
        return self.content_of_row(chunk, row - chunk.row_first)

    cdef bint says_more(self) noexcept:
        return self.more

    cdef int64_t due_at(self, int64_t row) noexcept:
        cdef chunk_t* chunk
        if self.places[COLUMN_AT] < 0:
            return NEVER
        chunk = &self.chunks[self.chunk_of(row)]
        return self.moment_at(chunk, COLUMN_AT, row - chunk.row_first)

    cdef int64_t moment_at(self, chunk_t* chunk, int column, int64_t row) noexcept:
        if chunk.columns[column].kind == COLUMN_NULL or column_absent(&chunk.columns[column], row):
            return NEVER
        return column_number(&chunk.columns[column], chunk.columns[column].kind, row) * self.types[column].unit

    cdef chunk_t* chunk_with(self, int64_t row) noexcept:
        """The chunk of the row, which is then the present one."""
        cdef chunk_t* chunk = &self.chunks[self.chunk_at]
        if not chunk.row_first <= row < chunk.row_first + chunk.rows:
            self.chunk_at = self.chunk_of(row)
            chunk = &self.chunks[self.chunk_at]
        return chunk

    cdef Py_ssize_t chunk_of(self, int64_t row) noexcept:
        """The last chunk that starts at or before the row. It has the row: an empty chunk starts where the next one does."""
        cdef Py_ssize_t low = 0, high = self.chunk_count - 1, middle
        while low < high:
            middle = (low + high + 1) // 2
            if self.chunks[middle].row_first <= row:
                low = middle
            else:
                high = middle - 1
        return low

    # ---- taking

    cdef int take_stream(self, object capsule) except -1:
        """Reads all chunks. The GIL is released meanwhile, because threads of the producer may need it."""
        cdef ArrowArrayStream* source = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
        cdef ArrowArrayStream stream
        cdef ArrowSchema schema
        cdef chunk_t* chunk
        cdef int code
        if source.release == NULL:
            raise ValueError("the stream was released: it can be read once")
        stream = source[0]
        source.release = NULL
        memset(&schema, 0, sizeof(ArrowSchema))
        try:
            with nogil:
                code = stream.get_schema(&stream, &schema)
            if code:
                schema.release = NULL
                raise_failure(&stream, code)
            self.read_schema(&schema)
            while True:
                chunk = self.chunk_add()
                with nogil:
                    code = stream.get_next(&stream, &chunk.array)
                if code:
                    chunk.array.release = NULL
                    raise_failure(&stream, code)
                if chunk.array.release == NULL:
                    break
        finally:
            with nogil:
                if schema.release != NULL:
                    schema.release(&schema)
                stream.release(&stream)
        self.chunk_count -= 1           # the last chunk only marks the end
        return 0

    cdef int take_array(self, object schema_capsule, object array_capsule) except -1:
        """Reads the schema, which its capsule releases, and takes over the array."""
        cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(array_capsule, "arrow_array")
        if array.release == NULL:
            raise ValueError("the array was released: it can be read once")
        self.read_schema(schema)
        self.chunk_add().array = array[0]
        array.release = NULL
        return 0

    cdef chunk_t* chunk_add(self) except NULL:
        """An empty chunk, in an array that doubles. A stream of one chunk has two: the last one marks the end."""
        cdef Py_ssize_t count = self.chunk_count
        cdef chunk_t* chunks
        if count & (count - 1) == 0 and count != 1:
            chunks = <chunk_t*> PyMem_Realloc(self.chunks, max(2 * count, 2) * sizeof(chunk_t))
            if chunks == NULL:
                raise MemoryError()
            self.chunks = chunks
        memset(&self.chunks[count], 0, sizeof(chunk_t))
        self.chunk_count += 1
        return &self.chunks[count]

    # ---- checks

    cdef int read_schema(self, const ArrowSchema* schema) except -1:
        cdef int64_t child
        cdef int column
        cdef bytes format = format_of(schema, "the batch")
        for column in range(COLUMNS_READ):
            self.places[column] = -1
        if format != b"+s":
            raise TypeError("a batch must be a table or an array of structs, got the Arrow format "
                            f"{format.decode('ascii', 'backslashreplace')!r}")
        children_check(schema, "the schema of the batch")
        self.table_columns = schema.n_children
        for child in range(schema.n_children):
            name = name_of(schema.children[child])
            if name in IGNORED:
                continue
            if name not in COLUMNS:
                raise ValueError(f"column {name!r} is unknown, allowed are {', '.join(COLUMNS)}")
            column = COLUMNS.index(name)
            if self.places[column] >= 0:
                raise ValueError(f"column {name!r} is there twice")
            self.places[column] = child
            if column not in (COLUMN_ADDRESS, COLUMN_BODY, COLUMN_HEADERS, COLUMN_AT):
                self.has_parts = True
            if column == COLUMN_HEADERS:
                headers_read_schema(&self.headers, schema.children[child])
            else:
                type_read(&self.types[column], schema.children[child], allowed_in(column), WHATS[column])
        return 0

    cdef int open_chunk(self, chunk_t* chunk) except -1:
        cdef const ArrowArray* array = &chunk.array
        cdef const uint8_t* validity
        cdef int64_t row, bytes_max, moment_max
        cdef int column
        array_check(array, 0, self.table_columns, 1, "the batch")
        validity = validity_of(array, "the batch")
        chunk.rows = array.length
        chunk.row_first = self.rows
        if validity != NULL:
            for row in range(chunk.rows):
                if not bit_at(validity, array.offset + row):
                    raise ValueError(f"row {self.rows + row} is null as a whole")
        for column in range(COLUMN_HEADERS):
            if self.places[column] >= 0:
                what = WHATS[column]
                bytes_max = BODY_BYTES_MAX if column == COLUMN_BODY else ADDRESS_BYTES_MAX
                column_open(&chunk.columns[column], &self.types[column], array.children[self.places[column]], array.offset,
                            chunk.rows, NULL, 0, bytes_max, column != COLUMN_BODY, what, self.rows)
                if column == COLUMN_PRIORITY:
                    range_check(&chunk.columns[column], 0, PRIORITY_MAX, what, self.rows)
                elif column == COLUMN_AT or column == COLUMN_EXPIRES:
                    moment_max = (NEVER - 1) // self.types[column].unit
                    range_check(&chunk.columns[column], -moment_max, moment_max, what, self.rows)
                else:
                    continue
                self.more = self.more or says_something(&chunk.columns[column], column == COLUMN_PRIORITY)
        if self.headers.kind != HEADERS_NONE:
            headers_open(&self.headers, &chunk.headers, array.children[self.places[COLUMN_HEADERS]], array.offset, chunk.rows,
                         self.rows)
        self.rows += chunk.rows
        return 0

    cdef int64_t held(self) noexcept:
        """The bytes that the rows keep in memory."""
        cdef Py_ssize_t at
        cdef int64_t size = 0
        cdef int column
        for at in range(self.chunk_count):
            for column in range(COLUMN_HEADERS):
                if self.places[column] >= 0:
                    size += column_held(&self.chunks[at].columns[column])
            size += headers_held(&self.headers, &self.chunks[at].headers)
        return size

    # ---- rows

    cdef content_t* content_of_row(self, chunk_t* chunk, int64_t row) except NULL:
        cdef const char* body = ""
        cdef int64_t body_bytes = 0, header_bytes
        cdef content_t* content
        cdef object address = EMPTY, reply_to = None, message_id = None, correlation_id = None
        cdef parts_t parts
        if chunk.columns[COLUMN_ADDRESS].kind != COLUMN_NULL:
            address = self.checked_utf8(&chunk.columns[COLUMN_ADDRESS], row, True)
            if address is None:
                address = EMPTY
        if self.has_parts:
            reply_to = self.text_at(chunk, COLUMN_REPLY_TO, row, True)
            message_id = self.text_at(chunk, COLUMN_MESSAGE_ID, row, False)
            correlation_id = self.text_at(chunk, COLUMN_CORRELATION_ID, row, False)
            parts = no_parts()
            parts.reply_to = pointer_or_null(reply_to)
            parts.message_id = pointer_or_null(message_id)
            parts.correlation_id = pointer_or_null(correlation_id)
            parts.expires = self.moment_at(chunk, COLUMN_EXPIRES, row)
            if chunk.columns[COLUMN_PRIORITY].kind != COLUMN_NULL and not column_absent(&chunk.columns[COLUMN_PRIORITY], row):
                parts.priority = <uint8_t> column_number(
                    &chunk.columns[COLUMN_PRIORITY], chunk.columns[COLUMN_PRIORITY].kind, row)
        column_bytes(&chunk.columns[COLUMN_BODY], row, &body, &body_bytes)
        header_bytes = headers_measure(&self.headers, &chunk.headers, row)
        content = content_of_buffers(
            address, body, <uint32_t> body_bytes, &parts if self.has_parts else NULL,
            <uint32_t> self.headers.found_count, <uint32_t> header_bytes)
        headers_write(&self.headers, &chunk.headers, row, <char*> headers_of(content))
        return content

    cdef object text_at(self, chunk_t* chunk, int column, int64_t row, bint shared):
        """The text in that column, or None."""
        if chunk.columns[column].kind == COLUMN_NULL:
            return None
        return self.checked_utf8(&chunk.columns[column], row, shared)

    cdef object checked_utf8(self, column_t* column, int64_t row, bint shared):
        """A text value as str, or None for null."""
        cdef const char* text = NULL
        cdef int64_t size = 0, index
        if column.kind == COLUMN_DICTIONARY:
            if column_null(column, row):
                return None
            index = column_number(column, column.index_kind, row)
            if column.strings == NULL:
                column.strings = <void**> PyMem_Calloc(column.dictionary.rows + 1, sizeof(void*))
                if column.strings == NULL:
                    raise MemoryError()
            if column.strings[index] != NULL:
                return <object> column.strings[index]
            if not column_bytes(column, row, &text, &size):
                return None
            string = text_shared(text, size, column.ascii)
            Py_INCREF(string)
            column.strings[index] = <void*> string
            return string
        if not column_bytes(column, row, &text, &size):
            return None
        return text_shared(text, size, column.ascii) if shared else text_new(text, size, column.ascii)


cdef object text_shared(const char* text, int64_t size, bint ascii):
    """The str made of these bytes before, if it still has a slot; else a new str, in a free slot or in its first one."""
    cdef uint32_t hash, probe
    cdef slot_t* slot
    cdef Py_ssize_t own_size = 0
    cdef const char* own
    if size > SHARED_BYTES_MAX:
        return text_new(text, size, ascii)
    hash = text_hash(text, size)
    for probe in range(PROBES):
        slot = &slots[((hash >> SLOT_SHIFT) + probe) & (SLOTS - 1)]
        if slot.string == NULL:
            break
        if slot.hash == hash and slot.size == <uint32_t> size and same_short(slot.text, text, size):
            return <object> slot.string
    else:
        slot = &slots[hash >> SLOT_SHIFT]
    string = text_new(text, size, ascii)
    own = PyUnicode_AsUTF8AndSize(string, &own_size)
    Py_XDECREF(<PyObject*> slot.string)
    Py_INCREF(string)
    slot.string = <void*> string
    slot.text = own
    slot.size = <uint32_t> own_size
    slot.hash = hash
    return string


cdef int allowed_in(int column) noexcept:
    """The types that a column may have."""
    if column == COLUMN_BODY:
        return BYTES_ALLOWED
    if column == COLUMN_PRIORITY:
        return INTEGERS_ALLOWED
    return MOMENTS_ALLOWED if column == COLUMN_AT or column == COLUMN_EXPIRES else TEXTS_ALLOWED


cdef bint says_something(const column_t* column, bint but_zero) noexcept:
    """Whether any value is not null, and, for `but_zero`, not 0 either."""
    cdef int64_t row
    if column.kind == COLUMN_NULL:
        return False
    for row in range(column.rows):
        if not column_absent(column, row) and not (but_zero and column_number(column, column.kind, row) == 0):
            return True
    return False


cdef void chunk_close(chunk_t* chunk, const headers_t* headers) noexcept:
    cdef int column
    for column in range(COLUMN_HEADERS):
        if chunk.columns[column].kind != COLUMN_NULL:
            column_close(&chunk.columns[column])
    headers_chunk_close(headers, &chunk.headers)
    with nogil:
        if chunk.array.release != NULL:
            chunk.array.release(&chunk.array)


cdef int raise_failure(ArrowArrayStream* stream, int code) except -1:
    cdef const char* text = stream.get_last_error(stream)
    reason = f"the stream of the batch failed: {text[:strlen(text)].decode(errors='replace') if text != NULL else code}"
    if code == ENOMEM:
        raise MemoryError(reason)
    if code == EIO:
        raise OSError(code, reason)
    raise ValueError(reason)


cdef inline object text_new(const char* text, int64_t size, bint ascii):
    if ascii and size:
        string = PyUnicode_New(size, 127)
        memcpy(PyUnicode_DATA(string), text, size)
        if ascii_only(<const char*> PyUnicode_DATA(string), size):
            return string
    return text_decoded(text, size)


cdef object text_decoded(const char* text, int64_t size):
    """A str of UTF-8. Text that has changed since it was checked gets a question mark for every byte above 127, as in headers."""
    try:
        return PyUnicode_DecodeUTF8(text, size, NULL)
    except UnicodeDecodeError:
        return text[:size].translate(QUESTIONED).decode("ascii", "replace")


cdef inline uint32_t text_hash(const char* text, int64_t size) noexcept nogil:
    """Hashes all bytes, eight at a time; the last step overlaps the one before. Only the upper bits depend on all bytes."""
    cdef uint64_t word, hash = size
    cdef int64_t at = 0
    while at + 8 < size:
        memcpy(&word, text + at, 8)
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u
        hash ^= hash >> 32
        at += 8
    if size >= 8:
        memcpy(&word, text + size - 8, 8)
    elif size >= 4:
        word = (<uint64_t> <uint32_t> int32_at(text, 0)) << 32 | <uint32_t> int32_at(text + size - 4, 0)
    else:
        word = 0
        memcpy(&word, text, size)
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u
    return <uint32_t> (hash >> 32)
