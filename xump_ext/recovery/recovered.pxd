"""Layout of a queue that is being read from its store."""

from libc.stdint cimport int64_t, uint64_t

from xump_ext.records.kinds cimport state_record_t
from xump_ext.state.graph cimport engine_t, index_t

cdef struct seen_t:             # a message_id that came
    uint64_t hash_low
    uint64_t hash_high
    int64_t time
    uint64_t id
    uint64_t position

cdef struct recovered_t:
    engine_t* engine
    index_t index
    state_record_t state        # the last one that was read
    uint64_t count              # entries in the index
    uint64_t described          # position of its QUEUE record in the log
    uint64_t incarnation
    uint64_t dedup_key          # of the hashes of message ids
    uint64_t dedup_more_key
    seen_t* seen                # may have some twice, and in any order
    uint64_t seen_count
    uint64_t seen_capacity
    uint64_t forgotten          # SEENs up to this id are gone
