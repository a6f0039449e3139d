"""Declarations of `holding.pyx`."""

from xump_ext.state.graph cimport engine_t, queue_t

cdef int hold(engine_t* engine, queue_t* queue) except -1
cdef int wake_everything(engine_t* engine, queue_t* queue) except -1
