"""Declarations of `lanes.pyx`, and the oldest entry of a lane, inline."""

from libc.stdint cimport uint64_t

from xump_ext.memory.heap cimport heap_root, node_t
from xump_ext.state.graph cimport clause_t, entry_t, lane_t, selector_t, waitset_t
from xump_ext.state.returned_heap cimport order_of, waitset_oldest

cdef entry_t* lane_corrected(lane_t* lane) noexcept
cdef inline entry_t* lane_oldest(lane_t* lane) noexcept:
    """The oldest entry that waits for this lane, or NULL."""
    cdef node_t* node = heap_root(&lane.waitsets)
    cdef entry_t* entry
    if node == NULL:
        return NULL
    entry = waitset_oldest(<waitset_t*> node.owner)
    if entry == NULL or (order_of(entry) != node.key and lane.waitsets.count > 1):
        return lane_corrected(lane)
    node.key = order_of(entry)
    return entry

cdef lane_t* lane_first(clause_t* clause) noexcept
cdef int lane_lower(lane_t* lane, uint64_t order) except -1
cdef int lane_open(lane_t* lane) except -1
cdef int lane_close(lane_t* lane) except -1
cdef int waitset_waited(waitset_t* waitset) except -1
cdef void lane_part(lane_t* lane) noexcept
cdef int lanes_reopen(selector_t* selector) except -1
