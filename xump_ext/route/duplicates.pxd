"""Declarations of `duplicates.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport queue_t

# The id of the message of which this publish is a duplicate; 0: it is none.
cdef uint64_t duplicate_of(queue_t* queue, const content_t* content) except? 0
# The publish enters under this id, if the call succeeds: later ones with its message_id are duplicates.
cdef int remember(queue_t* queue, const content_t* content, uint64_t id) except -1
# The publish has entered under this id. Forgets what is too old, too.
cdef int remember_for_good(queue_t* queue, const content_t* content, uint64_t id) except -1
