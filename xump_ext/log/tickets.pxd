"""Tickets: by which changes in a store are known, so that a server can ask when they are durable.

A ticket is the number of the group that has the changes. A server takes it under the engine lock, when its call has changed
something (`ticket_of`); asks without any lock whether it is passed (`is_passed`); and has itself called once it is
(`when_passed` in `journal.pxd`), in the thread of the store. Passed means: as durable as the store's `durability` promises, be
it synced or written. A store that has failed passes nothing more, and calls back with the error.
"""

from libc.stdint cimport uint64_t

from xump_ext.records.kinds cimport group_record_t
from xump_ext.state.graph cimport store_t

cdef inline uint64_t ticket_of(const store_t* store) noexcept:
    """The number of the last group in which there is anything."""
    return store.group if store.touched != NULL or store.size > sizeof(group_record_t) else store.group - 1

cdef inline bint is_passed(const store_t* store, uint64_t ticket) noexcept:
    """Whether the changes of this ticket are as durable as the store promises."""
    return ticket <= store.passed
