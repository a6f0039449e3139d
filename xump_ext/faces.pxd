"""What Python sees of queues and selectors; the declarations of `faces.pyx`."""

from xump_ext.envelope cimport QueueHandle
from xump_ext.graph cimport queue_t, selector_t

cdef class QueueFace(QueueHandle):
    cdef readonly str name
    cdef readonly object engine         # the Engine that it belongs to
    cdef readonly object store
    cdef object plan
    cdef queue_t* live(self) except NULL

cdef class SelectorFace:
    cdef selector_t* selector
    cdef readonly unsigned int id
    cdef readonly object name
    cdef readonly object engine
    cdef readonly QueueFace source
    cdef readonly object when
    cdef readonly object do
    cdef readonly tuple created         # the arguments that it was created with
    cdef selector_t* live(self) except NULL
