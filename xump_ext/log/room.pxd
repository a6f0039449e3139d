"""Declarations of `room.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t

cdef enum:
    USUAL_BYTES = 4096      # what a bounce may add to a message, and a little more
    # how far a message is on its way: the farther, the less room it leaves
    COMES_IN = 0            # your program publishes it, or it comes from RAM
    PASSES_IN = 1           # it comes from another durable store
    MOVES_ON = 2            # by each MOVE within the store, which halves the room twice
    ENDS = 62               # it ends where it is, and another one enters for it

cdef bint store_has_room(queue_t* queue, content_t* content) noexcept
# The error to raise when the store has no room.
cdef object no_room(queue_t* queue)
# As `store_has_room`, for a message from upstream with this content; NULL: of any usual size. If refused, it waits for room.
# `way`: what `way_within` gives, or one of the above.
cdef bint store_takes(queue_t* queue, content_t* content, int way) noexcept
# As `store_takes`, beside records of so many bytes.
cdef bint store_takes_beside(queue_t* queue, content_t* content, int way, int64_t others) noexcept
# Whether it takes dead letters of so many bytes together, of which the largest has `largest`. If not, it is told that room is
# wanted.
cdef bint store_takes_letters(store_t* store, int64_t bytes, int64_t largest, int way) noexcept
# So much room is for dead letters that are on their way through a transit queue, until the run has ended that copies them.
cdef void letters_promise(store_t* store, int64_t bytes) noexcept
cdef void letters_forget(engine_t* engine) noexcept
# The room that it has to have for that.
cdef int64_t letters_want(const store_t* store, int64_t bytes, int64_t largest, int way) noexcept
# What a message takes as a dead letter.
cdef int64_t letter_bytes(const content_t* content) noexcept
# Whether it takes a record of so many bytes that replaces another one.
cdef bint store_takes_bytes(store_t* store, int64_t bytes) noexcept
cdef int64_t message_bytes(const content_t* content, bint linked) noexcept
cdef int64_t kept_bytes(const store_t* store, int64_t largest, int way) noexcept
# The same for one that was in the store `behind`, NULL: in none. `within`: if that is the same.
cdef int way_from(const store_t* store, const store_t* behind, int within) noexcept
cdef int way_within(const store_t* store, const entry_t* entry) except -1
