"""Records of what happens in durable queues: the declarations of `log.pyx`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t

from xump_ext.block cimport content_t
from xump_ext.graph cimport engine_t, entry_t, queue_t, store_t
from xump_ext.records cimport enter_record_t, head_t

cdef enum:
    LOOK_AHEAD = 1024       # messages that may be handed out before the log must know
    USUAL_BYTES = 4096      # what a bounce may add to a message, and a little more
    COMES_IN = 0            # into its store
    ENDS = 31               # where it is
    LENGTH_BITS = 12        # of a record's length, rounded up, in the place of a content: 5 of exponent, 7 of mantissa

# ---- hooks of the ledger; the queue is durable

# Makes room for an ENTER of this content, so that what follows cannot fail. Before anything has changed.
cdef int log_reserve(queue_t* queue, content_t* content) except -1
cdef void log_enter(entry_t* entry) noexcept
cdef int log_carried(queue_t* queue, const enter_record_t* old, bint anyway) except -1
cdef int log_settle(entry_t* entry) except -1
# What is to be known of an entry beside its ENTER: whether it is in the history, was delivered, came back.
cdef int log_mark(entry_t* entry) except -1
cdef int log_queue(queue_t* queue) except -1
cdef int log_queue_gone(queue_t* queue) except -1
cdef void gone_record(store_t* store, uint32_t number) noexcept
# A record that is in the log already, once more.
cdef head_t* log_again(store_t* store, const head_t* old) noexcept
# The entry, or what it came from in durable queues, may be handed out from here on.
cdef int log_handed(entry_t* entry) except -1
# The same for one that came back before, when the application takes it: the watermark cannot tell how often that was.
cdef int log_taken_again(entry_t* entry) except -1
# Its state goes into the open group.
cdef void touch(queue_t* queue) noexcept

cdef bint store_has_room(queue_t* queue, content_t* content) noexcept
# What to raise when it has none.
cdef object no_room(queue_t* queue)
# As `store_has_room`, for what comes from upstream, of this content or (NULL) of any usual size: who is refused waits for room.
# `steps`: as `steps_down` has it, or COMES_IN, or ENDS for what becomes of a message that ends.
cdef bint store_takes(queue_t* queue, content_t* content, int steps) noexcept
cdef int64_t kept_bytes(const store_t* store, int64_t charge) noexcept
cdef int steps_down(const store_t* store, const entry_t* entry) noexcept
# The length of the record of a message with this content; `linked`: which came from another one.
cdef uint64_t enter_bytes(const content_t* content, bint linked) noexcept
# … of one whose content is in memory.
cdef uint64_t made_bytes(const entry_t* entry) noexcept
# What a message takes of its store, with the record of its end.
cdef uint64_t entry_charge(const entry_t* entry) noexcept

cdef int settle_now_or_later(queue_t* queue, uint64_t id, uint64_t charge, bint stained) except -1
cdef void settle_record(store_t* store, uint32_t number, uint64_t id, int flags, queue_t* queue) noexcept
cdef void mark_record(store_t* store, uint32_t queue, uint64_t id, uint64_t delivery_count, int flags) noexcept
cdef void log_state(queue_t* queue, bint exact) noexcept

cdef inline void went_to(engine_t* engine, const queue_t* queue) noexcept:
    """The message at hand went to this queue: where it came from, its end is told when that is durable."""
    if queue.durable:
        engine.entered_stores |= <uint64_t> 1 << queue.store.slot

cdef inline queue_t* store_queue(store_t* store, uint32_t number) except? NULL:
    """The queue of that number; NULL: it was deleted."""
    return <queue_t*> <uintptr_t> (<dict> store.queues).get(number, 0)

# ---- contents that are not in memory

cdef inline content_t* placed(uint64_t position, uint64_t length) noexcept:
    """What stands in an entry for a content that is in the store, at that position, in a record of that length."""
    return <content_t*> <uintptr_t> ((position >> 3) << (LENGTH_BITS + 2) | length_class(length) << 2 | 2)

cdef inline uint64_t place_of(const entry_t* entry) noexcept:
    return <uintptr_t> entry.content >> (LENGTH_BITS + 2) << 3

cdef inline uint64_t length_class(uint64_t length) noexcept:
    """The least class that holds it: below 128 eights every one, then 128 steps for each doubling."""
    cdef uint64_t eights = (length + 7) >> 3
    cdef uint64_t exponent = 0
    while eights >> exponent >= 256:
        exponent += 1
    eights = (eights + (<uint64_t> 1 << exponent) - 1) >> exponent
    return eights if exponent == 0 and eights < 128 else (exponent + (eights >> 8) + 1) << 7 | (eights >> (eights >> 8)) & 127

cdef inline uint64_t class_bytes(uint64_t number) noexcept:
    """The longest record of the class."""
    if number < 128:
        return number << 3
    return (128 | (number & 127)) << ((number >> 7) - 1) << 3
