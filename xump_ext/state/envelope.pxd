"""Declarations of `envelope.pyx`, and the target of a selector, inline."""

from xump_ext.message.headers cimport content_t
from xump_ext.state.constants cimport FIELD_NONE
from xump_ext.state.graph cimport destination_t, engine_t, entry_t, field_t, queue_t, selector_t
from xump_ext.state.lazy_content cimport content_at

cdef class QueueRef:
    """The value that the engine's mapping of names holds for a queue; the public `Queue` derives from it."""
    cdef queue_t* queue

cdef class DestinationRef:
    cdef destination_t destination

cdef int field_set(field_t* field, object name) except -1
# The name that it was set from.
cdef object field_name(const field_t* field)
cdef void field_free(field_t* field) noexcept
cdef object field_text(const field_t* field, content_t* content)
cdef const char* field_bytes(const field_t* field, content_t* content, Py_ssize_t* size) except? NULL
cdef str name_text(object queue)
cdef queue_t* queue_called(engine_t* engine, object name) except? NULL
cdef queue_t* queue_named(engine_t* engine, object name) except? NULL
cdef queue_t* target_by_field(const selector_t* selector, content_t* content) except? NULL
cdef inline queue_t* target_of(const selector_t* selector, content_t* content) except? NULL:
    """The queue into which the selector would put this content: its named target, or the one that the field names; or NULL."""
    return selector.target if selector.to_queue.kind == FIELD_NONE else target_by_field(selector, content)

cdef inline bint names_queue_now(const selector_t* selector, entry_t* entry) except -1:
    """Whether the selector's target exists now: False only if a field names it and names no queue."""
    return selector.to_queue.kind == FIELD_NONE or target_of(selector, content_at(entry)) != NULL

cdef content_t* content_made(const selector_t* selector, entry_t* entry) except NULL
