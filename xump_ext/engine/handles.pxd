"""Declarations of `handles.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.state.envelope cimport QueueRef
from xump_ext.state.graph cimport queue_t, selector_t

cdef class QueueHandle(QueueRef):
    cdef readonly str name
    cdef readonly object engine         # the Engine that it belongs to
    cdef readonly object store
    cdef object plan
    cdef queue_t* live(self) except NULL

cdef class SelectorHandle:
    cdef selector_t* selector
    cdef readonly unsigned int id
    cdef readonly object name
    cdef readonly object engine
    cdef readonly QueueHandle source
    cdef readonly object when
    cdef readonly object do
    cdef readonly object window         # the Window that it shares, or None
    cdef readonly tuple _created        # the arguments that it was created with
    cdef selector_t* live(self) except NULL

# A span or a moment; None for NEVER.
cdef object none_if_never(int64_t span)
