"""What was read of a store comes to life: the declarations of `revival.pyx`."""

from xump_ext.graph cimport entry_t, queue_t
from xump_ext.journal cimport Journal
from xump_ext.recovery cimport recovered_t

cdef int queue_take_over(queue_t* queue, recovered_t* found) except -1
cdef int order_all(Journal journal, set exact) except -1
# A message that is further down: here it was taken, and will never be paid for. It is settled.
cdef int hidden_end(queue_t* queue, entry_t* entry) except -1
# It is settled, and the store hears of it.
cdef int forget_for_good(queue_t* queue, entry_t* entry) except -1
