"""Declarations of `content.pyx`, and the inline code that allocates, shares and releases content."""

from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XINCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t

from xump_ext.memory.slab cimport bytes_noted, cell_get
from xump_ext.message.headers cimport annex_of, annex_t, content_t, correlation_of, expires_of, trailer_place, trailer_t
from xump_ext.message.times cimport NEVER

cdef enum:
    # A body from a buffer is an object of its own from here on: a server hands it on without a copy.
    OBJECT_BODY_BYTES = 1 << 18

cdef struct parts_t:        # the parts that few messages have; borrowed
    void* reply_to          # str or NULL, as the next three
    void* message_id
    void* destination
    void* correlation_id
    int64_t expires         # POSIX ns; NEVER
    uint8_t priority
    uint8_t expires_later   # `content_expiring` will follow
    annex_t* annex          # or NULL

cdef inline parts_t no_parts() noexcept:
    return parts_t(NULL, NULL, NULL, NULL, NEVER, 0, False, NULL)

cdef inline parts_t parts_of(const content_t* content) noexcept:
    return parts_t(content.reply_to, content.message_id, content.destination, correlation_of(content), expires_of(content),
                   content.priority, False, annex_of(content))

cdef inline content_t* content_alloc(
    PyObject* address, PyObject* body, uint32_t header_count, uint32_t header_bytes, uint32_t inline_bytes, bint has_trailer
) except NULL:
    """Content over checked objects, with room for the headers. Where `body` is NULL, there is room for the body behind them. The
    caller fills the trailer."""
    cdef size_t size = sizeof(content_t) + header_bytes + inline_bytes
    cdef content_t* content
    if has_trailer:
        size = trailer_place(size) + sizeof(trailer_t)
    content = <content_t*> cell_get(size)
    content.references = 1
    content.header_count = header_count
    content.header_bytes = header_bytes
    content.body_inline = body == NULL
    content.priority = 0
    content.has_trailer = has_trailer
    content.is_hashed = False
    content.body_bytes = inline_bytes
    if body != NULL:
        content.body_bytes = <uint32_t> PyBytes_GET_SIZE(<object> body)
        bytes_noted(content.body_bytes)
    content.address = address
    content.body = body
    content.reply_to = content.message_id = content.destination = NULL
    Py_XINCREF(address)
    Py_XINCREF(body)
    return content

cdef inline void* pointer_or_null(object value) noexcept:
    """The value, borrowed; NULL for None."""
    return NULL if value is None else <void*> value

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
# Content over checked objects, with a copy of well-formed headers.
cdef content_t* content_of_headers(
    object address, object body, const parts_t* parts, const char* block, uint32_t count, uint32_t size
) except NULL
# Content with a copy of the body (in itself; of a large one as an object of its own), and room before it for `header_bytes` of
# headers, which the caller writes at `headers_of`. The texts are exact str objects within the limits. `parts` NULL: it has none.
cdef content_t* content_of_buffers(
    object address, const char* body, uint32_t body_bytes, const parts_t* parts, uint32_t header_count, uint32_t header_bytes
) except NULL
# The body as a bytes object; of an inline body it is made at the first call.
cdef object content_body(content_t* content)
cdef content_t* content_stamped(content_t* content, object destination) except NULL
# The content with a bounced envelope (rule 11). `lives_on`: it keeps its `expires`, which a dead letter does not.
cdef content_t* content_bounced(content_t* content, str queue, str reason, object detail, bint lives_on) except NULL
# The same content under another address.
cdef content_t* content_readdressed(content_t* content, object address) except NULL
cdef content_t* content_without_destination(content_t* content) except NULL
# The same content, which expires then. It takes over the reference, unless it raises.
cdef content_t* content_expiring(content_t* content, int64_t expires) except NULL
# The same content, which does not expire; shared when it does not anyway.
cdef content_t* content_undying(content_t* content) except NULL
# Content over checked objects, with room for the headers.
cdef content_t* content_full(object address, object body, const parts_t* parts, uint32_t count, uint32_t size) except NULL
