"""The content of a message: one immutable allocation, shared by reference between all queues that hold it.

So a COPY and a MOVE cost a counter. This file makes content of parts that were checked before; `message/message.pyx` makes it of
what a program gives. The headers are part of the content; `message/headers.pyx` reads and writes them.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF
from libc.stdint cimport UINT32_MAX, int64_t, uintptr_t
from libc.string cimport memcpy

from xump_ext.memory.slab cimport bytes_noted, cell_put
from xump_ext.message.headers cimport (
    ADDRESS_BYTES_MAX, BODY_BYTES_MAX, WITH_ANNEX, annex_release, annex_share, checked_utf8, headers_dict, headers_measure,
    headers_of, headers_write, trailer_of,
)

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_Check(object)


# ---- the parts are checked

cdef str checked_text(object value, str what):
    """The value as an exact str that UTF-8 can express, within the limit."""
    cdef Py_ssize_t size
    if not PyUnicode_CheckExact(value):
        if not PyUnicode_Check(value):
            raise TypeError(f"{what} must be a str, got {type(value).__name__}")
        value = str.__str__(value)
    checked_utf8(value, what, &size)
    if size > ADDRESS_BYTES_MAX:
        raise ValueError(f"{what} has {size} bytes, allowed are {ADDRESS_BYTES_MAX}")
    return <str> value


cdef bytes checked_body(object body):
    if not PyBytes_CheckExact(body):
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(f"body must be bytes, got {type(body).__name__}"
                            + ("; encode it first" if isinstance(body, str) else ""))
        body = bytes(memoryview(body))
    if PyBytes_GET_SIZE(body) > BODY_BYTES_MAX:
        raise ValueError(f"body has {PyBytes_GET_SIZE(body)} bytes, allowed are {BODY_BYTES_MAX}")
    return <bytes> body


# ---- made and freed

cdef content_t* content_full(object address, object body, const parts_t* parts, uint32_t count, uint32_t size) except NULL:
    cdef content_t* content = content_alloc(<PyObject*> address, <PyObject*> body, count, size, 0, needs_trailer(parts))
    parts_fill(content, parts)
    return content


cdef inline bint needs_trailer(const parts_t* parts) noexcept:
    return parts.expires != NEVER or parts.correlation_id != NULL or parts.expires_later or parts.annex != NULL


cdef inline void parts_fill(content_t* content, const parts_t* parts) noexcept:
    """Fills what few messages have into a new content."""
    content.reply_to = parts.reply_to
    content.message_id = parts.message_id
    content.destination = parts.destination
    content.priority = parts.priority
    if <uintptr_t> parts.reply_to | <uintptr_t> parts.message_id | <uintptr_t> parts.destination:
        Py_XINCREF(<PyObject*> parts.reply_to)
        Py_XINCREF(<PyObject*> parts.message_id)
        Py_XINCREF(<PyObject*> parts.destination)
    if content.has_trailer:
        trailer_of(content)[0] = trailer_t(parts.expires, parts.correlation_id, annex_share(parts.annex))
        if parts.annex != NULL:
            content.has_trailer = WITH_ANNEX
        Py_XINCREF(<PyObject*> parts.correlation_id)


cdef void content_free(content_t* content) noexcept:
    cdef size_t size = sizeof(content_t) + content.header_bytes
    if content.body_inline:
        size += content.body_bytes
    else:
        bytes_noted(-<int64_t> content.body_bytes)
    if content.has_trailer:
        Py_XDECREF(<PyObject*> trailer_of(content).correlation_id)
        annex_release(trailer_of(content).annex)
        size = trailer_place(size) + sizeof(trailer_t)
    Py_XDECREF(<PyObject*> content.address)
    Py_XDECREF(<PyObject*> content.body)
    if <uintptr_t> content.reply_to | <uintptr_t> content.message_id | <uintptr_t> content.destination:     # rare
        Py_XDECREF(<PyObject*> content.reply_to)
        Py_XDECREF(<PyObject*> content.message_id)
        Py_XDECREF(<PyObject*> content.destination)
    cell_put(content, size)


cdef content_t* content_of_headers(
    object address, object body, const parts_t* parts, const char* block, uint32_t count, uint32_t size
) except NULL:
    cdef content_t* content = content_full(address, body, parts, count, size)
    memcpy(<char*> headers_of(content), block, size)
    return content


cdef content_t* content_of_buffers(
    object address, const char* body, uint32_t body_bytes, const parts_t* parts, uint32_t header_count, uint32_t header_bytes
) except NULL:
    cdef content_t* content
    cdef bint has_trailer = parts != NULL and needs_trailer(parts)
    if body_bytes >= OBJECT_BODY_BYTES:
        whole = PyBytes_FromStringAndSize(body, body_bytes)
        content = content_alloc(<PyObject*> address, <PyObject*> whole, header_count, header_bytes, 0, has_trailer)
    else:
        content = content_alloc(<PyObject*> address, NULL, header_count, header_bytes, body_bytes, has_trailer)
        if body_bytes:      # there may be no body
            memcpy(<char*> headers_of(content) + header_bytes, body, body_bytes)
    if parts != NULL:
        parts_fill(content, parts)
    return content


cdef object content_body(content_t* content):
    if content.body == NULL:
        body = PyBytes_FromStringAndSize(headers_of(content) + content.header_bytes, content.body_bytes)
        Py_INCREF(body)
        content.body = <void*> body
    return <object> content.body


cdef content_t* content_variant(content_t* content, const parts_t* parts) except NULL:
    """The same address, headers and body with these other parts."""
    return content_of_headers(<object> content.address, content_body(content), parts, headers_of(content), content.header_count,
                              content.header_bytes)


cdef content_t* content_stamped(content_t* content, object destination) except NULL:
    """The same content with a destination stamped on it."""
    cdef parts_t parts = parts_of(content)
    parts.destination = pointer_or_null(destination)
    return content_variant(content, &parts)


cdef content_t* content_readdressed(content_t* content, object address) except NULL:
    cdef parts_t parts = parts_of(content)
    return content_of_headers(
        address, content_body(content), &parts, headers_of(content), content.header_count, content.header_bytes)


cdef content_t* content_without_destination(content_t* content) except NULL:
    """The same content without a destination; shared when it has none."""
    cdef parts_t parts
    if content.destination == NULL:
        return content_share(content)
    parts = parts_of(content)
    parts.destination = NULL
    return content_variant(content, &parts)


cdef content_t* content_expiring(content_t* content, int64_t expires) except NULL:
    cdef parts_t parts
    cdef content_t* variant
    if content.references == 1 and content.has_trailer:     # it was made for this call, and nobody has seen it
        trailer_of(content).expires = expires
        return content
    parts = parts_of(content)
    parts.expires = expires
    variant = content_variant(content, &parts)
    content_release(content)
    return variant


cdef content_t* content_undying(content_t* content) except NULL:
    cdef parts_t parts
    if expires_of(content) == NEVER:
        return content_share(content)
    parts = parts_of(content)
    parts.expires = NEVER
    return content_variant(content, &parts)


cdef content_t* content_bounced(content_t* content, str queue, str reason, object detail, bint lives_on) except NULL:
    """`reply_to` becomes the address, and headers say what happened."""
    cdef dict headers = headers_dict(content)
    cdef parts_t parts = parts_of(content)
    cdef content_t* bounced
    cdef Py_ssize_t size
    cdef uint32_t count = 0
    address = <object> content.address
    headers.setdefault("xump_original_address", address)
    headers["xump_bounced_from"] = queue
    headers["xump_reason"] = reason
    headers.pop("xump_detail", None)
    if detail is not None:
        headers["xump_detail"] = detail
    if content.reply_to != NULL:
        address = <object> content.reply_to
    parts.reply_to = NULL
    if not lives_on:
        parts.expires = NEVER
    size = headers_measure(headers, &count, UINT32_MAX)
    bounced = content_full(address, content_body(content), &parts, count, <uint32_t> size)
    headers_write(headers, <char*> headers_of(bounced))
    return bounced
