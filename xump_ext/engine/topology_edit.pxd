"""Declarations of `topology_edit.pyx`."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.log.journal cimport Journal
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t

cdef queue_t* queue_create(
    engine_t* engine, QueueHandle handle, dict properties, list spare_slots, Journal journal, uint32_t number
) except NULL
cdef list queue_delete(engine_t* engine, queue_t* queue, dict selectors, list spare_slots)
cdef int selector_create(
    engine_t* engine, SelectorHandle handle, int verb, int role, tuple terms, object queue_field, object target,
    object destination_field, object destination, object credit, object ack_timeout, int64_t rank, object ahead, object window,
    bint enabled
) except -1
cdef list selector_delete(engine_t* engine, selector_t* selector, dict selectors, list spare_slots, bint recalls)
cdef int selector_enable(engine_t* engine, selector_t* selector, bint enabled) except -1
cdef int message_delete(engine_t* engine, entry_t* entry) except -1
cdef list replay_of(engine_t* engine, selector_t* selector)
