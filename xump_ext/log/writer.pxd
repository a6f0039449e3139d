"""Declarations of `writer.pyx`, how a record is begun, and how an entry refers to a content in the store."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from xump_ext.message.headers cimport annex_bytes, content_t, correlation_of, raw_text_of
from xump_ext.records.kinds cimport MAGIC, RECORD_RARE, RECORD_TIMED, head_t, settle_record_t
from xump_ext.records.record cimport enter_fixed, padded
from xump_ext.state.constants cimport LINKED, TIMED
from xump_ext.state.graph cimport engine_t, entry_t, queue_t, store_t
from xump_ext.state.lazy_content cimport is_loaded

cdef enum:
    LENGTH_BITS = 12        # of the length class of a record: 5 of exponent, 7 of mantissa

# Grows the buffer so that so many bytes more fit. False: there is no memory, and nothing has changed.
cdef bint buffer_reserve(store_t* store, uint64_t bytes) noexcept
# The same for a record that must be written now. Without memory the store fails: False.
cdef bint grow(store_t* store, uint64_t bytes) noexcept
# There was no memory for records of the open group: the store fails.
cdef void records_lost(store_t* store) noexcept
# Puts the store on the engine's list of changed stores.
cdef void store_changed(store_t* store) noexcept

cdef inline void touch(queue_t* queue) noexcept:
    """The open group gets a STATE of the queue when it is sealed."""
    cdef store_t* store = queue.store
    if not queue.touched:
        queue.touched = True
        queue.next_touched = store.touched
        store.touched = queue
    if not store.is_changed:
        store_changed(store)

cdef inline head_t* record_new(store_t* store, int kind, int flags, uint64_t length, uint32_t queue, uint64_t id) noexcept:
    """Begin a record behind the last one and return its head; NULL when the store has failed."""
    cdef head_t* head
    if store.failed or (store.size + length > store.capacity and not grow(store, length)):
        return NULL
    head = <head_t*> (store.data + store.size)
    head.magic = MAGIC
    head.kind = <uint8_t> kind
    head.flags = <uint8_t> flags
    head.length = <uint32_t> length
    head.queue = queue
    head.position = store.position + store.size
    head.id = id
    store.size += length
    store.records += 1
    store.room -= <int64_t> length
    if not store.is_changed:
        store_changed(store)
    return head

cdef void settle_record(store_t* store, uint32_t number, uint64_t id, int flags, queue_t* queue) noexcept
# `due` and `closing`: of a message that a retry delays until then, at an orderly end; NEVER and 0: of none.
cdef void mark_record(
    store_t* store, uint32_t queue, uint64_t id, uint64_t delivery_count, int flags, int64_t due, uint32_t closing) noexcept
cdef void gone_record(store_t* store, uint32_t number) noexcept
# Writes a record of the log once more.
cdef head_t* record_again(store_t* store, const head_t* old) noexcept

cdef inline bint has_texts(const content_t* content) noexcept:
    """Whether it has texts beside its address."""
    return content.reply_to != NULL or content.message_id != NULL or content.destination != NULL

cdef inline bint is_timed(const content_t* content) noexcept:
    """Whether it says something of time, priority or what it answers."""
    return content.has_trailer or content.priority

cdef inline uint64_t charge_of(uint64_t length) noexcept:
    """Bytes that a message takes of its store, if its ENTER is so long."""
    return class_bytes(length_class(length))

cdef inline uint64_t text_size(const void* text) noexcept:
    """Bytes of a str in UTF-8, which was checked when the message was made; 0 for NULL."""
    cdef Py_ssize_t size = 0
    if text != NULL:
        raw_text_of(<object> text, &size)
    return size

cdef inline uint64_t enter_bytes(const content_t* content, int flags) noexcept:
    """The length of the ENTER of a message with this content. Of the flags RARE and TIMED count."""
    cdef uint64_t size = <uint64_t> content.header_bytes + content.body_bytes + text_size(content.address)
    if has_texts(content):
        flags |= RECORD_RARE
    if flags & RECORD_RARE:
        size += text_size(content.reply_to) + text_size(content.message_id) + text_size(content.destination)
    if is_timed(content):
        flags |= RECORD_TIMED
        size += text_size(correlation_of(content)) + annex_bytes(content)
    return padded(size + enter_fixed(flags))

cdef inline int flags_made(const entry_t* entry) noexcept:
    """The flags RARE and TIMED of its ENTER, as far as its content does not tell."""
    return (RECORD_RARE if entry.flags & LINKED else 0) | (RECORD_TIMED if entry.flags & TIMED else 0)

cdef inline uint64_t made_bytes(const entry_t* entry) noexcept:
    """The length of the ENTER of an entry whose content is in memory."""
    return enter_bytes(entry.content.loaded, flags_made(entry))

cdef inline uint64_t entry_charge(const entry_t* entry) noexcept:
    """Bytes that a message takes of its store."""
    if is_loaded(entry):
        return charge_of(made_bytes(entry))
    return class_bytes((entry.content.bits >> 2) & ((1 << LENGTH_BITS) - 1))

cdef inline void went_to(engine_t* engine, const queue_t* queue) noexcept:
    """The current message entered this queue: in other stores that it came from, its end is logged when this is durable."""
    if queue.durable:
        engine.entered_stores |= <uint64_t> 1 << queue.store.slot

cdef inline queue_t* store_queue(store_t* store, uint32_t number) except? NULL:
    """The queue of that number; NULL: it was deleted."""
    return <queue_t*> <uintptr_t> (<dict> store.queues).get(number, 0)

# ---- contents that are not in memory

cdef inline content_t* stored_content(uint64_t position, uint64_t length) noexcept:
    """The reference, in an entry, to a content in the store: the position of its record, and the class of the record's length.

        63                      14  13              2  1   0
        position of the record / 8   class of its length   1 0
    """
    return <content_t*> <uintptr_t> ((position >> 3) << (LENGTH_BITS + 2) | length_class(length) << 2 | 2)

cdef inline uint64_t stored_position(const entry_t* entry) noexcept:
    return entry.content.bits >> (LENGTH_BITS + 2) << 3

cdef inline uint64_t length_class(uint64_t length) noexcept:
    """The lowest class for records of this length: one for each multiple of 8 below 1 KiB, then 128 for each doubling."""
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
