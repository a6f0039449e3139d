"""The drop order of a queue: its bound messages, the one that is dropped first at the root.

A queue that drops its oldest messages asks which of those that are ready is worth least: the lowest priority, then the oldest.
The bound ones stand with their selector as they were routed. Mostly that is their order, and the first one is the least. With
priorities, or if older ones came after younger ones (a delay had ended, a message came back), any of them may be.

Then the queue gets a binary heap of them, by what they are worth, when it first drops. Each message that is bound from then on is
added. One that leaves stays in the heap, *stale*, and is dropped from it when it comes to the root. The heap is given up when it
has more than twice as many items as the queue has ready messages; the next drop that needs one makes it anew. So a drop, and a
message that is bound, cost O(log bound messages) in the long run. Queues of other kinds have none, and pay nothing.
"""

from libc.stdint cimport uint64_t

from xump_ext.state.graph cimport entry_t, queue_t
from xump_ext.state.returned_heap cimport AGE_BITS

cdef struct drop_item_t:
    uint64_t worth
    uint64_t id

cdef struct drop_order_t:
    drop_item_t* items
    uint64_t count
    uint64_t capacity

cdef inline uint64_t worth_of(const entry_t* entry) noexcept:
    """The lowest one is dropped first: the lowest priority, then the oldest."""
    return <uint64_t> (255 - entry.rank) << AGE_BITS | entry.sequence

# The bound message that is worth least, `newest` apart; NULL: there is no other. Makes the heap if there is none. MemoryError:
# nothing has changed.
cdef entry_t* drop_order_least(queue_t* queue, const entry_t* newest) except? NULL
# The message is about to be bound; called if the queue has a heap. MemoryError: nothing has changed.
cdef int drop_order_add(queue_t* queue, const entry_t* entry) except -1
cdef void drop_order_free(queue_t* queue) noexcept
# InvariantError if the heap is none, or a bound message is not in it. O(n).
cdef int drop_order_check(const queue_t* queue) except -1
