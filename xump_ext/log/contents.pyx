"""Makes the content of a message from its verified record in a store."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint16_t
from libc.string cimport memcpy

from xump_ext.message.content cimport content_of_buffers, no_parts, parts_t, pointer_or_null
from xump_ext.message.headers cimport annex_new, annex_release, fields_fit, headers_of, text_new
from xump_ext.records.kinds cimport NO_TEXT, rare_t, timed_t
from xump_ext.records.record cimport payload_of, rare_of, timed_of


cdef object text_of_record(const char** at, uint16_t size):
    cdef const char* text = at[0]
    if size == NO_TEXT:
        return None
    at[0] += size
    return text_new(text, size)


cdef content_t* content_of_record(const enter_record_t* record) except? NULL:
    cdef const char* at = payload_of(record)
    cdef const rare_t* rare = rare_of(record)
    cdef const timed_t* timed = timed_of(record)
    cdef object address, reply_to = None, message_id = None, destination = None, correlation_id = None
    cdef parts_t parts = no_parts()
    cdef content_t* content
    address = text_of_record(&at, record.address_bytes)
    if rare != NULL:
        reply_to = text_of_record(&at, rare.reply_to_bytes)
        message_id = text_of_record(&at, rare.message_id_bytes)
        destination = text_of_record(&at, rare.destination_bytes)
        parts.reply_to = pointer_or_null(reply_to)
        parts.message_id = pointer_or_null(message_id)
        parts.destination = pointer_or_null(destination)
    if timed != NULL:
        correlation_id = text_of_record(&at, timed.correlation_id_bytes)
        parts.correlation_id = pointer_or_null(correlation_id)
        parts.expires = timed.expires
        parts.priority = timed.priority
        if timed.annex_kind:
            parts.annex = annex_new(timed.annex_kind, PyBytes_FromStringAndSize(at, timed.annex_bytes))
        at += timed.annex_bytes
    try:
        if not fields_fit(at, record.header_bytes, record.header_count):        # or it raises: a text is not UTF-8
            return NULL
        content = content_of_buffers(
            address, at + record.header_bytes, record.body_bytes, &parts, record.header_count, record.header_bytes)
    finally:
        annex_release(parts.annex)
    memcpy(<char*> headers_of(content), at, record.header_bytes)
    return content
