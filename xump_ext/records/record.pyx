"""Verifies the records of a log, finds them behind damage, and makes keys and values of a group.

`records/kinds.pxd` draws the records. Stores call these functions from Python, each on a whole buffer.
"""

from os import register_at_fork, urandom

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy

from xump_ext.memory.canaries cimport CHECKSUM
from xump_ext.message.times cimport NEVER
from xump_ext.records.crc cimport crc32c, crc32c_soft
from xump_ext.records.kinds cimport (
    ADOPT, ENTER, FORGET, GONE, GROUP, KEY_BYTES, MAGIC, MARK, META, QUEUE, RECORD_MARKED, SEEN, SETTLE, STATE,
    adopt_record_t, enter_record_t, group_record_t, head_t, mark_record_t, meta_record_t, queue_record_t, rare_t,
    seen_record_t, settle_record_t, state_record_t, timed_t,
)
from xump_ext.records.kinds import NAMES

cdef uint64_t RECORD_BYTES_MAX = <uint64_t> 1 << 31


cdef uint32_t head_bytes(const head_t* head) noexcept nogil:
    cdef uint32_t fixed
    if head.kind == ENTER:
        fixed = enter_fixed(head.flags)
        return fixed if head.length >= fixed else 0
    if head.kind == SETTLE:
        return sizeof(settle_record_t) if head.length == sizeof(settle_record_t) else 0
    if head.kind == MARK:
        return sizeof(mark_record_t) if head.length == sizeof(mark_record_t) else 0
    if head.kind == STATE:
        return sizeof(state_record_t) if head.length == sizeof(state_record_t) else 0
    if head.kind == GROUP:
        return sizeof(group_record_t) if head.length == sizeof(group_record_t) else 0
    if head.kind == SEEN:
        return sizeof(seen_record_t) if head.length == sizeof(seen_record_t) else 0
    if head.kind == GONE or head.kind == FORGET:
        return sizeof(head_t) if head.length == sizeof(head_t) else 0
    if head.kind == QUEUE:
        return head.length if head.length >= sizeof(queue_record_t) else 0
    if head.kind == META:
        return head.length if head.length >= sizeof(meta_record_t) else 0
    if head.kind == ADOPT:
        return head.length if head.length >= sizeof(adopt_record_t) else 0
    return 0


cdef bint queue_fits(const queue_record_t* record) noexcept nogil:
    """Whether the parts of a QUEUE record fill it up to its padding."""
    cdef uint64_t size = sizeof(queue_record_t) + <uint64_t> record.retry_count * sizeof(int64_t) + record.name_bytes
    size += text_bytes(record.dead_letter_bytes) + text_bytes(record.group_bytes) + record.rewriter_bytes
    size += record.meta_bytes
    return padded(size) == record.head.length


cdef uint32_t head_crc(const head_t* head, uint32_t salt) noexcept nogil:
    return crc32c(salt, <const char*> head + 4, head_bytes(head) - 4)


cdef inline bint enter_fits(const enter_record_t* record, uint32_t fixed) noexcept nogil:
    """Whether the parts fill the record up to its padding; `fixed`: its `head_bytes`."""
    cdef uint64_t size = fixed + <uint64_t> record.body_bytes + record.header_bytes + record.address_bytes
    cdef const rare_t* rare = rare_of(record)
    cdef const timed_t* timed = timed_of(record)
    if rare != NULL:
        size += text_bytes(rare.reply_to_bytes) + text_bytes(rare.message_id_bytes) + text_bytes(rare.destination_bytes)
    if timed != NULL:
        size += text_bytes(timed.correlation_id_bytes) + timed.annex_bytes
    return padded(size) == record.head.length


cdef int record_state(const char* at, uint64_t left, uint64_t position, uint32_t salt) noexcept nogil:
    cdef const head_t* head = <const head_t*> at
    cdef const enter_record_t* record = <const enter_record_t*> at
    cdef uint32_t fixed
    if left < sizeof(head_t):
        return RECORD_CUT
    if head.magic != MAGIC or head.position != position or head.length & 7 or head.length > RECORD_BYTES_MAX:
        return RECORD_NONE
    fixed = head_bytes(head)
    if fixed == 0:
        return RECORD_NONE
    if left < fixed:
        return RECORD_CUT
    if crc32c(salt, at + 4, fixed - 4) != head.crc or (head.kind == ENTER and not enter_fits(record, fixed)):
        return RECORD_NONE
    if left < head.length:
        return RECORD_CUT
    if head.kind == ENTER and not CHECKSUM and crc32c(salt, at + fixed, head.length - fixed) != record.payload_crc:
        return RECORD_PAYLOAD
    return RECORD_WHOLE


