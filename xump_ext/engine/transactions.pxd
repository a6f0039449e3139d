"""Declarations of `transactions.pyx`.

`EngineTransactions` is a part of the engine's class, between `publishers.pxd` and `reading.pxd`.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.maps cimport MapChanges
from xump_ext.engine.publishers cimport EnginePublishers
from xump_ext.message.headers cimport content_t
from xump_ext.route.admission cimport Admissions
from xump_ext.state.graph cimport queue_t

cdef class Planned:
    cdef object transaction
    cdef list operations        # ("publish", queue, message, times) and (verb, delivery, argument)
    cdef Admissions contents    # of the publishes
    cdef list timed             # (place in `contents`, times) of those that have any; None: none has
    cdef MapChanges maps        # None: none changes

cdef class EngineTransactions(EnginePublishers):
    cdef Planned planned(self, object transaction)
    cdef int set_times_of(self, Planned planned) except -1
    cdef int make_room_for(self, Planned planned) except -1
    cdef int carry_out_in_room(self, Planned planned) except -1
    cdef int carry_out(self, Planned planned) except -1
    cdef uint64_t admit_in_turn(self, queue_t* queue, object name, content_t* content, int64_t due) except? 0
    cdef list operations_done(self, Admissions batch)
    cdef Admissions transaction_batch(self, list operations, Admissions contents)
