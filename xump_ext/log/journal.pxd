"""Declarations of `journal.pyx`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.log.group cimport Group
from xump_ext.log.marks cimport Owner
from xump_ext.log.meta cimport Map
from xump_ext.log.wakeup cimport Wakeup
from xump_ext.records.kinds cimport head_t
from xump_ext.state.graph cimport engine_t, queue_t, store_t

cdef class Journal:
    cdef store_t store
    cdef object __weakref__
    cdef readonly object backend
    cdef readonly str name
    cdef dict queues                # number -> address of the queue_t
    cdef readonly Map map           # of the store
    # number of a deleted queue whose GONE waits behind a fence -> (its name, where its last QUEUE is, and its last STATE)
    cdef dict leaving
    cdef dict departed              # name of a deleted queue -> (its number, the group of its GONE; 0 behind a fence)
    cdef uint32_t last_number       # the highest that was issued
    cdef uint64_t synced            # position up to which the log was synced …
    cdef uint64_t written_to        # … and written
    cdef set unsynced               # numbers of queues whose STATE was written after the last sync
    cdef uint64_t group_bytes       # the size at which a group should be written
    cdef uint64_t crowded_at        # size of the open group at which `crowded` is called: `group_bytes`, then four times that, …
    cdef bint carries               # the open group has records that were copied forward
    cdef readonly uint64_t carried_bytes    # bytes written by that since the store was opened, with the heads of groups
    cdef dict copied                # (kind, queue, id) of a record that the log had twice -> position of the last copy
    cdef char* spare                # the buffer that is not in use
    cdef uint64_t spare_capacity
    cdef object window              # the buffer of the log that was read last
    cdef uint64_t window_position
    cdef object committer           # what `connect` was given; None before that
    cdef Wakeup wakeup              # what its thread waits for
    cdef object changed             # its method, called after the first call in a group that changed something …
    cdef bint each_call             # … or after each such call
    cdef bint signalled             # `changed` was called for the open group

    cdef int keep(self) except -1
    cdef uint32_t number_new(self) except 0
    cdef int attach(self, queue_t* queue, uint32_t number) except -1
    cdef int must_write(self) except -1
    cdef Group seal(self, bint exact, bint closing)
    cdef int written(self, Group group, bint enough) except -1
    cdef bint is_last_of(self, const head_t* head) except -1
    cdef int state_again(self, queue_t* queue) except -1
    cdef bint has_later_copy(self, const head_t* head) except -1
    cdef int carry(self, data) except -1
    cdef void fail(self) noexcept
    cdef int mark_outstanding(self, bint closing, uint32_t number) except -1
    cdef int mark_owners(self, bint closing) except -1
    cdef int end_owner(self, Owner owner) except -1
    cdef int made_durable(self, uint64_t group) except -1
    cdef int forget_departed(self) except -1
    cdef int forget_contents(self, Group group, bint forget) except -1

# Takes the store off the engine's list of changed stores: all that was gathered is sealed.
cdef void store_unchanged(store_t* store) noexcept
# Tells the committer of every store that this call has changed.
cdef int tell_stores(engine_t* engine) except -1
# For servers: calls `told(error)` once, when that ticket is passed; see `tickets.pxd`. Called without the engine lock.
cdef int when_passed(Journal journal, uint64_t ticket, object told) except -1
