"""Declarations of `replies.pyx`."""

from xump_ext.message.message cimport Message
from xump_ext.state.graph cimport engine_t
from xump_ext.state.sleeper cimport Sleeper

cdef class Request(Sleeper):
    """A request that waits for its reply."""

    cdef readonly str message_id
    cdef readonly Message answer    # None: it has none yet

# Hands out what has come to the queue of replies.
cdef int hand_out_replies(engine_t* engine) except -1
