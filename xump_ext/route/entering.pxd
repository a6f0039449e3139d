"""Declarations of `entering.pyx`."""

from libc.stdint cimport uint64_t

from xump_ext.state.graph cimport engine_t, queue_t

# Lets the next `count` messages at most of a staged queue enter the target that has adopted it, as far as there is room; returns
# how many have left it. No run follows. Raises only if nothing has changed.
cdef uint64_t enter_rows(engine_t* engine, queue_t* target, queue_t* staged, uint64_t count) except? 0
