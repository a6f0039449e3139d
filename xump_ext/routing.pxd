"""The run: the declarations of `routing.pyx`."""

from xump_ext.graph cimport engine_t, entry_t, queue_t, selector_t

cdef int go_on(engine_t* engine) except -1
cdef int wake_everything(engine_t* engine, queue_t* queue) except -1