# ---- a log

STATES = {RECORD_WHOLE: "whole", RECORD_CUT: "cut", RECORD_NONE: "head", RECORD_PAYLOAD: "payload"}


def whole_records(data, uint64_t position, uint32_t salt, bint to_group=False):
    """How much of a piece of the log, which begins with a record, is whole records: (bytes, state, failed).

    Says what comes behind them as `whole_groups` (groups.pyx) does. `to_group`: stops before the next GROUP, with the state
    "whole". Verifies every crc. O(bytes), without the interpreter's lock.
    """
    cdef Py_buffer view
    cdef const char* at
    cdef uint64_t done = 0, size
    cdef int state = RECORD_WHOLE
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const char*> view.buf
        size = view.len
        with nogil:
            while done < size:
                state = record_state(at + done, size - done, position + done, salt)
                if state != RECORD_WHOLE or (to_group and (<const head_t*> (at + done)).kind == GROUP):
                    break
                done += (<const head_t*> (at + done)).length
    finally:
        PyBuffer_Release(&view)
    return done, STATES[state], position + done if state != RECORD_WHOLE else None


def next_group(data, uint64_t position, uint32_t salt):
    """The next head of a group in a piece of the log: (offset, bytes, synced), or None.

    Finds groups behind damage: it tries every multiple of 8 bytes, and does not look at the records of the group. O(bytes).
    """
    cdef Py_buffer view
    cdef const char* at
    cdef const group_record_t* group
    cdef uint64_t offset = (8 - (position & 7)) & 7, size
    cdef bint found = False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const char*> view.buf
        size = view.len
        with nogil:
            while offset + sizeof(group_record_t) <= size:
                group = <const group_record_t*> (at + offset)
                if (group.head.magic == MAGIC and group.head.kind == GROUP
                        and record_state(at + offset, size - offset, position + offset, salt) == RECORD_WHOLE):
                    found = True
                    break
                offset += 8
        return (offset, group.bytes, group.synced) if found else None
    finally:
        PyBuffer_Release(&view)


def next_record(data, uint64_t position, uint32_t salt):
    """The next record with a whole head: (offset, state, length), or None. As `next_group`, for repairs."""
    cdef Py_buffer view
    cdef const char* at
    cdef uint64_t offset = (8 - (position & 7)) & 7, size
    cdef int state = RECORD_NONE
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const char*> view.buf
        size = view.len
        with nogil:
            while offset + sizeof(head_t) <= size:
                if (<const head_t*> (at + offset)).magic == MAGIC:
                    state = record_state(at + offset, size - offset, position + offset, salt)
                    if state == RECORD_WHOLE or state == RECORD_PAYLOAD:
                        break
                offset += 8
        if state != RECORD_WHOLE and state != RECORD_PAYLOAD:
            return None
        return offset, STATES[state], (<const head_t*> (at + offset)).length
    finally:
        PyBuffer_Release(&view)


