"""Publishing: the declarations of `engine/publish.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.engine.stores cimport EngineStores
from xump_ext.message.headers cimport content_t
from xump_ext.route.admission cimport Admissions
from xump_ext.route.ledger cimport enter
from xump_ext.state.graph cimport queue_t

cdef class EnginePublish(EngineStores):
    cdef uint64_t no_queue          # dead-lettered: published to a queue that does not exist

    cdef inline uint64_t admit(self, queue_t* queue, object name, content_t* content) except? 0:
        """Lets one message in, or dead-letters it (0), or raises. Takes over the reference unless it raises."""
        if queue != NULL and queue.ready < queue.limit and not queue.durable:
            return enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
        return self.admit_elsewhere(queue, name, content)

    cdef uint64_t admit_elsewhere(self, queue_t* queue, object name, content_t* content) except? 0
    cdef object admit_all(self, Admissions batch, queue_t* queue)
    cdef Admissions transaction_batch(self, list operations, Admissions contents)
