"""What a durable store is told: the declarations of `journal.pyx`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.block cimport content_t
from xump_ext.graph cimport engine_t, entry_t, queue_t, store_t

cdef class Group:
    """A sealed group: a buffer that a store writes."""
    cdef char* data
    cdef uint64_t size
    cdef uint64_t capacity
    cdef readonly uint64_t position
    cdef readonly uint64_t number
    cdef readonly uint64_t records
    cdef uint32_t salt
    cdef uint64_t synced
    cdef bint finished
    cdef bint carries           # has records that were carried forward

cdef class Journal:
    cdef store_t store
    cdef object __weakref__
    cdef readonly object backend
    cdef readonly str name
    cdef dict queues                # number -> address of the queue_t
    cdef set leaving                # numbers of deleted queues whose end stands behind a fence
    cdef uint32_t last_number
    cdef uint64_t synced            # position up to which the log was synced …
    cdef uint64_t written_to        # … and written
    cdef set unsynced               # numbers of queues whose states were written since
    cdef uint64_t group_bytes       # when so much was gathered, it should be written
    cdef uint64_t crowded_at        # bytes of the open group at which `crowded` is called: that, then four times that
    cdef public object crowded
    cdef bint carries               # the open group has records that were carried forward
    cdef readonly uint64_t carried_bytes    # of such records, altogether
    cdef char* spare                # the buffer that is not in use
    cdef uint64_t spare_capacity
    cdef object window              # a buffer of the log that was read last
    cdef uint64_t window_position
    cdef public object changed      # called after a call that changed something, for the first time in a group …
    cdef public object make_room    # called with the bytes that a call lacks room for; or None
    cdef public bint each_call      # … or each time
    cdef bint signalled

    cdef int keep(self) except -1
    cdef int attach(self, queue_t* queue, uint32_t number) except -1
    cdef Group seal(self, bint exact, bint closing)
    cdef int written(self, Group group, bint enough) except -1
    cdef int carry(self, data) except -1
    cdef void fail(self) noexcept
    cdef int mark_outstanding(self, bint closing) except -1
    cdef int mark_owners(self, bint closing) except -1
    cdef int made_durable(self, uint64_t group) except -1
    cdef int forget_contents(self, Group group, bint forget) except -1

# What it was told of is sealed.
cdef void undirty(store_t* store) noexcept
# Calls `changed` of every store that this call has changed.
cdef int tell_stores(engine_t* engine) except -1
# A new reference to the content of an entry that is in the store.
cdef content_t* journal_fetch(entry_t* entry) except NULL
