"""Declarations of `holding.pyx`."""

from xump_ext.state.graph cimport engine_t, queue_t

cdef int hold(engine_t* engine, queue_t* queue) except -1
# Holds it since a message there could not be read, which falls due again when the queue is released. The error is reported.
cdef int hold_for(engine_t* engine, queue_t* queue, object error) except -1
cdef int wake_everything(engine_t* engine, queue_t* queue) except -1
