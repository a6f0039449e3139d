"""Replies: what comes to the queue of replies is for the request that waits for it; if none does, it is late, and dropped.

A reply has the message id of the request as its `correlation_id`. A request that bounced comes back with its own `message_id`.
"""

from libc.stdint cimport uint64_t

from xump_ext.message.headers cimport content_t, correlation_of, header_find, header_t
from xump_ext.message.message cimport message_object
from xump_ext.route.ready cimport leave_ready
from xump_ext.route.settling cimport DROPPED, PROCESSED, hops_of, settle
from xump_ext.state.constants cimport REASON_LATE, UNROUTED, WAITING
from xump_ext.state.graph cimport entry_t, queue_t
from xump_ext.state.index cimport index_from
from xump_ext.state.lazy_content cimport content_at
from xump_ext.state.sleeper cimport Sleeper


cdef class Request(Sleeper):
    pass


cdef Request request_of(dict requests, const content_t* content):
    """The request that waits for this message, which it does not do any more; or None."""
    cdef header_t header
    cdef Request found = None
    if correlation_of(content) != NULL:
        found = requests.pop(<object> correlation_of(content), None)
    if found is None and content.message_id != NULL and header_find(content, b"xump_reason", 11, &header):
        found = requests.pop(<object> content.message_id, None)
    return found


cdef int hand_out_replies(engine_t* engine) except -1:
    cdef queue_t* queue = engine.replies
    cdef entry_t* entry = index_from(&queue.index, 1)
    cdef content_t* content
    cdef Request request
    cdef uint64_t id
    while entry != NULL:
        id = entry.id
        if entry.state == UNROUTED or entry.state == WAITING:
            content = content_at(entry)
            request = request_of(<dict> engine.requests, content)
            if request is not None:
                request.answer = message_object(content, entry.id, entry.timestamp, hops_of(engine, entry))
            leave_ready(engine, entry)
            settle(engine, entry, DROPPED if request is None else PROCESSED, REASON_LATE)
            if request is not None:
                request.serve()
        entry = index_from(&queue.index, id + 1)
    return 0
