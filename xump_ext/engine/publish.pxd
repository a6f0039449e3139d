"""Declarations of `publish.pyx`.

`EnginePublish` is a part of the engine's class, between `enqueue.pxd` and `publishers.pxd`.
"""

from libc.stdint cimport uint64_t

from xump_ext.engine.enqueue cimport EngineEnqueue
from xump_ext.message.times cimport Times
from xump_ext.route.admission cimport admission_t
from xump_ext.state.graph cimport engine_t, queue_t

cdef class EnginePublish(EngineEnqueue):
    cdef uint64_t publish_with(
        self, object queue, object address, object body, object headers, object reply_to, object message_id,
        object correlation_id, object delay, object at, object ttl, object expires, object priority
    ) except? 0

cdef int set_times(engine_t* engine, admission_t* item, Times times) except -1
# Raises ValueError if the queue is staged, and the message is to be delayed from now.
cdef int check_staged_times(queue_t* queue, Times times) except -1
