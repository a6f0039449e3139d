"""Declarations of `core.pyx`.

`Core` is the last of the four parts of the engine's class: `publish.pxd` has the third.
"""

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.publish cimport EnginePublish
from xump_ext.match.filter cimport Filter
from xump_ext.message.message cimport Message
from xump_ext.state.graph cimport entry_t, queue_t, selector_t

cdef class Core(EnginePublish):
    cdef int take_into(self, list taken, Py_ssize_t n, object destination) except -1
    cdef int set_start(self, selector_t* selector, object start) except -1
    cdef int enable(self, selector_t* selector) except -1
    cdef int check_replay(self, selector_t* selector, list ids) except -1
    cdef Message message_if_selected(self, entry_t* entry, Filter filter)
    cdef entry_t* entry_of(self, QueueHandle handle, object id) except? NULL
    cdef int free_graph(self) except -1
    cdef int do_due_now(self) except -1
    cdef int end_hold(self, queue_t* queue) except -1
