"""Declarations of `outlet.pyx`: what a compiled server needs to drain an outlet.

    from xump_ext.engine.outlet cimport Outlet
    from xump_ext.state.lazy_content cimport content_at

    outlet.begin()                          # takes the engine lock, and does what fell due
    try:
        while room:
            entry = outlet.next()           # the next offer, its destinations in turn; NULL: there is none
            if entry == NULL:
                break
            content = content_at(entry)     # may raise, if a store cannot read it; then nothing has changed
            ...                             # write it: address, annex_of(content), content_body(content)
            outlet.take_entry(entry, &slot)     # from here on your program has it, and `slot` leads to it
    finally:
        outlet.end()                        # runs the graph, and leaves the lock

A slot is a pointer of yours, at an address that stays. The engine sets it to NULL when it takes the message back, so what is NULL
is stale; `pay_slot`, `give_back_slot` and `refuse_slot` take slots that are not. Between `begin` and `end` this thread has the
engine lock, so it must not call the engine.
"""

from libc.stdint cimport uint32_t

from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.state.graph cimport entry_t, outlet_t

cdef class Outlet:
    cdef outlet_t o
    cdef EngineLock core
    cdef readonly object engine         # the Engine that it belongs to
    cdef readonly object call
    cdef dict own                       # its destinations by name
    cdef uint32_t turn                  # how many offers the first destination has left in its turn

    cdef list taken(self, Py_ssize_t n)
    cdef int begin(self) except -1
    cdef entry_t* next(self) except? NULL
    cdef int take_entry(self, entry_t* entry, entry_t** slot) except -1
    cdef int settle_entry(self, entry_t* entry) except -1
    cdef int end(self) except -1
    cdef int leave(self, object name) except -1

# What your program has, by its slots: acked; back to its queue; to the dead letter queue. Between `begin` and `end`.
cdef int pay_slot(EngineLock core, entry_t** slot) except -1
cdef int give_back_slot(EngineLock core, entry_t** slot) except -1
cdef int refuse_slot(EngineLock core, entry_t** slot) except -1
# The entry of a slot is forgotten: nothing leads to it any more, and it stays outstanding.
cdef void forget_slot(entry_t** slot) noexcept
