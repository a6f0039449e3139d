"""The layout of content and its compact headers, and inline code that reads them.

Also the declarations of `headers.pyx`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from xump_ext.memory.short_copy cimport copy_short, same_short
from xump_ext.message.times cimport NEVER

cdef extern from "Python.h":
    Py_ssize_t PyDict_GET_SIZE(PyObject* dict)
    int PyDict_Next(PyObject* dict, Py_ssize_t* position, PyObject** key, PyObject** value)

cdef enum:
    # Types of header values; the numbers are part of the record formats of stores.
    HEADER_FALSE = 1
    HEADER_TRUE = 2
    HEADER_INT = 3
    HEADER_FLOAT = 4
    HEADER_STR = 5
    HEADER_BYTES = 6

cdef enum:
    HEADERS_SMALL = 512         # `headers_small` writes no more bytes
    NAME_BYTES_MAX = 65535      # a u16 in the headers
    WITH_ANNEX = 2              # `content_t.has_trailer`
    BODY_BYTES_MAX = 1 << 26    # 64 MiB: beyond it, send a reference
    ADDRESS_BYTES_MAX = 65534   # a u16 in records, where 65535 means none; the limit of every name, too

# The immutable content of a message, shared by reference between all the queues that hold it. It is one allocation: the
# struct, the compact headers, the body if it did not come as a Python object, then the trailer, which few have. Texts and body
# are exact `str` and `bytes` objects, which cannot form cycles, so the collector has nothing to visit here.
cdef struct content_t:      # 64 bytes: one cache line
    Py_ssize_t references
    void* address           # str, never NULL
    void* body              # bytes; NULL: an inline body, which nothing has asked for yet
    void* reply_to          # str or NULL
    void* message_id        # str or NULL
    void* destination       # str or NULL: stamped by a deliver selector
    uint32_t header_count
    uint32_t header_bytes   # of the headers that follow
    uint32_t body_bytes
    uint8_t body_inline
    uint8_t priority        # 0 to 255
    uint8_t has_trailer     # WITH_ANNEX: there is an annex in it
    uint8_t is_hashed       # the hash of its message_id may be known: route/duplicates.pyx
    # char headers[header_bytes]; char body[body_bytes] if body_inline; a trailer_t at the next multiple of 8 if has_trailer

# Fields one behind another, as they grow.                                                                     message/annex.pxd
cdef struct fields_t:
    char* at
    uint32_t bytes
    uint32_t capacity
    uint32_t count

# The annex of a message: opaque bytes of a registered kind, shared by all contents that were made of one another, and the headers
# that the reader of that kind has yielded.
cdef struct annex_t:
    Py_ssize_t references
    void* data              # bytes
    uint32_t kind
    uint8_t is_read
    uint8_t has_addresses   # it names further addresses of its message, by which transit queues route it, too
    fields_t fields

# Reads an annex and puts fields; returns -1 if it cannot be read, or has no memory. Called with the interpreter's lock.
ctypedef int (*annex_reader_t)(const char* data, uint32_t bytes, fields_t* fields) noexcept

# What few contents have.
cdef struct trailer_t:
    int64_t expires         # POSIX ns; NEVER
    void* correlation_id    # str or NULL
    annex_t* annex          # or NULL; shared

# One header as it was read; the pointers reach into the content.
cdef struct header_t:
    const char* name
    const char* value       # the text or bytes; not terminated
    int64_t integer
    double real
    uint32_t value_bytes
    uint16_t name_bytes
    uint8_t type

cdef inline const char* headers_of(const content_t* content) noexcept nogil:
    return <const char*> content + sizeof(content_t)

cdef inline size_t trailer_place(size_t size) noexcept nogil:
    """Where the trailer of a content begins whose other parts take so many bytes."""
    return (size + 7) & ~<size_t> 7

cdef inline trailer_t* trailer_of(const content_t* content) noexcept nogil:
    """The trailer of a content that has one."""
    cdef size_t size = sizeof(content_t) + content.header_bytes
    if content.body_inline:
        size += content.body_bytes
    return <trailer_t*> (<char*> content + trailer_place(size))

cdef inline int64_t expires_of(const content_t* content) noexcept nogil:
    """When the message expires by itself, in POSIX ns; NEVER."""
    return trailer_of(content).expires if content.has_trailer else NEVER

cdef inline void* correlation_of(const content_t* content) noexcept nogil:
    """The `correlation_id`, a str; NULL: it has none."""
    return trailer_of(content).correlation_id if content.has_trailer else NULL

cdef inline annex_t* annex_of(const content_t* content) noexcept nogil:
    return trailer_of(content).annex if content.has_trailer == WITH_ANNEX else NULL

cdef inline uint32_t annex_bytes(const content_t* content) noexcept:
    return <uint32_t> PyBytes_GET_SIZE(<object> annex_of(content).data) if content.has_trailer == WITH_ANNEX else 0

cdef inline annex_t* annex_share(annex_t* annex) noexcept:
    if annex != NULL:
        annex.references += 1
    return annex

cdef inline void annex_release(annex_t* annex) noexcept:
    if annex != NULL:
        annex.references -= 1
        if annex.references == 0:
            annex_free(annex)

# An annex of these bytes, an exact `bytes` object.
cdef annex_t* annex_new(uint32_t kind, object data) except NULL
cdef void annex_free(annex_t* annex) noexcept
# Has annexes of that kind read by this function, or by a Python function if it is NULL. None: they are not read.
cdef int annex_register(uint32_t kind, str name, annex_reader_t compiled, object function) except -1
# Annexes of that kind, one of Xump's own, name further addresses of their messages: the function gives them, each a str.
cdef int annex_addressed(uint32_t kind, list (*addresses)(object data)) except -1
cdef list annex_addresses(const annex_t* annex)
# What the annex of a content yields: the fields, and their bytes. Reads it at the first demand.
cdef const char* annex_fields(const content_t* content, uint32_t* bytes) noexcept nogil

cdef inline const char* fields_of(const content_t* content, uint32_t* bytes) noexcept nogil:
    """The headers, one behind another, and their bytes: those that its annex yields, if the message has none of its own."""
    if content.header_bytes == 0 and content.has_trailer == WITH_ANNEX:
        return annex_fields(content, bytes)
    bytes[0] = content.header_bytes
    return headers_of(content)

cdef inline uint32_t field_count(const content_t* content) noexcept:
    cdef uint32_t bytes
    if content.header_bytes == 0 and content.has_trailer == WITH_ANNEX:
        annex_fields(content, &bytes)
        return annex_of(content).fields.count
    return content.header_count

cdef extern from *:
    """
    /* The text of an exact str of ASCII, which is its UTF-8 as well, or NULL. */
    static inline const char *xump_ascii(PyObject *text, Py_ssize_t *size) {
        if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_COMPACT_ASCII(text)) return NULL;
        *size = PyUnicode_GET_LENGTH(text);
        return (const char *) ((PyASCIIObject *) text + 1);
    }
    /* The UTF-8 of a str: for ASCII, which is most of it, the text itself. */
    static inline const char *xump_text(PyObject *text, Py_ssize_t *size) {
        if (PyUnicode_IS_COMPACT_ASCII(text)) {
            *size = PyUnicode_GET_LENGTH(text);
            return (const char *) PyUnicode_1BYTE_DATA(text);
        }
        return PyUnicode_AsUTF8AndSize(text, size);
    }
    /* A str of UTF-8. Short ASCII, which most text is, needs no decoder. */
    static inline PyObject *xump_text_new(const char *text, size_t size) {
        PyObject *made;
        if (size == 0 || size > 64 || !xump_ascii_only(text, size)) return PyUnicode_DecodeUTF8(text, (Py_ssize_t) size, NULL);
        if (size == 1) return PyUnicode_FromOrdinal(text[0]);
        made = PyUnicode_New((Py_ssize_t) size, 127);
        if (made != NULL) memcpy(PyUnicode_1BYTE_DATA(made), text, size);
        return made;
    }
    """
    object text_new "xump_text_new"(const char* text, size_t size)
    const char* ascii_of "xump_ascii"(PyObject* text, Py_ssize_t* size) noexcept
    const char* raw_text_of "xump_text"(object text, Py_ssize_t* size) noexcept

cdef int text_has_none(object text, str what) except -1

cdef inline const char* checked_utf8(object text, str what, Py_ssize_t* size) except NULL:
    """The UTF-8 of a str; a ValueError that names `what` if it has none."""
    cdef const char* found = raw_text_of(text, size)
    if found == NULL:
        text_has_none(text, what)
    return found

cdef inline char* headers_small(PyObject* headers, char* out, uint32_t* count) noexcept:
    """Writes a dict of short texts and numbers into HEADERS_SMALL bytes, in one pass, and returns the end.

    Returns NULL for anything else, errors included; `headers_measure` looks at that.
    """
    cdef const char* end = out + HEADERS_SMALL
    cdef Py_ssize_t position = 0, size
    cdef Py_ssize_t left = PyDict_GET_SIZE(headers)
    cdef uint16_t name_bytes
    cdef uint32_t value_bytes
    cdef const char* text
    cdef PyObject* name
    cdef PyObject* value
    count[0] = <uint32_t> left
    while left:
        left -= 1
        PyDict_Next(headers, &position, &name, &value)
        text = ascii_of(name, &size)
        if text == NULL or size == 0 or size > end - out - 11:
            return NULL
        name_bytes = <uint16_t> size
        memcpy(out + 1, &name_bytes, 2)
        copy_short(out + 3, text, size)
        text = ascii_of(value, &size)
        if text != NULL:
            out[0] = HEADER_STR
            out += 3 + name_bytes
            if size > end - out - 4:
                return NULL
            value_bytes = <uint32_t> size
            memcpy(out, &value_bytes, 4)
            copy_short(out + 4, text, size)
            out += 4 + size
        else:
            out = number_write(value, out, out + 3 + name_bytes)
            if out == NULL:
                return NULL
    return out

# Writes an exact float, or an exact int of 64 bits, and its type. Returns where the next field starts, or NULL for anything else.
cdef char* number_write(PyObject* value, char* type, char* out) noexcept
# Checks every header and returns the bytes that all of them take; ValueError if these are more than `bytes_max`.
cdef Py_ssize_t headers_measure(dict headers, uint32_t* count, Py_ssize_t bytes_max) except -1
# Writes what `headers_measure` has checked.
cdef int headers_write(dict headers, char* out) except -1

# Reads the header at `position`; returns the position after it, or 0 when there is no header left.
cdef uint32_t header_next(const content_t* content, uint32_t position, header_t* header) noexcept nogil
# Finds a header by its UTF-8 name. Cost: a comparison of lengths and bytes for each header before it.
cdef bint header_find(const content_t* content, const char* name, uint16_t name_bytes, header_t* header) noexcept nogil
cdef dict headers_dict(const content_t* content)
# Whether these bytes are exactly so many valid fields. Raises UnicodeDecodeError for a text that is not UTF-8. O(bytes).
cdef bint fields_fit(const char* at, uint32_t bytes, uint32_t count) except -1

cdef inline uint16_t field_name_bytes(const char* at) noexcept nogil:
    """The length of the name of the field that starts there; the name is three bytes further on."""
    cdef uint16_t name_bytes
    memcpy(&name_bytes, at + 1, 2)
    return name_bytes

cdef inline const char* field_after(const char* at) noexcept nogil:
    """The end of the field that starts there."""
    cdef const char* value = at + 3 + field_name_bytes(at)
    cdef uint32_t value_bytes
    if at[0] >= HEADER_STR:
        memcpy(&value_bytes, value, 4)
        return value + 4 + value_bytes
    return value + 8 if at[0] >= HEADER_INT else value

cdef inline const char* field_find(const content_t* content, const char* name, uint16_t name_bytes) noexcept nogil:
    """The start of the field of that name, or NULL. Of the other fields only the sizes are read, and names of the same length."""
    cdef uint32_t bytes
    cdef const char* at = fields_of(content, &bytes)
    cdef const char* last = at + bytes
    while at < last:
        if field_name_bytes(at) == name_bytes and same_short(at + 3, name, name_bytes):
            return at
        at = field_after(at)
    return NULL

cdef inline const char* field_read(const char* at, header_t* header) noexcept nogil:
    """Reads the field that starts there; returns where the next field starts."""
    header.type = <uint8_t> at[0]
    memcpy(&header.name_bytes, at + 1, 2)
    header.name = at + 3
    at += 3 + header.name_bytes
    if header.type >= HEADER_STR:
        memcpy(&header.value_bytes, at, 4)
        header.value = at + 4
        return at + 4 + header.value_bytes
    if header.type == HEADER_INT:
        memcpy(&header.integer, at, 8)
        return at + 8
    if header.type == HEADER_FLOAT:
        memcpy(&header.real, at, 8)
        return at + 8
    return at

cdef inline object header_value(const header_t* header):
    if header.type == HEADER_STR:
        return text_new(header.value, header.value_bytes)
    if header.type == HEADER_BYTES:
        return PyBytes_FromStringAndSize(header.value, header.value_bytes)
    if header.type == HEADER_INT:
        return header.integer
    if header.type == HEADER_FLOAT:
        return header.real
    return header.type == HEADER_TRUE

cdef inline object field_value(const char* at):
    """The value of the field that starts there."""
    cdef header_t header
    field_read(at, &header)
    return header_value(&header)
