"""Declarations of `replies.pyx`."""

from xump_ext.state.graph cimport engine_t

# Hands out what has come to the queue of replies.
cdef int hand_out_replies(engine_t* engine) except -1
