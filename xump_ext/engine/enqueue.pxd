"""Declarations of `enqueue.pyx`, and the fast way of a message into a queue in RAM.

`EngineEnqueue` is a part of the engine's class, between `stores.pxd` and `publish.pxd`.
"""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.engine.stores cimport EngineStores
from xump_ext.message.headers cimport content_t
from xump_ext.route.admission cimport Admissions
from xump_ext.route.arrivals cimport enter_due
from xump_ext.state.graph cimport queue_t, tally_t, visited_t

cdef enum:
    # what became of a message that a call lets in
    ADMITTED = 0
    SENT_NO_QUEUE = 1       # to the engine's dead letter queue: there is no queue of that name
    SENT_FULL = 2           # to the queue's own one
    NO_QUEUE = 3            # these three: nothing has changed, and the caller still has the content
    FULL = 4
    NO_ROOM = 5             # in the store

cdef enum:              # of a store that may lack it
    ROOM_IS_MADE = 0        # the store may clean its log: the lock is given up meanwhile, so nothing may have changed yet
    ROOM_AS_IT_IS = 1
    ROOM_IS_PROMISED = 2    # to all messages of a call, by its dry run

cdef class EngineEnqueue(EngineStores):
    cdef uint64_t no_queue          # messages dead-lettered because they were published to a queue that does not exist

    cdef inline uint64_t admit(self, queue_t* queue, object name, content_t* content, int64_t due, int room) except? 0:
        """Let one message in, delayed until `due` (NEVER: not at all), and return its id; 0: it was dead-lettered instead. Takes
        over the caller's reference, unless it raises. `room`: ROOM_IS_MADE .. of that in its store."""
        if queue != NULL and queue.ready < queue.limit and not queue.uncommon:
            return enter_due(&self.e, queue, content, due, 0, NULL)
        return self.admit_elsewhere(queue, name, content, due, room)

    cdef uint64_t admit_elsewhere(
        self, queue_t* queue, object name, content_t* content, int64_t due, int room
    ) except? 0
    cdef bint room_is_made(self, queue_t* queue, const content_t* content) except -1
    cdef int let_through(
        self, queue_t* queue, object name, content_t* content, int64_t due, visited_t* visited, int room, uint64_t* id
    ) except -1
    cdef int publish_asking(
        self, queue_t* queue, object name, content_t* content, int64_t due, tally_t* tally
    ) except -1
    cdef visited_t* begin_asking(self, queue_t* queue, content_t* content, tally_t* tally) except? NULL
    cdef int let_in_asking(
        self, queue_t* queue, object name, content_t* content, int64_t due, tally_t* tally, visited_t* visited, bint last
    ) except -1
    cdef list publish_all_asking(self, Admissions batch, queue_t* queue)
    cdef object admit_all(self, Admissions batch, queue_t* queue)
    cdef int admit_through(self, Admissions batch, queue_t* queue) except -1

# Raises Conflict if the staged queue was adopted.
cdef int check_takes_rows(queue_t* staged) except -1
