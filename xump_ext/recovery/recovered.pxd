"""Layout of a queue that is being read from its store."""

from libc.stdint cimport uint64_t

from xump_ext.records.kinds cimport state_record_t
from xump_ext.state.graph cimport engine_t, index_t

cdef struct recovered_t:
    engine_t* engine
    index_t index
    state_record_t state        # the last one that was read
    uint64_t count              # entries in the index
    uint64_t described          # position of its QUEUE record in the log
    uint64_t incarnation
