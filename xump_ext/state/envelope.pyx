"""Fields that name targets and destinations, and the content that a selector puts into its target (rule 11).

A selector names its target or destination itself, or a field of the message does. MOVE shares the content as it is, BOUNCE
rewrites the envelope, and DELIVER into a queue stamps the destination on it.
"""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from xump_ext.message.content cimport content_bounced, content_share, content_stamped
from xump_ext.message.headers cimport ADDRESS_BYTES_MAX, HEADER_STR, header_find, header_t, text_new
from xump_ext.state.constants cimport BOUNCE, DELIVER, FIELD_ADDRESS, FIELD_DESTINATION, FIELD_HEADER, FIELD_NONE, FIELD_REPLY_TO
from xump_ext.state.lazy_content cimport content_at

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL


cdef dict FIELD_NAMES = {
    FIELD_NONE: None, FIELD_ADDRESS: "address", FIELD_REPLY_TO: "reply_to", FIELD_DESTINATION: "destination",
}


cdef class QueueRef:
    pass


cdef class DestinationRef:
    pass


cdef int field_set(field_t* field, object name) except -1:
    """Sets the field from a checked name: `address`, `reply_to`, `destination` or `headers.NAME`; None means no field."""
    cdef Py_ssize_t size
    cdef const char* text
    field.name = NULL
    field.name_bytes = 0
    if name is None:
        field.kind = FIELD_NONE
    elif name == "address":
        field.kind = FIELD_ADDRESS
    elif name == "reply_to":
        field.kind = FIELD_REPLY_TO
    elif name == "destination":
        field.kind = FIELD_DESTINATION
    else:
        header = name[len("headers."):]
        text = PyUnicode_AsUTF8AndSize(header, &size)
        field.name = <char*> malloc(size)
        if field.name == NULL:
            raise MemoryError()
        memcpy(field.name, text, size)
        field.name_bytes = <uint16_t> size
        field.kind = FIELD_HEADER
    return 0


cdef object field_name(const field_t* field):
    if field.kind == FIELD_HEADER:
        return f"headers.{field.name[:field.name_bytes].decode()}"
    return FIELD_NAMES[field.kind]


cdef void field_free(field_t* field) noexcept:
    free(field.name)
    field.name = NULL


cdef inline void* envelope_object(const field_t* field, content_t* content) noexcept:
    """The str of a field that is no header, borrowed; or NULL."""
    if field.kind == FIELD_ADDRESS:
        return content.address
    if field.kind == FIELD_REPLY_TO:
        return content.reply_to
    if field.kind == FIELD_DESTINATION:
        return content.destination
    return NULL


cdef object field_text(const field_t* field, content_t* content):
    """The text of the field if it may be a name of a queue or destination, else None."""
    cdef header_t header
    cdef void* found
    if field.kind == FIELD_HEADER:
        if not header_find(content, field.name, field.name_bytes, &header) or header.type != HEADER_STR:
            return None
        if header.value_bytes == 0 or header.value_bytes > ADDRESS_BYTES_MAX:
            return None
        return text_new(header.value, header.value_bytes)
    found = envelope_object(field, content)
    return <object> found if found != NULL and <object> found else None


cdef const char* field_bytes(const field_t* field, content_t* content, Py_ssize_t* size) except? NULL:
    """The UTF-8 text of a field, which may be empty and is not terminated; NULL if the message has none."""
    cdef header_t header
    cdef void* found
    if field.kind == FIELD_HEADER:
        if not header_find(content, field.name, field.name_bytes, &header) or header.type != HEADER_STR:
            return NULL
        size[0] = header.value_bytes
        return header.value
    found = envelope_object(field, content)
    if found == NULL:
        return NULL
    return PyUnicode_AsUTF8AndSize(<object> found, size)


cdef str name_text(object queue):
    """The name that a call was given for a queue, as an exact str whatever subclass it was."""
    return str.__str__(queue) if isinstance(queue, str) else str(queue)


cdef queue_t* queue_called(engine_t* engine, object name) except? NULL:
    """The queue of that name, or NULL. Costs one look-up."""
    cdef PyObject* found = NULL if name is None else PyDict_GetItemWithError(<object> engine.queues, name)
    return NULL if found == NULL else (<QueueRef> found).queue


cdef queue_t* queue_named(engine_t* engine, object name) except? NULL:
    """The same for a message or a property that names a queue to put messages into: one that is staged is none."""
    cdef queue_t* queue = queue_called(engine, name)
    return NULL if queue == NULL or queue.staged else queue


cdef queue_t* target_by_field(const selector_t* selector, content_t* content) except? NULL:
    return queue_named(selector.source.engine, field_text(&selector.to_queue, content))


cdef content_t* content_made(const selector_t* selector, entry_t* entry) except NULL:
    """The content that the selector puts into its target; a new reference."""
    if selector.verb == BOUNCE:
        return content_bounced(content_at(entry), (<object> entry.queue.handle).name, "bounced", None, True)
    if selector.verb == DELIVER:
        stamp = <object> selector.stamp if selector.stamp != NULL else field_text(&selector.to_destination, content_at(entry))
        return content_stamped(content_at(entry), stamp)
    return content_share(content_at(entry))
