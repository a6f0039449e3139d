"""Declarations of `publish.pyx`, and the fast way of a message into a queue in RAM.

`EnginePublish` is the third of the four parts of the engine's class: `stores.pxd` has the second, `core.pxd` the last.
"""

from libc.stdint cimport uint64_t

from xump_ext.engine.stores cimport EngineStores
from xump_ext.message.headers cimport content_t
from xump_ext.route.admission cimport Admissions
from xump_ext.route.ledger cimport enter
from xump_ext.state.graph cimport queue_t

cdef class EnginePublish(EngineStores):
    cdef uint64_t no_queue          # messages dead-lettered because they were published to a queue that does not exist

    cdef inline uint64_t admit(self, queue_t* queue, object name, content_t* content) except? 0:
        """Let one message in and return its id; 0: it was dead-lettered instead. Takes over the caller's reference, unless it
        raises."""
        if queue != NULL and queue.ready < queue.limit and not queue.durable:
            return enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
        return self.admit_elsewhere(queue, name, content)

    cdef uint64_t admit_elsewhere(self, queue_t* queue, object name, content_t* content) except? 0
    cdef object admit_all(self, Admissions batch, queue_t* queue)
    cdef Admissions transaction_batch(self, list operations, Admissions contents)
