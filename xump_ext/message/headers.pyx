"""Compact headers: fields one behind another in memory, in the order in which they were given.

    type u8 | name_bytes u16 | name (UTF-8) | value

    value:  false, true   nothing
            int, float    8 bytes, little-endian two's complement or IEEE 754
            str, bytes    value_bytes u32, then the bytes (UTF-8 for str)

Short, plain headers are written in one pass (`headers_small`). All others are measured and checked first, then written.

A message may have an **annex** instead: bytes that only the reader of their kind understands. All code that asks for headers,
compiled or not, comes by `fields_of`, which has the reader called when the first one asks; the headers that it yields stay with
the annex.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from xump_ext.memory.short_copy cimport ascii_only
from xump_ext.memory.slab cimport bytes_noted, cell_get, cell_put

cdef extern from "Python.h":
    void PyErr_Clear()
    void PyErr_SetInterrupt()
    void PyErr_SetObject(object, object)
    void PyErr_WriteUnraisable(object)
    bint PyUnicode_CheckExact(object)
    bint PyBytes_Check(object)
    bint PyUnicode_Check(object)
    bint PyFloat_Check(object)
    bint PyLong_Check(object)
    bint PyBool_Check(object)
    bint PyFloat_CheckExact(object)
    bint PyLong_CheckExact(object)
    double PyFloat_AS_DOUBLE(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef Py_ssize_t HEADERS_BYTES_MAX = 1 << 20    # 1 MiB for all headers of a message

headers_bytes_max = HEADERS_BYTES_MAX


# ---- writing

cdef int text_has_none(object text, str what) except -1:
    PyErr_Clear()
    try:
        str.encode(text, "utf-8")
    except UnicodeEncodeError as error:
        at = error.start
        raise ValueError(f"{what} has a lone surrogate, {text[at]!a}, at {at}: UTF-8 does not have that") from None
    raise MemoryError()


cdef Py_ssize_t value_measure(object name, object value) except -1:
    """The bytes that a value takes in the headers; raises for a value that a header cannot hold."""
    cdef Py_ssize_t size
    cdef int overflow = 0
    if PyUnicode_Check(value):
        if raw_text_of(value, &size) == NULL:
            text_has_none(value, f"header {name!r}")
        return 4 + size
    if PyBool_Check(value):
        return 0
    if PyLong_Check(value):
        PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            raise ValueError(f"header {name!r}: {str(value)[:40]} does not fit in 64 bits, allowed are -2**63 to 2**63 - 1")
        return 8
    if PyFloat_Check(value):
        return 8
    if PyBytes_Check(value):
        return 4 + PyBytes_GET_SIZE(value)
    raise TypeError(f"header {name!r} must be a bool, int, float, str or bytes, got {type(value).__name__}")


cdef char* number_write(PyObject* value, char* type, char* out) noexcept:
    return value_write(<object> value, type, out) if is_number(<object> value) else NULL


cdef inline bint is_number(object value) noexcept:
    """Whether it is an exact float, or an exact int (so no bool) of at most 64 bits."""
    cdef int overflow = 1
    if PyLong_CheckExact(value):
        PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0 or PyFloat_CheckExact(value)


cdef Py_ssize_t headers_measure(dict headers, uint32_t* count, Py_ssize_t bytes_max) except -1:
    """Checks every header and returns the bytes that all of them take."""
    cdef Py_ssize_t position = 0, size, total = 0
    cdef PyObject* name
    cdef PyObject* value
    cdef bint exact = True
    while PyDict_Next(<PyObject*> headers, &position, &name, &value):
        exact = exact and PyUnicode_CheckExact(<object> name)
        if not PyUnicode_Check(<object> name):
            raise TypeError(f"a header's name must be a str, got {type(<object> name).__name__}")
        checked_utf8(<object> name, "a header's name", &size)
        if size == 0 or size > NAME_BYTES_MAX:
            raise ValueError(f"a header's name has {size} bytes, allowed are 1 to {NAME_BYTES_MAX}")
        total += 3 + size + value_measure(<object> name, <object> value)
        count[0] += 1
    if not exact:
        check_once(headers)
    if total > bytes_max:
        raise ValueError(f"headers have {total} bytes, allowed are {bytes_max}")
    return total


cdef int check_once(dict headers) except -1:
    """No name twice: objects of a subclass of str may have the same text and still be two keys of a dict."""
    cdef set names = set()
    for name in headers:
        name = str.__str__(name)
        if name in names:
            raise ValueError(f"header {name!r} is there twice")
        names.add(name)
    return 0


cdef int headers_write(dict headers, char* out) except -1:
    """Writes what `headers_measure` has checked."""
    cdef Py_ssize_t position = 0, size
    cdef uint16_t name_bytes
    cdef PyObject* name
    cdef PyObject* value
    cdef const char* text
    while PyDict_Next(<PyObject*> headers, &position, &name, &value):
        text = raw_text_of(<object> name, &size)
        name_bytes = <uint16_t> size
        memcpy(out + 1, &name_bytes, 2)
        memcpy(out + 3, text, size)
        out = value_write(<object> value, out, out + 3 + size)
    return 0


cdef char* value_write(object value, char* type, char* out) except NULL:
    """Writes a value and its type; returns where the next field starts."""
    cdef Py_ssize_t size
    cdef const char* text
    cdef int64_t integer
    cdef double real
    cdef int overflow = 0
    if PyUnicode_Check(value):
        text = raw_text_of(value, &size)
        type[0] = HEADER_STR
        return bytes_write(out, text, size)
    if PyBool_Check(value):
        type[0] = HEADER_TRUE if value is True else HEADER_FALSE
        return out
    if PyLong_Check(value):
        integer = PyLong_AsLongLongAndOverflow(value, &overflow)
        type[0] = HEADER_INT
        memcpy(out, &integer, 8)
        return out + 8
    if PyFloat_Check(value):
        real = PyFloat_AS_DOUBLE(value)
        type[0] = HEADER_FLOAT
        memcpy(out, &real, 8)
        return out + 8
    type[0] = HEADER_BYTES
    return bytes_write(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef inline char* bytes_write(char* out, const char* text, Py_ssize_t size) noexcept:
    cdef uint32_t value_bytes = <uint32_t> size
    memcpy(out, &value_bytes, 4)
    memcpy(out + 4, text, size)
    return out + 4 + size


# ---- reading

cdef uint32_t header_next(const content_t* content, uint32_t position, header_t* header) noexcept nogil:
    cdef uint32_t bytes
    cdef const char* fields = fields_of(content, &bytes)
    if position >= bytes:
        return 0
    return <uint32_t> (field_read(fields + position, header) - fields)


cdef bint header_find(const content_t* content, const char* name, uint16_t name_bytes, header_t* header) noexcept nogil:
    cdef const char* at = field_find(content, name, name_bytes)
    return at != NULL and field_read(at, header) != NULL


cdef inline str header_name(const header_t* header):
    return <str> text_new(header.name, header.name_bytes)


cdef dict headers_dict(const content_t* content):
    cdef dict headers = {}
    cdef header_t header
    cdef uint32_t position = header_next(content, 0, &header)
    while position:
        headers[header_name(&header)] = header_value(&header)
        position = header_next(content, position, &header)
    return headers


cdef bint fields_fit(const char* at, uint32_t bytes, uint32_t count) except -1:
    cdef int64_t left = bytes, needs
    cdef const char* after
    cdef header_t header
    while left:
        needs = 3
        if left >= needs:
            needs += field_name_bytes(at) + (4 if at[0] >= HEADER_STR else 8 if at[0] >= HEADER_INT else 0)
        if left < needs or not HEADER_FALSE <= at[0] <= HEADER_BYTES:
            return False
        after = field_read(at, &header)
        left -= after - at
        if left < 0:
            return False
        at = after
        text_fits(header.name, header.name_bytes)
        if header.type == HEADER_STR:
            text_fits(header.value, header.value_bytes)
        count -= 1
    return count == 0


cdef inline int text_fits(const char* text, uint32_t size) except -1:
    if not ascii_only(text, size):
        text_new(text, size)
    return 0


# ---- annexes

cdef class Reader:
    cdef str name
    cdef annex_reader_t compiled    # NULL: there is none
    cdef object function            # or None


cdef enum:
    KIND_OWN_MAX = 255

cdef dict readers = {}              # by kind
cdef list (*addresses_of[KIND_OWN_MAX + 1])(object data)


cdef annex_t* annex_new(uint32_t kind, object data) except NULL:
    cdef annex_t* annex = <annex_t*> cell_get(sizeof(annex_t))
    memset(annex, 0, sizeof(annex_t))
    annex.references = 1
    annex.kind = kind
    annex.has_addresses = kind <= KIND_OWN_MAX and addresses_of[kind] != NULL
    Py_INCREF(data)
    annex.data = <void*> data
    bytes_noted(PyBytes_GET_SIZE(data))
    return annex


cdef void annex_free(annex_t* annex) noexcept:
    bytes_noted(-PyBytes_GET_SIZE(<object> annex.data))
    Py_XDECREF(<PyObject*> annex.data)
    free(annex.fields.at)
    cell_put(annex, sizeof(annex_t))


cdef int annex_register(uint32_t kind, str name, annex_reader_t compiled, object function) except -1:
    cdef Reader reader = Reader.__new__(Reader)
    reader.name, reader.compiled, reader.function = name, compiled, function
    readers[kind] = reader
    return 0


cdef int annex_addressed(uint32_t kind, list (*addresses)(object data)) except -1:
    addresses_of[kind] = addresses
    return 0


cdef list annex_addresses(const annex_t* annex):
    """The further addresses that an annex names."""
    return addresses_of[annex.kind](<object> annex.data)


def annex_name(kind):
    """The name of a registered kind of annexes; None: it is not registered."""
    return (<Reader> readers[kind]).name if kind in readers else None


cdef const char* annex_fields(const content_t* content, uint32_t* bytes) noexcept nogil:
    cdef annex_t* annex = annex_of(content)
    if not annex.is_read:
        with gil:
            annex_read(annex)
    bytes[0] = annex.fields.bytes
    return annex.fields.at


cdef void annex_read(annex_t* annex) noexcept:
    """Have the annex read. An annex of a kind that is not registered yields nothing until it is."""
    cdef Reader reader = readers.get(annex.kind)
    cdef fields_t fields
    if reader is None:
        return
    memset(&fields, 0, sizeof(fields))
    try:
        read_by(reader, <object> annex.data, &fields)
    except KeyboardInterrupt:       # nothing can raise here: it is raised as soon as something can
        PyErr_SetInterrupt()
        free(fields.at)
        return
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        PyErr_WriteUnraisable(reader.function)
        free(fields.at)
        memset(&fields, 0, sizeof(fields))
    if annex.is_read:               # another thread was faster
        free(fields.at)
        return
    annex.fields = fields
    annex.is_read = True


cdef int read_by(Reader reader, object data, fields_t* fields) except -1:
    cdef Py_ssize_t size
    cdef uint32_t count = 0
    if reader.compiled != NULL:
        if reader.compiled(PyBytes_AS_STRING(data), <uint32_t> PyBytes_GET_SIZE(data), fields) < 0:
            raise ValueError(f"an annex of the kind {reader.name!r} cannot be read")
        if fields.bytes > <uint32_t> HEADERS_BYTES_MAX:
            raise ValueError(f"the reader of the kind {reader.name!r} yields {fields.bytes} bytes of headers, allowed are "
                             f"{HEADERS_BYTES_MAX}")
        return 0
    if reader.function is None:
        return 0
    headers = dict(reader.function(data))
    size = headers_measure(headers, &count, HEADERS_BYTES_MAX)
    fields.at = <char*> malloc(size or 1)
    if fields.at == NULL:
        raise MemoryError()
    headers_write(headers, fields.at)
    fields.bytes, fields.count = <uint32_t> size, count
    return 0
