"""Declarations of `requeue.pyx`."""

from xump_ext.state.graph cimport engine_t, entry_t, queue_t

cdef int release(engine_t* engine, entry_t* entry) except -1
cdef int requeue_entry(engine_t* engine, entry_t* entry) except -1
cdef int returning_add(entry_t* entry) except -1
cdef int mark_returned(engine_t* engine, queue_t* queue) except -1
cdef int note_nack(engine_t* engine, entry_t* entry) except -1
