"""The engine as Python calls it; the declarations of `core.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.admission cimport Admissions
from xump_ext.block cimport content_t
from xump_ext.durable cimport Durable
from xump_ext.faces cimport QueueFace
from xump_ext.filter cimport Filter
from xump_ext.graph cimport entry_t, queue_t, selector_t
from xump_ext.ledger cimport enter
from xump_ext.message cimport Message

cdef class Core(Durable):
    cdef uint64_t no_queue          # dead-lettered: published to a queue that does not exist

    cdef inline uint64_t admit(self, queue_t* queue, object name, content_t* content) except? 0:
        """Lets one message in, or dead-letters it (0), or raises. Takes over the reference unless it raises."""
        if queue != NULL and queue.ready < queue.limit and not queue.durable:
            return enter(&self.e, queue, content, 0, 0, 0, NULL, NULL)
        return self.admit_elsewhere(queue, name, content)

    cdef uint64_t admit_elsewhere(self, queue_t* queue, object name, content_t* content) except? 0
    cdef int take_into(self, list taken, Py_ssize_t n, object destination) except -1
    cdef object admit_all(self, Admissions batch, queue_t* queue)
    cdef Admissions transaction_batch(self, list operations, Admissions contents)
    cdef int set_start(self, selector_t* selector, object start) except -1
    cdef int enable(self, selector_t* selector) except -1
    cdef int check_replay(self, selector_t* selector, list ids) except -1
    cdef Message seen(self, entry_t* entry, Filter filter)
    cdef entry_t* entry_of(self, QueueFace face, object id) except? NULL
    cdef int close_books(self) except -1
    cdef int release(self, queue_t* queue) except -1
