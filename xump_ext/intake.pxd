"""Publishing: the declarations of `intake.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.admission cimport Admissions
from xump_ext.block cimport content_t
from xump_ext.durable cimport Durable
from xump_ext.graph cimport queue_t
from xump_ext.ledger cimport enter

cdef class Intake(Durable):
    cdef uint64_t no_queue          # dead-lettered: published to a queue that does not exist

    cdef inline uint64_t admit(self, queue_t* queue, object name, content_t* content) except? 0:
        """Lets one message in, or dead-letters it (0), or raises. Takes over the reference unless it raises."""
        if queue != NULL and queue.ready < queue.limit and not queue.durable:
            return enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
        return self.admit_elsewhere(queue, name, content)

    cdef uint64_t admit_elsewhere(self, queue_t* queue, object name, content_t* content) except? 0
    cdef object admit_all(self, Admissions batch, queue_t* queue)
    cdef Admissions transaction_batch(self, list operations, Admissions contents)