def record_whole(data, uint64_t position, uint32_t salt):
    """The state of the one record that a buffer should hold, at that position: "whole", "cut", "head" or "payload"."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return STATES[record_state(<const char*> view.buf, view.len, position, salt)]
    finally:
        PyBuffer_Release(&view)


# ---- single records

cdef enum:
    DRAWN = 32

cdef uint64_t drawn[<int> DRAWN]        # random numbers for new queues, of which as many are left
cdef int drawn_left = 0


cdef uint64_t incarnation_new() except 0:
    """A random number for a new queue: 63 bits, never 0. The system is asked for many at a time."""
    global drawn_left
    if drawn_left == 0:
        some = urandom(sizeof(drawn))
        memcpy(drawn, <const char*> some, sizeof(drawn))
        drawn_left = DRAWN
    drawn_left -= 1
    return drawn[drawn_left] >> 1 | 1


def _forget_drawn():
    """Called in the child of a fork, which must not have the numbers of its parent."""
    global drawn_left
    drawn_left = 0


register_at_fork(after_in_child=_forget_drawn)


def place_record(data, uint64_t position, uint32_t salt):
    """Writes a position, and the crc that goes with it, into the whole record at the start of a writable buffer."""
    cdef Py_buffer view
    cdef head_t* head
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        head = <head_t*> view.buf
        if view.len < <Py_ssize_t> sizeof(head_t) or not 0 < head_bytes(head) <= <uint64_t> view.len:
            raise ValueError("the buffer does not begin with a whole record")
        head.position = position
        head.crc = head_crc(head, salt)
    finally:
        PyBuffer_Release(&view)


# By the highest byte of a CRC: the one byte that makes such a CRC out of a CRC of 0. No two bytes make the same highest byte.
cdef unsigned char last_byte[256]


cdef void last_bytes_make() noexcept:
    cdef uint32_t i
    cdef unsigned char byte
    for i in range(256):
        byte = <unsigned char> i
        last_byte[crc32c_soft(0, &byte, 1) >> 24] = byte


last_bytes_make()


def salt_of(data):
    """The salt of a store, computed backwards from the crc of the record at the start of the buffer. None: there is no record.

    A damaged head gives a wrong salt, so ask several records. O(bytes of the head).
    """
    cdef Py_buffer view
    cdef const unsigned char* at
    cdef uint32_t left, size, i
    cdef unsigned char byte
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const unsigned char*> view.buf
        size = head_bytes(<const head_t*> at) if view.len >= <Py_ssize_t> sizeof(head_t) else 0
        if size == 0 or size > <uint64_t> view.len or (<const head_t*> at).magic != MAGIC:
            return None
        left = ~(<const head_t*> at).crc
        for i in range(size - 1, 3, -1):
            byte = last_byte[left >> 24]
            left = (left ^ crc32c_soft(0, &byte, 1)) << 8 | (byte ^ at[i])
        return <uint32_t> ~left
    finally:
        PyBuffer_Release(&view)


def crc(data, uint32_t seed=0):
    """The CRC-32C of a buffer, behind bytes whose CRC is `seed`. O(bytes)."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            seed = crc32c(seed, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return seed


def crc_soft(bytes data, uint32_t seed=0):
    """As `crc`, without the instruction, as machines without one compute it."""
    return ~crc32c_soft(~seed, data, len(data)) & 0xFFFFFFFF


cdef inline uint8_t key_kind(uint8_t kind) noexcept nogil:
    """The first byte of the keys of records of this kind; 0: they have no keys.

    Keys in order are records in an order in which they may be applied.
    """
    if kind == ENTER:
        return 3
    if kind == QUEUE or kind == STATE:
        return 1 if kind == QUEUE else 2
    return 4 if kind == MARK else 5 if kind == SEEN else 6 if kind == META else 7 if kind == ADOPT else 0


cdef inline uint64_t key_id(const head_t* head) noexcept nogil:
    """The id in the key of a record: a queue has one QUEUE, one STATE, one META and one ADOPT."""
    return head.id if head.kind == ENTER or head.kind == MARK or head.kind == SEEN else 0


cdef inline void key_fill(unsigned char* key, uint8_t kind, uint32_t queue, uint64_t id) noexcept nogil:
    """Writes numbers with their highest byte first, so that keys sort as their numbers do."""
    cdef int i
    key[0] = kind
    for i in range(4):
        key[1 + i] = <unsigned char> (queue >> (24 - 8 * i))
    for i in range(8):
        key[5 + i] = <unsigned char> (id >> (56 - 8 * i))


cdef bint key_write(const head_t* head, unsigned char* key) noexcept nogil:
    key_fill(key, key_kind(head.kind), head.queue, key_id(head))
    return key[0] != 0


cdef bytes record_key(uint8_t kind, uint32_t queue, uint64_t id):
    cdef bytes key = PyBytes_FromStringAndSize(NULL, KEY_BYTES)
    key_fill(<unsigned char*> PyBytes_AS_STRING(key), kind, queue, id)
    return key


def entry_key(queue, id):
    """The key of a message's ENTER record in a keyed store: keys of one queue are in order of id."""
    return record_key(key_kind(ENTER), queue, id)


# ---- a group as keys and values

cdef struct change_t:
    # `record` is put under the key of `id`; NULL: the keys from `id` to `last` are deleted.
    uint64_t id
    uint64_t last
    const head_t* record
    uint32_t queue
    uint8_t kind


