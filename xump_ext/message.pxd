"""Messages and their content: what is shared between queues, and the face that Python sees."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.block cimport content_t

cdef inline content_t* content_share(content_t* content) noexcept:
    content.references += 1
    return content

cdef inline void content_release(content_t* content) noexcept:
    content.references -= 1
    if content.references == 0:
        content_free(content)

cdef str checked_text(object value, str what)
cdef void content_free(content_t* content) noexcept
cdef content_t* content_new(object address, object body, object headers, object reply_to, object message_id) except NULL
cdef content_t* content_of(object message) except NULL
cdef content_t* content_of_block(
    object address, object body, object reply_to, object message_id, const char* block, uint32_t count, uint32_t size
) except NULL
# With room for `header_bytes` of headers, which the caller writes at `headers_of`, and a copy of the body behind it.
# `address`, `reply_to` and `message_id` (or None) are exact str objects within the limits.
cdef content_t* content_of_buffers(
    object address, const char* body, uint32_t body_bytes, object reply_to, object message_id, uint32_t header_count,
    uint32_t header_bytes
) except NULL
# The body as a bytes object; made at the first call when it is inline.
cdef object content_body(content_t* content)
cdef content_t* content_stamped(content_t* content, object destination) except NULL
cdef content_t* content_bounced(content_t* content, str queue, str reason, object detail) except NULL
cdef content_t* content_without_destination(content_t* content) except NULL

cdef class Headers:
    cdef content_t* content

cdef class Message:
    cdef content_t* content
    cdef void* address_member       # the content's address and body, where the interpreter reads them in place
    cdef void* body_member
    cdef PyObject* headers_member   # Headers of the same content, owned
    cdef readonly uint64_t id
    cdef readonly int64_t timestamp
    cdef readonly uint32_t hops

# The Python face of an entry; shares `content`. The caller owns the reference.
cdef PyObject* message_new(content_t* content, uint64_t id, int64_t timestamp, uint32_t hops) except NULL
# The same as an object.
cdef inline Message message_object(content_t* content, uint64_t id, int64_t timestamp, uint32_t hops):
    cdef PyObject* made = message_new(content, id, timestamp, hops)
    message = <Message> made
    Py_XDECREF(made)
    return message
