"""Declarations of `meta.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from xump_ext.records.kinds cimport meta_record_t
from xump_ext.state.graph cimport queue_t, store_t

cdef class Map:
    cdef readonly dict items        # str -> bytes; replaced by each change, and never altered
    cdef readonly uint64_t bytes    # of its names and values
    cdef uint64_t number            # of its newest META; 0: it has none
    cdef uint64_t charge            # what that takes of the store
    cdef uint64_t group             # the group of that record, if this process has written it …
    cdef uint64_t start             # … and where it begins there

    cdef int become(self, dict items) except -1

# The map of the queue; None: it never had anything in it.
cdef Map queue_map(const queue_t* queue)
# The same, made if it is not there.
cdef Map queue_map_made(queue_t* queue)
# The length of a META with these items.
cdef uint64_t map_length(dict items) except 0
# Gives a map these items. `store`: its own, which gets a META; NULL: it is in RAM. `number`: of the queue; 0: of the store.
cdef int map_change(Map map, dict items, store_t* store, uint32_t number) except -1
# The queue is gone, and its map with it.
cdef void map_leave(queue_t* queue) noexcept
# Takes over what a META says that was read from the log, unless it is older than the map. False: its parts do not fill it.
cdef bint map_read(Map map, const meta_record_t* record) except -1
# A map that was read belongs to a store from here on.
cdef void map_come(Map map, store_t* store) noexcept
