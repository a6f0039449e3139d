"""Room in a store: whether one more message fits, and how much of it stays reserved for messages in the store.

Messages in a full store must be able to move on and end, since only that makes room. So each step of a message leaves some room
to later steps:

    a publish, or a message from RAM        leaves what the store asks for, and twice the largest message in it
                                            (beside other durable stores one and a half times what it asks for)
    a message from another durable store    leaves what the store asks for, and twice the largest message
    the first MOVE within the store         leaves a quarter of that
    the second                              leaves a sixteenth, and so on

With one limit for all steps, messages at the beginning of their way could take the room that others need to end: two full stores
whose messages go on in each other, or have their dead letters there, would wait for each other for good. A store that cleans its
log by copying live records forward needs room for that, too: twice the largest message, which no step may take.
"""

from xump_ext.errors import StoreFailed, StoreFull
from xump_ext.log.live_sizes cimport largest_with
from xump_ext.log.owners cimport store_behind
from xump_ext.log.writer cimport charge_of, enter_bytes, store_changed
from xump_ext.memory.canaries cimport ROOM, strikes
from xump_ext.records.kinds cimport RECORD_RARE, RECORD_TIMED, settle_record_t
from xump_ext.state.constants cimport OWNED
from xump_ext.state.graph cimport engine_t


cdef bint store_has_room(queue_t* queue, content_t* content) noexcept:
    cdef store_t* store = queue.store
    cdef int64_t bytes = message_bytes(content, False)
    return not store.failed and not store.leaving_engine and store.room >= bytes + kept_bytes(store, bytes, COMES_IN)


cdef object no_room(queue_t* queue):
    cdef store_t* store = queue.store
    name = (<object> queue.handle).name
    if store.failed:
        return (<object> store.handle).failure()
    if store.leaving_engine:
        return StoreFailed(f"the store of queue {name!r} is being deleted, and the queue with it")
    left = max(store.room - kept_bytes(store, 0, COMES_IN), 0)
    return StoreFull(f"the store of queue {name!r} is full: {left} bytes are left; take messages out, or allow it more bytes")


cdef int64_t message_bytes(const content_t* content, bint linked) noexcept:
    """The room that a message takes with the record of its end. `linked`: it may have an origin."""
    return <int64_t> (charge_of(enter_bytes(content, RECORD_RARE | RECORD_TIMED if linked else RECORD_TIMED))
                      + sizeof(settle_record_t))


cdef int64_t kept_bytes(const store_t* store, int64_t largest, int way) noexcept:
    """The room that a message leaves at this step. `largest`: bytes of the largest message that comes in now. As much as when it
    has come: else what is promised to several messages at once would not be there for the last of them."""
    largest = 2 * largest_with(store, largest)
    cdef int64_t kept = store.kept + largest
    if way >= MOVES_ON:
        kept >>= way
    elif way == COMES_IN and store.engine.store_count > 1:
        kept += store.kept >> 1
    return kept + (largest if store.copies_forward else 0)


cdef int way_within(const store_t* store, const entry_t* entry) except -1:
    """How far the message is on its way: it was moved within the store so often, or out of it into RAM and back, this time
    included."""
    cdef int way = 0
    cdef const store_t* behind = store_behind(entry)
    while behind == store and entry != NULL and way < ENDS:
        if entry.queue.store == store or entry.flags & OWNED != 0:
            way += MOVES_ON
        entry = entry.parent
    return way_from(store, behind, way)


cdef int way_from(const store_t* store, const store_t* behind, int within) noexcept:
    return COMES_IN if behind == NULL else within if behind == store else PASSES_IN


cdef bint store_takes(queue_t* queue, content_t* content, int way) noexcept:
    return store_takes_beside(queue, content, way, 0)


cdef bint store_takes_beside(queue_t* queue, content_t* content, int way, int64_t others) noexcept:
    cdef store_t* store = queue.store
    cdef int64_t bytes = USUAL_BYTES
    if store.leaving_engine:
        return False
    if content != NULL:
        bytes += message_bytes(content, True)
        bytes += kept_bytes(store, bytes, way)
    return takes(store, bytes + others)


cdef bint store_takes_letters(store_t* store, int64_t bytes, int64_t largest, int way) noexcept:
    return takes(store, letters_want(store, bytes, largest, way))


cdef int64_t letters_want(const store_t* store, int64_t bytes, int64_t largest, int way) noexcept:
    return store.promised + bytes + kept_bytes(store, largest, way)


cdef void letters_promise(store_t* store, int64_t bytes) noexcept:
    store.promised += bytes
    store.engine.has_promised = True


cdef void letters_forget(engine_t* engine) noexcept:
    cdef store_t* store = engine.stores
    engine.has_promised = False
    while store != NULL:
        store.promised = 0
        store = store.next


cdef int64_t letter_bytes(const content_t* content) noexcept:
    return 2 * USUAL_BYTES + message_bytes(content, True)       # it is measured before it has bounced


cdef bint store_takes_bytes(store_t* store, int64_t bytes) noexcept:
    return not store.leaving_engine and takes(store, bytes + kept_bytes(store, bytes, ENDS))


cdef bint takes(store_t* store, int64_t bytes) noexcept:
    if not store.failed and store.room >= bytes:
        return True
    if not store.refused and not store.failed and not store.is_changed:
        store_changed(store)            # tell the committer, which cleans the log if that helps
    if not store.failed and not strikes(ROOM, store.group):
        store.refused = max(store.refused, store.size_top + 1)
        store.refused_bytes = bytes if store.refused_bytes == 0 else min(store.refused_bytes, bytes)
    return False
