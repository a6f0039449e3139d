"""Declarations of `reading.pyx`.

`EngineReading` is a part of the engine's class, between `transactions.pxd` and `core.pxd`.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.handles cimport QueueHandle
from xump_ext.engine.transactions cimport EngineTransactions
from xump_ext.match.filter cimport Filter
from xump_ext.message.message cimport Message
from xump_ext.state.graph cimport entry_t, queue_t

cdef class EngineReading(EngineTransactions):
    cdef Message message_if_selected(self, entry_t* entry, Filter filter)
    cdef entry_t* entry_of(self, QueueHandle handle, object id) except? NULL

# What `browse` looks at, from a place on; `start` and the rest are checked.
cdef enum:
    PAGE = 256      # so many messages are looked at in one go, with the engine lock taken
cdef int states_wanted(object state) except -1
cdef str state_name(const entry_t* entry)
cdef int64_t delayed_until(const entry_t* entry) noexcept
cdef entry_t* first_browsed(queue_t* queue, object start, bint reverse) except? NULL
cdef entry_t* next_browsed(const entry_t* entry, bint reverse) noexcept
cdef uint64_t since(queue_t* queue, int64_t time) except? 0
