"""Declarations of `room.pyx`."""

from libc.stdint cimport int64_t

from xump_ext.message.headers cimport content_t
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t

cdef enum:
    USUAL_BYTES = 4096      # what a bounce may add to a message, and a little more
    # steps of a message within its store
    COMES_IN = 0            # it enters the store
    ENDS = 31               # it ends where it is, and another one enters for it

cdef bint store_has_room(queue_t* queue, content_t* content) noexcept
# The error to raise when the store has no room.
cdef object no_room(queue_t* queue)
# As `store_has_room`, for a message from upstream with this content; NULL: of any usual size. If refused, it waits for room.
# `steps`: what `steps_down` gives, or COMES_IN, or ENDS for the dead letter of a message that ends.
cdef bint store_takes(queue_t* queue, content_t* content, int steps) noexcept
# As `store_takes`, beside records of so many bytes.
cdef bint store_takes_beside(queue_t* queue, content_t* content, int steps, int64_t others) noexcept
# Whether it takes dead letters of so many bytes together, of which the largest has `largest`. If not, it is told that room is
# wanted.
cdef bint store_takes_letters(store_t* store, int64_t bytes, int64_t largest, int steps) noexcept
# So much room is for dead letters that are on their way through a transit queue, until the run has ended that copies them.
cdef void letters_promise(store_t* store, int64_t bytes) noexcept
cdef void letters_forget(engine_t* engine) noexcept
# The room that it has to have for that.
cdef int64_t letters_want(const store_t* store, int64_t bytes, int64_t largest, int steps) noexcept
# What a message takes as a dead letter.
cdef int64_t letter_bytes(const content_t* content) noexcept
# Whether it takes a record of so many bytes that replaces another one.
cdef bint store_takes_bytes(store_t* store, int64_t bytes) noexcept
cdef int64_t message_bytes(const content_t* content, bint linked) noexcept
cdef int64_t kept_bytes(const store_t* store, int64_t largest, int steps) noexcept
cdef int steps_down(const store_t* store, const entry_t* entry) except -1