cdef int by_key(const void* one, const void* other) noexcept nogil:
    """The order of keys; changes of one key stay in the order that they have in the group."""
    cdef const change_t* a = <const change_t*> one
    cdef const change_t* b = <const change_t*> other
    if a.kind != b.kind:
        return -1 if a.kind < b.kind else 1
    if a.queue != b.queue:
        return -1 if a.queue < b.queue else 1
    if a.id != b.id:
        return -1 if a.id < b.id else 1
    return -1 if a.record < b.record else a.record > b.record


cdef class Changes:
    """A growing list of changes, all puts or all deletions, that can be sorted by key."""

    cdef change_t* at
    cdef uint64_t count, room
    cdef bint in_order

    def __cinit__(self):
        self.in_order = True

    def __dealloc__(self):
        free(self.at)

    cdef int add(self, uint8_t kind, uint32_t queue, uint64_t id, uint64_t last, const head_t* record) except -1:
        cdef change_t* grown
        if self.count == self.room:
            grown = <change_t*> realloc(self.at, 2 * (self.room + 32) * sizeof(change_t))
            if grown == NULL:
                raise MemoryError
            self.at = grown
            self.room = 2 * (self.room + 32)
        self.at[self.count] = change_t(id, last, record, queue, kind)
        self.count += 1
        if self.count > 1 and by_key(&self.at[self.count - 2], &self.at[self.count - 1]) > 0:
            self.in_order = False
        return 0

    cdef void sort(self) noexcept:
        if not self.in_order:
            qsort(self.at, self.count, sizeof(change_t), by_key)

    cdef void join(self) noexcept:
        """Joins sorted ranges that meet."""
        cdef uint64_t i, used = 0
        cdef change_t* last
        for i in range(self.count):
            last = &self.at[used - 1]
            if (used and self.at[i].kind == last.kind and self.at[i].queue == last.queue
                    and (self.at[i].id <= last.last or self.at[i].id - 1 == last.last)):
                last.last = max(last.last, self.at[i].last)
            else:
                self.at[used] = self.at[i]
                used += 1
        self.count = used


def items(data):
    """The changes of a group in a keyed store: (puts, gone), each a list in order of the keys.

    `puts` has (key, record), each key once. `gone` has (first, last): all keys from first to last, both included, are deleted,
    and none of them is among the puts. `data` is a whole group, as `write` gets it. The QUEUE, STATE, META and ADOPT of a deleted
    queue are in `gone`; its messages were deleted before. O(records), and a sort where they are not in order.
    """
    cdef Py_buffer view
    cdef const head_t* head
    cdef uint64_t at = 0
    cdef uint8_t kind, entry = key_kind(ENTER)
    # Apart by their keys, since the entries of a group are in order of theirs, and its other records come in between.
    cdef Changes below = Changes(), entries = Changes(), above = Changes(), gone = Changes()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while at < <uint64_t> view.len:
            head = <const head_t*> (<char*> view.buf + at)
            kind = key_kind(head.kind)
            if head.kind == SETTLE:
                settled_add(gone, <const settle_record_t*> head)
            elif head.kind == GONE:
                gone.add(key_kind(QUEUE), head.queue, 0, 0, NULL)
                gone.add(key_kind(STATE), head.queue, 0, 0, NULL)
                gone.add(key_kind(SEEN), head.queue, 0, UINT64_MAX, NULL)
                gone.add(key_kind(META), head.queue, 0, 0, NULL)
                gone.add(key_kind(ADOPT), head.queue, 0, 0, NULL)
            elif head.kind == FORGET:
                gone.add(key_kind(SEEN), head.queue, 0, head.id, NULL)
            elif kind == entry:
                entries.add(kind, head.queue, head.id, 0, head)
            elif head.kind != GROUP:
                (below if kind < entry else above).add(kind, head.queue, key_id(head), 0, head)
            at += head.length
        gone.sort()
        gone.join()
        return listed_puts(below, gone) + listed_puts(entries, gone) + listed_puts(above, gone), listed_gone(gone)
    finally:
        PyBuffer_Release(&view)


cdef int settled_add(Changes gone, const settle_record_t* record) except -1:
    cdef uint64_t last = record.head.id + record.count - 1
    if record.count == 0:
        return 0
    if record.head.flags & RECORD_MARKED:
        gone.add(key_kind(MARK), record.head.queue, record.head.id, last, NULL)
    return gone.add(key_kind(ENTER), record.head.queue, record.head.id, last, NULL)


