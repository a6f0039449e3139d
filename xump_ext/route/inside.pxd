"""Declarations of `inside.pyx`."""

from xump_ext.state.graph cimport engine_t, queue_t

# Gives the queue, which goes by priority and has something that may go on, its place in the engine's heap.
cdef int inside_look(engine_t* engine, queue_t* queue) except -1
