"""Declarations of `ledger.pyx`, and the commonest way to take a message, inline."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.message.headers cimport content_t
from xump_ext.route.offering cimport offer
from xump_ext.state.constants cimport DISCARD
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t, visited_t

cdef uint64_t enter(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited
) except 0
cdef uint64_t enter_waiting(engine_t* engine, queue_t* queue, content_t* content, uint64_t count) except? 0
cdef uint64_t enter_special(
    engine_t* engine, queue_t* queue, content_t* content, uint32_t hops, uint32_t delivery_count, int flags,
    entry_t* parent, visited_t* visited, int64_t due
) except 0
cdef bint can_enter(queue_t* queue, content_t* content, const entry_t* ending) except -1
cdef int take_away(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1
cdef int dead_letter(engine_t* engine, entry_t* entry, int reason, object detail, visited_t* visited) except -1
cdef bint letters_would_take(engine_t* engine, entry_t* entry) except -1

cdef inline int take(engine_t* engine, selector_t* selector, entry_t* entry, visited_t* visited) except -1:
    """The selector takes a ready message; the caller has made sure that it can."""
    if selector.puts or selector.verb == DISCARD:
        return take_away(engine, selector, entry, visited)
    engine.served += 1
    selector.served += 1
    return offer(engine, selector, entry)
