"""Records every entry of a durable queue, its end, and the state of the queue.

A queue whose counters changed is *touched*: it gets a STATE record when the group is sealed.

After a crash a message is in one place within its store. A MOVE sees to that in one of two ways:

    finite credit   writes only the ENTER in the target. It names its *origin*, the message in the nearest durable queue
                    upstream. The origin stays outstanding there, and the reader of the log hides it. A payment settles both,
                    in one group.
    INFINITE        writes the end of the one and the ENTER of the other, in one group.

First deliveries are not recorded one by one. The STATE of a queue has a watermark instead: ids up to it may have been handed out.
It is LOOK_AHEAD ids ahead of the last delivery, so that no delivered message comes back from a crash as new.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from xump_ext.log.adopt cimport adoptions_leave
from xump_ext.log.fences cimport end_is_held, end_waits, fence_push, fences_needed, log_mark, settle_or_fence
from xump_ext.log.live_sizes cimport live_add, live_remove
from xump_ext.log.marks cimport Owner, owner_mark, owner_of
from xump_ext.log.meta cimport map_leave
from xump_ext.log.owners cimport hides_when, owners_leave
from xump_ext.log.seen cimport seen_leave
from xump_ext.log.writer cimport (
    charge_of, enter_bytes, buffer_reserve, entry_charge, flags_made, gone_record, has_texts, is_timed, made_bytes,
    record_again, record_new, settle_record, store_queue, text_size, touch,
)
from xump_ext.memory.canaries cimport DELAY, strikes
from xump_ext.message.rewriter cimport Rewriter
from xump_ext.message.headers cimport (
    WITH_ANNEX, annex_bytes, annex_of, correlation_of, expires_of, headers_of, raw_text_of,
)
from xump_ext.records.kinds cimport (
    DOUBTFUL, ENTER, GONE, NO_TEXT, NOT_HIDING, OPTION_DROP_OLDEST, OPTION_DROP_TO_FIT,
    OPTION_KEEP_UNMATCHED, OPTION_STAGED, QUEUE, RECORD_AUTO_DELETE, RECORD_COPIED, RECORD_DEAD_ENTRY, RECORD_EXACT,
    RECORD_HISTORIC, RECORD_MARKED, RECORD_RARE, RECORD_REDELIVERED, RECORD_ROUTED, RECORD_TIMED, RECORD_UNROUTED,
    RECORD_UPSTREAM_FAILED, SETTLE, STATE, head_t, queue_record_t, rare_t, state_record_t, timed_t,
)
from xump_ext.records.record cimport delays_of, name_of, padded, payload_of, rare_of, timed_of
from xump_ext.state.constants cimport (
    APART, DEAD_ENTRY, FOREIGN, HISTORY, LINKED, LOGGED_NOTHING, LOGGED_ROUTED, NEVER, OWNED, REASON_COUNT, REDELIVERED, SHADOW,
    STAINED, TIMED, UNROUTED,
)
from xump_ext.state.envelope cimport field_name
from xump_ext.state.extra cimport is_out_of_turn
from xump_ext.state.graph cimport store_t
from xump_ext.state.index cimport index_from, index_get
from xump_ext.state.lazy_content cimport is_loaded
from xump_ext.state.window cimport window_count, window_t

cdef uint64_t SLACK = 4096          # reserved beside the ENTER itself, for a few small records


cdef int log_reserve(queue_t* queue, content_t* content) except -1:
    return log_reserve_all(queue.store, <int64_t> enter_bytes(content, RECORD_RARE | RECORD_TIMED))


cdef int log_reserve_all(store_t* store, int64_t bytes) except -1:
    bytes += SLACK
    if not store.failed and store.size + <uint64_t> bytes > store.capacity and not buffer_reserve(store, <uint64_t> bytes):
        raise MemoryError(f"no memory for {bytes} bytes of records of store {(<object> store.handle).name!r}")
    return 0


cdef char* text_put(char* at, const void* text, uint16_t* size) noexcept:
    cdef Py_ssize_t length
    cdef const char* bytes
    if text == NULL:
        size[0] = NO_TEXT
        return at
    bytes = raw_text_of(<object> text, &length)
    memcpy(at, bytes, length)
    size[0] = <uint16_t> length
    return at + length


cdef int log_enter(entry_t* entry) except -1:
    cdef store_t* store = entry.queue.store
    cdef const content_t* content = entry.content.loaded
    cdef int flags = RECORD_DEAD_ENTRY if entry.flags & DEAD_ENTRY else 0
    cdef enter_record_t* record
    cdef rare_t* rare
    cdef rare_t found
    cdef timed_t* timed
    cdef uint64_t length
    cdef uint16_t size
    cdef char* at
    touch(entry.queue)
    if origin_found(store, entry.parent, &found):
        entry.flags |= LINKED | (FOREIGN if found.origin_store or found.foreign else 0)
        if found.foreign & NOT_HIDING:
            found.foreign = <uint16_t> hides_when(entry)
    if entry.extra != NULL and entry.extra.delayed_until != NEVER:
        entry.flags |= TIMED
    length = made_bytes(entry)
    live_add(store, charge_of(length))
    store.resident += length
    flags |= RECORD_REDELIVERED if entry.flags & REDELIVERED else 0
    flags |= flags_made(entry) | (RECORD_RARE if has_texts(content) else 0) | (RECORD_TIMED if is_timed(content) else 0)
    record = <enter_record_t*> record_new(store, ENTER, flags, length, entry.queue.number, entry.id)
    if record == NULL:
        return 0
    record.timestamp = entry.timestamp
    record.payload_crc = 0
    record.body_bytes = content.body_bytes
    record.header_bytes = content.header_bytes
    record.header_count = content.header_count
    record.delivery_count = entry.delivery_count
    record.hops = entry.hops
    record.reserved = 0
    at = text_put(<char*> payload_of(record), content.address, &size)
    record.address_bytes = size
    rare = rare_of(record)
    if rare != NULL:
        at = text_put(at, content.reply_to, &size)
        found.reply_to_bytes = size
        at = text_put(at, content.message_id, &size)
        found.message_id_bytes = size
        at = text_put(at, content.destination, &size)
        found.destination_bytes = size
        rare[0] = found
    timed = timed_of(record)
    if timed != NULL:
        at = text_put(at, correlation_of(content), &size)
        timed[0] = timed_t(expires_of(content), NEVER, 0, 0, size, content.priority, [0] * 7)
        if entry.flags & TIMED and not strikes(DELAY, entry.sequence):
            timed.due = entry.extra.delayed_until
        if content.has_trailer == WITH_ANNEX:
            timed.annex_kind, timed.annex_bytes = <uint16_t> annex_of(content).kind, annex_bytes(content)
            memcpy(at, PyBytes_AS_STRING(<object> annex_of(content).data), timed.annex_bytes)
            at += timed.annex_bytes
    memcpy(at, headers_of(content), content.header_bytes)
    at += content.header_bytes
    memcpy(at, headers_of(content) + content.header_bytes if content.body_inline else PyBytes_AS_STRING(<object> content.body),
           content.body_bytes)
    at += content.body_bytes
    memset(at, 0, <char*> record + length - at)
    return 0


cdef int log_carried(queue_t* queue, const enter_record_t* old, bint anyway) except -1:
    """Copy the record of a live message forward, with its present delivery count and flags.

    `anyway`: its end is not in the log yet. Then it is copied even if no index has it, and is not HISTORIC.
    """
    cdef entry_t* entry = index_get(&queue.index, old.head.id)
    cdef enter_record_t* record
    if entry == NULL and not anyway:
        return 0
    record = <enter_record_t*> record_again(queue.store, &old.head)
    if record != NULL and tells_its_marks(entry, anyway):
        record.delivery_count = entry.delivery_count
        record.head.flags = old.head.flags & (RECORD_DEAD_ENTRY | RECORD_RARE | RECORD_TIMED)
        record.head.flags |= RECORD_REDELIVERED if entry.flags & REDELIVERED else 0
        if entry.extra != NULL and entry.extra.logged != LOGGED_NOTHING:
            record.head.flags |= RECORD_ROUTED if entry.extra.logged == LOGGED_ROUTED else RECORD_UNROUTED
        if entry.extra != NULL and entry.extra.copied:
            record.head.flags |= RECORD_COPIED
        if entry.state == HISTORY:
            record.head.flags = record.head.flags & ~RECORD_DEAD_ENTRY | RECORD_HISTORIC
            record.hops = entry.hops
    return 0


cdef bint tells_its_marks(const entry_t* entry, bint anyway) noexcept:
    # Of an end that the log has not heard of there is a shadow, or an entry in the history. What MARKs said of the message before
    # that, no entry says.
    return entry != NULL and not entry.flags & SHADOW and not (anyway and entry.state == HISTORY)


cdef bint origin_found(store_t* store, const entry_t* parent, rare_t* found) noexcept:
    """Find the origin: the nearest message upstream that a durable queue holds for this one. False: there is none.

    If the end of a message of this store waits behind fences, or that it was copied, a crash brings it back beside what it became
    here. Then it has to go on once more, for its copies may be missing in the other store; and what it became is doubtful.
    """
    cdef queue_t* queue
    cdef Owner owner
    cdef store_t* other = store.engine.gone_store
    cdef bint twice = other == store and store.engine.gone_held
    memset(found, 0, sizeof(rare_t))
    while parent != NULL and not parent.queue.durable and not parent.flags & OWNED:
        parent = parent.parent
    if parent == NULL:
        if other != NULL and (other != store or store.engine.gone_foreign or twice):
            # The end of that one, or a frontier past it, waits until this message is durable, so a crash may leave both.
            found.origin_store = 0 if other == store else other.salt
            if not twice:
                found.origin_queue, found.origin_id = store.engine.gone_queue, store.engine.gone_id
            found.foreign = DOUBTFUL if other == store else 0
        return found.origin_id != 0 or found.foreign
    if parent.flags & OWNED:
        owner = owner_of(parent)
        found.origin_queue = owner.queue
        found.origin_id = owner.id
        if owner.store != store:
            found.origin_store = owner.store.salt
        elif end_waits(store_queue(store, owner.queue), owner.id):
            found.foreign = DOUBTFUL | NOT_HIDING
        elif owner.foreign or twice:
            found.foreign = DOUBTFUL
    else:
        queue = parent.queue
        found.origin_queue = queue.number
        found.origin_id = parent.id
        if queue.store != store:
            found.origin_store = queue.store.salt
        elif end_is_held(parent):
            found.foreign = DOUBTFUL | NOT_HIDING
        elif parent.flags & FOREIGN or twice:
            found.foreign = DOUBTFUL
    return True


# ---- entries go

cdef int log_settle(entry_t* entry) except -1:
    """Record the end of an entry. The end of a shadow is recorded when the entry in RAM that it owns has ended."""
    cdef queue_t* queue = entry.queue
    touch(queue)
    if is_loaded(entry):
        queue.store.resident -= made_bytes(entry)
    if entry.flags & SHADOW:
        return 0
    if entry.flags & STAINED and queue.store.fence_count:       # a MARK may stand behind a fence, and must be logged before
        return fence_push(queue.store, SETTLE, queue.number, entry.id, entry_charge(entry),
                          RECORD_MARKED if entry.flags & STAINED else 0)
    return settle_or_fence(queue, entry.id, entry_charge(entry), entry.flags & STAINED != 0)


cdef int log_handed(entry_t* entry) except -1:
    cdef Owner owner
    while entry != NULL:
        if entry.queue.durable:
            handed(entry.queue, entry.id)
        elif entry.flags & OWNED:
            owner = owner_of(entry)
            handed(store_queue(owner.store, owner.queue), owner.id)
        entry = entry.parent
    return 0


cdef int log_taken_again(entry_t* entry) except -1:
    cdef uint16_t count = entry.delivery_count
    while entry != NULL:
        if entry.queue.durable:
            entry.delivery_count = count
            entry.flags |= REDELIVERED
            log_mark(entry)
        elif entry.flags & OWNED:
            owner_mark(owner_of(entry), count, RECORD_REDELIVERED)
        entry = entry.parent
    return 0


cdef inline void handed(queue_t* queue, uint64_t id) noexcept:
    if id > queue.handed:
        queue.handed = id
        if id > queue.promised:
            touch(queue)


# ---- queues

cdef int log_queue(queue_t* queue) except -1:
    """Write the QUEUE record: the queue is new, was renamed, or its record is copied forward."""
    cdef object name = (<object> queue.handle).name, group = field_name(&queue.group_field)
    cdef void* group_text = NULL if group is None else <void*> group
    cdef object rewriter = None if queue.rewriter == NULL else (
        f"{(<Rewriter> queue.rewriter).name}\0{<object> queue.rewriter_argument}")
    cdef void* rewriter_text = NULL if rewriter is None else <void*> rewriter
    cdef uint64_t length = padded(sizeof(queue_record_t) + queue.retry_count * sizeof(int64_t) + text_size(<void*> name)
                                  + text_size(queue.dead_letter) + text_size(group_text) + text_size(rewriter_text))
    cdef queue_record_t* record
    cdef char* at
    cdef uint16_t size
    record = <queue_record_t*> record_new(
        queue.store, QUEUE, RECORD_AUTO_DELETE if queue.auto_delete else 0, length, queue.number, 0)
    touch(queue)
    queue.described = queue.store.position
    if record == NULL:
        return 0
    memset(<char*> record + sizeof(head_t), 0, length - sizeof(head_t))
    queue_fill(record, queue)
    if queue.retry_count:
        memcpy(delays_of(record), queue.retry_delays, queue.retry_count * sizeof(int64_t))
    at = text_put(name_of(record), <void*> name, &size)
    record.name_bytes = size
    at = text_put(at, queue.dead_letter, &size)
    record.dead_letter_bytes = size
    at = text_put(at, group_text, &size)
    record.group_bytes = size
    if rewriter_text != NULL:
        text_put(at, rewriter_text, &size)
        record.rewriter_bytes = size
    return 0


cdef void queue_fill(queue_record_t* record, const queue_t* queue) noexcept:
    """Fill in the numbers of a QUEUE record."""
    cdef const window_t* window = <const window_t*> queue.window
    record.limit = queue.limit_given
    record.history_limit = queue.history_limit
    record.limit_bytes = queue.limit_bytes
    record.incarnation = queue.incarnation
    record.ttl = queue.ttl
    record.dedup = queue.dedup
    record.dedup_limit = queue.dedup_limit
    if window != NULL:
        record.dedup_key, record.dedup_more_key = window.key, window.more_key
    record.delivery_limit = queue.delivery_limit
    record.retry_count = queue.retry_count
    record.priority = <uint8_t> queue.top_priority
    record.options = (OPTION_DROP_OLDEST if queue.drops_oldest else 0) | (OPTION_DROP_TO_FIT if queue.drops_to_fit else 0) | (
        OPTION_KEEP_UNMATCHED if queue.keeps_unmatched else 0) | (OPTION_STAGED if queue.staged else 0)


cdef int log_queue_gone(queue_t* queue) except -1:
    """Record the end of the queue and of every message in it.

    Each message gets its own SETTLE, since a store that finds records by key knows no other way to delete them. Messages on
    their way to other stores have left the queue before, and their ends wait behind fences; then the GONE of the queue waits
    there, too.
    """
    cdef store_t* store = queue.store
    cdef object name = (<object> queue.handle).name
    cdef entry_t* entry = index_from(&queue.index, 1)
    cdef queue_t** link = &store.touched
    owners_leave(store, queue.number)
    while entry != NULL:
        if (entry.flags & STAINED and store.fence_count) or end_waits(queue, entry.id):
            fence_push(store, SETTLE, queue.number, entry.id, entry_charge(entry), RECORD_MARKED if entry.flags & STAINED else 0)
        else:
            settle_record(store, queue.number, entry.id, RECORD_MARKED if entry.flags & STAINED else 0, queue)
            live_remove(store, entry_charge(entry))
        if is_loaded(entry):
            store.resident -= made_bytes(entry)
        entry = index_from(&queue.index, entry.id + 1)
    if queue.window != NULL:
        seen_leave(queue, window_count(<const window_t*> queue.window))
    map_leave(queue)
    adoptions_leave(queue)
    if store.fence_count or fences_needed(store):
        if queue.touched:       # a crash may bring it back, and its last STATE may be that of an orderly end
            log_state(queue, 0)
        fence_push(store, GONE, queue.number, 0, 0, 0)
        (<dict> store.leaving)[queue.number] = name, queue.described, queue.stated
        (<dict> store.departed)[name] = queue.number, 0
    else:
        gone_record(store, queue.number)
        (<dict> store.departed)[name] = queue.number, store.group
    while queue.touched and link[0] != queue:
        link = &link[0].next_touched
    if queue.touched:
        link[0] = queue.next_touched
    del (<dict> store.queues)[queue.number]
    return 0


cdef int log_hands(queue_t* queue) except -1:
    """A message is about to be routed: say of those that your program took by hand before they were routed that they are not."""
    cdef entry_t* entry = queue.by_hand.head
    queue.hands_unsaid = False
    while entry != NULL:
        if entry.extra != NULL and entry.extra.logged == LOGGED_NOTHING and is_out_of_turn(entry):
            log_mark(entry)
        entry = entry.next
    return 0


cdef void frontier_forward(queue_t* queue) noexcept:
    """Move the frontier past all that was routed. It lags where entries ended before they were routed, and where they are routed
    by priority. Entries that are not routed though it is past them say so for themselves."""
    cdef entry_t* entry = index_from(&queue.index, queue.frontier) if queue.unrouted or queue.hands_unsaid else NULL
    while entry != NULL and not waits_in_turn(entry):
        entry = index_from(&queue.index, entry.id + 1)
    queue.frontier = queue.next_id if entry == NULL else entry.id


cdef inline bint waits_in_turn(const entry_t* entry) noexcept:
    """Whether the entry is not routed, and does not say so for itself. The index finds those that are not apart: the frontier
    stays before them, in any case."""
    if entry.state == UNROUTED and not entry.flags & APART:
        return True
    if entry.extra == NULL:
        return entry.state == UNROUTED
    if entry.extra.logged != LOGGED_NOTHING or entry.extra.delayed_until != NEVER:
        return False
    return entry.state == UNROUTED or is_out_of_turn(entry)


cdef void log_state(queue_t* queue, uint32_t closing) noexcept:
    """`closing`: a number of this orderly end: it is the last STATE before the store is closed, or 0. Then MARKs say which
    messages were handed out, so it has no watermark, and until when retries are delayed."""
    cdef state_record_t* record
    cdef int reason
    cdef int flags = RECORD_EXACT | (RECORD_UPSTREAM_FAILED if queue.engine.store_failed else 0) if closing else 0
    record = <state_record_t*> record_new(queue.store, STATE, flags, sizeof(state_record_t), queue.number, queue.next_id)
    if record == NULL:
        return
    queue.stated = queue.store.position
    frontier_forward(queue)
    if queue.handed and not closing:
        queue.promised = queue.handed + LOOK_AHEAD
    record.frontier = min(queue.frontier_safe, queue.frontier) if queue.frontier_waits else queue.frontier
    queue.frontier_logged = record.frontier
    record.handed = 0 if closing else queue.promised
    record.timestamp = queue.timestamp
    record.settled = queue.settled
    record.deleted = queue.deleted
    record.closing = closing
    record.reserved = 0
    memset(record.dropped, 0, sizeof(record.dropped))
    memset(record.dead_lettered, 0, sizeof(record.dead_lettered))
    for reason in range(REASON_COUNT):
        record.dropped[reason] = queue.dropped[reason]
        record.dead_lettered[reason] = queue.dead_lettered[reason]