cdef list listed_puts(Changes puts, Changes gone):
    """The last record of each key, unless the key is deleted."""
    cdef list found = []
    cdef change_t* put
    cdef change_t* these
    cdef uint64_t i, next_gone = 0
    puts.sort()
    for i in range(puts.count):
        put = &puts.at[i]
        while next_gone < gone.count and ends_before(&gone.at[next_gone], put):
            next_gone += 1
        these = &gone.at[next_gone]
        if next_gone < gone.count and these.kind == put.kind and these.queue == put.queue and these.id <= put.id:
            continue
        if i + 1 < puts.count and same_key(put, &puts.at[i + 1]):
            continue
        found.append((record_key(put.kind, put.queue, put.id),
                      PyBytes_FromStringAndSize(<const char*> put.record, put.record.length)))
    return found


cdef inline bint same_key(const change_t* one, const change_t* other) noexcept nogil:
    return one.id == other.id and one.queue == other.queue and one.kind == other.kind


cdef inline bint ends_before(const change_t* these, const change_t* put) noexcept nogil:
    if these.kind != put.kind:
        return these.kind < put.kind
    if these.queue != put.queue:
        return these.queue < put.queue
    return these.last < put.id


cdef list listed_gone(Changes gone):
    cdef list found = []
    cdef change_t* these
    cdef uint64_t i
    for i in range(gone.count):
        these = &gone.at[i]
        found.append((record_key(these.kind, these.queue, these.id), record_key(these.kind, these.queue, these.last)))
    return found


def describe(data, uint64_t at=0):
    """The record that begins at that byte of a buffer, as a dict, for people. Its crc is not verified."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if at + sizeof(head_t) > <uint64_t> view.len:
            raise ValueError(f"a record has at least {sizeof(head_t)} bytes, there are {view.len - <int64_t> at}")
        return described(<const head_t*> (<const char*> view.buf + at), view.len - at)
    finally:
        PyBuffer_Release(&view)


cdef dict described(const head_t* head, uint64_t left):
    cdef const enter_record_t* enter = <const enter_record_t*> head
    cdef const state_record_t* state = <const state_record_t*> head
    cdef const queue_record_t* queue = <const queue_record_t*> head
    cdef const group_record_t* group = <const group_record_t*> head
    cdef const rare_t* rare
    cdef const timed_t* timed
    cdef dict found = {"kind": NAMES.get(head.kind, f"kind {head.kind}"), "queue": head.queue, "id": head.id,
                       "position": head.position, "length": head.length, "flags": head.flags}
    if head_bytes(head) == 0 or head_bytes(head) > left:
        return found
    if head.kind == ENTER:
        rare = rare_of(enter)
        found.update(timestamp=enter.timestamp, body_bytes=enter.body_bytes, hops=enter.hops, delivery_count=enter.delivery_count,
                     origin=(rare.origin_store, rare.origin_queue, rare.origin_id) if rare != NULL and rare.origin_id else None)
        timed = timed_of(enter)
        if timed != NULL:
            found.update(expires=None if timed.expires == NEVER else timed.expires, due=None if timed.due == NEVER else timed.due,
                         priority=timed.priority, annex_kind=timed.annex_kind or None)
        if head.length <= left and enter_fits(enter, head_bytes(head)):
            found["address"] = PyUnicode_DecodeUTF8(payload_of(enter), enter.address_bytes, "replace")
    elif head.kind == SETTLE:
        found["count"] = (<const settle_record_t*> head).count
    elif head.kind == MARK:
        found["delivery_count"] = (<const mark_record_t*> head).delivery_count
    elif head.kind == STATE:
        found.update(next_id=head.id, frontier=state.frontier, handed=state.handed, settled=state.settled)
    elif head.kind == QUEUE and head.length <= left and queue_fits(queue):
        found["name"] = PyUnicode_DecodeUTF8(name_of(queue), queue.name_bytes, "replace")
    elif head.kind == GROUP:
        found.update(count=group.count, bytes=group.bytes, synced=group.synced)
    elif head.kind == ADOPT:
        found.update(count=(<const adopt_record_t*> head).count, first_id=(<const adopt_record_t*> head).first_id)
    elif head.kind == META:
        found.update(count=(<const meta_record_t*> head).count, bytes=(<const meta_record_t*> head).bytes)
    return found
