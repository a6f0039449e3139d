"""Declarations of `delivery.pyx`, and short functions that batches share."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from xump_ext.engine.engine_lock cimport EngineLock
from xump_ext.route.offering cimport in_hands
from xump_ext.state.constants cimport REDELIVERED
from xump_ext.state.graph cimport entry_t, offer_t

cdef class Delivery:
    cdef entry_t* entry             # NULL: stale; PAID: settled
    cdef PyObject* message          # owned; the interpreter reads these four attributes in place
    cdef PyObject* destination
    cdef PyObject* queue
    cdef PyObject* selector
    cdef PyObject* key              # str, owned; NULL: it has no key
    cdef readonly uint32_t delivery_count
    cdef readonly bint redelivered
    cdef bint settled               # by being taken: INFINITE credit
    cdef uint64_t checked           # the number of the last `check_deliveries` that saw it
    cdef bint answered              # acked, nacked or rejected by your program
    cdef PyObject* core(self) except NULL
    cdef int pay_for_it(self) except -1
    cdef int return_or_reject(self, bint requeue, object detail, int64_t delay) except -1
    cdef int go_back_or_away(self, EngineLock core, bint requeue, object detail, int64_t delay) except -1
    cdef int go_in_room(self, EngineLock core, bint requeue, object detail, int64_t delay, error) except -1

cdef Delivery delivery_new()

cdef inline PyObject* counted(void* held) noexcept:
    Py_INCREF(<object> held)
    return <PyObject*> held

cdef inline bint is_redelivered(const entry_t* entry) noexcept:
    """Whether it was delivered before, or was outstanding and came back."""
    return entry.flags & REDELIVERED != 0 or entry.delivery_count > 0

cdef inline PyObject* key_counted(entry_t* entry) except? NULL:
    """A new reference to the key of an entry; NULL if it has none, or your program has it no more."""
    if not in_hands(entry) or entry.queue.groups == NULL:
        return NULL
    if entry.extra != NULL and entry.extra.group != NULL:
        return counted(entry.extra.group.key)
    return key_found(entry)

# Of an entry that stands in no line, as an overflow selector has taken it.
cdef PyObject* key_found(entry_t* entry) except? NULL

cdef Delivery delivery_to_settle(EngineLock core, entry_t* entry)
cdef Delivery hand_by_hand(EngineLock core, entry_t* entry)
cdef Delivery hand_over(EngineLock core, offer_t* offer)
# Raises unless all are live deliveries of this engine, each given once.
cdef int check_deliveries(EngineLock core, list deliveries) except -1
