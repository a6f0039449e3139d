"""The engine as Python calls it; the declarations of `core.pyx`."""

from xump_ext.faces cimport QueueFace
from xump_ext.filter cimport Filter
from xump_ext.graph cimport entry_t, queue_t, selector_t
from xump_ext.intake cimport Intake
from xump_ext.message cimport Message

cdef class Core(Intake):
    cdef int take_into(self, list taken, Py_ssize_t n, object destination) except -1
    cdef int set_start(self, selector_t* selector, object start) except -1
    cdef int enable(self, selector_t* selector) except -1
    cdef int check_replay(self, selector_t* selector, list ids) except -1
    cdef Message seen(self, entry_t* entry, Filter filter)
    cdef entry_t* entry_of(self, QueueFace face, object id) except? NULL
    cdef int close_books(self) except -1
    cdef int release(self, queue_t* queue) except -1
