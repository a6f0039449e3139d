"""Declarations of `core.pyx`.

`Core` is the last of the four parts of the engine's class: `publish.pxd` has the third.
"""

from libc.stdint cimport int64_t

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

# What `browse` looks at, from a place on; `start` and the rest are checked.
cdef enum:
    PAGE = 256      # so many messages are looked at in one go, with the engine lock taken
cdef int states_wanted(object state) except -1
cdef str state_name(const entry_t* entry)
cdef int64_t delayed_until(const entry_t* entry) noexcept
cdef entry_t* first_browsed(queue_t* queue, object start, bint reverse) except? NULL
cdef entry_t* next_browsed(const entry_t* entry, bint reverse) noexcept
