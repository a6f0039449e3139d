"""Declarations of `content.pyx`, and the inline code that allocates, shares and releases content."""

from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XINCREF
from libc.stdint cimport uint32_t

from xump_ext.memory.slab cimport cell_get
from xump_ext.message.headers cimport content_t

cdef inline content_t* content_alloc(
    PyObject* address, PyObject* body, uint32_t header_count, uint32_t header_bytes, uint32_t inline_bytes
) except NULL:
    """Content over checked objects, with room for the headers. Where `body` is NULL, there is room for the body behind them."""
    cdef content_t* content = <content_t*> cell_get(sizeof(content_t) + header_bytes + inline_bytes)
    content.references = 1
    content.header_count = header_count
    content.header_bytes = header_bytes
    content.body_inline = body == NULL
    content.body_bytes = inline_bytes if body == NULL else <uint32_t> PyBytes_GET_SIZE(<object> body)
    content.address = address
    content.body = body
    content.reply_to = content.message_id = content.destination = NULL
    Py_XINCREF(address)
    Py_XINCREF(body)
    return content

cdef inline void* optional(object value) noexcept:
    """A new reference to the value; NULL for None."""
    if value is None:
        return NULL
    Py_INCREF(value)
    return <void*> value

cdef inline object object_or_none(const void* pointer):
    return None if pointer == NULL else <object> pointer

cdef inline content_t* content_share(content_t* content) noexcept:
    content.references += 1
    return content

cdef inline void content_release(content_t* content) noexcept:
    content.references -= 1
    if content.references == 0:
        content_free(content)

# The value as an exact str that UTF-8 can express, within the limit; else an error that names `what`.
cdef str checked_text(object value, str what)
cdef bytes checked_body(object body)
cdef void content_free(content_t* content) noexcept
cdef content_t* content_of_headers(
    object address, object body, object reply_to, object message_id, const char* block, uint32_t count, uint32_t size
) except NULL
# Content with a copy of the body, and room before it for `header_bytes` of headers, which the caller writes at `headers_of`.
# `address`, `reply_to` and `message_id` (or None) are exact str objects within the limits.
cdef content_t* content_of_buffers(
    object address, const char* body, uint32_t body_bytes, object reply_to, object message_id, uint32_t header_count,
    uint32_t header_bytes
) except NULL
# The body as a bytes object; of an inline body it is made at the first call.
cdef object content_body(content_t* content)
cdef content_t* content_stamped(content_t* content, object destination) except NULL
cdef content_t* content_bounced(content_t* content, str queue, str reason, object detail) except NULL
cdef content_t* content_without_destination(content_t* content) except NULL
# Content with every part that an envelope can have; None for a missing part.
cdef content_t* content_full(
    object address, object body, object reply_to, object message_id, object destination, uint32_t count, uint32_t size
) except NULL
