"""Declarations of `maps.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.engine.stores cimport EngineStores
from xump_ext.log.journal cimport Journal
from xump_ext.state.graph cimport queue_t

cdef class MapChanges:
    cdef EngineStores core
    cdef list given             # (owner, [(name, value)]) each, as the program gave them, in order
    cdef dict owners            # by the id of each: (owner, Map, Journal or None, number of the queue or 0, its new items)
    cdef readonly Journal journal   # of the last of them that is durable; None: none is
    cdef readonly int64_t bytes     # that they take of their stores …
    cdef readonly int64_t largest   # … and the largest of them

    cdef int plan(self) except -1
    cdef int make_room(self, int64_t more) except -1
    cdef int check(self) except -1
    cdef int carry_out(self) except -1

# Raises StoreFull or StoreFailed unless the store takes a map of so many bytes, `all` of them together with others.
cdef int check_map_fits(Journal journal, int64_t largest, int64_t all, object whose) except -1
# The bytes that a map with these items takes of its store.
cdef int64_t map_charge(dict items) except -1
# The first items of a queue that was just made.
cdef int map_begin(queue_t* queue, dict items) except -1
