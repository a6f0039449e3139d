"""Declarations of `queue_edit.pyx`."""

from libc.stdint cimport int64_t, uint32_t

from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.log.journal cimport Journal
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t

cdef queue_t* queue_create(
    engine_t* engine, QueueHandle handle, dict properties, list spare_slots, Journal journal, uint32_t number
) except NULL
cdef list queue_delete(engine_t* engine, queue_t* queue, dict selectors, list spare_slots)
cdef list selector_delete(engine_t* engine, selector_t* selector, dict selectors, list spare_slots, bint recalls)
cdef int message_delete(engine_t* engine, entry_t* entry) except -1
