"""Declarations of `replay.pyx`."""

from xump_ext.state.graph cimport engine_t, selector_t

cdef int selector_start(engine_t* engine, selector_t* selector, object start) except -1
cdef int selector_begin(engine_t* engine, selector_t* selector) except -1
