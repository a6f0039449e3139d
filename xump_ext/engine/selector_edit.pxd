"""Declarations of `selector_edit.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.engine.handles cimport QueueHandle, SelectorHandle
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, selector_t

cdef int selector_create(
    engine_t* engine, SelectorHandle handle, int verb, int role, tuple terms, object queue_field, object target,
    object destination_field, object destination, object credit, object ack_timeout, int64_t rank, object ahead, object window,
    bint enabled
) except -1
cdef int selector_enable(engine_t* engine, selector_t* selector, bint enabled) except -1
cdef int selector_end(engine_t* engine, selector_t* selector, dict selectors, list doomed, bint recalls) except -1
