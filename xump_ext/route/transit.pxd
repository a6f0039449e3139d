"""Declarations of `transit.pyx`."""

from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, route_t, visited_t

# A message is published into a transit queue: it goes on at once, before anything else happens. Takes over the reference to the
# content. If user code raises, the message is in the queue, unrouted, and the next run routes it.
cdef int publish_through(engine_t* engine, queue_t* queue, content_t* content, visited_t* visited) except -1
# Routes an entry of a transit queue in its turn, by the route of the ordinary or, if no selector is in that, default clauses.
cdef int route_through(engine_t* engine, entry_t* entry, route_t* route, visited_t* visited) except -1
