"""Declarations of `restore.pyx`."""

from xump_ext.log.journal cimport Journal
from xump_ext.recovery.recovered cimport recovered_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t

cdef int queue_take_over(Journal journal, queue_t* queue, recovered_t* found) except -1
cdef int order_all(Journal journal, set exact) except -1
# Settles an origin whose message goes on downstream: it was taken here, and will never be paid for.
cdef int hidden_end(engine_t* engine, entry_t* entry) except -1
# Settles an entry that is in no list any more, and tells the store.
cdef int forget_for_good(queue_t* queue, entry_t* entry) except -1
