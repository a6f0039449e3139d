"""Declarations of `sleepers.pyx`: a part of the engine's class, between `engine_lock.pxd` and `stores.pxd`."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.state.sleeper cimport Sleeper

cdef class EngineSleepers(EngineLock):
    cdef dict sleepers              # those who wait, by what they wait for; of one thing in the order in which they came
    cdef uint64_t last_sleeper      # the number of the last one that came; waiting publishers are counted, too
    cdef uint64_t offered_before    # the last offer that consumers were woken for
    cdef Py_ssize_t queues_waited_for   # how many sleepers wait for a message that can be taken by hand
    cdef int64_t alarm              # until then those who wait sleep; NEVER: until they are woken

    cdef int enlist(self, Sleeper sleeper) except -1
    cdef bint withdraw(self, Sleeper sleeper) except -1
    cdef int64_t wake_up(self) except? -1
    cdef int64_t span_until_due(self) except? -1
    cdef int wake_offered(self) except -1
    cdef int wake(self, set destinations) except -1
    cdef int wake_these(self, list woken) except -1
    cdef int wake_for_queues(self) except -1
    cdef int wake_for_alarm(self) except -1
