"""Declarations of `publishers.pyx`.

`EnginePublishers` is the fourth of the seven parts of the engine's class: `publish.pxd` has the third, `transactions.pxd` the
fifth.
"""

from xump_ext.engine.publish cimport EnginePublish
from xump_ext.message.headers cimport content_t
from xump_ext.message.times cimport Times
from xump_ext.state.sleeper cimport Sleeper

cdef class Publisher(Sleeper):
    """A publish that waits for room."""

    cdef object queue
    cdef content_t* content         # NULL: it waits no more
    cdef Times times
    cdef readonly object id         # once it has entered
    cdef readonly object error      # why it cannot enter; while it waits: why it could not, so far

cdef class EnginePublishers(EnginePublish):
    cdef int enter_late(self, Publisher publisher) except -1
