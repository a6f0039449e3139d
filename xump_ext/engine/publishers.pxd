"""Declarations of `publishers.pyx`.

`EnginePublishers` is a part of the engine's class, between `publish.pxd` and `transactions.pxd`.
"""

from libc.stdint cimport uint64_t

from xump_ext.engine.publish cimport EnginePublish
from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport Times
from xump_ext.state.sleeper cimport Sleeper

cdef class Publisher(Sleeper):
    """A publish, a transaction, or a queue's next adopted message, that waits for room."""

    cdef object queue
    cdef str line                   # the name of the queue for which it waits in line
    cdef uint64_t arrival           # one after another: who came first
    cdef content_t* content         # of a publish
    cdef object transaction         # None: it is none
    cdef bint adopted               # the next message that `queue` has adopted enters it
    cdef Times times
    cdef bint over                  # it waits no more
    cdef readonly object id         # once it has entered; of an adopted message: how many have
    cdef readonly object error      # why it cannot enter; while it waits: why it could not, so far

cdef class EnginePublishers(EnginePublish):
    cdef int begin_waiting(self, Publisher publisher, list held) except -1
    cdef int end_waiting(self, Publisher publisher) except -1
    cdef list first_in_lines(self)
    cdef bint let_in_one(self, Publisher publisher) except -1
    cdef int make_room_late(self, Publisher publisher) except -1
    cdef int enter_late(self, Publisher publisher) except -1
